#!/bin/sh
# No kernel of the GPU trainer keeps registers in memory ("spills"), by the compiler's own account, which the build leaves
# beside each object. usage: spills.sh build/CONFIG
build=${1:?usage: spills.sh build/CONFIG}
found=0
for account in "$build"/cuda_fp32.ptxas "$build"/cuda_bf16.ptxas; do
    [ -s "$account" ] || { echo "no $account: make train_gpt2cu first"; exit 1; }
    kernels=$(grep -c 'Compiling entry function' "$account")
    [ "$kernels" -gt 0 ] || { echo "$account names no kernel"; exit 1; }
    awk '/Compiling entry function/ { kernel = $0; sub(/.*entry function ./, "", kernel); sub(/. for.*/, "", kernel) }
         /spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { sub(/^ */, ""); print "spills: " kernel ": " $0; bad = 1 }
         END { exit bad }' "$account" || found=1
    echo "$account: $kernels kernels read"
done
exit $found
