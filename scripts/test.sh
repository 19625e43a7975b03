#!/bin/sh
# Tests everything that needs no GPU. Prints what it does as it goes, what it skips and why, the seconds of each group and,
# at the end, the failures once more. The last line is `N passed, N failed, N skipped`. Installs what is missing (setup.sh).
# usage: sh scripts/test.sh [quick|long|GROUP...]
#   (nothing)   all groups: about 13 minutes on two cores
#   quick       the test programs and one small run on each backend: 90 s
#   long        all groups, each at full length: hours
#   GROUP...    build headers unit smoke end_to_end amx sanitize plain fuzz spills cudnn emulator emulated ranks hosts
#               emulated_check emulated_race plants coverage
# Logs are kept in build/log/GROUP.
set -u
cd "$(dirname "$0")/.."

# Two groups run at a time, taken from this list in order: long ones first, and beside them those that mostly wait.
all="ranks emulated end_to_end sanitize unit emulated_check emulated_race emulator plants amx hosts plain fuzz headers spills cudnn"
long= # read by the scripts and functions below
case ${1:-} in
"") groups="$all coverage" ;;
long) groups="$all coverage" long=1 ;;
quick) groups="unit smoke" ;;
*) groups=$* ;;
esac
for g in $groups; do
    case " build smoke coverage $all " in *" $g "*) ;; *) echo "error: no group '$g'; there are: build smoke coverage $all" >&2; exit 2 ;; esac
done
for g in emulated ranks; do # coverage counts the lines that ran in these
    case " $groups " in *" $g "*) ;; *" coverage "*) groups="$g $groups" ;; esac
done
export long

sh scripts/setup.sh c++:g++ mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 || exit 1

# ----------------------------------------------------------------------------------------------------------------------
# groups: each is one command. If its last line counts tests they are added up, otherwise it counts as one. 77: skipped.

jobs=$(nproc 2>/dev/null || echo 1)
compile() { make -s -j "$jobs" "$@"; }
# The GPU trainer on the emulator, built so that it counts the lines that run. Several groups use it.
emu=build/emu-coverage
compile_emu() {
    flock "$work/emu" sh -c '[ -s "$1/emu" ] || { make -s -j "$2" emu EMU=coverage && rm -f "$3"/*.gcda && echo built >"$1/emu"; }' \
        sh "$work" "$jobs" $emu
}

