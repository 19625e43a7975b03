#!/bin/sh
# Tests the machine code of the GPU's kernels, which needs no GPU: registers, blocks per SM, instructions of the main
# loops, widths of memory accesses (sass/sass.c), against the bounds in sass/bounds.txt.
# usage: sh test/sass/sass.sh build/CONFIG [check|record] [CAPABILITY...]
#   check        the default: prints the table and fails where a bound is exceeded; skipped with another release of
#                nvcc than the bounds are of, whose instructions differ by some hundredths
#   record       prints new bounds. Give all architectures (75 80 86 89 90 100 120): a bound holds for all since Ampere
#   CAPABILITY   compiles the kernels for it if the trainer was built without; default: what the trainer was built for,
#                with `long` set all seven. 75 (Turing) has other machine code, with bounds of its own, and fp16 only
build=${1:?usage: sh test/sass/sass.sh build/CONFIG [check|record] [CAPABILITY...]}
shift
verb=check
case ${1:-} in check | record) verb=$1; shift ;; esac
here=$(dirname "$0")
[ $# -gt 0 ] || [ -z "${long:-}" ] || set -- 75 80 86 89 90 100 120
PATH="$PATH:$here/../../build/cuda_tools/nvidia/cu13/bin:${CUDA_HOME:-/usr/local/cuda}/bin"
for tool in nvcc cuobjdump nvdisasm c++filt; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (sh scripts/setup.sh sass)"; exit 77; }
done
[ -s "$build/cuda_bf16.o" ] || { echo "skipped: no nvcc built the GPU trainer here"; exit 77; }
recorded=$(sed -n '1s/.*(nvcc \([0-9]*[.][0-9]*\)[.].*/\1/p' "$here/bounds.txt")
nvcc=$(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ $verb = check ] && [ "$nvcc" != "$recorded" ]; then
    echo "skipped: bounds.txt is of nvcc $recorded, this is $nvcc"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 143' INT TERM HUP

# Prints the path of an object with the code of FP32|BF16 for a capability: the trainer's, or one that is compiled now.
object() { # TYPE CAPABILITY
    if cuobjdump -lelf "$build/cuda_$1.o" | grep -q "sm_$2[.]"; then
        echo "$build/cuda_$1.o"
    else
        nvcc -O3 -std=c++20 -D_GNU_SOURCE -DFLOATX="$1" -arch="sm_$2" -cubin -o "$work/$1_$2.cubin" train_gpt2.cu \
            >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
        echo "$work/$1_$2.cubin"
    fi
}
built=$(cuobjdump -lelf "$build/cuda_bf16.o" | sed -n 's/.*[.]sm_\([0-9]*\)[.]cubin$/\1/p')
[ $# -gt 0 ] || set -- $built
[ $# -gt 0 ] || { echo "FAILED  $build/cuda_bf16.o has no machine code"; exit 1; }
cc -std=c11 -O2 -Wall -Wextra "$here/sass.c" -o "$work/sass" || exit 1
# the host's half alone, which takes the emulator's compiler a quarter of the time that nvcc needs
test/emulator/emucc -O0 -D_GNU_SOURCE "$here/launches.cu" "$build/libllmc.a" -o "$work/launches" -ljansson || exit 1
"$work/launches" >"$work/launches.txt" || exit 1
# fp16's kernels are those of bf16: its attention must run on tensor cores, on halves
if [ -n "${long:-}" ] || [ -s "$build/cuda_fp16.o" ]; then
    capability=$(echo "$built" | grep -vx 75 | head -n 1) capability=${capability:-80}
    file=$(object fp16 "$capability") || exit 1
    cuobjdump -arch "sm_$capability" -sass "$file" | grep -q 'HMMA[.]16816[.]F32 ' ||
        { echo "FAILED  fp16: no matmuls of halves on tensor cores"; exit 1; }
fi
for capability in "$@"; do
    types="fp32 bf16" suffix=
    [ "$capability" != 75 ] || types=fp16 suffix=-75
    for type in $types; do
        file=$(object $type "$capability") || exit 1
        echo "type $type$suffix"
        echo "arch = sm_$capability"
        cuobjdump -arch "sm_$capability" -res-usage -sass "$file" || exit 1
    done
done >"$work/dump" || exit 1
c++filt <"$work/dump" |
    sed 's/__nv_bfloat16/bf16/g; s/__half/fp16/g; s/<float/<fp32/g; s/, float/, fp32/g
         s/(__nv_fp8_interpretation_t)/format/g' |
    "$work/sass" "$verb" "$work/launches.txt" "$here/bounds.txt"
