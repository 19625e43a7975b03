#!/bin/sh
# Runs every test that needs no GPU. Prints progress, the reason for each skip, the seconds of each group and, at the
# end, the failures again. The last line is `N passed, N failed, N skipped`. Installs missing packages (setup.sh).
# usage: sh scripts/test.sh [quick | [long] [GROUP...]]
#   (nothing)   all groups: 8 to 14 minutes on two cores
#   quick       the test programs, a small run on each backend, how a user begins (scripts): 90 s
#   long        all groups, or those given, each at full length: hours
#   GROUP...    some groups; an unknown name prints their names
# Logs are kept in build/log/GROUP.
set -u
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
CDPATH='' cd "$(dirname "$0")/.."

# Three groups run at a time, started in this order: long ones first, and beside them those that mostly wait.
all="gpu_training ranks faults gpu_kernels sanitize unit resume gpus gpu_tuning emulated_check full_size \
    emulator traffic requests gpu_script headers worlds learning bench hosts run_scripts precision options \
    commands scripts fetch mutate gpu_device scores reports forecast inspect tokenizer shards prepare portable \
    spills sass cudnn offload"
counted="gpu_kernels gpu_training gpu_tuning gpu_device gpus run_scripts" # by coverage: the lines that ran in these
only_long="plants plain aarch64 fuzz lint thread memcheck"
long= # not empty: full length; read by the scripts and functions below
case ${1:-} in
"") groups="$all coverage" ;;
long) shift && groups=${*:-$all $only_long coverage} long=1 ;;
quick) [ $# = 1 ] || { echo "error: quick takes no groups" >&2; exit 2; } && groups="unit smoke scripts" ;;
*) groups=$* ;;
esac
for g in $groups; do
    case " build smoke $only_long coverage $all " in *" $g "*) continue ;; esac
    echo "error: no group '$g'; there are: build smoke" $only_long coverage $all >&2
    exit 2
done
for g in $counted; do
    case " $groups " in *" $g "*) ;; *" coverage "*) groups="$g $groups" ;; esac
done
export long

# Without a GPU here, the GPU trainer is built for those GPUs and types that it was built for before, on a clean
# checkout for one and without fp16's kernels, which are bf16's: each takes nvcc half a minute. `long`: for those that
# make chooses.
if [ -z "$long" ] && [ -z "${GPU:-}" ] && ! nvidia-smi -L >/dev/null 2>&1; then
    GPU=$(grep -so 'code=sm_[0-9a-z]*' build/release/cuda_settings | cut -d _ -f 2 | grep . || echo 90)
    CUDA_TYPES=$(cat build/release/cuda_link_settings 2>/dev/null || echo fp32 bf16)
    export CUDA_TYPES
fi
export GPU="${GPU:-}"

processor_has() { grep -qsw "$1" /proc/cpuinfo; } # INSTRUCTIONS, as Linux calls them

# Likewise the CPU's kernels: for the levels that run here (llmc/cpu/processor.h; with AVX512_BF16 AMX is emulated), and
# those that were built before. The group headers compiles the others without optimization.
other_levels=
if [ -z "$long" ] && [ -z "${LEVELS:-}" ] && [ "$(uname -m)" = x86_64 ]; then
    LEVELS="generic avx2"
    for l in avx512:avx512vl avx512_bf16:avx512_bf16 amx:avx512_bf16; do # level:what it needs
        if processor_has "${l#*:}" || [ -e "build/release/cpu/bf16/${l%:*}.o" ]; then
            LEVELS="$LEVELS ${l%:*}"
        else
            other_levels="$other_levels ${l%:*}"
        fi
    done
    export LEVELS
fi

sh scripts/setup.sh c++:g++ mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 \
    curl:curl || exit 1

# ----------------------------------------------------------------------------------------------------------------------
# groups: each is a function. If its last line has counts of tests, they are added up; otherwise the group counts as one
# test. Exit code 77: skipped.