build() { compile all tests; }
headers() {
    command -v c++ >/dev/null || { echo "skipped: no C++ compiler"; return 77; }
    make -s headers
}
unit() { sh test/run.sh build/release; }
smoke() { compile_emu && sh test/smoke.sh build/release $emu; }
end_to_end() { sh test/end_to_end.sh build/release; }
amx() { # the trainer with AMX, its tiles emulated
    grep -q avx512_bf16 /proc/cpuinfo || { echo "skipped: this processor lacks AVX512_BF16, which packs AMX's tiles"; return 77; }
    compile amx && sh test/amx.sh build/amx build/release
}
# The test programs with every address and every integer operation checked, on the plainest and best level. What compares
# bits or speeds says nothing more here, and is left to `long`.
sanitize() {
    best=avx2
    ! grep -q avx512vl /proc/cpuinfo || best=avx512
    ! grep -q avx512_bf16 /proc/cpuinfo || best="avx512 avx512_bf16"
    [ "$(uname -m)" = x86_64 ] || best=
    compile config=sanitize LEVELS="generic $best" tests || return 1
    set -- all
    [ -n "$long" ] || set -- test_backends=-bits,-fast_kernels,-many_blocks,-again test_attention=-bits test_gpt2=-by_heart,-adamw \
        test_cpu=-speeds,-available test_prepare=-killed test_tokenizer=-linear all
    # fork() in the tests leaves memory behind on purpose: an exit in a child frees nothing
    ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 sh test/run.sh build/sanitize "$@"
}
plain() { # a build without OpenMP gives the same answers
    compile BUILD=build/plain OPENMP= LEVELS=generic build/plain/test_backends build/plain/test_gpt2 || return 1
    sh test/run.sh build/plain test_backends test_gpt2
}
fuzz() { # each reader of a file or of the network, for a moment
    command -v clang >/dev/null || { echo "skipped: no clang"; return 77; }
    compile fuzz || { echo "skipped: clang here has no libFuzzer"; return 77; }
    seconds=2
    [ -z "$long" ] || seconds=1800
    for f in build/fuzz/fuzz_*; do
        case $f in *.d) continue ;; esac
        "$f" -max_total_time=$seconds -close_fd_mask=1 >build/fuzz/log 2>&1 || { cat build/fuzz/log; return 1; }
        echo "$(basename "$f"): nothing found in $seconds s"
    done
}
spills() {
    [ -f build/release/cuda_fp32.ptxas ] || { echo "skipped: no nvcc built the GPU trainer here"; return 77; }
    sh test/spills.sh build/release
}
cudnn() { sh test/cudnn.sh build/release; } # what is asked of cuDNN, by its own check
emulator() { bash test/emulator/run.sh; }
emulated() { compile_emu && sh test/emulated.sh $emu; }
ranks() { compile_emu && sh test/ranks.sh build/release $emu; }
hosts() { compile_emu && sh test/netns.sh build/release $emu; }
# Addresses and undefined behaviour; accesses that nothing orders: the kernels at an even and an odd shape, and two steps.
watched="odd_shapes unfused_kernels tf32_agrees attention_agrees two_steps"
[ -z "$long" ] || watched=
emulated_check() { compile emu EMU=check && sh test/emulated.sh build/emu-check $watched ${watched:+plain_kernels fp8_agrees}; }
emulated_race() { compile emu EMU=race && sh test/emulated.sh build/emu-race $watched; }
plants() { compile_emu && sh test/plants.sh $emu; }
coverage() { sh test/coverage.sh $emu; }

# ----------------------------------------------------------------------------------------------------------------------
# running them

work=$(mktemp -d)
mkdir -p build/log
begin=$(date +%s)
since() { echo $(($(date +%s) - $1)); } # SECOND

# Names the groups that run, every 25 s.
ticker() {
    while sleep 25 >/dev/null 2>&1; do # it may outlive the loop, and would hold the output open
        running=
        for g in build $groups; do
            [ ! -e "$work/$g.begin" ] || [ -e "$work/$g.counts" ] || running="$running $g ($(since "$(cat "$work/$g.begin")") s)"
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
    { "$name" </dev/null 2>&1; echo $? >"$work/$name.status"; } | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        printf '%s: %s\n' "$name" "${line#"$name: "}"
    done
    status=$(cat "$work/$name.status")
    counts=$(sed -n 's/^\([a-z_]*: \)\{0,1\}\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\2 \3 \4/p' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        set -- $counts
        if [ "$status" != 0 ] && [ "$2" = 0 ]; then counts="$1 1 $3"; fi # it ended before its last line
    elif [ "$status" = 0 ]; then counts="1 0 0"
    elif [ "$status" = 77 ]; then counts="0 0 1"
    else counts="0 1 0"; fi
    echo "== $name: $(since "$start") s"
    echo "$counts" >"$work/$name.counts"
}
lane() { for g in $groups; do group "$g"; done; }

ticker &
ticker=$!
trap 'kill $ticker 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
group build
last=
case " $groups " in *" coverage "*) last=coverage groups=$(echo " $groups " | sed 's/ coverage / /g') ;; esac
case $(cat "$work/build.counts") in *" 0 "*) # otherwise nothing can be tested
    lane &
    one=$!
    lane
    wait $one
    [ -z "$last" ] || group $last ;;
esac

passed=0 failed=0 skipped=0
for counts in "$work"/*.counts; do
    read -r p f s <"$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] && continue
    name=$(basename "$counts" .counts)
    echo "== failed in $name ($f), from build/log/$name:"
    grep -E 'FAILED|[Ee]rror|failed:|^[^ ]*:[0-9]+: |ended with|did not' "build/log/$name" | tail -n 40 | grep . || tail -n 20 "build/log/$name"
done
echo "== all: $(since "$begin") s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
