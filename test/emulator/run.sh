#!/bin/bash
# The emulator's own tests: test_*.cu in the plain, the checking and the race-checking build, and the tools.
# usage: run.sh [NAME...]     test_emulator, test_ptx, ..., tools; without names, all. Exits 1 if anything failed.
# `long=1 run.sh` makes every build of every program; otherwise each program has the builds that could find a mistake in
# it (builds_of).
cd "$(dirname "$0")" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0 long=${long:-}
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# The C modules that the tests call.
objects=()
for module in base tensors; do
    gcc -std=c11 -D_GNU_SOURCE -O1 -c "../../llmc/$module.c" -o "$work/$module.o" || exit 1
    objects+=("$work/$module.o")
done

# Constants need the plain build, reads and writes the checking one, reports of accesses the race-checking one.
builds_of() {
    case $1$long in
    test_traffic*) echo race ;;
    test_enums | test_fp8) echo plain ;;
    test_casts | test_cublaslt) echo check ;;
    test_nccl | test_ptx) echo check race ;;
    *) echo plain check race ;;
    esac
}

# Closing device memory to the host takes as long as what the programs compute; two test it.
guard_of() {
    case $1 in test_emulator | test_complaints) echo 1 ;; *) echo 0 ;; esac
}

# Makes build $2 of program $1 and runs it. Prints the output at the end, so that programs do not mix theirs.
run_program() {
    local program=$work/$2/$1 flags=(-O0)
    [ "$1" != test_traffic ] || flags=() # the widths of accesses are those of the trainer's build: optimized
    [ "$2" = plain ] || flags+=("--$2")
    mkdir -p "$work/$2"
    flags+=(-Wall -Wextra -Werror)
    { ./emucc "${flags[@]}" "$1.cu" "${objects[@]}" -o "$program" &&
        EMU_GUARD=$(guard_of "$1") "$program"; } >"$program.log" 2>&1
    cat "$program.log" | sed "\$s/:/ ($2):/"
}

summary() { # the counts in the last line of a log: "NAME: 3 passed, 0 failed, 1 skipped"
    sed -n '$s/.*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$1"
}

report() {
    local log=$work/$2/$1.log counts
    counts=$(summary "$log")
    if [ -z "$counts" ]; then # it was not built, or ended early
        echo "FAILED  $1 ($2) did not finish"
        add 0 1 0
        return
    fi
    add $counts
}

# ----------------------------------------------------------------------------------------------------------------------
# the tools

expect() { # NAME, then a command that must succeed
    local name=$1
    shift
    if "$@" >"$work/tool.log" 2>&1; then
        add 1 0 0
    else
        echo "FAILED  $name"
        cat "$work/tool.log"
        add 0 1 0
    fi
}

# Succeeds if cu2cpp refuses the CUDA code $1 with a message that begins with the place and contains $2.
refuses() {
    printf '# 1 "bad.cu"\n\n%s\n' "$1" >"$work/bad.ii"
    ! "$work/cu2cpp" <"$work/bad.ii" >/dev/null 2>"$work/bad.log" && grep -q "^bad.cu:2: cu2cpp: .*$2" "$work/bad.log"
}

# Succeeds if every line keeps its number in cu2cpp's output.
keeps_lines() {
    local code='k<int,\n  4><<<1,\n 2>>>(a,\n b); int line4;\n__shared__ float\n x[2],\n y[3]; int line7;\n'
    code+='asm volatile("a"\n "b" : "=r"(x)\n : "r"(y)); int line10;\n'
    printf "$code" | "$work/cu2cpp" | awk '
        /line/ { match($0, /line[0-9]+/); wrong += substr($0, RSTART + 4, RLENGTH - 4) != NR; n++ }
        END { exit wrong || n != 3 }'
}

