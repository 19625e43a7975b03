#!/bin/sh
# Tests the CPU trainer with emulated AMX (`make amx`) against the plain loops and against the trainer without AMX.
. "$(dirname "$0")/../lib.sh"
amx=build/amx/train_gpt2

tiles_equal_the_plain_loops() {
    for more in "" "--fused 0 --attention plain" "--threads 1"; do
        must "$amx" check --dtype bf16 --cpu amx --model L=2,H=3,C=96,T=64,V=517 --max_steps 4 $more
        grep -q 'bf16, amx kernels' "$dir/out" || note "other kernels than AMX's ran: $(head -n 1 "$dir/out")"
    done
}

any_number_of_threads_gives_the_same_bits() {
    corpus
    for threads in 1 2 5; do
        must "$amx" $small $data --dtype bf16 --max_steps 5 --val_every 0 --threads $threads --out "$dir/$threads"
        model=step_00000005/model.safetensors
        cmp -s "$dir/1/$model" "$dir/$threads/$model" || note "$threads threads differ"
    done
    grep -q 'bf16, amx kernels' "$dir/err" || note "AMX was not chosen: $(grep kernels "$dir/err")"
}

without_amx_its_run_goes_on_with_other_kernels() {
    "$train" check --cpu amx --dtype bf16 --model nonsense 2>&1 | grep -q 'there are:' ||
        { skip='this processor has AMX'; return; }
    corpus
    must "$amx" $small $data --dtype bf16 --max_steps 4 --val_every 0 --out "$dir/run"
    must "$amx" --out "$dir/run" --resume auto --max_steps 6
    must "$train" --out "$dir/run" --resume auto --max_steps 8
    grep -q 'this processor has no amx kernels' "$dir/err" || note "no message about AMX: $(cat "$dir/err")"
    losses "$dir/run/log.txt" | awk 'END { exit NR != 8 }' || note "not 8 steps in all"
}

run_tests
