# Functions for the test scripts. A script sources this file, defines its tests and calls run_tests.
#   sh test/ROOM/NAME.sh [FOLDER...] [WORD...]
# FOLDER: build/CONFIG (build/release) has the programs, build/emu... (build/emu) the emulated GPU trainer.
# WORD: only tests run whose names contain one of the words.
# A test is a function. It fails if it leaves a message in $problem (see note). It sets $skip to a reason if it cannot
# run here. Its own folder is $dir; all tests of the script share $root. $long is not empty in `scripts/test.sh long`.
export LC_ALL=C # numbers have a point, messages of the system are English
root=$(mktemp -d)
# Ends what tests have started, which inherits the variable that is set below, and removes the folder.
clean() {
    set +f
    kill $(grep -lszxF "XDG_CACHE_HOME=$root/cache" /proc/[0-9]*/environ | cut -d / -f 3) 2>/dev/null
    rm -rf "$root"
}
trap clean EXIT
trap 'exit 143' INT TERM HUP # dash that dies of a signal runs no EXIT trap
passed=0 failed=0 skipped=0 long=${long:-}
build=build/release emu=build/emu chosen=
for argument; do
    case $argument in
    */emu*) emu=$argument ;;
    */*) build=$argument ;;
    *) chosen="$chosen $argument" ;;
    esac
done
train="$build/train_gpt2" prepare="$build/prepare" cuda="$emu/train_gpt2cu"
export GOMP_SPINCOUNT=100 # several programs share the cores: threads that wait spin but a moment

run_test() { # NAME
    case " $chosen " in "  ") ;; *)
        found=
        for word in $chosen; do case $1 in *"$word"*) found=1 ;; esac; done
        [ -n "$found" ] || return 0 ;;
    esac
    problem='' skip='' dir="$root/$1" start=$(date +%s)
    mkdir -p "$dir"
    "$1"
    seconds=$(($(date +%s) - start))
    if [ -n "$problem" ]; then failed=$((failed + 1)); echo "FAILED  $1 ($seconds s): $problem"
    elif [ -n "$skip" ]; then skipped=$((skipped + 1)); echo "skipped $1: $skip"
    else passed=$((passed + 1)); echo "passed  $1 ($seconds s)"; fi
    rm -rf "$dir"
}

# Runs the tests of the script, the functions whose first line is `name() {` and nothing else, and counts them.
run_tests() {
    for t in $(sed -n 's/^\([a-z_0-9]*\)() {$/\1/p' "$0"); do run_test "$t"; done
    end_tests
}
end_tests() { # prints the counts; returns 1 if a test failed, or if none has a chosen name
    [ $((passed + failed + skipped)) -gt 0 ] || { failed=1; echo "FAILED  no test has such a name"; }
    echo "$(basename "$0" .sh): $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

# note MESSAGE: the test fails with this message, and with those of other calls
note() { problem="${problem:+$problem; }$*"; }

# limited command...: runs a command for at most half an hour: then it is killed, with exit code 124. A shell function
# limits itself.
limited() {
    case $(command -v "$1") in */*) timeout -k 10 1800 "$@" ;; *) "$@" ;; esac
}

# expect CODE 'words' command...: the test fails unless the command exits with CODE and prints the words, to standard
# output or standard error. These are kept in $dir/out and $dir/err.
expect() {
    code=$1 words=$2
    shift 2
    limited "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || note "exit code $got, not $code, of: $* ($(tail -n 1 "$dir/err"))"
    grep -qF -- "$words" "$dir/err" "$dir/out" || note "no '$words' from: $* (last line: $(tail -n 1 "$dir/err"))"
}

# must command...: the test fails if the command does. Its output is kept as by expect.
must() { limited "$@" >"$dir/out" 2>"$dir/err" || note "failed: $* ($(tail -n 1 "$dir/err"))"; }

# await PATTERN FILE [PID]: waits until a line of FILE matches PATTERN. The test fails if the process ends before, or
# after ten minutes.
await() {
    for i in $(seq 6000); do
        grep -qs -- "$1" "$2" && return 0
        if [ -n "${3:-}" ] && ! kill -0 "$3" 2>/dev/null; then
            grep -qs -- "$1" "$2" && return 0
            break
        fi
        sleep 0.1
    done
    note "never in $2: $1"
    return 1
}