# Links two objects from emucc with a third from gcc. Succeeds if a kernel of the second can read memory that the first
# allocated.
links_objects() {
    cat >"$work/one.cu" <<'CODE'
#include <cuda_runtime.h>
float* shared_floats;
void two();
extern "C" int plain_c(int);
int main() {
    cudaMalloc(&shared_floats, 4);
    two();
    float x = 0;
    cudaMemcpy(&x, shared_floats, 4, cudaMemcpyDeviceToHost);
    return x != (float)plain_c(6);
}
CODE
    cat >"$work/two.cu" <<'CODE'
#include "two.h"
extern float* shared_floats;
static __global__ void two_kernel(float* x) { *x = SEVEN; }
void two() { two_kernel<<<1, 1>>>(shared_floats); }
CODE
    echo '#define SEVEN 7' >"$work/two.h"
    echo 'int plain_c(int x) { return x + 1; }' | gcc -x c -c - -o "$work/plain.o" &&
        ./emucc -c "$work/one.cu" -o "$work/one.o" && ./emucc -MMD -MP -c "$work/two.cu" -o "$work/two.o" &&
        ./emucc "$work/one.o" "$work/two.o" "$work/plain.o" -o "$work/both" && "$work/both" &&
        grep -q 'two\.o:.*two\.h' <(tr -d '\\\n' <"$work/two.d")
}

# Succeeds if gcov names the original file and counts each thread.
counts_coverage() {
    cat >"$work/covered.cu" <<'CODE'
#include <cuda_runtime.h>
__global__ void covered_kernel(int n) {
    if ((int)threadIdx.x < n) {
        __syncwarp(0xff);
    }
    if (n > 100) {
        __trap();
    }
}
int main() { covered_kernel<<<1, 32>>>(8); }
CODE
    (
        cd "$work" && "$emulator/emucc" --coverage covered.cu -o covered && ./covered &&
            gcov covered.o >/dev/null && grep -q ' 8: *4:' covered.cu.gcov && grep -q '#####: *7:' covered.cu.gcov
    )
}

# Compiles the tests with nvcc and NVIDIA's own headers, if nvcc is installed: static assertions compare constants.
run_nvcc() {
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    if [ -z "$nvcc" ]; then
        echo "skipped: no nvcc to compare our constants with NVIDIA's"
        add 0 0 1
        return
    fi
    # these conversions run on the host, so NVIDIA's own can be tested too
    expect "nvcc builds test_fp8" "$nvcc" -std=c++20 -arch=sm_80 test_fp8.cu "${objects[@]}" -o "$work/test_fp8.nvcc"
    expect "NVIDIA's conversions to FP8 are ours" "$work/test_fp8.nvcc"
    for program in test_casts test_enums test_cublaslt test_nccl test_ptx; do
        expect "nvcc compiles $program" "$nvcc" -std=c++20 -arch=sm_80 -c "$program.cu" -o "$work/$program.nvcc.o"
    done
}

run_tools() {
    emulator=$PWD
    run_nvcc
    gcc -O1 -Wall -Wextra -Werror cu2cpp.c -o "$work/cu2cpp" || add 0 1 0
    expect "cu2cpp refuses named operands" refuses 'asm("x" : [d] "=r"(d));' 'named operands'
    expect "cu2cpp refuses a launch without a kernel" refuses '= <<<1, 1>>>(x);' 'name of the kernel'
    expect "cu2cpp refuses a launch without arguments" refuses 'k<<<1, 1>>>;' 'arguments of the launch'
    expect "cu2cpp refuses an initialized array" refuses '__shared__ int a[2] = {1, 2};' 'cannot be initialized'
    expect "cu2cpp refuses a dynamic scalar" refuses 'extern __shared__ int a;' 'must declare one array'
    expect "cu2cpp refuses a bracket left open" refuses 'k<<<1, 1>>>(x;' 'expected'
    expect "cu2cpp keeps lines" keeps_lines
    expect "objects are linked" links_objects
    expect "coverage is counted" counts_coverage
    expect "fibers without assembly" ./emucc -DEMU_UCONTEXT test_emulator.cu -o "$work/ucontext"
    expect "fibers without assembly run" "$work/ucontext"
    expect "blocks in parallel" ./emucc -fopenmp test_emulator.cu -o "$work/openmp"
    expect "blocks in parallel run" "$work/openmp"
}

# ----------------------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- test_*.cu tools
programs=()
tools=0
for name in "$@"; do
    case $name in
    tools) tools=1 ;;
    *) programs+=("${name%.cu}") ;;
    esac
done
for program in "${programs[@]}"; do
    for build in $(builds_of "$program"); do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
        run_program "$program" "$build" &
    done
done
wait
for program in "${programs[@]}"; do
    for build in $(builds_of "$program"); do report "$program" "$build"; done
done
[ $tools = 0 ] || run_tools
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
