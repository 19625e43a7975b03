#!/bin/sh
# Everything that can be tested on this machine; says what was skipped and why, and closes with
# `N passed, N failed, N skipped`. Installs what is missing (see setup.sh). Takes a few minutes on two cores.
# usage: sh scripts/test.sh [GROUP...]     groups: build headers unit levels amx end_to_end sanitize plain fuzz
#                                                  spills cudnn emulator emulated ranks hosts emulated_sanitize
#                                                  plants coverage
set -u
cd "$(dirname "$0")/.."
sh scripts/setup.sh c++:g++ mpirun:openmpi-bin mpicc:libopenmpi-dev ip:iproute2 || exit 1

log=$(mktemp)
passed=0 failed=0 skipped=0
trap 'rm -f "$log"' EXIT
all="build headers unit levels amx end_to_end sanitize plain fuzz spills cudnn emulator emulated ranks hosts emulated_sanitize plants coverage"
groups="build ${*:-$all}" # nothing can be tested that was not built
for g in $groups; do
    case " $all " in *" $g "*) ;; *) echo "error: no group '$g'; there are: $all" >&2; exit 2 ;; esac
done

# A group is one command. If its last line counts tests they are added up; if not, the group counts as one.
group() {
    name=$1
    shift
    case " $groups " in *" $name "*) ;; *) return ;; esac
    echo "== $name"
    start=$(date +%s)
    "$@" >"$log" 2>&1
    status=$?
    cat "$log"
    counts=$(sed -n 's/^\([a-z_]*: \)\{0,1\}\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\2 \3 \4/p' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        add $counts
        set -- $counts
        if [ $status != 0 ] && [ "$2" = 0 ]; then failed=$((failed + 1)); fi # it ended before its last line
    elif [ $status = 0 ]; then passed=$((passed + 1))
    elif [ $status = 77 ]; then skipped=$((skipped + 1))
    else failed=$((failed + 1)); fi
    echo "== $name: $(($(date +%s) - start)) s"
}
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

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

for g in $all; do
    group "$g" "$g"
    if [ "$g" = build ] && [ $failed != 0 ]; then break; fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
