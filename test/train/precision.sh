#!/bin/sh
# Tests dtypes, kernels, loss scales and stochastic rounding, alone and in a resumed run.
. "$(dirname "$0")/../lib.sh"
corpus

scales_of() { records "$1" | sed -n 's/.*"kind":"train".*"loss_scale":\([^,}]*\).*/\1/p'; } # RUN

# Gradients are multiplied and divided by powers of two.
a_loss_scale_changes_no_bit() {
    common="$small $data --val_every 0 --max_steps 10 --save_every 10 --total_batch_size 256 --grad_clip 1.5"
    for type in fp32 bf16 muon; do
        [ $type = muon ] && options="--dtype fp32 --optimizer muon" || options="--dtype $type"
        must "$train" $common $options --out "$dir/$type"
        for scale in 4096 dynamic; do
            must "$train" $common $options --loss_scale $scale --out "$dir/$type.$scale"
            same_checkpoint "$dir/$type/step_00000010" "$dir/$type.$scale/step_00000010"
            losses "$dir/$type/log.txt" >"$dir/a"
            losses "$dir/$type.$scale/log.txt" | cmp -s - "$dir/a" || note "$type, $scale: other losses or norms"
        done
        scales=$(scales_of "$dir/$type.dynamic" | uniq -c | tr -s ' \n' ' ')
        [ "$scales" = " 10 65536.0 " ] || note "$type: scales $scales"
    done
}

# Mean relative differences of 200 losses from those in fp32: 5.7e-4 for bf16, 2.6e-5 for fp16.
fp16_learns_as_fp32_does() {
    for type in fp32 bf16 fp16; do
        must "$train" $small $data --lr 1e-3 --dtype $type --max_steps 200 --val_every 0 --save_every 0 \
            --out "$dir/run"
        sed -n 's/.*"kind":"train".*"loss":\([^,]*\),.*/\1/p' "$dir/run/metrics.jsonl" >"$dir/losses"
        [ -s "$dir/fp32" ] || cp "$dir/losses" "$dir/fp32"
        paste -d ' ' "$dir/losses" "$dir/fp32" | awk '
            { d = $1 / $2 - 1; sum += d < 0 ? -d : d } END { print sum / NR, NR }' >>"$dir/differences"
    done
    tr '\n' ' ' <"$dir/differences" | awk '{ exit !(NF == 6 && $6 == 200 && $5 < $3 / 4) }' ||
        note "differences: $(cat "$dir/differences")"
}

# With one token in a batch, 2^127 is more than a gradient in fp32 can be multiplied by: the first step overflows. Every
# step has the same batch, so that the others are those of a run without the first one, to the bit: moments, bias
# correction and windows of outliers are as they were. With --skip_z the host waits for the loss before it updates.
wide="--batch_size 1 --seq_len 1 --val_every 0 --loss_scale dynamic:0x1p127"

an_overflow_skips_the_update_and_halves_the_scale() {
    common="$small $data $wide --overfit --schedule constant --grad_clip 0 --keep 0 --save_every 1"
    must "$train" $common --loss_scale off --max_steps 3 --out "$dir/off"
    must "$train" $common --max_steps 4 --out "$dir/run"
    must "$train" $common --max_steps 4 --skip_z 9:9 --out "$dir/waits"
    for out in run waits; do
        same_checkpoint "$dir/off/step_00000003" "$dir/$out/step_00000004"
        skips=$(grep '"kind":"skip"' "$dir/$out/metrics.jsonl")
        [ "$skips" = '{"kind":"skip","step":1,"what":"overflow","loss_scale":1.7014118e38}' ] || note "$out: $skips"
        grep -q '^step 1: the gradient overflowed with a loss scale of 1.70141183e+38: ' "$dir/$out/log.txt" ||
            note "$out: not in the log"
        state="$dir/$out/step_00000004/state.json"
        got=$(for name in step updates scale good_steps; do values_of $name "$state"; done | tr '\n' ' ')
        [ "$got" = "4 3 8.5070591730234616e37 3 " ] || note "$out: step, updates, scale, good steps: $got"
        for window in loss_window norm_window; do
            sed -n "/\"$window\"/,/]/p" "$state" >"$dir/a"
            sed -n "/\"$window\"/,/]/p" "$dir/off/step_00000003/state.json" | cmp -s - "$dir/a" || note "$out: $window"
        done
    done
}

