# Functions for the test scripts. A script sets `chosen` to the words that names of tests must contain (none: all), sources
# this, defines its tests and calls run_tests and end_tests. A test is a function that leaves a message in $problem if it
# fails, or a reason in $skip if it cannot run here. Its own folder is $dir; $root is shared by all tests of the script.
# $long is not empty in `scripts/test.sh long`.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
passed=0 failed=0 skipped=0 long=${long:-}
export OMP_WAIT_POLICY=passive # several programs share the machine here

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

# every function of a script whose first line is `name() {` and nothing else is a test
run_tests() { # SCRIPT
    for t in $(sed -n 's/^\([a-z_0-9]*\)() {$/\1/p' "$1"); do run_test "$t"; done
}
end_tests() { # NAME: prints the counts, and gives the exit code
    [ $((passed + failed + skipped)) -gt 0 ] || { failed=1; echo "FAILED  no test has such a name"; }
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}

note() { problem="${problem:+$problem; }$*"; }

# expect CODE 'words' command...: the exit code, and words on standard error (or output, if it says none there)
expect() {
    code=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || note "exit code $got, not $code, of: $* ($(tail -n 1 "$dir/err"))"
    grep -qF -- "$words" "$dir/err" "$dir/out" || note "no '$words' from: $* (but: $(tail -n 1 "$dir/err"))"
}

must() { "$@" >"$dir/out" 2>"$dir/err" || note "failed: $* ($(tail -n 1 "$dir/err"))"; }

# await PATTERN FILE [PID]: waits until the pattern is there. It fails when the process has ended without it, or after
# ten minutes.
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

# the losses and norms of the steps in a log, one step a line
losses() { sed -n 's/^step *\([0-9]*\)\/.* loss \([^ ]*\) .*norm \([^ ]*\) .*/\1 \2 \3/p' "$1"; }

# values_of NAME FILE: the values of that name in a JSON file that has a line for each, in order
values_of() { sed -n "s/^ *\"$1\": //p" "$2" | sed 's/,$//; s/^"//; s/"$//'; }

# same_checkpoint FOLDER FOLDER: two checkpoints have the same weights and moments, bit by bit
same_checkpoint() {
    for file in model.safetensors optimizer.safetensors; do
        cmp -s "$1/$file" "$2/$file" || note "$file differs between $1 and $2"
    done
}

# a small model on bytes; more options follow
small="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --batch_size 4 --seq_len 32 --lr 3e-3 --sample_every 0 --threads 2"
corpus() { # the built-in corpus in bytes, made once
    [ -f "$root/corpus_val.json" ] || "$prepare" --stories 120000 --tokenizer bytes --val_size 6000 --out "$root/corpus" >/dev/null 2>&1
    data="--train_data $root/corpus_train_*.bin --val_data $root/corpus_val_*.bin"
}
set -f # globs are for the programs