# finish PID: waits for the end of a process that this shell started, and returns its exit code. After ten minutes the
# process is killed, and the test fails.
finish() {
    for i in $(seq 6000); do
        case $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) in '' | Z) break ;; esac # none, or a zombie
        [ "$i" != 6000 ] || { note "process $1 did not end"; kill -KILL "$1"; }
        sleep 0.1
    done
    wait "$1"
}

# ends CODE PID [LOG]: waits for a process as finish. The test fails unless its exit code is CODE; the message has the
# end of its LOG, $dir/err if none is given.
ends() {
    finish "$2"
    got=$?
    [ "$got" = "$1" ] || note "exit code $got, not $1: $(tail -n 2 "${3:-$dir/err}")"
}

# losses LOG: prints a line for each step: its number, loss and norm, the last ones of a step that was done again
losses() {
    sed -n 's/^step *\([0-9]*\)\/.* loss \([^ ]*\) .*norm \([^ ]*\) .*/\1 \2 \3/p' "$1" |
        awk '{ line[$1] = $0; if ($1 > most) most = $1 }
            END { for (i = 0; i <= most; i++) if (i in line) print line[i] }'
}

# records RUN: prints metrics.jsonl without the records that later ones supersede: a start does the steps after its
# config record again, and of a kind and a step (of eval also a name) the last record counts
records() {
    LC_ALL=C awk '
        !/}$/ || !match($0, /"step":[0-9]+/) { next }
        { step = substr($0, RSTART + 7, RLENGTH - 7) + 0; match($0, /"kind":"[a-z]*"/) }
        { kind = substr($0, RSTART + 8, RLENGTH - 9); name = kind == "eval" && match($0, /"name":"[^"]*"/) }
        { key = kind " " step; if (name) key = key substr($0, RSTART, RLENGTH) }
        kind == "config" { for (i = 1; i <= n; i++) if (steps[i] > step && kinds[i] !~ /config|end/) delete line[i] }
        kind !~ /config|end/ && key in last { delete line[last[key]] }
        { line[++n] = $0; steps[n] = step; kinds[n] = kind; last[key] = n }
        END { for (i = 1; i <= n; i++) if (i in line) print line[i] }' "$1/metrics.jsonl"
}

# core_folder FOLDER: makes a folder of CORE's tasks, each with a few made-up items of its form
core_folder() {
    for task in world_knowledge/jeopardy_all:b/answers world_knowledge/bigbench_qa_wikidata:b/answers \
        world_knowledge/arc_easy:a/choices world_knowledge/arc_challenge:a/choices \
        commonsense_reasoning/copa:a/choices commonsense_reasoning/commonsense_qa:a/choices \
        commonsense_reasoning/piqa:a/choices commonsense_reasoning/openbook_qa:a/choices \
        language_understanding/lambada_openai:b/words language_understanding/hellaswag:a/choices \
        language_understanding/winograd_wsc:b/schema language_understanding/winogrande:b/schema \
        language_understanding/bigbench_language_identification:a/choices \
        symbolic_problem_solving/bigbench_dyck_languages:b/answers symbolic_problem_solving/agi_eval_lsat_ar:a/long \
        symbolic_problem_solving/bigbench_cs_algorithms:b/answers \
        symbolic_problem_solving/bigbench_operators:b/answers \
        symbolic_problem_solving/bigbench_repeat_copy_logic:b/answers \
        reading_comprehension/squad:b/answers reading_comprehension/coqa:b/words reading_comprehension/boolq:a/long; do
        mkdir -p "$1/eval_data/${task%/*/*}"
        cp "test/golden/eval/core/${task#*:}.jsonl" "$1/eval_data/${task%:*}.jsonl"
    done
}

# values_of NAME FILE: prints the values of NAME, in order, from a JSON file that has each on a line of its own
values_of() { sed -n "s/^ *\"$1\": //p" "$2" | sed 's/,$//; s/^"//; s/"$//'; }

# same_checkpoint FOLDER FOLDER: the test fails unless weights and moments of two checkpoints have the same bits
same_checkpoint() {
    for file in model.safetensors optimizer.safetensors; do
        [ -f "$1/$file" ] || note "there is no $1/$file"
        cmp -s "$1/$file" "$2/$file" || note "$file differs between $1 and $2"
    done
}