# It is stopped after an overflow and two steps without.
a_resumed_run_keeps_its_loss_scale() {
    common="$small $data $wide --max_steps 9 --save_every 3 --keep 0"
    must "$train" $common --out "$dir/run"
    mkdir "$dir/again" "$dir/other"
    cp -r "$dir/run/step_00000003" "$dir/run/metrics.jsonl" "$dir/run/log.txt" "$dir/again"
    cp -r "$dir/run/step_00000003" "$dir/other"
    must "$train" --out "$dir/again" --resume auto
    same_checkpoint "$dir/run/step_00000009" "$dir/again/step_00000009"
    for name in scale good_steps updates; do
        values_of $name "$dir/run/step_00000009/state.json" >"$dir/a"
        values_of $name "$dir/again/step_00000009/state.json" | cmp -s - "$dir/a" || note "another $name"
    done
    [ "$(scales_of "$dir/run" | uniq | wc -l)" = 2 ] || note "$(scales_of "$dir/run")"
    [ "$(scales_of "$dir/run")" = "$(scales_of "$dir/again")" ] || note "other scales: $(scales_of "$dir/again")"
    [ "$(records "$dir/again" | grep -c '"overflow"')" = "$(records "$dir/run" | grep -c '"overflow"')" ] ||
        note "other overflows in the log: $(records "$dir/again" | grep '"overflow"')"
    must "$train" --out "$dir/other" --resume auto --loss_scale dynamic:8 # another option begins anew
    grep -q '"step":4,.*"loss_scale":8.0}' "$dir/other/metrics.jsonl" || note "$(tail -n 2 "$dir/other/metrics.jsonl")"
}

what_no_loss_scale_can_mend_ends_the_run() {
    common="$small $data --val_every 0 --save_every 0 --max_steps 40"
    expect 4 'with a loss scale of 1.70141183e+38: not finite, so the run ends here. Give --loss_scale dynamic.' \
        "$train" $common $wide --loss_scale 0x1p127 --out ""
    expect 4 'with a loss scale of 65536: not finite, so the run ends here. Lower --lr' "$train" $common --lr 1e3 \
        --grad_clip 0 --weight_decay 100 --schedule constant --loss_scale dynamic --out ""
    expect 2 '--loss_scale 3: give a power of two' "$train" $common --loss_scale 3 --out ""
    # after eight steps in a row, wherever the run was resumed
    expect 4 'step 9: ' "$train" $small $data --dtype fp16 --loss_scale 1073741824 --skip_z 7 --save_every 5 --keep 0 \
        --val_every 0 --max_steps 40 --out "$dir/run"
    expect 4 'step 9: ' "$train" --resume auto --out "$dir/run"
}

weights_rounded_at_random_resume_with_the_same_bits() {
    for options in "--optimizer adamw --dtype bf16" "--optimizer muon --embedding_lr 1e-3 --dtype bf16" \
        "--optimizer adamw --dtype fp16 --loss_scale dynamic:65536"; do # which skips the first updates
        must "$train" $small $data $options --stochastic_round 1 --max_steps 8 --save_every 4 --val_every 0 \
            --out "$dir/run"
        go_on "$train" "$dir/run" 4 "$dir/again"
        same_checkpoint "$dir/run/step_00000008" "$dir/again/step_00000008"
        rm -r "$dir/run" "$dir/again"
    done
}

has_level() { # LEVEL DTYPE: true unless this processor or build lacks the level, which `check` refuses
    "$train" check --cpu "$1" --dtype "$2" --model nonsense 2>&1 | grep -q 'there are:' && return 1
    return 0
}

every_level_of_instructions_trains_alike() {
    for dtype in fp32 bf16; do
        levels=0
        for level in generic avx2 avx512 avx512_bf16 amx; do
            has_level $level $dtype || continue
            levels=$((levels + 1))
            must "$train" $small $data --val_data "" --max_steps 12 --dtype $dtype --cpu $level --save_every 0 --out ""
            grep -q " $dtype, $level kernels" "$dir/err" || note "$dtype $level: $(head -n 3 "$dir/err")"
            losses "$dir/out" | tail -n 1 >>"$dir/$dtype"
        done
        [ "$(wc -l <"$dir/$dtype")" = $levels ] || note "$dtype: not $levels levels"
        awk -v most=$([ $dtype = fp32 ] && echo 1e-5 || echo 2e-3) '
            NR == 1 { first = $2 } { d = $2 / first - 1; if (d < 0) { d = -d } if (d > most) { bad = 1 } }
            END { exit bad }' "$dir/$dtype" || note "$dtype losses: $(cut -d ' ' -f 2 "$dir/$dtype" | tr '\n' ' ')"
    done
    cmp -s "$dir/fp32" "$dir/bf16" && note "bf16 gives the losses of fp32"
}

a_resumed_run_keeps_its_kernels_and_its_dtype() {
    must "$train" $small $data --max_steps 3 --val_every 0 --dtype bf16 --cpu generic --out "$dir/run"
    grep -q '"cpu": "generic"' "$dir/run/step_00000003/state.json" || note "state.json names no kernels"
    must "$train" --out "$dir/run" --resume auto --max_steps 6
    grep -q ' bf16, generic kernels' "$dir/err" || note "resumed with: $(grep kernels "$dir/err")"
    losses "$dir/out" | awk 'END { exit NR != 3 }' || note "not 3 more steps"
}

