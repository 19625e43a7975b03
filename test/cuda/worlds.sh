#!/bin/sh
# Tests the GPU trainer in stricter worlds of the emulator (test/emulator/README.md): GPUs whose sums, functions, clocks
# and memory are no better than those of real ones. `long`: all tests of the emulated trainer in each world.
. "$(dirname "$0")/lib.sh"

# The largest errors that are documented, all together.
results_stay_within_bounds() {
    strict="EMU_TENSOR_CORES=1 EMU_APPROX=1 EMU_REUSE=1 EMU_CC=90"
    for type in bf16 fp8; do must env $strict "$cuda" check --dtype $type --max_steps 1 --recompute none; done
    [ -n "$long" ] || return # sums that are longer
    must env $strict "$cuda" check --dtype tf32
    wide="--model L=1,H=4,C=256,T=64,V=1003 --batch_size 2 --seq_len 64"
    for type in bf16 fp8; do must env $strict "$cuda" check $wide --dtype $type --max_steps 1; done
}

# What was chosen by such times is part of the run: it goes on with the same bits, though it would now choose otherwise.
# A fresh start takes the choices of an earlier one.
noisy_times_change_no_bits() {
    corpus
    run="$tiny $data --dtype bf16 --max_steps 4 --save_every 2 --tune anew"
    for seed in 1 2; do must env EMU_NOISE=$seed "$cuda" $run --out "$dir/$seed"; done
    cmp -s "$dir/1/step_00000004/model.safetensors" "$dir/2/step_00000004/model.safetensors" &&
        note "noise changes no choice"
    export EMU_NOISE=3
    for seed in 1 2; do
        go_on "$cuda" "$dir/$seed" 2 "$dir/again$seed"
        same_files "$dir/$seed" "$dir/again$seed" 4
    done
    unset EMU_NOISE
    export XDG_CACHE_HOME="$dir/cache"
    for seed in 4 5; do must env EMU_NOISE=$seed "$cuda" $run --tune 1 --out "$dir/$seed"; done
    same_files "$dir/4" "$dir/5" 4
    export XDG_CACHE_HOME="$root/cache"
}

# Where a batch just fits, enough is left for kernels and graphs that are loaded later, beside CUDA's context and NCCL.
# With less memory the run is refused.
memory_is_left_for_cuda() {
    corpus
    run="$tiny $data --batch_size auto --seq_len 16 --max_steps 3 --val_every 3 --val_tokens 200 --save_every 0"
    counts=1
    [ -z "$long" ] || counts='1 2'
    for gpus in $counts; do
        for mib in $(seq $((180 + 520 * gpus)) 20 1800); do
            limited env EMU_CHARGES=1 EMU_MEMORY=$((mib << 20)) EMU_COUNT=1 "$cuda" $run --gpus $gpus --out "$dir/run" \
                >"$dir/out" 2>"$dir/err"
            code=$?
            [ $code = 2 ] || break
        done
        [ $code = 0 ] || note "$gpus GPUs of $mib MiB: $(tail -n 1 "$dir/err")"
        grep -q ' [1-9][0-9]* graphs' "$dir/err" || note "no graph: $(tail -n 1 "$dir/err")"
    done
}

# No launch needs more registers than a block has, by the reports of the latest build with nvcc.
blocks_have_enough_registers() {
    for type in fp32 bf16; do
        report=$build/cuda_$type.ptxas
        [ -s "$report" ] || { skip="no nvcc built the GPU trainer here"; return; }
        must env EMU_PTXAS="$report" EMU_CC=90 "$cuda" check --dtype $type --max_steps 1 --recompute none
    done
}

# Not with noise, which changes the choices that some tests expect, nor with EMU_CHARGES, where others set too little
# memory.
in_every_world_all_tests_pass() {
    [ -n "$long" ] || { skip="tried by sh scripts/test.sh long"; return; }
    for world in EMU_TENSOR_CORES=1 EMU_APPROX=1 EMU_REUSE=1; do
        for script in cuda/kernels cuda/training cuda/tuning comm/gpus; do
            env $world sh test/$script.sh "$build" "$emu" >"$dir/log" 2>&1 ||
                note "$world: $script: $(grep FAILED "$dir/log")"
        done
    done
}

run_tests
