#!/bin/bash
# The emulator's own tests: test_*.cu in the plain and the checking build, and the tools.
# usage: run.sh [NAME...]     test_emulator, test_ptx, ..., tools; without names, all. Exits 1 if anything failed.
# `long=1 run.sh` makes every build of every program; otherwise each program has those of builds_of.
CDPATH='' cd "$(dirname "$0")" || exit 1
work=$(mktemp -d)
clean() { # what a signal ends includes the programs that have names in this folder
    kill $(jobs -p) $(grep -lsF "$work/" /proc/[0-9]*/cmdline | cut -d / -f 3) 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 143' INT TERM HUP
passed=0 failed=0 skipped=0 long=${long:-}
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# The C modules that the tests call.
objects=()
for module in base/base base/file base/library base/text_stream model/tensors; do
    object="$work/${module##*/}.o"
    gcc -std=c11 -D_GNU_SOURCE -O1 -c "../../llmc/$module.c" -o "$object" || exit 1
    objects+=("$object")
done

# Constants need the plain build, reads and writes the checking one. `long`: all that could find a mistake.
builds_of() {
    case $1$long in
    test_traffic*) echo check ;;
    test_enums) echo plain ;;
    test_casts | test_cublaslt | test_fp8 | test_nccl | test_ptx) echo check ;;
    *) echo plain check ;;
    esac
}

# Programs with the same runner are compiled as one, because the headers take longer than they do.
group_of() {
    case $1 in
    test_emulator | test_complaints | test_traffic) echo group_of_cases ;;
    test_casts | test_cublaslt | test_fp8 | test_nccl | test_ptx) echo group_of_tests ;;
    *) echo "$1" ;;
    esac
}

# Prints the source of a group: each program in a namespace, its headers and their type before. The name by which the
# group is called chooses the program.
join() { # PROGRAM...
    local program
    sed -n '/^#include [<"]/p; /^#define FLOATX/p' "${@/%/.cu}" | awk '!seen[$0]++'
    for program in "$@"; do
        printf 'namespace %s {\n#include "%s.cu"\n' "$program" "$PWD/$program"
        # each has the tests that test.h has listed since the program before
        printf '#ifdef TEST\nstatic TestCase* tests;\n__attribute__((constructor)) static void take_tests() {\n'
        printf '    tests = test_first, test_first = nullptr, test_end = &test_first;\n}\n#endif\n}\n'
    done
    printf 'int main(int argc, char** argv) {\n'
    for program in "$@"; do
        printf '    if (strcmp(strrchr(argv[0], 47) + 1, "%s") == 0) {\n' "$program"
        printf '#ifdef TEST\n        test_first = %s::tests;\n#endif\n' "$program"
        printf '        return %s::main(argc, argv);\n    }\n' "$program"
    done
    printf '    return 2;\n}\n'
}

# Makes build $1 of the programs that follow, which are one group, and runs them. Prints the output of each at its end,
# so that programs do not mix theirs.
run_group() { # BUILD PROGRAM...
    local build=$1 group=$work/$1/group_$2 flags=(-O0) program source
    shift
    source=$1.cu
    # optimized: the widths of accesses are those of the trainer's build
    case " $* " in *" test_traffic "*) flags=() ;; esac
    [ "$build" = plain ] || flags+=("--$build")
    mkdir -p "$work/$build"
    if [ $# -gt 1 ]; then
        source=$group.cu
        join "$@" >"$source"
    fi
    flags+=(-Wall -Wextra -Werror -I.)
    ./emucc "${flags[@]}" "$source" "${objects[@]}" -o "$group" >"$group.log" 2>&1
    for program in "$@"; do
        cp "$group.log" "$work/$build/$program.log"
        ln -f "$group" "$work/$build/$program" 2>/dev/null &&
            "$work/$build/$program" >>"$work/$build/$program.log" 2>&1
        sed "\$s/:/ ($build):/" "$work/$build/$program.log"
    done
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

# Compiles the tests with NVIDIA's own headers, if nvcc is installed: static assertions compare constants. g++ is
# enough, and faster, for programs without kernels.
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
    for program in test_casts test_ptx; do
        expect "nvcc compiles $program" "$nvcc" -std=c++20 -arch=sm_80 -c "$program.cu" -o "$work/$program.nvcc.o"
    done
    for program in test_enums test_cublaslt test_nccl; do
        expect "$program compiles with NVIDIA's headers" \
            g++ -std=c++20 -D__NVCC__ -fsyntax-only -isystem "${nvcc%/bin/nvcc}/include" -x c++ "$program.cu"
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
    [ -n "$long" ] || return # other processors than x86-64 have these
    expect "fibers without assembly" ./emucc -DEMU_UCONTEXT test_emulator.cu -o "$work/ucontext"
    expect "fibers without assembly run" "$work/ucontext"
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
members() { # BUILD GROUP: prints the chosen programs of the group that have this build
    local program
    for program in "${programs[@]}"; do
        [ "$(group_of "$program")" != "$2" ] || case " $(builds_of "$program") " in *" $1 "*) echo "$program" ;; esac
    done
}
for build in plain check; do
    for group in $(for program in "${programs[@]}"; do group_of "$program"; done | sort -u); do
        chosen=$(members $build "$group")
        [ -n "$chosen" ] || continue
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
        run_group $build $chosen &
    done
done
wait
for program in "${programs[@]}"; do
    for build in $(builds_of "$program"); do report "$program" "$build"; done
done
[ $tools = 0 ] || run_tools
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