# go_on PROGRAM RUN STEP FOLDER OPTION...: goes on in a new folder from a run's checkpoint of this step
go_on() {
    program=$1 copy=$4
    mkdir "$copy"
    cp -r "$2/step_$(printf %08d "$3")" "$2/metrics.jsonl" "$copy"
    shift 4
    must "$program" --out "$copy" --resume auto "$@"
}

# all_digits RUN [STEPS]: prints kind, step, loss and norm of each step of a run, or of its first STEPS, and kind, step,
# loss and loss of each validation, unrounded
all_digits() {
    records "$1" | sed -n 's/.*"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),.*/train \1 \2 \3/p
        s/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/val \1 \2 \2/p' |
        awk -v most="${2:-1000000}" '$2 <= most'
}

same_digits() { [ -n "$(all_digits "$1")" ] && [ "$(all_digits "$1")" = "$(all_digits "$2")" ]; } # RUN RUN

# near RUN RUN TOLERANCE [STEPS]: losses, norms and validation losses of two runs agree, relative
near() {
    all_digits "$1" "${4:-}" >"$dir/digits"
    all_digits "$2" "${4:-}" | paste -d ' ' "$dir/digits" - >"$dir/both"
    awk -v most="$3" '
        { for (i = 3; i <= 4; i++) { d = $i / $(i + 4) - 1; if (d < 0) { d = -d }; if (d > most) bad = 1 }
          if (NF != 8 || $1 != $5 || $2 != $6) bad = 1 }
        END { exit bad || !NR }' "$dir/both" || note "$1 is not within $3 of $2: $(head -n 3 "$dir/both")"
}

processes_of() { # FOLDER: prints the ids of the processes that have the folder as an argument
    echo "$1" >"$dir/argument" # in a file, so that grep does not find itself
    set +f
    grep -slzxF -f "$dir/argument" /proc/[0-9]*/cmdline | cut -d / -f 3
    set -f
}
rank_pid() { # FOLDER RANK
    for p in $(processes_of "$1"); do
        grep -sqzxE "(OMPI_COMM_WORLD_RANK|RANK)=$2" "/proc/$p/environ" && { echo "$p"; return; }
    done
}

# begin command...: starts a command in the background, as process $pid. Its output goes where that of expect goes, and
# what another command left there is gone, so that await does not find it.
begin() {
    rm -f "$dir/out" "$dir/err"
    "$@" >"$dir/out" 2>"$dir/err" &
    pid=$!
}

# small_disk SIZE FOLDER: mounts an empty file system of this size on it. Where that cannot be, it fails and sets skip.
small_disk() {
    mount -t tmpfs -o size="$1" none "$2" 2>/dev/null || { skip='cannot mount a small file system here'; false; }
}

# signal_rank SIGNAL FOLDER RANK: sends a signal to a rank of the run of this folder. If there is none, the test fails,
# and the run ends, for which the test is going to wait.
signal_rank() {
    rank=$(rank_pid "$2" "$3")
    if [ -n "$rank" ]; then kill -s "$1" "$rank"
    else
        note "no rank $3 of $2 among $(processes_of "$2")"
        kill -KILL $(processes_of "$2")
    fi
}

# options of a small model on bytes; later options override them. To tune takes longer than a short run.
small="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --batch_size 4 --seq_len 32 --lr 3e-3 --sample_every 0 \
    --threads 2 --tune 0"
export XDG_CACHE_HOME="$root/cache" # what is tuned is kept there
corpus() { # makes the built-in corpus in bytes, once, and sets $data to the options that read it
    [ -f "$root/corpus_val.json" ] ||
        "$prepare" --stories 120000 --tokenizer bytes --val_size 6000 --out "$root/corpus" >/dev/null 2>&1
    data="--train_data $root/corpus_train_*.bin --val_data $root/corpus_val_*.bin"
}
quiet="--val_every 0 --sample_every 0"
ranks() { n=$1; shift; timeout 600 mpirun -np "$n" "$@"; } # N command...: a run that hangs fails after 600 s
# unlike 'COMMAND' 'COMMAND': two ranks, each with a command line of its own, which ends with exec. (Open MPI 5.0.7
# crashes at `mpirun A : B`.)
unlike() {
    timeout 600 mpirun -np 2 sh -fc 'case $OMPI_COMM_WORLD_RANK in 0) eval "$0" ;; *) eval "$1" ;; esac' "$@"
}
export OMPI_MCA_mpi_yield_when_idle=1 # processes that wait leave the cores to others
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 4, 5
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -f # the programs expand globs, not the shell
