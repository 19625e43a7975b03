#!/bin/sh
# Counts the memory traffic of the kernels of a training step under the emulator (test/emulator/include/emu/traffic.h).
# A kernel may move the least sectors of global memory, and 1.1 times the least wavefronts of shared memory. The shape
# has whole tiles: C = 128 is a row of 32 lanes that load 16 bytes each.
# sh test/cuda/traffic.sh build/emu-check [WORD...]: the tables are written to the folder
. "$(dirname "$0")/../lib.sh"
T=128
[ -z "$long" ] || T=256 # as in dev/bench/results/traffic
export OMP_NUM_THREADS=1 EMU_CUDNN=0

# Runs one training step, which writes the table $emu/traffic_NAME.txt. The test fails if the table misses a kernel of
# every step, or if a kernel moves too much.
count() { # NAME OPTION...
    corpus
    table="$emu/traffic_$1.txt"
    shift
    rm -f "$table"
    must env EMU_TRAFFIC="$table" "$cuda" --model L=1,H=2,C=128,T=$T,V=4352 --batch_size 1 --seq_len $T \
        --max_steps 1 --tokenizer bytes $data --val_every 0 --sample_every 0 --save_every 0 --tune 0 \
        --out "$dir/run" "$@"
    for kernel in encoder_forward layernorm_forward flash_forward flash_backward_keys softmax_held adamw_update; do
        grep -q "^$kernel[< ]" "$table" || note "$table has no $kernel"
    done
    awk '
        !NF { exit } # the accesses follow
        NR > 2 {
            if ($5 != "-" && $5 > 1) print $1 " moves " $5 " times the least sectors"
            if ($8 != "-" && $8 > 1.1) print $1 " takes " $8 " times the least wavefronts, not 1.1"
        }' "$table" >"$dir/problems"
    [ ! -s "$dir/problems" ] || note "$(cat "$dir/problems")
$(sed '1,/^$/d' "$table")"
}

kernels_in_bf16_move_the_least() {
    count bf16 --dtype bf16
}
kernels_in_fp32_and_unfused_ones_move_the_least() {
    count fp32 --dtype fp32 --fused 0
}
a_residual_stream_in_bf16_moves_the_least() {
    count residual --dtype bf16 --residual bf16 --optimizer muon
    grep -q '^muon_weights<4>' "$table" || note "$table has no muon_weights<4>"
}
kernels_in_fp8_move_the_least() {
    [ -n "$long" ] || { skip='takes long: sh scripts/test.sh long'; return; }
    export EMU_CC=90
    count fp8 --dtype fp8
}

run_tests
