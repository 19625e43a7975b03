#!/bin/sh
# Tests training on an emulated GPU against the CPU trainer and itself.
. "$(dirname "$0")/lib.sh"
corpus

it_trains_as_the_cpu_does() {
    run="$tiny $data --total_batch_size 128 --max_steps 5 --save_every 0"
    must "$train" $run --out "$dir/cpu"
    must "$cuda" $run --out "$dir/fp32" --dtype fp32
    near "$dir/fp32" "$dir/cpu" 1e-5
    must "$cuda" $run --out "$dir/bf16" --recompute all
    near "$dir/bf16" "$dir/cpu" 0.02
    grep -q 'bf16 MFU' "$dir/out" || note "the step line does not name bf16"
    must "$cuda" $run --out "$dir/random" --stochastic_round 1
    same_digits "$dir/random" "$dir/bf16" && note "--stochastic_round 1 changed nothing"
    must "$train" $run --out "$dir/cpu_stream" --dtype bf16 --residual bf16
    must "$cuda" $run --out "$dir/stream" --residual bf16
    must "$cuda" $run --out "$dir/again" --residual bf16 --recompute all
    near "$dir/stream" "$dir/cpu_stream" 0.02
    same_digits "$dir/again" "$dir/stream" || note "a layernorm computed again is not that of the rounded stream"
    same_digits "$dir/stream" "$dir/bf16" && note "--residual bf16 changed nothing"
}

# cuDNN's attention does not stop at documents.
it_keeps_documents_apart_as_the_cpu_does() {
    run="$tiny $data --seq_len 48 --total_batch_size 192 --max_steps 5 --save_every 0"
    must "$train" $run --document_mask --out "$dir/cpu"
    must "$cuda" $run --document_mask --out "$dir/fp32" --dtype fp32
    must "$cuda" $run --document_mask --out "$dir/plain" --dtype fp32 --kernels plain --graph 0
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $run --document_mask --out "$dir/bf16" --recompute all
    grep -q 'attention_backward=flash' "$dir/err" || note "other kernels: $(cat "$dir/err")"
    must "$cuda" $run --out "$dir/whole" --dtype fp32
    near "$dir/fp32" "$dir/cpu" 1e-5
    near "$dir/plain" "$dir/cpu" 1e-5
    near "$dir/bf16" "$dir/cpu" 0.02
    same_digits "$dir/whole" "$dir/fp32" && note "--document_mask changed nothing"
    expect 2 "only this program's attention stops at documents: give --attention flash" env EMU_CUDNN=1 "$cuda" $run \
        --document_mask --attention cudnn --out ""
}

# Also with weights that are rounded stochastically, by the same random numbers.
it_trains_in_fp16_as_the_cpu_does() {
    has_fp16 || return
    run="$tiny $data --max_steps 6 --save_every 3 --keep 0 --dtype fp16"
    for rounding in nearest random; do
        must "$train" $run --out "$dir/cpu_$rounding"
        must "$cuda" $run --out "$dir/$rounding"
        near "$dir/$rounding" "$dir/cpu_$rounding" 3e-4
        grep -q 'fp16 MFU' "$dir/out" || note "the step line does not name fp16"
        run="$run --stochastic_round"
    done
    same_digits "$dir/nearest" "$dir/random" && note "rounding at random changes nothing"
}