jobs=$(nproc 2>/dev/null || echo 1)
# Runs a command for at most three hours, in `long` three days: then it is killed, with all that it started.
limited() { timeout -k 60 "$([ -n "$long" ] && echo 72h || echo 3h)" "$@"; }
compile() { make -s -j "$jobs" "$@"; }
# Builds the emulated GPU trainer, once for all groups that use it. It counts the lines that run.
emu=build/emu-coverage
compile_emu() {
    flock "$work/emu" sh -c '[ -s "$1/emu" ] ||
        { make -s -j "$2" emu EMU=coverage && rm -f "$3"/*.gcda && echo built >"$1/emu"; }' sh "$work" "$jobs" $emu
}

# Test programs run once: those of kernels, and those that count much, optimized (`unit`); the others with sanitizers,
# where the same tests find more. If only one of these groups is asked for, and in `long`, it runs all of them.
counting="test_flips test_law test_rng test_scratch test_stories"
optimized=
[ -n "$long" ] || [ "$groups" != "$all coverage" ] ||
    optimized="test_matmul test_attention test_gpt2 test_score test_cpu test_attention_forms test_operations
        test_generate $(echo "${LEVELS:-}" | sed -n 's/.* amx/test_amx/p') $counting test_mix=killed
        test_prepare=killed,are_shuffled,resume_within test_prompts=core_is_that,perplexities
        test_tokenizer=linear,all_code test_backends"
build() {
    programs=tests
    # test_connect: hosts starts it
    [ -z "$optimized" ] || programs="rank_tools $(printf 'build/release/%s\n' test_connect $optimized | cut -d = -f 1)"
    compile all $programs
}
headers() {
    command -v c++ >/dev/null || { echo "skipped: no C++ compiler"; return 77; }
    make -s headers && limited sh test/rooms.sh || return 1
    [ -z "$other_levels" ] || make -s BUILD=build/other_levels LEVELS="$other_levels" OPT_release=-O0 kernels
}
unit() { limited sh test/run.sh build/release $optimized; }
smoke() { compile_emu && limited sh test/smoke.sh $emu; }
scripts() { limited sh test/scripts.sh; }
portable() { limited sh test/portable.sh; }
# of the programs as a user calls them
learning() { limited sh test/train/learning.sh; }
precision() { limited sh test/train/precision.sh; }
offload() { limited sh test/train/offload.sh; }
resume() { limited sh test/train/resume.sh; }
requests() { limited sh test/train/requests.sh; }
options() { limited sh test/options/options.sh; }
commands() { limited sh test/commands/commands.sh; }
scores() { limited sh test/eval/scores.sh; }
reports() { limited sh test/log/reports.sh; }
forecast() { limited sh test/commands/forecast.sh; }
inspect() { limited sh test/commands/inspect.sh; }
tokenizer() { limited sh test/tokenizer/tokenizer.sh; }
shards() { limited sh test/data/shards.sh; }
prepare() { limited sh test/prepare/prepare.sh; }
fetch() { limited sh test/data/fetch.sh; }
bench() { limited sh test/bench/bench.sh; }
faults() { limited sh test/attack/faults.sh; }
ranks() { limited sh test/comm/ranks.sh; }
# Builds with AddressSanitizer and UBSan; of the CPU's kernels only the generic ones and the best, and not fp16's, which
# are bf16's templates.
sanitized() { # TARGET
    fp32='' bf16=''
    [ "$(uname -m)" != x86_64 ] || fp32=avx2 bf16=avx2
    ! processor_has avx512vl || fp32=avx512 bf16=avx512
    ! processor_has avx512_bf16 || bf16=avx512_bf16
    objects=
    for o in fp32/generic bf16/generic ${fp32:+fp32/$fp32 bf16/$bf16}; do
        objects="$objects build/sanitize/cpu/$o.o"
    done
    flock "$work/sanitize" make -s -j "$jobs" config=sanitize LEVELS="generic $fp32 $bf16" CPU_OBJECTS="$objects" "$1"
}
# Tests that compare bits or speeds find nothing more here and run only in `long`.
sanitize() {
    sanitized tests || return 1
    set -- all
    [ -n "$long" ] || set -- test_backends=-bits,-fast_kernels,-many_blocks,-whole_tiles test_attention=-bits \
        test_attention_forms=several,of_31 test_gpt2=-adamw,-initial,-ten_muon \
        test_matmul=-sums_of_small,-sums_are_exact,-large_results test_cpu=-speeds,-available,-a_long_row \
        test_generate=-does_not_depend test_mix=-killed test_score=-scores_are_those \
        test_prepare=-kill,-are_shuffled,-resume_within test_tokenizer=-linear,-all_code \
        test_prompts=-core_is_that,-perplexities \
        $(ls test/*/test_*.c | sed 's:.*/::; s/\.c$//' | grep -vxF "$(printf '%s\n' $counting)")
    limited env OMP_NUM_THREADS=2 sh test/run.sh build/sanitize "$@"
}
# Every reader of a file or of the network, with the recorded files of its format changed at random, and with those of
# all formats as they are; `long`: by libFuzzer, too.
mutate() {
    sanitized mutators || return 1
    changes=800
    [ -z "$long" ] || changes=20000
    set -- $(find test/golden test/fuzz/corpus -type f -size -64k)
    for f in build/sanitize/mutate_*; do
        case $f in *.d) continue ;; esac
        own=$(printf '%s\n' "$@" | grep -E "$(seeds_of "${f##*/mutate_}")")
        { limited "$f" $# "$@" && limited "$f" "$changes" $own; } >build/sanitize/mutate.log 2>&1 ||
            { tail -n 60 build/sanitize/mutate.log; return 1; }
    done
}
seeds_of() { # TARGET: prints a pattern of the files that have its format
    case $1 in
    gguf | parquet | safetensors) echo "\.$1\$" ;;
    lists | logs) echo "/corpus/$1/" ;;
    llmc_model) echo '/llmc_.*\.bin$' ;;
    model_folder) echo 'index\.json$' ;;
    reader) echo '/corpus/reader/|/rows\.jsonl' ;;
    shard | token_formats) echo '/tokens/' ;;
    test_set) echo '/eval/.*(\.jsonl|\.txt|hellaswag\.bin)$' ;;
    tokenizer_json) echo '/bpe/' ;;
    *) echo . ;; # the first byte of an input chooses what the others are
    esac
}
plain() { # without OpenMP; less optimized, which compiles faster
    compile BUILD=build/plain OPENMP= LEVELS=generic OPT_release=-O0 KERNEL_OPT_release=-O1 build/plain/test_gpt2 ||
        return 1
    limited sh test/run.sh build/plain test_gpt2=-muon
}
fuzz() { # every reader of a file or of the network, half an hour each
    command -v clang >/dev/null || { echo "skipped: no clang"; return 77; }
    compile fuzz || { echo "skipped: clang here has no libFuzzer"; return 77; }
    for f in build/fuzz/fuzz_*; do
        case $f in *.d) continue ;; esac
        found=build/fuzz/corpus/${f##*/} # inputs that reach new code, for the next time
        mkdir -p "$found"
        "$f" -max_total_time=1800 -max_len=65536 -close_fd_mask=1 "$found" test/fuzz/corpus test/golden \
            >build/fuzz/log 2>&1 || { cat build/fuzz/log; return 1; }
        echo "${f##*/}: nothing found in 1800 s"
    done
}
lint() { # minutes of processor time
    command -v clang-tidy >/dev/null || command -v cppcheck >/dev/null ||
        { echo "skipped: no clang-tidy and no cppcheck"; return 77; }
    make -s lint
}
watched() { # CONFIG: a level with vectors too; valgrind knows none beyond AVX2
    [ "$(uname -m)" != x86_64 ] || set -- "$@" avx2
    compile config="$1" LEVELS="generic ${2:-}" all tests && limited sh test/watched.sh "build/$1"
}
thread() { # data races, by ThreadSanitizer
    printf '#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n' |
        clang -fopenmp -fsanitize=thread -x c - -o "$work/archer" 2>/dev/null
    ARCHER_OPTIONS=verbose=1 "$work/archer" 2>&1 | grep -q 'Archer detected' ||
        { echo "skipped: no clang whose OpenMP (libomp-dev) has archer, its tool for ThreadSanitizer"; return 77; }
    CC=clang watched thread
}
memcheck() { # memory that is uninitialized, wrong or lost, by valgrind: a quarter of an hour
    command -v valgrind >/dev/null || { echo "skipped: no valgrind"; return 77; }
    watched memcheck
}
spills() {
    [ -f build/release/cuda_fp32.ptxas ] || { echo "skipped: no nvcc built the GPU trainer here"; return 77; }
    limited sh test/cuda/spills.sh build/release
}
sass() { # machine code of the kernels; `long`: of all architectures
    [ ! -s build/release/cuda_bf16.o ] || command -v nvdisasm >/dev/null || [ -d build/cuda_tools ] ||
        sh scripts/setup.sh sass
    limited sh test/sass/sass.sh build/release
}
cudnn() { limited sh test/cudnn/cudnn.sh build/release; }
emulator() { limited bash test/emulator/run.sh; }
gpu_kernels() { compile_emu && limited sh test/cuda/kernels.sh $emu; }
gpu_training() { compile_emu && limited sh test/cuda/training.sh $emu; }
gpu_tuning() { compile_emu && limited sh test/cuda/tuning.sh $emu; }
gpu_device() { compile_emu && limited sh test/cuda/device.sh $emu; }
gpus() { compile_emu && limited sh test/comm/gpus.sh $emu; }
run_scripts() { compile_emu && limited sh test/comm/run_scripts.sh $emu; }
hosts() { compile_emu && limited sh test/comm/hosts.sh $emu; }
# Tests in the build that checks memory accesses and data races: kernels at even and odd shapes, two training steps.
checked_tests="odd_shapes attention_agrees_at two_steps"
[ -z "$long" ] || checked_tests=''
compile_check() { flock "$work/check" make -s -j "$jobs" emu EMU=check; }
emulated_check() { compile_check && limited sh test/cuda/kernels.sh build/emu-check $checked_tests; }
traffic() { compile_check && limited sh test/cuda/traffic.sh build/emu-check; }
full_size() { # bf16 is the largest; the others' kernels are the same templates
    set -- bf16 wraps
    [ -z "$long" ] || set --
    compile_check && limited build/emu-check/test_full_size "$@"
}
aarch64() { limited sh test/aarch64.sh build/release; } # by a cross compiler and qemu
gpu_script() { compile_emu && limited sh test/bench/gpu_script.sh $emu; }
plants() { compile_emu && limited sh test/cuda/plants.sh $emu; }
worlds() { compile_emu && limited sh test/cuda/worlds.sh build/release $emu; }
coverage() { limited sh test/cuda/coverage.sh $emu; }

