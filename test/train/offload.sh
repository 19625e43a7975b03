#!/bin/sh
# Tests that a run with masters and moments in host memory (--offload optimizer) gives the bits of one without: losses
# and norms, unrounded, and the weights and moments of its checkpoints. Here on a CPU; test/cuda/training.sh does it on
# GPUs.
. "$(dirname "$0")/../comm/lib.sh"
corpus

offloaded="$small --total_batch_size 256 --max_steps 8 --val_every 4 --val_tokens 512 --save_every 4 --keep 0"

bits_of() { # RUN: losses and norms, unrounded, and sums of the tensors in all checkpoints
    all_digits "$1"
    (cd "$1" && find . -name "*.safetensors" -exec cksum {} + | sort)
}
same_bits() { # RUN RUN
    bits_of "$1" >"$dir/a"
    bits_of "$2" >"$dir/b"
    [ "$(wc -l <"$dir/a")" -gt 12 ] || note "$1 has too few numbers: $(wc -l <"$dir/a")"
    cmp -s "$dir/a" "$dir/b" || note "$1 and $2 differ: $(diff "$dir/a" "$dir/b" | head -n 3 | tr '\n' ' ')"
}

it_changes_no_bit() {
    for options in "--dtype fp32" "--dtype bf16 --stochastic_round 1" "--dtype fp16 --grad_clip 0.5" \
        "--dtype fp32 --optimizer muon" "--dtype bf16 --optimizer muon --cautious_decay 1"; do
        rm -rf "$dir/run" "$dir/offloaded"
        must "$train" $offloaded $data $options --out "$dir/run"
        must "$train" $offloaded $data $options --offload optimizer --out "$dir/offloaded"
        same_bits "$dir/run" "$dir/offloaded"
    done
}

it_changes_no_bit_of_ranks_that_shard() {
    for kind in adamw muon; do
        for place in none optimizer; do
            must ranks 2 "$train" $offloaded $data --dtype bf16 --optimizer $kind --zero 1 --offload $place \
                --out "$dir/$kind-$place"
        done
        same_bits "$dir/$kind-none" "$dir/$kind-optimizer"
    done
}

# The weights of a checkpoint are masters, rounded at random as the update before it has done.
a_resumed_run_may_begin_or_end_it() {
    common="$offloaded $data --dtype bf16 --stochastic_round 1"
    for way in none:optimizer optimizer:none; do
        must "$train" $common --offload ${way%:*} --out "$dir/run-$way"
        go_on "$train" "$dir/run-$way" 4 "$dir/$way" --offload ${way#*:}
        same_bits "$dir/run-$way" "$dir/$way"
    done
}

killed_and_resumed_it_ends_with_the_same_bits() {
    common="$small $data --total_batch_size 256 --schedule constant --val_every 0 --save_every 3 --keep 2 \
        --offload optimizer"
    for try in 1 2; do
        begin "$train" $common --max_steps 100000000 --out "$dir/killed" --resume auto
        await 'saved step' "$dir/err" $pid
        kill -9 $pid
        finish $pid 2>/dev/null
    done
    steps=$(($(ls "$dir/killed" | sed -n 's/^step_0*//p' | tail -n 1) + 3))
    must "$train" $common --max_steps $steps --out "$dir/killed" --resume auto
    must "$train" $common --max_steps $steps --offload none --out "$dir/whole"
    last=step_$(printf %08d $steps)
    same_checkpoint "$dir/whole/$last" "$dir/killed/$last"
}

run_tests