# Mean relative difference of 200 losses from those in bf16: 2e-4 for fp32, 1.3e-4 for fp8; 3e-3 for a scale that is
# wrong by half, and 1.6e-3 for a weight that is not transposed for the gradient of the activations.
steps_in_fp8_are_those_in_bf16() {
    run="--model L=2,H=1,C=16,T=32,V=257 --tokenizer bytes --batch_size 1 --seq_len 32 --lr 2e-3 --warmup_steps 20 \
        --max_steps 80 --val_every 0 --sample_every 0 --save_every 0 --tune 0"
    for type in bf16 fp8; do
        must env EMU_CC=90 "$cuda" $run $data --out "$dir/$type" --dtype $type
        all_digits "$dir/$type" >"$dir/$type.txt"
    done
    grep -q 'fp8 MFU' "$dir/out" || note "the step line does not name fp8"
    paste -d ' ' "$dir/fp8.txt" "$dir/bf16.txt" | awk '
        { d = $3 / $7 - 1; sum += d < 0 ? -d : d; if ($3 != $7) other = 1 }
        END { print sum / NR; exit !(NR == 80 && other && sum / NR < 6e-4) }' >"$dir/mean" ||
        note "losses differ by $(cat "$dir/mean")"
}

# A scale of 2^24 is too large for fp16: the first steps overflow. Every step has the same batch, so that the others are
# those of a run with the fixed scale that was found, to the bit. A change of the scale records the two micro-steps of
# a step anew (those of the first step are warm-up); otherwise they are replayed.
overflows_in_fp16_skip_updates() {
    run="$tiny $data --dtype fp16 --overfit --schedule constant --total_batch_size 128 --save_every 1 --keep 0 \
        --optimizer muon --momentum 0.95,warmup:none"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --loss_scale dynamic:16777216 --max_steps 8 --out "$dir/run"
    graphs=$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err") state="$dir/run/step_00000008/state.json"
    scale=$(values_of scale "$state") updates=$(values_of updates "$state")
    overflows=$(grep -c '"kind":"skip"' "$dir/run/metrics.jsonl")
    [ "$updates" = $((8 - overflows)) ] && [ "$overflows" -ge 2 ] && [ "$updates" -ge 2 ] ||
        note "$updates updates, $overflows overflows"
    [ "$graphs" = $((2 + 2 * overflows)) ] || note "$overflows overflows, $graphs graphs"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --loss_scale "$scale" --max_steps "$updates" --out "$dir/fixed"
    grep -q ' 4 graphs' "$dir/err" || note "a fixed scale: $(tail -n 1 "$dir/err")"
    same_checkpoint "$dir/fixed/step_$(printf %08d "$updates")" "$dir/run/step_00000008"
    must "$cuda" $run --graph 0 --loss_scale dynamic:16777216 --max_steps 8 --skip_z 9:9 \
        --out "$dir/waits"
    same_files "$dir/run" "$dir/waits" 8
    go_on "$cuda" "$dir/run" 2 "$dir/again"
    same_files "$dir/run" "$dir/again" 8
    expect 4 'not finite, so the run ends here. Give --loss_scale dynamic' "$cuda" $run --loss_scale 16777216 --out ""
    for program in "$train" "$cuda"; do
        must "$program" $run --max_steps 8 --save_every 0 --out "$dir/${program##*/}"
    done
    near "$dir/train_gpt2cu" "$dir/train_gpt2" 2e-3
}

# An infinite weight must not become FP8's largest number. The test writes the largest float, which is infinite in bf16.
fp8_hides_no_infinity() {
    export EMU_CC=90
    must "$train" $tiny $data --max_steps 1 --out "$dir/run"
    mkdir "$dir/bad"
    cp "$dir/run/step_00000001/config.json" "$dir/run/step_00000001/model.safetensors" "$dir/bad"
    file="$dir/bad/model.safetensors"
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    begin=$(head -c $((8 + header)) "$file" |
        sed 's/.*"transformer.h.1.mlp.c_fc.weight": *{[^}]*"data_offsets": *\[\([0-9]*\),.*/\1/' | tail -n 1)
    must "$cuda" $tiny $data --dtype fp8 --max_steps 1 --save_every 0 --init "$dir/bad" --out "$dir/good"
    printf '\377\377\177\177' | dd of="$file" bs=1 seek=$((8 + header + begin)) conv=notrunc 2>/dev/null
    expect 4 'not finite' "$cuda" $tiny $data --dtype fp8 --max_steps 1 --init "$dir/bad" --out "$dir/inf"
    unset EMU_CC
}

