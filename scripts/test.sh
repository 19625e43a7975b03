#!/bin/sh
# Everything that can be tested on this machine; says what was skipped and why, and closes with
# `N passed, N failed, N skipped`. Installs what is missing (see setup.sh). Takes about 20 minutes on two cores.
# usage: sh scripts/test.sh [GROUP...]     groups: build headers unit levels amx end_to_end sanitize plain fuzz
#                                                  spills cudnn emulator emulated ranks hosts emulated_sanitize
#                                                  plants coverage
set -u
cd "$(dirname "$0")/.."
sh scripts/setup.sh c++:g++ mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The groups run in two lanes, side by side: tests of processes and time-outs mostly wait.
cpu="headers unit levels amx end_to_end sanitize plain fuzz"
gpu="spills cudnn emulator emulated ranks hosts emulated_sanitize plants coverage"
all="build $cpu $gpu"
groups="build ${*:-$all}" # nothing can be tested that was not built
for g in $groups; do
    case " $all " in *" $g "*) ;; *) echo "error: no group '$g'; there are: $all" >&2; exit 2 ;; esac
done

# A group is one command. If its last line counts tests they are added up; if not, the group counts as one. What it said
# is printed when it has ended.
group() {
    name=$1
    case " $groups " in *" $name "*) ;; *) return ;; esac
    start=$(date +%s)
    "$name" >"$work/$name" 2>&1
    status=$?
    counts=$(sed -n 's/^\([a-z_]*: \)\{0,1\}\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\2 \3 \4/p' "$work/$name" | tail -n 1)
    if [ -n "$counts" ]; then
        set -- $counts
        if [ $status != 0 ] && [ "$2" = 0 ]; then counts="$1 1 $3"; fi # it ended before its last line
    elif [ $status = 0 ]; then counts="1 0 0"
    elif [ $status = 77 ]; then counts="0 0 1"
    else counts="0 1 0"; fi
    echo "$counts" >"$work/$name.counts"
    flock "$work" sh -c 'echo "== $1"; cat "$2"; echo "== $1: $3 s"' sh "$name" "$work/$name" $(($(date +%s) - start))
}
lane() { for g in "$@"; do group "$g"; done; }

jobs=$(nproc 2>/dev/null || echo 1)
build() { make -s -j "$jobs" all tests; }
headers() {
    command -v c++ >/dev/null || { echo "skipped: no C++ compiler"; return 77; }
    make -s headers
}
unit() { sh test/run.sh build/release; }
end_to_end() { sh test/end_to_end.sh build/release; }
sanitize() { # the same tests with every address and every integer operation checked
    make -s -j "$jobs" config=sanitize tests || return 1
    # fork() in the tests leaves memory behind on purpose: an exit in a child frees nothing
    ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive sh test/run.sh build/sanitize
}
levels() { make -s -j "$jobs" level-tests; } # the kernels of each level of instructions that this processor has
amx() { # the trainer with AMX, its tiles emulated
    grep -q avx512_bf16 /proc/cpuinfo || { echo "skipped: this processor lacks AVX512_BF16, which packs AMX's tiles"; return 77; }
    make -s -j "$jobs" amx && sh test/amx.sh build/amx build/release
}
plain() { # a build without OpenMP gives the same answers
    make -s -j "$jobs" BUILD=build/plain OPENMP= build/plain/test_cpu build/plain/test_gpt2 || return 1
    sh test/run.sh build/plain test_cpu test_gpt2
}
fuzz() { # each reader of a file for two seconds; `make fuzz` builds them for longer runs
    command -v clang >/dev/null || { echo "skipped: no clang"; return 77; }
    make -s -j "$jobs" fuzz || { echo "skipped: clang here has no libFuzzer"; return 77; }
    for f in build/fuzz/fuzz_*; do
        case $f in *.d) continue ;; esac
        "$f" -max_total_time=2 -close_fd_mask=1 >build/fuzz/log 2>&1 || { cat build/fuzz/log; return 1; }
        echo "$(basename "$f"): nothing found in 2 s"
    done
}

# ----------------------------------------------------------------------------------------------------------------------
# the GPU trainer

spills() {
    [ -f build/release/cuda_fp32.ptxas ] || { echo "skipped: no nvcc built the GPU trainer here"; return 77; }
    sh test/spills.sh build/release
}
cudnn() { sh test/cudnn.sh build/release; } # what is asked of cuDNN, by its own check
emulator() { bash test/emulator/run.sh; }
emulated() { make -s -j "$jobs" emu && sh test/emulated.sh build/emu; }
ranks() { make -s -j "$jobs" emu && sh test/ranks.sh build/release build/emu; }
hosts() { make -s -j "$jobs" emu && sh test/netns.sh build/release; }
# addresses, undefined behaviour, and accesses that nothing orders: two builds, side by side
emulated_sanitize() {
    { make -s -j "$jobs" emu EMU=check && make -s -j "$jobs" emu EMU=race; } || return 1
    both=$(mktemp -d)
    sh test/emulated.sh build/emu-race odd unfused tf32 head >"$both/race" 2>&1 &
    sh test/emulated.sh build/emu-check ten_ odd tf32 unfused plain head know trains >"$both/check" 2>&1
    wait
    cat "$both/check" "$both/race"
    awk '/^emulated: / { p += $2; f += $4; s += $6; n++ } END { if (n < 2) { f++ }; printf "both: %d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' \
        "$both/check" "$both/race"
    status=$?
    rm -rf "$both"
    return $status
}
plants() { make -s -j "$jobs" emu && sh test/plants.sh; }
coverage() { make -s -j "$jobs" emu EMU=coverage && sh test/coverage.sh build/emu-coverage; }

lane build
case $(cat "$work/build.counts") in *" 0 "*) lane $cpu & lane $gpu; wait ;; esac
passed=0 failed=0 skipped=0
for counts in "$work"/*.counts; do
    read -r p f s <"$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