# ----------------------------------------------------------------------------------------------------------------------
# running them

work=$(mktemp -d)
mkdir -p build/log
begin=$(date +%s)
since() { echo $(($(date +%s) - $1)); } # SECOND

# Prints the running groups every 25 s.
ticker() {
    while sleep 25 >/dev/null 2>&1; do # redirected: a sleep that outlives the loop would hold the output open
        running=
        for g in build $groups; do
            [ ! -e "$work/$g.begin" ] || [ -e "$work/$g.counts" ] ||
                running="$running $g ($(since "$(cat "$work/$g.begin")") s)"
        done
        echo "-- $(since "$begin") s:$running"
    done
}

group() { # NAME: runs it unless another lane took it
    name=$1
    mkdir "$work/$name.taken" 2>/dev/null || return 0
    start=$(date +%s)
    echo "$start" >"$work/$name.begin"
    log="build/log/$name"
    : >"$log"
    echo "== $name"
    {
        "$name" </dev/null 2>&1
        echo $? >"$work/$name.status"
        times >"$work/$name.times"
    } | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        printf '%s: %s\n' "$name" "${line#"$name: "}"
    done
    status=$(cat "$work/$name.status")
    counts=$(sed -nE 's/^(.*: )?([0-9]*) passed, ([0-9]*) failed, ([0-9]*) skipped$/\2 \3 \4/p' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        set -- $counts
        if [ "$status" != 0 ] && [ "$2" = 0 ]; then counts="$1 1 $3"; fi # it failed without counting a failure
    elif [ "$status" = 0 ]; then counts="1 0 0"
    elif [ "$status" = 77 ]; then counts="0 0 1"
    else counts="0 1 0"; fi
    busy=$(awk -F '[ms ]+' 'NR == 2 { printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }' "$work/$name.times")
    echo "== $name: $(since "$start") s, $busy s of processor time"
    echo "$counts" >"$work/$name.counts"
}
lane() { for g in $groups; do group "$g"; done; }

# Ends this run's lanes, and all programs that it has started: a Ctrl-C does not reach those that limited() runs.
end_all() { kill $lanes $(grep -lszx "TEST_RUN=$TEST_RUN" /proc/[0-9]*/environ | cut -d / -f 3) 2>/dev/null; }

export TEST_RUN="$work"
lanes=
ticker &
ticker=$!
trap 'kill $ticker 2>/dev/null; rm -rf "$work"' EXIT
trap 'end_all; exit 130' INT TERM HUP # waits for what runs in the background: it comes at once
group build &
lanes=$!
wait $lanes
last=
case " $groups " in *" coverage "*) last=coverage groups=$(echo " $groups " | sed 's/ coverage / /g') ;; esac
case $(cat "$work/build.counts") in *" 0 "*) # nothing failed
    lanes=
    for i in 1 2 3; do lane & lanes="$lanes $!"; done
    wait $lanes
    [ -z "$last" ] || { group $last & lanes=$!; wait $lanes; } ;;
esac

passed=0 failed=0 skipped=0
for counts in "$work"/*.counts; do
    read -r p f s <"$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] && continue
    name=$(basename "$counts" .counts)
    echo "== failed in $name ($f), from build/log/$name:"
    grep -E 'FAILED|lost:|[Ee]rror|failed:|^[^ ]*:[0-9]+: |ended with|did not' "build/log/$name" |
        tail -n 40 | grep . || tail -n 20 "build/log/$name"
done
echo "== all: $(since "$begin") s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