# Weights and moments have the same bits in other orders of threads and blocks, and with streams that run only when the
# host waits for them.
the_same_run_gives_the_same_bits() {
    for type in fp32 bf16; do
        run="$tiny $data --dtype $type --max_steps 3 --save_every 3"
        must "$cuda" $run --out "$dir/$type"
        must env EMU_ORDER=1 "$cuda" $run --out "$dir/$type.reverse"
        must env EMU_ORDER=5 EMU_LAZY=1 "$cuda" $run --out "$dir/$type.lazy"
        for other in reverse lazy; do same_files "$dir/$type" "$dir/$type.$other" 3; done
    done
}

# The CPU fills the windows of z-scores. On the GPU step 134, windows 266 and 267, is a spike: the run ends, goes on
# from step 132 without windows 264 to 267, and ends with the bits of a run on data without them.
a_run_goes_back_and_leaves_out_a_spike() {
    seq -f %07g 2000 | sed '1065,1072s/.*/~~~~~~~/' >"$dir/bad.txt"
    sed 1057,1072d "$dir/bad.txt" >"$dir/clean.txt"
    for name in bad clean; do
        must "$prepare" --format text --tokenizer bytes --val_size 0 --out "$dir/$name" "$dir/$name.txt"
        must "$train" $tiny --shuffle 0 --schedule constant --max_steps 130 --save_every 130 --skip_z 3 \
            --on_spike stop:1 --train_data "$dir/${name}_train_*.bin" --out "$dir/$name"
    done
    on="--resume auto --max_steps 138 --save_every 2 --keep 0"
    must env EMU_LAZY=1 "$cuda" --out "$dir/clean" $on
    expect 4 'step_00000132. To go on from it without the data since then: --resume auto --skip_windows 264-267' \
        env EMU_LAZY=1 "$cuda" --out "$dir/bad" $on
    must env EMU_LAZY=1 "$cuda" --out "$dir/bad" $on --skip_windows 264-267
    same_files "$dir/clean" "$dir/bad" 138
}

checkpoints_go_from_one_device_to_the_other() {
    run="$tiny $data --max_steps 8 --save_every 4"
    must "$train" $run --out "$dir/cpu"
    go_on "$cuda" "$dir/cpu" 4 "$dir/to_gpu"
    near "$dir/to_gpu" "$dir/cpu" 1e-5
    must "$cuda" $run --dtype fp32 --out "$dir/gpu"
    go_on "$train" "$dir/gpu" 4 "$dir/to_cpu"
    near "$dir/to_cpu" "$dir/cpu" 1e-5
}

a_resumed_run_keeps_its_bits_and_its_dtype() {
    run="$tiny $data --max_steps 4 --save_every 2"
    export EMU_CC=90
    for type in tf32 bf16 fp16 fp8; do
        [ $type != fp16 ] || has_fp16 || continue
        round="--stochastic_round 1" # where weights are rounded
        [ $type != tf32 ] || round=
        must "$cuda" $run --dtype $type $round --out "$dir/$type"
        go_on "$cuda" "$dir/$type" 2 "$dir/again"
        grep -q ", $type, " "$dir/err" || note "$type run resumed in another dtype: $(grep TFLOP "$dir/err")"
        same_files "$dir/$type" "$dir/again" 4
        rm -r "$dir/again"
    done
    cp -r "$dir/fp8/step_00000002" "$dir/fp8/metrics.jsonl" "$dir/tf32" && rm -r "$dir/tf32/step_00000004"
    must "$cuda" --out "$dir/tf32" --resume auto --dtype bf16
    grep -q 'changed since the checkpoint: --dtype bf16 (was fp8)' "$dir/err" || note "fp8 to bf16: $(cat "$dir/err")"
    unset EMU_CC
}

