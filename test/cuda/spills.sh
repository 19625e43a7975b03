#!/bin/sh
# Fails if a kernel of the GPU trainer spills registers to memory, by ptxas' reports, which the build keeps beside the
# objects. Turing's code is left out: with its largest heads attention spills six registers, which sass.sh bounds.
# usage: sh test/cuda/spills.sh build/CONFIG
build=${1:?usage: sh test/cuda/spills.sh build/CONFIG}
found=0
for report in "$build"/cuda_fp32.ptxas "$build"/cuda_bf16.ptxas; do
    [ -s "$report" ] || { echo "no $report: make train_gpt2cu first"; exit 1; }
    kernels=$(grep -c 'Compiling entry function' "$report")
    [ "$kernels" -gt 0 ] || { echo "$report names no kernel"; exit 1; }
    awk '/Compiling entry function/ {
             turing = /sm_75/
             kernel = $0
             sub(/.*entry function ./, "", kernel)
             sub(/. for.*/, "", kernel)
         }
         /spill stores/ && !turing && !/ 0 bytes spill stores, 0 bytes spill loads/ {
             sub(/^ */, ""); print "spills: " kernel ": " $0; bad = 1 }
         END { exit bad }' "$report" || found=1
    echo "$report: $kernels kernels read"
done
exit $found