# Also of plain kernels, which each level's compiler adds up in another order, and before the first checkpoint.
a_resumed_run_keeps_its_level() {
    run="$small $data $quiet --cpu generic --save_every 2 --max_steps 4 --keep 0"
    for kernels in plain fast; do
        must "$train" $run --kernels $kernels --out "$dir/$kernels"
        go_on "$train" "$dir/$kernels" 2 "$dir/$kernels-2"
        mkdir "$dir/$kernels-0"
        cp "$dir/$kernels/options.json" "$dir/$kernels-0"
        must "$train" --out "$dir/$kernels-0" --resume auto
        for from in 0 2; do same_checkpoint "$dir/$kernels/step_00000004" "$dir/$kernels-$from/step_00000004"; done
    done
    cmp -s "$dir/plain/step_00000004/model.safetensors" "$dir/fast/step_00000004/model.safetensors" &&
        note "plain kernels give the bits of the fast ones"
    must "$train" $run --cpu auto --kernels plain --out "$dir/auto"
    cmp -s "$dir/plain/step_00000004/model.safetensors" "$dir/auto/step_00000004/model.safetensors" &&
        skip="this processor has only the level generic, or its bits"
}

# As when a run moves to a lesser processor.
a_run_goes_on_without_its_kernels() {
    command -v b2sum >/dev/null || { skip="no b2sum"; return; }
    ! has_level amx bf16 || { skip="this processor has AMX"; return; }
    must "$train" $small $data --max_steps 3 --val_every 0 --dtype bf16 --cpu generic --out "$dir/run"
    (cd "$dir/run/step_00000003" && sed -i 's/"cpu": "generic"/"cpu": "amx"/' state.json &&
        sed -i "s/.*state.json/$(b2sum state.json)/" checkpoint.b2sums)
    must "$train" --out "$dir/run" --resume auto --max_steps 4
    grep -q 'this processor has no amx kernels' "$dir/err" || note "no message about AMX: $(cat "$dir/err")"
}

# A residual stream in bf16 is part of the run: resumed, it has the same bits, also where only options.json is left.
# With --recompute all it changes no bit. The losses are near those with a stream in fp32, but others.
a_run_keeps_its_residual_stream() {
    run="$small $data --val_every 4 --val_tokens 600 --save_every 2 --dtype bf16"
    must "$train" $run --max_steps 4 --out "$dir/fp32"
    must "$train" $run --max_steps 4 --residual bf16 --recompute all --out "$dir/run"
    grep -q 'bf16, residual stream in bf16, ' "$dir/err" || note "not in the heading: $(grep kernels "$dir/err")"
    losses "$dir/out" >"$dir/run.txt"
    cmp -s "$dir/run/step_00000004/model.safetensors" "$dir/fp32/step_00000004/model.safetensors" &&
        note "the weights are those with a stream in fp32"
    sed -n 's/.*"kind":"val".*"loss":\([^,}]*\).*/\1/p' "$dir/fp32/metrics.jsonl" "$dir/run/metrics.jsonl" |
        awk '{ x[NR] = $1 } END { d = x[2] / x[NR] - 1; exit !(NR == 4 && d * d < 1e-6) }' ||
        note "not the validation losses with a stream in fp32"
    must "$train" $run --max_steps 4 --residual bf16 --out "$dir/kept"
    same_checkpoint "$dir/run/step_00000004" "$dir/kept/step_00000004"
    mkdir "$dir/first"
    go_on "$train" "$dir/run" 2 "$dir/again"
    same_checkpoint "$dir/run/step_00000004" "$dir/again/step_00000004"
    cp "$dir/run/options.json" "$dir/first"
    must "$train" --out "$dir/first" --resume auto
    same_checkpoint "$dir/run/step_00000004" "$dir/first/step_00000004"
    expect 0 'changed since the checkpoint: --residual fp32 (was bf16)' \
        "$train" --out "$dir/run" --resume auto --residual fp32 --max_steps 5
    expect 2 '--residual bf16: the residual stream can be in bf16 where activations are' \
        "$train" --out "$dir/again" --resume auto --dtype fp32 --max_steps 5
    expect 0 'val loss' "$train" eval --dtype bf16 --residual bf16 --out "$dir/run" --val_tokens 600
    must "$train" generate --dtype bf16 --residual bf16 --out "$dir/run" --sample_tokens 8
    expect 2 'give --dtype bf16, or leave --residual out' "$train" generate --residual bf16 --out "$dir/run"
}

run_tests