# Replayed graphs give the bits of kernels launched one by one: with two and five micro-batches a step (after an odd
# number, or a validation, the next step may begin with the other of the two batch buffers; five are more than the
# loader has memory for), with batches that are copied as late (EMU_LAZY=1), or as early (2), as they may, and with
# validation and samples in between. Five late ones find an upload that does not wait for the one before, or for the
# work on what it overwrites. Each buffer has two graphs: of a step's first micro-batch, and of others.
graphs_change_no_bit() {
    for way in 128:2 320:1; do # tokens:EMU_LAZY
        run="$tiny $data --seq_len 16 --batch_size 4 --total_batch_size ${way%:*} --max_steps 4 --save_every 4 \
            --val_every 2 --val_tokens 160 --sample_every 3 --sample_tokens 3"
        must "$cuda" $run --graph 0 --out "$dir/launches"
        must env EMU_COUNT=1 EMU_LAZY=${way#*:} "$cuda" $run --out "$dir/graphs"
        grep -q ' 6 graphs' "$dir/err" ||
            note "not the graphs of four micro-steps, norm and update: $(grep ' graphs' "$dir/err")"
        same_files "$dir/launches" "$dir/graphs" 4
        rm -r "$dir/launches" "$dir/graphs"
    done
}

# GELU that is recomputed is that of the forward: with a library that would fuse it (compute capability 9.0) a run has
# the bits of one that keeps GELU's output, computed by the same kernel (8.0). EMU_LT=3: backward fuses nothing in both.
a_recomputed_gelu_is_that_of_forward() {
    run="$small $data --val_every 0 --dtype bf16 --tune 0 --max_steps 2 --save_every 2"
    must env EMU_LT=3 EMU_CC=80 "$cuda" $run --recompute none --out "$dir/kept"
    must env EMU_LT=3 EMU_CC=90 "$cuda" $run --recompute gelu --out "$dir/recomputed"
    cmp "$dir/kept/step_00000002/model.safetensors" "$dir/recomputed/step_00000002/model.safetensors" ||
        note "other weights"
}

# Muon trains as on the CPU, also with more matrices than a stack holds. Graphs, a resumption and algorithms that were
# chosen before change no bit.
muon_trains_as_the_cpu_does() {
    run="$tiny $data --optimizer muon --matrix_lr 0.05 --cautious_decay 1 --schedule constant --max_steps 10 \
        --save_every 3 --keep 0"
    deep="$run --model L=17,H=1,C=12,T=48,V=257 --max_steps 3 --kernels plain"
    must "$train" $run --dtype fp32 --out "$dir/cpu"
    must "$cuda" $run --dtype fp32 --out "$dir/fp32"
    must "$train" $deep --dtype fp32 --out "$dir/deep_cpu"
    must "$cuda" $deep --dtype fp32 --out "$dir/deep"
    near "$dir/fp32" "$dir/cpu" 1e-5
    near "$dir/deep" "$dir/deep_cpu" 1e-5

    run="$run --dtype bf16 --max_steps 6 --tune anew"
    must env EMU_SLOW=cublaslt_0 EMU_LAZY=1 EMU_COUNT=1 "$cuda" $run --out "$dir/bf16"
    grep -q ',8,1,0 ' "$dir/bf16/step_00000006/state.json" || note "no algorithm for a stack of 8 matrices was chosen"
    grep -q ' 4 graphs' "$dir/err" || note "$(tail -n 1 "$dir/err")"
    near "$dir/bf16" "$dir/cpu" 1e-2 6
    must "$cuda" $run --stochastic_round 1 --max_steps 2 --save_every 0 --out "$dir/stochastic"
    near "$dir/stochastic" "$dir/cpu" 1e-2 2
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --graph 0 --out "$dir/launches"
    same_files "$dir/bf16" "$dir/launches" 6
    go_on "$cuda" "$dir/bf16" 3 "$dir/resumed" --tune anew
    same_files "$dir/bf16" "$dir/resumed" 6
}

# Masters and moments in host memory give the bits of those on the GPU, in a resumed run too, and with copies that run
# as late, or as early, as they may.
state_in_host_memory_changes_no_bit() {
    run="$tiny $data --max_steps 3 --save_every 1 --keep 0"
    for options in "--dtype bf16 --stochastic_round 1" "--dtype fp32 --optimizer muon" \
        "--dtype bf16 --optimizer muon"; do
        rm -rf "$dir/run" "$dir/late" "$dir/early" "$dir/resumed"
        must "$cuda" $run $options --out "$dir/run"
        must env EMU_LAZY=1 "$cuda" $run $options --offload optimizer --out "$dir/late"
        must env EMU_LAZY=2 "$cuda" $run $options --offload optimizer --out "$dir/early"
        go_on "$cuda" "$dir/late" 2 "$dir/resumed"
        for name in late early resumed; do
            for step in 2 3; do same_files "$dir/run" "$dir/$name" $step; done
            same_digits "$dir/$name" "$dir/run" || note "$options, $name: other losses and norms"
        done
    done
}

state_that_cannot_be_locked_is_copied_from_pageable_memory() {
    run="$tiny $data --dtype bf16 --max_steps 3 --save_every 3"
    must "$cuda" $run --out "$dir/run"
    must env EMU_LOCKABLE=100000 EMU_LAZY=1 "$cuda" $run --offload optimizer --out "$dir/offloaded"
    [ "$(grep -c 'of host memory cannot be locked in place: copies to the GPU are slower' "$dir/err")" = 1 ] ||
        note "not one warning: $(head -n 3 "$dir/err")"
    same_files "$dir/run" "$dir/offloaded" 3
}

# Values that a graph holds change: the weight of a token in the loss, and the rows of a micro-batch that is not full.
graphs_follow_a_growing_batch_and_a_resumed_run() {
    run="$tiny $data --seq_len 16 --batch_size 4 --total_batch_size 192 --batch_ramp 48:400 --max_steps 5 \
        --save_every 6 --keep 0"
    must "$cuda" $run --dtype fp32 --graph 0 --out "$dir/launches"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --dtype fp32 --out "$dir/graphs"
    [ "$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err")" -gt 4 ] ||
        note "nothing was recorded again: $(tail -n 1 "$dir/err")"
    same_files "$dir/launches" "$dir/graphs" 10
    same_digits "$dir/graphs" "$dir/launches" || note "other losses and norms"
    go_on "$cuda" "$dir/graphs" 6 "$dir/resumed"
    same_files "$dir/launches" "$dir/resumed" 10
}

# More than 1024 channels: layernorm's backward then loads its rows in another order.
wide_rows_train_as_on_the_cpu() {
    run="--model L=1,H=129,C=1032,T=4,V=257 --tokenizer bytes --batch_size 1 $data $quiet --save_every 0 --max_steps 1"
    must "$train" $run --dtype fp32 --out "$dir/cpu"
    must "$cuda" $run --dtype fp32 --tune 0 --out "$dir/fp32"
    must "$cuda" $run --dtype bf16 --residual bf16 --tune 0 --out "$dir/stream"
    near "$dir/fp32" "$dir/cpu" 1e-5
    near "$dir/stream" "$dir/cpu" 0.02
}

# Graphs are recorded anew for each length. A step has three micro-batches, the first of which sets gradients: those of
# the first step take one graph, as two are warm-up, of the second three, of the third and fourth four. cuDNN computes
# attention of the full length, our kernels the others.
sequences_grow_as_on_the_cpu() {
    run="$tiny $data --total_batch_size 192 --seq_ramp 8:384 --max_steps 4 --save_every 2"
    must "$train" $run --out "$dir/cpu"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --dtype fp32 --out "$dir/graphs"
    [ "$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err")" = 10 ] ||
        note "not the graphs of each length, norm and update: $(grep ' graphs' "$dir/err")"
    must "$cuda" $run --dtype fp32 --graph 0 --out "$dir/launches"
    near "$dir/graphs" "$dir/cpu" 1e-5
    same_files "$dir/launches" "$dir/graphs" 4
    go_on "$cuda" "$dir/graphs" 2 "$dir/resumed"
    same_files "$dir/launches" "$dir/resumed" 4
    must env EMU_CUDNN=1 "$cuda" $run --attention cudnn --out "$dir/cudnn"
    near "$dir/cudnn" "$dir/cpu" 0.02
}

growing_sequences_keep_documents_apart() {
    run="$tiny $data --total_batch_size 192 --seq_len 48 --seq_ramp 12:384 --document_mask --max_steps 4 --save_every 2"
    must "$train" $run --dtype fp32 --out "$dir/cpu"
    must "$cuda" $run --dtype fp32 --out "$dir/gpu"
    must "$train" $run --dtype fp32 --document_mask 0 --out "$dir/whole"
    near "$dir/gpu" "$dir/cpu" 1e-5
    same_digits "$dir/whole" "$dir/cpu" && note "--document_mask changed nothing"
    go_on "$train" "$dir/cpu" 2 "$dir/again_cpu"
    go_on "$cuda" "$dir/gpu" 2 "$dir/again_gpu"
    for r in cpu gpu; do same_files "$dir/$r" "$dir/again_$r" 4; done
}

# Capturing piece 20, in the micro-step, or piece 77, in the update, fails: training goes on without graphs, and says so
# once. With --skip_z the host waits for the loss before it queues the update: the bits stay the same.
training_does_without_graphs_that_cannot_be_recorded() {
    run="$tiny $data --max_steps 4 --save_every 4"
    must "$cuda" $run --graph 0 --out "$dir/launches"
    for piece in 20 77; do
        must env EMU_CAPTURE=$piece "$cuda" $run --out "$dir/graphs"
        [ "$(grep -c 'cannot be recorded as a CUDA graph' "$dir/err")" = 1 ] ||
            note "piece $piece: $(grep -a graph "$dir/err")"
        same_files "$dir/launches" "$dir/graphs" 4
        rm -r "$dir/graphs"
    done
    must "$cuda" $run --skip_z 9:9 --out "$dir/graphs"
    same_files "$dir/launches" "$dir/graphs" 4
}

text_and_validation_are_the_cpus() {
    must "$train" $tiny $data --max_steps 30 --save_every 30 --out "$dir/run"
    "$train" generate --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon' \
        >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" generate --dtype fp32 --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon'
    cmp -s "$dir/out" "$dir/cpu.txt" || note "another text: $(cat "$dir/out")"
    "$train" eval --out "$dir/run" --val_tokens 2000 >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" eval --dtype fp32 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-10) }' ||
        note "$(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" eval --dtype bf16 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-5) }' ||
        note "bf16: $(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" generate --dtype bf16 --out "$dir/run" --sample_tokens 10
    must "$cuda" info --model L=2,H=2,C=32,T=48,V=257
    grep -q 'the largest --batch_size that fits' "$dir/out" || note "info ended early"
}

test_sets_have_the_scores_of_the_cpu() {
    scored="--init test/golden/gpt2 --tokenizer test/golden/eval/tokenizer.bin --eval_data \
        test/golden/eval/hellaswag.jsonl,test/golden/eval/lambada.jsonl"
    "$train" eval $scored 2>/dev/null | grep '^[HL]' >"$dir/cpu.txt"
    for dtype in fp32 bf16; do
        must "$cuda" eval $scored --dtype $dtype --batch_size 3
        grep '^[HL]' "$dir/out" | cmp -s - "$dir/cpu.txt" || note "$dtype: $(cat "$dir/out"), not $(cat "$dir/cpu.txt")"
    done
}

run_tests
