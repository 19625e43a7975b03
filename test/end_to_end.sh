#!/bin/sh
# Tests the programs as a user calls them: train, resume, generate, and wrong options, data and folders.
# usage: end_to_end.sh build/CONFIG [WORD...]      runs only tests whose names contain a WORD
build=${1:?usage: end_to_end.sh build/CONFIG [WORD...]}
shift
chosen=$*
train="$build/train_gpt2" prepare="$build/prepare"
. "$(dirname "$0")/lib.sh"

# ----------------------------------------------------------------------------------------------------------------------
# learning

# The first of the lecture's 50 steps; `long` takes them all. The losses of batches scatter by 0.3.
tiny_shakespeare_learns_as_in_the_lecture() {
    [ -f data/tinyshakespeare.txt ] || { skip='no data/tinyshakespeare.txt (data/fetch.sh shakespeare)'; return; }
    steps=14 last=5 least=7.6 most=8.6
    [ -z "$long" ] || steps=50 last=10 least=6.2 most=7.0
    must "$prepare" --out "$dir/ts" --val_size 32768 data/tinyshakespeare.txt
    must "$train" --model d12 --batch_size 4 --seq_len 32 --total_batch_size 128 --lr 3e-4 --schedule constant \
        --weight_decay 0.01 --max_steps $steps --train_data "$dir/ts_train_*.bin" --val_data "" --sample_every 0 \
        --save_every 0 --out ""
    losses "$dir/out" | awk -v steps=$steps -v last=$last -v least=$least -v most=$most '
        NR == 1 { first = $2 } NR > steps - last { mean += $2 / last }
        END { printf "first %f, mean of the last %d %f", first, last, mean
              exit !(NR == steps && first >= 10.8 && first <= 11.2 && mean >= least && mean <= most) }' >"$dir/said" ||
        note "$(cat "$dir/said")"
}

# The lowest loss that a model with T bytes of context can reach lies between the corpus' floor and floor + H/T
# (data/stories.h). The model must come into that range. A loss below the floor means that the floor is wrong, or that
# the model has seen the validation text. (1.06 was reached in 25 s on one core, and 1.16 is the upper end; at full
# length 0.63, in two minutes, and 0.65.)
the_corpus_is_learnt_down_to_its_floor() {
    T=32 options="--model L=2,H=4,C=128,T=32,V=257 --max_steps 450 --lr 6e-3"
    [ -z "$long" ] || T=64 options="--model L=4,H=4,C=128,T=64,V=257 --max_steps 700 --lr 4e-3"
    must "$prepare" --stories 4000000 --tokenizer bytes --val_size 60000 --out "$dir/c"
    must "$train" $options --tokenizer bytes --train_data "$dir/c_train_*.bin" --val_data "$dir/c_val_*.bin" \
        --batch_size 32 --warmup_steps 50 --val_every 1000 --val_tokens -1 --sample_every 0 --save_every 0 --out ""
    floor=$(values_of floor "$dir/c_val.json") H=$(values_of H "$dir/c_val.json")
    loss=$(sed -n 's/^val loss //p' "$dir/out" | tail -n 1)
    echo "$loss $floor $H $T" | awk '{ exit !($1 >= $2 && $1 <= $2 + $3 / $4) }' ||
        note "loss $loss, floor $floor, H $H"
}

one_batch_is_learnt_by_heart() {
    corpus
    must "$train" $small $data --val_data "" --overfit --max_steps 200 --lr 1e-2 --schedule constant \
        --weight_decay 0 --save_every 0 --out ""
    losses "$dir/out" | awk 'END { exit !(NR == 200 && $2 < 0.1) }' || note "$(tail -n 2 "$dir/out")"
}

any_split_of_a_batch_gives_the_same_losses() {
    corpus
    for B in 16 8 4; do # with 2, 4 and 8 micro-batches
        must "$train" $small $data --batch_size $B --total_batch_size 1024 --max_steps 10 --val_every 0 --save_every 0 \
            --out "$dir/run$B"
        sed -n 's/.*"kind":"train".*"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' "$dir/run$B/metrics.jsonl" >"$dir/$B"
        [ "$(wc -l <"$dir/$B")" = 10 ] || note "batch_size $B: not ten steps"
    done
    for B in 8 4; do # within 1e-5, relative
        paste -d ' ' "$dir/16" "$dir/$B" | awk '
            { a = $1 / $3 - 1; b = $2 / $4 - 1; if (a * a > 1e-10 || b * b > 1e-10) bad = 1 } END { exit bad }' ||
            note "batch_size $B differs from 16: $(paste -d ' ' "$dir/16" "$dir/$B")"
    done
}

a_batch_ramp_doubles_up_to_the_full_batch() {
    corpus
    must "$train" $small $data --total_batch_size 1024 --batch_ramp 128:6000 --max_steps 12 --val_every 0 \
        --save_every 0 \
        --out "$dir/run"
    sizes=$(sed -n 's/.*"kind":"train".*"tokens":\([0-9]*\).*/\1/p' "$dir/run/metrics.jsonl" |
        awk '{ print $1 - last; last = $1 }' | uniq | tr '\n' ' ')
    [ "$sizes" = "128 256 512 1024 " ] || note "sizes of the steps: $sizes"
    expect 2 'double up to --total_batch_size' "$train" $small $data --total_batch_size 1024 --batch_ramp 96:6000 \
        --out ""
}

# Windows of 32 tokens are cut into sequences of 8, then 16. Unshuffled, they are the data of a run with --seq_len 8, in
# the same order, so both have the same bits until the length changes.
sequences_grow_within_the_same_windows() {
    corpus
    steps="$small $data --total_batch_size 256 --max_steps 12 --shuffle 0 --val_every 0 --save_every 4 --keep 0"
    must "$train" $steps --batch_size 4 --seq_ramp 8:2048 --out "$dir/grows"
    grep -a 'sequences of' "$dir/grows/log.txt" | tr '\n' ';' >"$dir/said"
    [ "$(cat "$dir/said")" = "step 1: sequences of 8 tokens;step 5: sequences of 16 tokens;step 9: sequences of 32 \
tokens;" ] || note "lengths: $(cat "$dir/said")"
    must "$train" $steps --batch_size 16 --seq_len 8 --out "$dir/short"
    same_checkpoint "$dir/grows/step_00000004" "$dir/short/step_00000004"
    cmp -s "$dir/grows/step_00000008/model.safetensors" "$dir/short/step_00000008/model.safetensors" &&
        note "the length did not change after step 4"
    expect 2 'seq_ramp 12:2048: START must double up to --seq_len 32, as 16 does' "$train" $steps \
        --seq_ramp 12:2048 --out ""
}

# Killed between two changes, in a run whose batch grows too; validation is at the full length.
growing_sequences_resume_with_the_same_bits() {
    corpus
    run="$small $data --total_batch_size 512 --batch_ramp 64:4096 --seq_ramp 4:6000 --max_steps 16 --val_every 10 \
        --save_every 12 --keep 0"
    must "$train" $run --replay 5 --out "$dir/run"
    last=$(ls "$dir/run" | grep '^step_' | tail -n 1)
    for step in 00000012 00000024; do
        mkdir "$dir/$step"
        cp -r "$dir/run/step_$step" "$dir/$step"
        must "$train" --out "$dir/$step" --resume auto
        same_checkpoint "$dir/run/$last" "$dir/$step/$last"
    done
    must "$train" eval --init "$dir/run/$last" --val_data "$root/corpus_val_*.bin" --tokenizer bytes --seq_len 32 \
        --val_tokens 1048576
    [ "$(grep '^val loss' "$dir/out")" = "$(grep '^val loss' "$dir/run/log.txt" | tail -n 1)" ] ||
        note "validation was not at the full length: $(grep '^val loss' "$dir/run/log.txt" | tail -n 1)"
}

# Steps have 1, 2, 4 ... windows, micro-batches 4: the last one of a step may have fewer. The schedule counts tokens.
a_batch_ramp_splits_resumes_and_schedules_by_tokens() {
    corpus
    common="$small $data --total_batch_size 1024 --batch_ramp 32:6000 --max_steps 12 --schedule linear --min_lr_frac 0 \
        --val_every 0 --save_every 40 --keep 0"
    must "$train" $common --out "$dir/run"
    losses "$dir/out" >"$dir/a"
    must "$train" $common --batch_size 1 --save_every 0 --out ""
    losses "$dir/out" >"$dir/b"
    paste "$dir/a" "$dir/b" | awk '
        { a = $2 / $5 - 1; b = $3 / $6 - 1; if (a * a > 1e-8 || b * b > 1e-6) bad = 1 } END { exit bad || NR < 50 }' ||
        note "batch_size 1 differs from 4"
    sed -n 's/.*"kind":"train".*"tokens":\([0-9]*\).*"lr":\([^,]*\).*/\1 \2/p' "$dir/run/metrics.jsonl" >"$dir/run.lr"
    awk '{ want = 3e-3 * (1 - before / (12 * 1024)); d = $2 / want - 1; if (d * d > 1e-8) bad = 1; before = $1 }
        END { exit bad || NR < 50 }' "$dir/run.lr" || note "the learning rate does not follow the tokens"
    last=$(ls "$dir/run" | grep '^step_' | tail -n 1)
    mkdir "$dir/again"
    cp -r "$dir/run/step_00000040" "$dir/again" # still inside the ramp
    must "$train" --out "$dir/again" --resume auto
    same_checkpoint "$dir/run/$last" "$dir/again/$last"
}

# options.json is what a run leaves that was killed before its first checkpoint.
options_that_are_gone_hold_up_no_run_that_went_without() {
    corpus
    mkdir "$dir/run"
    usual='"wpe_std": 0.01, "save_async": "1", "tune": true'
    for gone in ramp_lr:true loss_scale_every:7; do
        echo "{$usual, \"${gone%:*}\": ${gone#*:}}" >"$dir/run/options.json"
        expect 1 "the run has --${gone%:*}, which this program no longer has: continue it with the version that began" \
            "$train" $small $data --max_steps 1 --resume auto --out "$dir/run"
    done
    echo "{$usual, \"ramp_lr\": false, \"loss_scale_every\": 2000}" >"$dir/run/options.json"
    must "$train" $small $data --max_steps 1 --resume auto --out "$dir/run"
}

windows_come_in_order_without_shuffle() {
    corpus
    must "$train" eval --init random --model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --batch_size 4 --seq_len 32 \
        --val_tokens 128 --val_data "$root/corpus_train_*.bin"
    first=$(sed -n 's/^val loss //p' "$dir/out") # of the first four windows
    for shuffle in 0 1; do
        must "$train" $small $data --shuffle $shuffle --max_steps 1 --val_every 0 --save_every 0 --out ""
        same=$(losses "$dir/out" | awk -v first="$first" '{ d = $2 - first; print (d * d < 1e-10) }')
        [ "$same" = $((1 - shuffle)) ] || note "--shuffle $shuffle: $(losses "$dir/out") against $first"
    done
}

# Every step has the same batch, so that the step after a skipped update has the same loss and norm. A warm-up to a much
# too high learning rate makes both jump.
updates_of_outliers_are_left_out() {
    corpus
    for what in loss norm; do
        must "$train" $small $data --overfit --skip_${what}_z 0.0001 --max_steps 160 --lr 0.3 --warmup_steps 160 \
            --weight_decay 0 --val_every 0 --save_every 160 --out "$dir/$what"
        metrics="$dir/$what/metrics.jsonl"
        awk -F'[:,]' '/"kind":"skip"/ { skipped++; now = 1 }
            /"kind":"train"/ { if (before && ($8 != loss || $10 != norm)) bad = 1
                               loss = $8; norm = $10; before = now; now = 0 }
            END { exit bad || skipped < 2 }' "$metrics" ||
                note "--skip_${what}_z: $(grep -c '"kind":"skip"' "$metrics") skipped"
        updates=$(values_of updates "$dir/$what/step_00000160/state.json")
        [ "$updates" = $((160 - $(grep -c '"kind":"skip"' "$metrics"))) ] || note "--skip_${what}_z: $updates updates"
    done
}

scales_of() { records "$1" | sed -n 's/.*"kind":"train".*"loss_scale":\([^,}]*\).*/\1/p'; } # RUN

# Gradients are multiplied and divided by powers of two.
a_loss_scale_changes_no_bit() {
    corpus
    common="$small $data --val_every 0 --max_steps 10 --save_every 10 --total_batch_size 256 --grad_clip 1.5"
    for type in fp32 bf16; do
        must "$train" $common --dtype $type --out "$dir/$type"
        for scale in 4096 dynamic; do
            must "$train" $common --dtype $type --loss_scale $scale --out "$dir/$type.$scale"
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
    corpus
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
# correction and windows of outliers are as they were. With --skip_loss_z the host waits for the loss before it updates.
wide="--batch_size 1 --seq_len 1 --val_every 0 --loss_scale dynamic:0x1p127"
an_overflow_skips_the_update_and_halves_the_scale() {
    corpus
    common="$small $data $wide --overfit --schedule constant --grad_clip 0 --keep 0 --save_every 1"
    must "$train" $common --loss_scale off --max_steps 3 --out "$dir/off"
    must "$train" $common --max_steps 4 --out "$dir/run"
    must "$train" $common --max_steps 4 --skip_loss_z 9 --skip_norm_z 9 --out "$dir/waits"
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
    corpus
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
    corpus
    common="$small $data --val_every 0 --save_every 0 --max_steps 40"
    expect 4 'with a loss scale of 1.70141183e+38: not finite, so the run ends here. Give --loss_scale dynamic.' \
        "$train" $common $wide --loss_scale 0x1p127 --out ""
    expect 4 'with a loss scale of 65536: not finite, so the run ends here. Lower --lr' "$train" $common --lr 1e3 \
        --grad_clip 0 --weight_decay 100 --schedule constant --loss_scale dynamic --out ""
    expect 2 '--loss_scale 3: give a power of two' "$train" $common --loss_scale 3 --out ""
}

# ----------------------------------------------------------------------------------------------------------------------
# kills, damage and resuming

# Each try is killed at another moment after it has made a checkpoint; some of them while they write the next. No try
# comes to its end; the length of the run is chosen afterwards.
killed_ten_times_and_resumed_it_ends_with_the_same_bits() {
    corpus
    most=10
    [ -z "$long" ] || most=100
    common="$small $data --total_batch_size 256 --schedule constant --val_every 30 --val_tokens 512 --save_every 7 \
        --keep 2 --sample_every 40 --sample_tokens 8"
    for try in $(seq $most); do
        begin "$train" $common --max_steps 100000000 --out "$dir/killed" --resume auto
        await 'saved step' "$dir/err" $pid
        sleep "0.$(awk -v n=$try 'BEGIN { srand(n); printf "%03d", 60 * rand() }')"
        kill -9 $pid
        wait $pid 2>/dev/null
    done
    steps=$(($(ls "$dir/killed" | sed -n 's/^step_0*//p' | tail -n 1) + 10))
    must "$train" $common --max_steps $steps --out "$dir/killed" --resume auto
    must "$train" $common --max_steps $steps --out "$dir/whole"
    last=step_$(printf %08d $steps)
    same_checkpoint "$dir/whole/$last" "$dir/killed/$last"
    for try in whole killed; do
        records "$dir/$try" | grep -v '"config"\|"end"\|"save"' | sed 's/"ms".*"loss_z"/"loss_z"/' |
            sort >"$dir/$try.records" # a kill may come between a save and its record
    done
    cmp -s "$dir/whole.records" "$dir/killed.records" ||
        note "metrics differ: $(diff "$dir/whole.records" "$dir/killed.records" | head -n 3)"
    [ "$(ls "$dir/killed" | grep -c '^step_')" = 2 ] || note "--keep 2 kept $(ls "$dir/killed")"
    ls -A "$dir/killed" | grep -q '^\.tmp' && note "temporary files are left"
}

stopped_on_request_it_saves_and_ends_with_0() {
    corpus
    begin "$train" $small $data --max_steps 100000 --val_every 0 --out "$dir/run"
    await '^step .*5/' "$dir/out" $pid
    kill -TERM $pid
    wait $pid
    status=$?
    [ $status = 0 ] || note "exit code $status"
    ls "$dir/run" | grep -q '^step_' || note "no checkpoint"
}

a_damaged_checkpoint_is_passed_over() {
    corpus
    must "$train" $small $data --max_steps 20 --save_every 10 --val_every 0 --out "$dir/run"
    cp -r "$dir/run" "$dir/copy"
    dd if=/dev/zero of="$dir/run/step_00000020/optimizer.safetensors" bs=1 seek=50000 count=64 conv=notrunc 2>/dev/null
    must "$train" $small $data --max_steps 20 --save_every 10 --val_every 0 --out "$dir/run" --resume auto
    grep -q 'is damaged.*trying the checkpoint before it' "$dir/err" || note "no warning: $(cat "$dir/err")"
    same_checkpoint "$dir/run/step_00000020" "$dir/copy/step_00000020"
    printf x >>"$dir/copy/step_00000010/model.safetensors"
    expect 1 'model.safetensors' "$train" generate --init "$dir/copy/step_00000010" --sample_tokens 1
    expect 1 'holds checkpoints of another run' "$train" $small $data --out "$dir/run" \
        --resume "$dir/copy/step_00000020"
    expect 1 'holds newer checkpoints' "$train" $small $data --out "$dir/run" --resume "$dir/run/step_00000010"
    rm -r "$dir/run/step_00000010"
    printf x >>"$dir/run/step_00000020/model.safetensors"
    expect 1 'none of its 1 checkpoints can be read' "$train" $small $data --out "$dir/run" --resume auto
    rm "$dir/copy/step_00000020/state.json"
    expect 1 'state.json: cannot open: No such file' "$train" $small $data --out "$dir/new" \
        --resume "$dir/copy/step_00000020"
}

weights_rounded_at_random_resume_with_the_same_bits() {
    corpus
    for options in "--optimizer adamw --dtype bf16" "--optimizer muon --embedding_lr 1e-3 --dtype bf16" \
        "--optimizer adamw --dtype fp16 --loss_scale dynamic:65536"; do # which skips the first updates
        must "$train" $small $data $options --stochastic_round 1 --max_steps 8 --save_every 4 --val_every 0 \
            --out "$dir/run"
        mkdir "$dir/again"
        cp -r "$dir/run/step_00000004" "$dir/run/metrics.jsonl" "$dir/again"
        must "$train" --out "$dir/again" --resume auto
        same_checkpoint "$dir/run/step_00000008" "$dir/again/step_00000008"
        rm -r "$dir/run" "$dir/again"
    done
}

muon_resumes_with_the_same_bits_and_no_other_optimizer() {
    corpus
    muon="--optimizer muon --embedding_lr 1e-3 --momentum_cooldown 2:0.9 --cautious_decay 1 --schedule constant"
    must "$train" $small $data $muon --max_steps 8 --save_every 4 --keep 0 --val_every 0 --out "$dir/run"
    mkdir "$dir/again"
    cp -r "$dir/run/step_00000004" "$dir/run/metrics.jsonl" "$dir/again"
    must "$train" --out "$dir/again" --resume auto
    same_checkpoint "$dir/run/step_00000008" "$dir/again/step_00000008"
    grep -q '"step":8,.*"embedding_lr":0.001,"matrix_lr":0.02,"momentum":0.9}' "$dir/again/metrics.jsonl" ||
        note "rates: $(tail -n 3 "$dir/again/metrics.jsonl")"
    tr ',' '\n' <"$dir/run/step_00000008/optimizer.safetensors" | grep -aq '"v.h.0.mlp.c_fc.weight"' &&
        note "second moments of a matrix are in the file"
    expect 2 'adamw: the run being resumed has muon' "$train" --out "$dir/again" --resume auto --optimizer adamw
    must "$train" --out "$dir/again" --resume auto --max_steps 9 --matrix_lr 0.5
    grep -q 'rate of matrices goes from .* to 5.00e-01 at this resumption' "$dir/err" ||
        note "no jump: $(cat "$dir/err")"
    grep -q 'rate of embeddings goes' "$dir/err" && note "a jump of embeddings"
    must "$train" info --model d12 --batch_size 1 --optimizer muon
    grep -q 'scratch of Muon' "$dir/out" || note "info: no scratch of Muon"
}

resuming_keeps_the_settings_and_names_what_changed() {
    corpus
    must "$train" $small $data --max_steps 10 --val_every 0 --lr 2e-3 --out "$dir/run"
    must "$train" --out "$dir/run" --resume auto --max_steps 14 --weight_decay 0.2 --threads 1
    grep -q 'changed since the checkpoint: --max_steps 14 (was 10)' "$dir/err" || note "--max_steps: $(cat "$dir/err")"
    grep -q 'changed since the checkpoint: --weight_decay 0.2 (was 0.1)' "$dir/err" ||
        note "--weight_decay: $(cat "$dir/err")"
    [ "$(losses "$dir/out" | wc -l)" = 4 ] || note "not 4 more steps"
    [ "$(losses "$dir/run/log.txt" | awk '{ print $1 }' | tr '\n' ' ')" = "$(seq 14 | tr '\n' ' ')" ] ||
        note "log: $(cat "$dir/run/log.txt")"
    expect 2 'would not be the same run' "$train" --out "$dir/run" --resume auto --seed 5
    expect 2 'would not be the same run' "$train" --out "$dir/run" --resume auto --seq_len 16
    expect 2 'is not the model in' "$train" --out "$dir/run" --resume auto --model d12
    expect 1 'not the data that the run' "$train" --out "$dir/run" --resume auto --max_steps 20 \
        --train_data "$root/corpus_val_*.bin"
    expect 2 'it would not be the same run' "$train" --out "$dir/run" --resume auto --init test/golden/gpt2
}

has_level() { # LEVEL DTYPE: true unless this processor or build lacks the level, which `check` refuses
    "$train" check --cpu "$1" --dtype "$2" --model nonsense 2>&1 | grep -q 'there are:' && return 1
    return 0
}

every_level_of_instructions_trains_alike() {
    corpus
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
    corpus
    must "$train" $small $data --max_steps 3 --val_every 0 --dtype bf16 --cpu generic --out "$dir/run"
    grep -q '"cpu": "generic"' "$dir/run/step_00000003/state.json" || note "state.json names no kernels"
    must "$train" --out "$dir/run" --resume auto --max_steps 6
    grep -q ' bf16, generic kernels' "$dir/err" || note "resumed with: $(grep kernels "$dir/err")"
    losses "$dir/out" | awk 'END { exit NR != 3 }' || note "not 3 more steps"
}

# A residual stream in bf16 is part of the run: resumed, it has the same bits, also where only options.json is left.
# With --recompute all it changes no bit. The losses are near those with a stream in fp32, but others.
a_run_keeps_its_residual_stream() {
    corpus
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
    mkdir "$dir/again" "$dir/first"
    cp -r "$dir/run/step_00000002" "$dir/run/metrics.jsonl" "$dir/again"
    must "$train" --out "$dir/again" --resume auto
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

# A run with --init that was killed before its first checkpoint begins again with the same weights.
a_run_keeps_the_weights_it_began_with() {
    corpus
    run="$small $data --val_every 0 --save_every 2 --max_steps 2"
    must "$train" $run --out "$dir/base"
    base="$dir/base/step_00000002"
    must "$train" $run --seed 7 --init "$base" --out "$dir/run"
    mkdir "$dir/auto" "$dir/again"
    for folder in auto again; do cp "$dir/run/options.json" "$dir/$folder"; done
    must "$train" --out "$dir/auto" --resume auto
    must "$train" --out "$dir/again" --resume auto --init "$base" # as scripts/supervise.sh does
    for folder in auto again; do same_checkpoint "$dir/run/step_00000002" "$dir/$folder/step_00000002"; done
    must "$train" --out "$dir/again" --resume auto --init "$base" --max_steps 3
    grep -q 'resumed after step 2' "$dir/err" || note "did not go on: $(tail -n 1 "$dir/err")"
    expect 2 'it would not be the same run' "$train" --out "$dir/again" --resume auto --init test/golden/gpt2
}

what_was_done_before_a_checkpoint_is_not_done_again() {
    corpus
    must "$train" $small $data --max_steps 10 --val_every 5 --save_every 5 --val_tokens 256 --sample_every 5 \
        --sample_tokens 4 --out "$dir/run"
    must "$train" --out "$dir/run" --resume auto --max_steps 15
    for kind in val sample; do
        steps=$(sed -n "s/.*\"kind\":\"$kind\",\"step\":\([0-9]*\).*/\1/p" "$dir/run/metrics.jsonl" | tr '\n' ' ')
        [ "$steps" = "0 5 10 15 " ] || note "$kind at steps $steps"
    done
    steps=$(sed -n 's/.*"kind":"save","step":\([0-9]*\).*/\1/p' "$dir/run/metrics.jsonl" | tr '\n' ' ')
    [ "$steps" = "5 10 15 " ] || note "saved at steps $steps"
}

a_loss_that_is_not_finite_stops_the_run_and_spares_the_checkpoints() {
    corpus
    expect 4 'The last good checkpoint is' "$train" $small $data --max_steps 40 --val_every 0 --save_every 2 --lr 1e3 \
        --grad_clip 0 --weight_decay 100 --schedule constant --out "$dir/run"
    must "$train" eval --init "$dir/run/step_00000002" --val_data "$root/corpus_val_*.bin" --val_tokens 512 \
        --tokenizer bytes --seq_len 32
}

# ----------------------------------------------------------------------------------------------------------------------
# evaluation, text and reports

test_sets_are_scored_alone_and_while_training() {
    corpus
    sets="test/golden/eval/hellaswag.jsonl,test/golden/eval/lambada.jsonl"
    must "$train" $small $data --max_steps 4 --val_every 0 --eval_data "$sets" --eval_every 2 --out "$dir/run"
    for line in HellaSwag LAMBADA; do
        [ "$(grep -c "^$line: [0-9]*/11 = 0" "$dir/out")" = 3 ] || note "not three scores of $line: $(cat "$dir/out")"
        grep "^$line" "$dir/out" | tail -n 1 >>"$dir/want"
    done
    [ "$(grep -c '"kind":"eval","step":[024],.*"rules":"l.*"total":11' "$dir/run/metrics.jsonl")" = 6 ] ||
        note "not six records: $(grep eval "$dir/run/metrics.jsonl")"
    must "$train" eval --out "$dir/run" --eval_data "$sets" --batch_size 2
    grep '^[HL]' "$dir/out" | cmp -s - "$dir/want" || note "other scores than in training: $(cat "$dir/out")"
    grep -q 'published: OpenAI' "$dir/out" || note "no published scores"
    expect 0 'HellaSwag: ' "$train" eval --out "$dir/run" --eval_data "$sets" --eval_limit 3 --eval_rules lm-eval
    grep -q '/3 = ' "$dir/out" || note "not three items: $(cat "$dir/out")"
    expect 1 'nowhere: cannot open' "$train" eval --out "$dir/run" --eval_data nowhere
    expect 1 'needs a --tokenizer' "$train" eval --out "$dir/run" --tokenizer none --eval_data "$sets"
    expect 2 'here it is called --eval_data' "$train" eval --hellaswag test/golden/eval/hellaswag.bin
}

texts_examples_and_core_are_scored() {
    corpus
    eval="$train eval --init test/golden/eval/model --tokenizer test/golden/eval/tokenizer.bin --threads 1"
    must $eval --text test/golden/eval/text.txt,test/golden/eval/text.jsonl --seq_len 48
    for line in 'text.txt: perplexity 34.244' '; 651 tokens of 651 bytes' "lm-eval's rolling windows" 'context 48' \
        'text.jsonl: perplexity ' '; 431 tokens of 431 bytes'; do
        grep -qF -- "$line" "$dir/out" || note "no '$line': $(cat "$dir/out")"
    done
    expect 0 'context 48, stride 20' $eval --text test/golden/eval/text.txt --seq_len 48 --stride 20
    grep -q 'perplexity 34.054' "$dir/out" || note "not transformers' perplexity: $(cat "$dir/out")"
    must $eval --eval_data test/golden/eval/core
    grep -q '^CORE: 0.285573' "$dir/out" || note "not PyTorch's CORE: $(tail -n 3 "$dir/out")"
    grep -q 'centered ' "$dir/out" || note "no centered accuracy"
    expect 0 '; 2 examples in front' $eval --eval_data test/golden/eval/mmlu.jsonl --eval_shots 2 \
        --eval_examples test/golden/eval/mmlu_dev.jsonl
    : >"$dir/empty.txt"
    expect 1 'empty.txt: there is nothing to score in it' $eval --text "$dir/empty.txt"
    expect 1 'nowhere.txt' $eval --text "$dir/nowhere.txt"
    expect 1 'mmlu.jsonl:1: no field "text"' $eval --text test/golden/eval/mmlu.jsonl
    must $eval --text test/golden/eval/mmlu.jsonl --field question
    expect 2 '--stride 49 is more than --seq_len 48' $eval --text test/golden/eval/text.txt --seq_len 48 --stride 49
    expect 1 'core.yaml: cannot open' $eval --eval_data "$dir"
    expect 2 'two folders of CORE' $eval --eval_data test/golden/eval/core,test/golden/eval/core
    must "$train" $small $data --max_steps 2 --val_every 0 --eval_every 2 --out "$dir/run" \
        --eval_data test/golden/eval/core,test/golden/eval/piqa.jsonl --eval_limit 3
    [ "$(grep -c '"kind":"eval","step":[02],' "$dir/run/metrics.jsonl")" = 14 ] ||
        note "not 14 records: $(grep -c eval "$dir/run/metrics.jsonl")"
    [ "$(grep -c 'CORE: .*of 6 tasks' "$dir/run/log.txt")" = 2 ] || note "CORE is not in log.txt twice"
}

evaluating_a_checkpoint_gives_the_loss_of_training() {
    corpus
    must "$train" $small $data --max_steps 10 --val_tokens -1 --batch_size 8 --out "$dir/run"
    want=$(grep '^val loss' "$dir/out" | tail -n 1)
    for B in 1 7; do
        must "$train" eval --out "$dir/run" --batch_size $B
        grep -q 'windows of 32 tokens' "$dir/err" || note "not the run's --seq_len: $(cat "$dir/err")"
        echo "$want $(cat "$dir/out")" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-10) }' ||
            note "$want against $(cat "$dir/out")"
    done
    must "$train" eval --init "$dir/run/step_00000010" --val_data "$root/corpus_val_*.bin" --seq_len 32
    echo "$want $(cat "$dir/out")" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-10) }' ||
        note "--init: $want against $(cat "$dir/out")"
}

attention_stays_within_documents() {
    corpus
    run="$small $data --seq_len 48 --val_tokens -1 --val_every 4 --max_steps 4"
    must "$train" $run --out "$dir/whole"
    must "$train" $run --document_mask --out "$dir/run"
    want=$(grep '^val loss' "$dir/out" | tail -n 1)
    [ "$(losses "$dir/whole/log.txt")" != "$(losses "$dir/run/log.txt")" ] || note "the mask changes nothing"
    must "$train" $run --document_mask --recompute all --out "$dir/again"
    same_checkpoint "$dir/run/step_00000004" "$dir/again/step_00000004"
    must "$train" eval --out "$dir/run"
    [ "$(cat "$dir/out")" = "$want" ] || note "eval does not mask as training did: $want, $(cat "$dir/out")"
    must "$train" eval --out "$dir/run" --document_mask 0
    [ "$(cat "$dir/out")" != "$want" ] || note "eval --document_mask 0 masks: $want"
    must "$train" generate --out "$dir/run" --sample_tokens 4
    grep -q '"document_mask": true' "$dir/run/step_00000004/state.json" || note "state.json does not name the mask"
    must "$train" --out "$dir/run" --resume auto --max_steps 5
    expect 2 '--document_mask 0: the run being resumed has 1' "$train" --out "$dir/run" --resume auto --document_mask 0
    expect 2 '--tokenizer is none: give the tokenizer of the data' "$train" $run --document_mask --tokenizer none \
        --out ""
    seq 2000 | tr '\n' ' ' >"$dir/one.txt" # one document: its only end-of-text token is the first
    must "$prepare" --tokenizer bytes --val_size 0 --out "$dir/one" "$dir/one.txt"
    expect 1 'no end-of-text token (256) between documents' "$train" $run --document_mask \
        --train_data "$dir/one_train_*.bin" --out ""
    must "$train" $run --train_data "$dir/one_train_*.bin" --max_steps 1 --out ""
}

generated_text_depends_on_the_seed_alone() {
    corpus
    must "$train" $small $data --max_steps 30 --val_every 0 --out "$dir/run"
    must "$train" generate --out "$dir/run" --prompt "Once upon" --sample_tokens 90 --seed 3 --threads 1
    cp "$dir/out" "$dir/a"
    grep -q '^generated 90 tokens: [0-9.]* tokens/s, first after [0-9.]* s$' "$dir/err" || note "$(cat "$dir/err")"
    must "$train" generate --init "$dir/run/step_00000030" --tokenizer bytes --prompt "Once upon" --sample_tokens 90 \
        --seed 3
    cmp -s "$dir/a" "$dir/out" || note "two texts from one seed"
    must "$train" generate --out "$dir/run" --prompt "Once upon" --sample_tokens 90 --seed 4
    cmp -s "$dir/a" "$dir/out" && note "one text from two seeds"
    grep -aq '^Once upon' "$dir/a" || note "the prompt is missing"
    must "$train" generate --out "$dir/run" --prompt "Once upon" --sample_tokens 90 --seed 3 --samples 3
    sed -n '/^=== sample 1 ===$/,/^=== sample 2 ===$/p' "$dir/out" | sed '1d;$d' | cmp -s - "$dir/a" ||
        note "the first of three samples is another text"
    loss() { "$train" eval --out "$dir/run" --dtype $1 2>>"$dir/err" | sed -n 's/^val loss //p'; }
    echo "$(loss fp32) $(loss int8)" | awk '{ d = exp($2 - $1) - 1; exit !(d != 0 && d * d < 1e-4) }' ||
        note "perplexity changes by more than 1% in int8, or not at all: $(loss fp32) $(loss int8)"
}

prompts_come_from_files_and_standard_input() {
    model="--init random --model L=1,H=2,C=16,T=48,V=257 --tokenizer bytes --sample_tokens 8"
    printf 'one\ntwo, longer\r\n\303\244 third' >"$dir/prompts"
    must "$train" generate $model --prompt_file "$dir/prompts" --samples 2 --json
    sed 's/{"prompt":"\(.*\)","sample":\([12]\),"text":.*"end":"[a-z]*"}$/\2 \1/' "$dir/out" >"$dir/said"
    printf '%s\n' '1 one' '2 one' '1 two, longer' '2 two, longer' '1 ä third' '2 ä third' | cmp -s - "$dir/said" ||
        note "prompts in JSON: $(cat "$dir/said")"
    must "$train" generate $model --prompt one
    cp "$dir/out" "$dir/argument"
    printf 'one\n' | "$train" generate $model --prompt - >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/argument" "$dir/out" || note "standard input: another text than with --prompt"
    printf 'one\n\none\n' | # from a terminal, which script is
        timeout 60 script -qec "$train generate $model >$dir/out 2>$dir/err" /dev/null >/dev/null
    { printf one && sed -n 1p "$dir/out"; } | cmp -s - "$dir/argument" || note "interactive: $(cat "$dir/out")"
    must "$train" generate $model --prompt one --logprobs 2
    awk 'NR > 2 && $1 != "sum" { sum += $(NF - 4) } $1 == "sum" { d = sum - $2 }
        END { exit !(NR == 11 && d * d < 1e-4) }' "$dir/out" || note "log-probabilities: $(cat "$dir/out")"

    expect 1 'missing: cannot open' "$train" generate $model --prompt_file "$dir/missing"
    printf 'one\n\ntwo\n' >"$dir/empty"
    expect 1 'empty, line 2: an empty prompt' "$train" generate $model --prompt_file "$dir/empty"
    printf 'one\nt\377o\n' >"$dir/latin"
    expect 1 'latin, line 2: byte 1 is not UTF-8' "$train" generate $model --prompt_file "$dir/latin"
    : >"$dir/none"
    expect 1 'none: no prompts' "$train" generate $model --prompt_file "$dir/none"
    expect 1 'standard input is empty' "$train" generate $model --prompt - </dev/null
    expect 1 'standard input: more than 64 MiB' timeout 60 "$train" generate $model --prompt - </dev/zero
    expect 1 'the text: more than 64 MiB' timeout 60 "$train" tokenize </dev/zero
    expect 1 'has 49 tokens, the model only 48 positions' "$train" generate $model \
        --prompt 'one that is longer than the model has positions..'
    expect 2 'from 1 to' "$train" generate $model --samples 0
    expect 2 'not both' "$train" generate $model --prompt one --prompt_file "$dir/prompts"
    expect 2 'would lose the updates of training' "$train" --dtype int8
}

text_goes_through_the_tokenizer_and_back() {
    printf 'Hello, I am a language model, \377\376 caf\303\251\n\n  <|endoftext|>' >"$dir/text"
    "$train" tokenize <"$dir/text" >"$dir/ids" || note "tokenize failed"
    "$train" tokenize --decode <"$dir/ids" >"$dir/back" || note "decode failed"
    cmp -s "$dir/text" "$dir/back" || note "the text did not come back"
    [ "$(printf "Hello, I'm a language model," | "$train" tokenize)" = "15496 11 314 1101 257 3303 2746 11" ] ||
        note "other ids for the lecture's prompt"
}

letters_of_llmc_mean_the_same() {
    must "$prepare" --stories 20000 --val_size 4000 --out "$dir/c"
    must "$train" --model L=1,H=2,C=16,T=48 --train_data "$dir/c_train_*.bin" --val_data "$dir/c_val_*.bin" \
        --sample_every 0 --batch_size 4 --seq_len 32 --total_batch_size 256 --max_steps 6 --lr 1e-3 --min_lr_frac 1 \
        --weight_decay 0 --warmup_steps 3 --val_every 3 --val_tokens 2560 --save_every 0 --recompute gelu --out ""
    grep -a 'loss' "$dir/out" | sed 's/| lr.*//' >"$dir/a"
    must "$train" -e L=1,H=2,C=16,T=48 -i "$dir/c_train_*.bin" -j "$dir/c_val_*.bin" -b 4 -t 32 -d 256 -x 6 -l 1e-3 \
        -u 3 -v 3 -m 20 -s 0 -z 0 -h 0
    grep -a 'loss' "$dir/out" | sed 's/| lr.*//' >"$dir/b"
    cmp -s "$dir/a" "$dir/b" || note "$(diff "$dir/a" "$dir/b" | head -n 4)"
    expect 2 '-zz is not one of' "$train" -e d12 -zz 1
    expect 2 'do not mix' "$train" -e d12 --lr 1
    expect 1 "$dir/124M.bin: " "$train" -e "$dir/124M.bin" -i "$dir/c_train_*.bin" -j "$dir/c_val_*.bin"
    expect 2 '-e is missing' "$train" -b 4
}

# llm.c's scripts start the same command again until OUT/DONE_%08d of the last step is there.
the_loops_of_llmc_s_scripts_end() {
    must "$prepare" --stories 20000 --val_size 4000 --out "$dir/c"
    starts=0
    run="$train -i $dir/c_train_*.bin -j $dir/c_val_*.bin -o $dir/log -b 4 -t 32 -v 0 -s 0 -h 0 -n 2 -y 1"
    must $run -e L=1,H=2,C=16,T=48 -x 3
    [ -f "$dir/log/DONE_00000003" ] && [ ! -f "$dir/log/DONE_00000002" ] || note "after 3 steps: $(ls "$dir/log")"
    while [ ! -f "$dir/log/DONE_00000005" ] && [ $starts -lt 3 ]; do
        must $run -e L=1,H=2,C=16,T=48 -x 5
        starts=$((starts + 1))
    done
    [ $starts = 1 ] || note "$starts starts instead of one: $(ls "$dir/log")"
    rm "$dir/log/DONE_00000005" # as a run that was killed between its last save and this file
    must $run -e L=1,H=2,C=16,T=48 -x 5
    [ -f "$dir/log/DONE_00000005" ] || note "a finished run that starts again leaves no file: $(ls "$dir/log")"
    must "$train" $small --train_data "$dir/c_train_*.bin" --val_data "" --tokenizer none --model L=1,H=2,C=16,T=48 \
        --max_steps 1 --out "$dir/other"
    [ ! -f "$dir/other/DONE_00000001" ] || note "the file is there without llm.c's letters"
}

help_and_info_answer() {
    expect 0 '--total_batch_size' "$train" --help
    expect 0 '--prompt' "$train" -h
    expect 0 '--top_k' "$train" generate --help
    grep -q 'total_batch_size' "$dir/out" && note "generate --help lists options of train"
    expect 0 'decayed: 50 tensors, 124318464 parameters' "$train" info --model d12 --seq_len 64
    grep -q 'not decayed: 98 tensors, 121344' "$dir/out" || note "not decayed"
    expect 0 'standard deviation of the residual stream' "$train" info --model L=4,H=4,C=64,T=64,V=512
    stds() { tail -n 2 "$dir/out" | grep -o '[0-9]: [0-9.]*' | cut -d ' ' -f 2; } # of the residual stream
    stds >"$dir/fp32"
    expect 0 'in bf16, residual stream in bf16 with --batch_size' "$train" info --model L=4,H=4,C=64,T=64,V=512 \
        --dtype bf16 --residual bf16
    stds | paste -d ' ' - "$dir/fp32" |
        awk '{ d = $1 / $2 - 1; if (!(d * d < 1e-4)) bad = 1 } END { exit bad || NR != 5 }' ||
        note "another residual stream in bf16: $(stds | tr '\n' ' ')"
    expect 0 'gpt2-xl          all' "$train" info --model all
    corpus
    expect 0 ' in 1 file, ' "$train" info --model L=4,H=4,C=64,T=64,V=257 --train_data "$root/corpus_train_*.bin"
    expect 0 ' in 1 file; 1 step of 128 tokens, 1 micro-batch of 4 x 32' "$train" $small $data --max_steps 1 \
        --val_every 0 --save_every 0 --out ""
}

# After three steps the report of the first one is written, though nothing is saved. The run is then killed.
a_run_can_be_watched_from_its_first_steps_on() {
    corpus
    "$train" $small $data --max_steps 100000000 --val_every 0 --save_every 0 --out "$dir/run" >"$dir/log" 2>&1 &
    pid=$!
    await 'step *3/' "$dir/log" $pid
    grep -q 'class="line c0' "$dir/run/report.html" || note "no line in the report"
    expect 0 'not yet: it is training' "$train" info "$dir/run"
    kill -9 $pid
    wait $pid 2>/dev/null
    expect 0 'it was killed' "$train" info "$dir/run"
    must "$train" $small $data --max_steps 7 --val_every 0 --save_every 0 --out "$dir/short"
    grep -q '<span>Steps</span><b>7</b>' "$dir/short/report.html" || note "the last report does not have all steps"
    expect 0 'ended       finished' "$train" info "$dir/short"
}

a_run_is_summed_up() {
    corpus
    must "$train" $small $data --max_steps 20 --val_every 10 --save_every 10 --keep 0 --out "$dir/run"
    rm -r "$dir/run/step_00000020"
    must "$train" --out "$dir/run" --resume auto
    expect 0 'steps       20 of 20, 2.56k tokens' "$train" info "$dir/run"
    for words in ' in 10 steps lost to restarts' ', resumed at step 10' '35.2k parameters, fp32' \
        'ended       finished' '--model L=2,H=2,C=32,T=48,V=257' '--save_every 10' 'at step 20, the best' \
        'step_00000010  whole' 'step_00000020  whole'; do
        grep -qF -- "$words" "$dir/out" || note "no '$words' from info: $(cat "$dir/out")"
    done
    printf x >>"$dir/run/step_00000010/model.safetensors"
    expect 3 'step_00000010/model.safetensors' "$train" info "$dir/run"
    expect 3 'model.safetensors' "$train" info "$dir/run/step_00000010"
    expect 0 'a checkpoint, whole' "$train" info "$dir/run/step_00000020"
    expect 1 'no such file or folder' "$train" info "$dir/nothing"
    expect 1 'the folder of neither a run' "$train" info "$dir"
}

# The run holds the lock of a checkpoint that it removes, and has removed a file of it.
info_leaves_out_a_checkpoint_that_is_removed_meanwhile() {
    command -v flock >/dev/null || { skip='no flock'; return; }
    corpus
    must "$train" $small $data --max_steps 4 --val_every 0 --save_every 2 --keep 0 --out "$dir/run"
    mv "$dir/run/step_00000002/model.safetensors" "$dir/model"
    must flock "$dir/run/step_00000002" "$train" info "$dir/run"
    grep -q 'checkpoints *step_00000004  whole' "$dir/out" || note "$(cat "$dir/out")"
    ! grep -q step_00000002 "$dir/out" || note "the other one is printed: $(cat "$dir/out")"
    expect 1 'its run has removed it meanwhile' flock "$dir/run/step_00000002" "$train" info "$dir/run/step_00000002"
    expect 3 'model.safetensors: ' "$train" info "$dir/run" # without the lock it is damaged
    mv "$dir/model" "$dir/run/step_00000002/model.safetensors"
    must flock --shared "$dir/run/step_00000002" "$train" info "$dir/run" # other readers
    grep -q 'step_00000002  whole' "$dir/out" || note "$(cat "$dir/out")"
}

# The files themselves: test/log/test_tensorboard.c. Histograms change no bit of the run.
event_files_change_no_bit() {
    corpus
    common="$small $data --max_steps 6 --val_every 0 --save_every 6"
    must "$train" $common --out "$dir/without"
    must "$train" $common --tensorboard 1 --out "$dir/run"
    same_checkpoint "$dir/without/step_00000006" "$dir/run/step_00000006"
    expect 2 'has no effect without --out' "$train" $common --tensorboard 1 --save_every 0 --out ''
}

reports_are_written() {
    corpus
    must "$train" $small $data --max_steps 10 --val_every 5 --out "$dir/a"
    must "$train" $small $data --max_steps 10 --val_every 5 --lr 1e-3 --out "$dir/b"
    grep -q '<svg' "$dir/a/report.html" || note "no chart in report.html"
    rm "$dir/a/report.html"
    must "$train" report "$dir/a"
    grep -q '<svg' "$dir/a/report.html" || note "no chart in a new report.html"
    here=$(pwd)
    (cd "$dir" && "$here/$train" report a b >/dev/null) || note "report a b failed"
    grep -q '<svg' "$dir/report.html" || note "no chart in the comparison"
    if command -v node >/dev/null; then # the script's syntax
        sed '1,/^<script>/d; /^<\/script>/,$d' "$dir/report.html" >"$dir/script.js"
        grep -q '^update();' "$dir/script.js" || note "no script in the comparison"
        must node --check "$dir/script.js"
    fi
    must "$train" report "$dir/a" "$dir/b" --out "$dir/new/pages"
    grep -q '<svg' "$dir/new/pages/report.html" || note "no chart in the folder of --out"
    must "$train" report "$dir/a" --out "$dir/page.html"
    grep -q '<svg' "$dir/page.html" || note "no chart in the file of --out"
    expect 1 'nothing' "$train" report "$dir/nothing"
}

# A tokenizer learnt from text: shards, a model, samples and a resumed run go through it, also when its files are gone.
a_tokenizer_of_ones_own() {
    t="$dir/tokenizer"
    must "$prepare" --train_tokenizer 300 --out "$t" README.md dev/commands.md dev/formats.md
    grep -q "300 tokens, from" "$dir/out" || note "$(cat "$dir/out")"
    expect 1 "there is a tokenizer already" "$prepare" --train_tokenizer 300 --out "$t" README.md
    expect 1 "no pairs for more than" "$prepare" --train_tokenizer 65536 --out "$dir/large" README.md
    expect 2 "at least 257" "$prepare" --train_tokenizer 256 --out "$dir/large" README.md
    for f in tokenizer.json tokenizer.bin; do
        must "$train" tokenize --tokenizer "$t/$f" <README.md
        cp "$dir/out" "$dir/$f"
        must "$train" tokenize --decode --tokenizer "$t" <"$dir/$f"
        cmp -s "$dir/out" README.md || note "$f: another text"
    done
    cmp -s "$dir/tokenizer.json" "$dir/tokenizer.bin" || note "the files of one tokenizer differ"
    must "$prepare" --tokenizer "$t" --val_size 500 --out "$dir/d" README.md dev/commands.md
    d="--train_data $dir/d_train_*.bin --val_data $dir/d_val_*.bin --tune 0 --batch_size 2 --seq_len 32"
    must "$train" --model L=1,H=2,C=16,T=32,V=300 --tokenizer "$t" $d --max_steps 2 --save_every 1 --out "$dir/run"
    c="$dir/run/step_00000002"
    (cd "$c" && sha256sum vocab.json merges.txt tokenizer.json) >"$dir/in_run"
    (cd "$t" && sha256sum vocab.json merges.txt tokenizer.json) | cmp -s - "$dir/in_run" || note "other files"
    mv "$t" "$dir/elsewhere"
    must "$train" generate --out "$dir/run" --prompt "The" --sample_tokens 8 --top_k 1
    cp "$dir/out" "$dir/sample"
    must "$train" --resume auto --out "$dir/run" --max_steps 3
    must "$train" generate --init "$c" --prompt "The" --sample_tokens 8 --top_k 1
    cmp -s "$dir/out" "$dir/sample" || note "another sample from the same checkpoint"
    cp -r "$c" "$dir/model" # a Hugging Face folder: a run from it takes its tokenizer
    rm "$dir/model/state.json" "$dir/model/tokenizer.json"
    must "$train" --init "$dir/model" $d --max_steps 1 --save_every 1 --out "$dir/run2"
    grep -q '"tokenizer": ".*/model"' "$dir/run2/options.json" || note "run2: not the folder's tokenizer"
    must "$train" info "$dir/elsewhere"
    grep -q "300: 256 bytes, 43 merges, 1 special" "$dir/out" || note "$(cat "$dir/out")"
    printf 'X' | dd of="$c/vocab.json" bs=1 seek=9 conv=notrunc 2>/dev/null
    expect 1 'vocab.json: damaged' "$train" --resume "$c" --out "$dir/run3"
}

gpt2s_tokenizer_files_are_openais() {
    text="$dir/text"
    i=0; while [ $i -lt 300 ]; do echo "a line of text, number $i"; i=$((i + 1)); done >"$text"
    must "$prepare" --val_size 0 --out "$dir/d" "$text"
    must "$train" --model L=1,H=1,C=8,T=1024 --seq_len 16 --batch_size 1 --train_data "$dir/d_train_*.bin" \
        --val_data "" --max_steps 1 --save_every 1 --sample_every 0 --tune 0 --out "$dir/run"
    (cd "$dir/run/step_00000001" && sha256sum vocab.json merges.txt) >"$dir/sums"
    grep -q '^196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783  vocab.json' "$dir/sums" &&
        grep -q '^1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5  merges.txt' "$dir/sums" ||
        note "$(cat "$dir/sums")"
}

# ----------------------------------------------------------------------------------------------------------------------
# wrong options, data and folders

wrong_options_are_named_with_the_right_one() {
    expect 2 'did you mean --batch_size?' "$train" --batchsize 4
    expect 2 'did you mean train?' "$train" trian
    expect 2 'no option --block_size; here it is called --seq_len' "$train" --block_size 64
    expect 2 "takes fast|plain, not 'avx2'" "$train" --kernels avx2
    expect 2 '--lr takes a number' "$train" --lr fast
    expect 2 '--lr takes a number from 0' "$train" --lr -1
    expect 2 '--batch_size takes a whole number or auto' "$train" --batch_size 4.5
    expect 2 '--batch_size takes a number from 1' "$train" --batch_size -3
    expect 2 '--schedule takes cosine|linear|constant|wsd' "$train" --schedule step
    expect 2 '--shuffle takes 0 or 1' "$train" --shuffle maybe
    expect 2 '--lr needs a value' "$train" --lr
    expect 2 'is not an option of generate' "$train" generate --lr 1
    expect 2 "'4' is not an option" "$train" --lr 1 4
    expect 2 'gpt5' "$train" --model gpt5 --train_data "$dir/none_*.bin" # the data are missing too
    expect 2 '--dtype tf32 is for GPUs' "$train" --dtype tf32
    expect 2 '--dtype fp8 is for GPUs' "$train" --dtype fp8
    expect 2 'there are: auto, ' "$train" --cpu amx --dtype fp32
    printf 'lr 1e-3\nbatchsize 3\n' >"$dir/file"
    expect 2 "file:2: no option 'batchsize'; did you mean 'batch_size'?" "$train" --config "$dir/file"
    expect 2 'cannot open' "$train" --config "$dir/none"
    expect 2 'is not one of gpt2:124m' "$train" --preset gpt4
    expect 2 'leave out --optimizer adamw, or give --preset fast:350m' "$train" --preset muon:350m --optimizer adamw
    expect 2 'unset all of them to start a single process' env OMPI_COMM_WORLD_SIZE=2 "$train"
}

# test_needs has every such option, and its neighbours that are accepted
options_without_effect_are_refused() {
    corpus
    run="$small $data --val_every 0"
    expect 2 "--momentum 0.9 has no effect without --optimizer muon" "$train" $run --momentum 0.9 --out ""
    expect 2 '--stochastic_round 1 has no effect with --dtype fp32: weights' "$train" $run --stochastic_round --out ""
    expect 2 '--sample_every 5 has no effect with --tokenizer none' "$train" $run --tokenizer none \
        --sample_every 5 --out ""
    must "$train" $run --stochastic_round --dtype bf16 --max_steps 1 --out "$dir/run"
    weights="$dir/run/step_00000001"
    expect 2 '--init_out zero has no effect without --init random' "$train" $run --init "$weights" \
        --init_out zero --out ""
    expect 2 '--init_out zero has no effect' "$train" info --init "$weights" --init_out zero
    expect 2 '--init_out zero: the run being resumed has normal' "$train" --out "$dir/run" --resume auto \
        --init_out zero
    must "$train" $run --max_steps 2 --preset muon:124m --init "$weights" --total_batch_size 128 --out "$dir/preset"
    printf 'stochastic_round 1\ndecay_frac 0.5\nval_tokens 64\n' >"$dir/file"
    expect 2 '--decay_frac 0.5 has no effect without --schedule wsd|wsd_linear: leave it out' "$train" $run \
        --config "$dir/file" --dtype bf16 --out ""
    eval="$train eval --init $weights --tokenizer bytes --threads 1"
    expect 2 '--document_mask 1 has no effect with --text' $eval --text test/golden/eval/text.txt --document_mask 1
    expect 2 '--eval_limit 2 has no effect without --eval_data: leave it out' $eval --eval_limit 2
    must $eval --text test/golden/eval/text.txt --config "$dir/file" # of all commands
    expect 2 'no option --link: python3 dev/bench/predict.py' "$train" bench scale --link 1GB/s:1us
    cp "$root/corpus_val_000000.bin" "$dir/plain.bin" # without the record of its tokenizer
    must "$train" -i "$dir/plain.bin" -j "$dir/plain.bin" -e L=1,H=2,C=16,T=48 -b 1 -t 48 -x 1 -v 0 -s 0 -k constant \
        -nm 5 # and no -o: llm.c's letters
}

shapes_that_do_not_fit_are_refused() {
    corpus
    expect 2 '32 channels cannot be shared by 3 heads' "$train" $small $data --model L=1,H=3,C=32,T=32,V=257 --out ""
    expect 2 'the model has only 48 positions' "$train" $small $data --seq_len 64 --out ""
    expect 2 'give 896 or 1024, or --batch_size 3' "$train" $small $data --batch_size 4 --total_batch_size 960 --out ""
    expect 1 'vocabulary' "$train" $small $data --model L=1,H=2,C=32,T=32,V=64 --out ""
    expect 1 'not enough memory' "$train" $small $data --model gpt3:13b --seq_len 2048 --batch_size 64 --max_steps 1 \
        --out ""
    expect 2 'cuDNN is for GPUs' "$train" $small $data --attention cudnn --out ''
    expect 1 "has 50257 tokens, the model's vocabulary only 257" "$train" $small $data --tokenizer gpt2 --out ""
    expect 1 'less than --total_batch_size' "$train" $small $data --total_batch_size 1280000 --out ""
}

bad_data_is_named() {
    corpus
    expect 1 'nothing_*.bin' "$train" $small --train_data "$dir/nothing_*.bin" --val_data "" --out ""
    head -c 5000 "$root/corpus_train_000001.bin" >"$dir/short.bin"
    expect 1 "$dir/short.bin" "$train" $small --train_data "$dir/short.bin" --val_data "" --out ""
    head -c 5000 /dev/urandom >"$dir/foreign.bin"
    expect 1 "$dir/foreign.bin" "$train" $small --train_data "$dir/foreign.bin" --val_data "" --out ""
    printf 'A b c d.' >"$dir/few.txt"
    must "$prepare" --tokenizer bytes --val_size 0 --out "$dir/few" "$dir/few.txt"
    expect 1 'few_train_000001.bin' "$train" $small --train_data "$dir/few_train_*.bin" --val_data "" --out ""
    expect 3 'vocabulary' "$train" info --model L=1,H=2,C=32,T=32,V=64 --train_data "$root/corpus_train_*.bin"
    expect 1 'no such file or folder' "$train" $small $data --init "$dir/none" --out ""
    expect 1 '`sh data/fetch.sh gpt2-xl` downloads' "$train" eval --init openai-community/gpt2-xl
}

# By the record of ./prepare, beside training and validation data; shards without one by their ids.
data_of_another_tokenizer_is_refused() {
    corpus
    must "$prepare" --stories 60000 --val_size 6000 --out "$dir/g"
    gpt2="--train_data $dir/g_train_*.bin --val_data $dir/g_val_*.bin"
    model="$small --model L=1,H=1,C=8,T=48,V=50257"
    said='says that it was made with --tokenizer' valid="--val_data $root/corpus_val_*.bin --seq_len 32"
    expect 1 "corpus.json $said bytes" "$train" $model $data --tokenizer gpt2 --max_steps 1 --out ""
    expect 1 "g.json $said gpt2" "$train" $model $gpt2 --max_steps 1 --out ""
    expect 1 "--val_data $root/corpus_val_" "$train" $model $gpt2 $data --train_data "$dir/g_train_*.bin" \
        --tokenizer gpt2 --max_steps 1 --out ""
    must "$train" $model $data --tokenizer none --max_steps 1 --val_every 0 --out ""
    must "$train" $model $gpt2 --tokenizer gpt2 --max_steps 2 --val_every 0 --save_every 1 --out "$dir/run"
    rm -r "$dir/run/step_00000002"
    expect 1 "corpus.json $said bytes" "$train" --out "$dir/run" --resume auto --val_every 1 $data \
        --train_data "$dir/g_train_*.bin"
    expect 1 "corpus.json $said bytes" "$train" eval --init "$dir/run/step_00000001" $valid
    must "$train" export llmc --init "$dir/run/step_00000001" --out "$dir/model.bin" # has no tokenizer: GPT-2's
    expect 1 "corpus.json $said bytes" "$train" eval --init "$dir/model.bin" $valid
    expect 0 'val loss' "$train" eval --init "$dir/model.bin" --val_data "$dir/g_val_*.bin" --seq_len 32
    rm "$dir/g.json"
    expect 1 'of --tokenizer bytes: give' "$train" $model $gpt2 --max_steps 1 --out ""
    must "$train" $model $gpt2 --tokenizer gpt2 --max_steps 1 --val_every 0 --out ""
    grep -q warning "$dir/err" && note "a warning of sound shards: $(cat "$dir/err")"
    cp "$root/corpus_train_000001.bin" "$dir/plain.bin"
    expect 0 'no id is above 256' "$train" $model --train_data "$dir/plain.bin" --val_data "" --tokenizer gpt2 \
        --max_steps 1 --out ""
}

folders_are_not_overwritten() {
    corpus
    must "$train" $small $data --max_steps 4 --val_every 0 --out "$dir/run"
    expect 1 'holds checkpoints of another run' "$train" $small $data --max_steps 4 --out "$dir/run"
    "$train" $small $data --max_steps 100000 --val_every 0 --save_every 0 --out "$dir/busy" >"$dir/log" 2>&1 &
    pid=$!
    await '^step' "$dir/log" $pid
    expect 1 'another run is writing to this folder' "$train" $small $data --max_steps 4 --out "$dir/busy"
    kill -9 $pid
    wait $pid 2>/dev/null
    must "$train" $small $data --max_steps 4 --val_every 0 --out "$dir/busy" # logs without checkpoints are replaced
    printf x >"$dir/file"
    expect 1 "$dir/file" "$train" $small $data --out "$dir/file"
    expect 1 '/proc' "$train" $small $data --out /proc/run
}

a_full_disk_leaves_the_older_checkpoints() {
    corpus
    mkdir "$dir/disk"
    small_disk 1800k "$dir/disk" || return 0
    expect 1 'make room' "$train" $small $data --max_steps 10 --save_every 5 --val_every 0 --out "$dir/disk/run"
    ls "$dir/disk/run" | grep -q step_00000005 || note "the older checkpoint is gone: $(ls -A "$dir/disk/run")"
    umount "$dir/disk"
}

missing_and_repeated_shards_are_named() {
    corpus
    cp "$root/corpus_train_000001.bin" "$dir/part_000001.bin"
    cp "$root/corpus_train_000001.bin" "$dir/part_000004.bin"
    must "$train" $small --train_data "$dir/part_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q '2 shards are missing between .*/part_000001.bin and .*/part_000004.bin$' "$dir/err" ||
        note "no word of the missing shards: $(cat "$dir/err")"
    grep -q '/part_000004.bin begins, ends and is as long as .*/part_000001.bin: ' "$dir/err" ||
        note "no word of the copy: $(cat "$dir/err")"
    rm "$dir/part_000004.bin"
    for i in 1 10 11; do cp "$root/corpus_val_000000.bin" "$dir/plain_$i.bin"; done # 2 to 9 may have the other length
    must "$train" $small --train_data "$dir/plain_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q 'missing between' "$dir/err" && note "numbers of other lengths compared: $(cat "$dir/err")"
    must "$train" $small --train_data "$dir/part_*.bin $root/corpus_val_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q warning "$dir/err" && note "a warning of sound shards: $(cat "$dir/err")"
}

# What is written under its final name is complete, and nothing else is touched.
a_full_disk_leaves_no_partial_file() {
    mkdir "$dir/disk"
    small_disk 60k "$dir/disk" || return 0
    expect 1 'disk/c_train_000001.bin: cannot write: No space left' "$prepare" --stories 100000 --tokenizer bytes \
        --val_size 0 --out "$dir/disk/c"
    ls "$dir/disk" | grep -q '\.bin$' && note "a partial shard: $(ls "$dir/disk")"
    expect 1 '.json: cannot write: No space left' "$prepare" --train_tokenizer 3000 --out "$dir/disk/tokenizer" \
        README.md CONTRIBUTING.md dev/commands.md dev/cpu.md dev/formats.md
    must "$train" info "$dir/disk/tokenizer/tokenizer.bin"
    ls "$dir/disk/tokenizer" | grep -qvx tokenizer.bin && note "a partial file: $(ls "$dir/disk/tokenizer")"
    corpus
    must "$train" $small $data --val_data "" --max_steps 1 --out "$dir/run"
    printf mine >"$dir/disk/mine"
    for to in hf llmc gguf; do
        expect 1 "disk/$to" "$train" export $to --init "$dir/run/step_00000001" --out "$dir/disk/$to"
        [ ! -e "$dir/disk/$to" ] || note "export $to left $(find "$dir/disk/$to")"
    done
    [ "$(cat "$dir/disk/mine")" = mine ] || note "another file was changed"
    umount "$dir/disk"
}

# ----------------------------------------------------------------------------------------------------------------------
# check and bench

fast_kernels_are_checked_against_the_plain_ones() {
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16
    tail -n 1 "$dir/out" | grep -q '^[1-9][0-9]* comparisons, 0 failed$' || note "$(tail -n 1 "$dir/out")"
    expect 2 'are what the others are checked against' "$train" check --kernels plain
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16 --dtype bf16
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16 --dtype fp16
}

the_ladder_leaves_a_table_and_a_picture() {
    must "$train" bench ladder --model L=1,H=2,C=32,T=16,V=50 --max_steps 2 --threads 2 --out "$dir/ladder"
    json="$dir/ladder/ladder.json"
    for rung in 'plain loops' 'vectors and blocks' fused 'flash attention' bf16 'padded vocabulary' 'all threads'; do
        grep -q "this program has no $rung" "$dir/err" && continue
        grep -q "^$rung .*[0-9]x .* ok" "$dir/out" || note "no rung '$rung'"
        [ "$(values_of name "$json" | grep -cx "$rung")" = 1 ] || note "ladder.json does not have '$rung' once"
        grep -q ">$rung<" "$dir/ladder/ladder.svg" || note "the chart lacks '$rung'"
    done
    [ "$(values_of ok "$json" | sort -u)" = true ] || note "a rung is not ok: $(cat "$dir/out")"
    # gains are ratios of tokens per second, which are a step's tokens over its time; memory and the peak were measured
    values_of tok_s "$json" >"$dir/tok_s"
    for name in ms gain total_gain mfu used_bytes; do
        values_of $name "$json" | paste -d ' ' "$dir/tok_s" - >"$dir/both"
        mv "$dir/both" "$dir/tok_s"
    done
    awk 'function off(a, b) { return a / b > 1.000001 || a / b < 0.999999 }
         NR == 1 { first = before = $1 }
         off($1, 64 / $2 * 1e3) || off($3, $1 / before) || off($4, $1 / first) || !($5 > 0 && $6 > 1e6) {
             print "rung " NR ": " $0
         }
         { before = $1 }
         END { if (NR < 6) print NR " rungs" }' "$dir/tok_s" >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || note "tok_s ms gain total_gain mfu used_bytes do not agree: $(cat "$dir/wrong")"
    [ "$(values_of threads "$json" | tail -n 1)" = 2 ] || note "the last rung has other than 2 threads"
    values_of level "$json" | grep -qvE '^(generic|avx2|avx512|avx512_bf16|amx)$' &&
        note "an unknown level: $(values_of level "$json")"
    for size in broad slim; do
        grep -q "<svg class=\"bench $size\"" "$dir/ladder/ladder.html" || note "no $size chart in ladder.html"
    done
    expect 0 "'all threads' is left out" "$train" bench ladder --model L=1,H=2,C=32,T=16,V=50 --max_steps 1 \
        --threads 1 \
        --out ""
    expect 2 'leave it out' "$train" bench ladder --attention plain
    expect 2 "bench ladder takes no word after it, but got 'foo'" "$train" bench ladder foo
    expect 2 'bench foo: give one of: ladder' "$train" bench foo
    expect 1 'no such file or folder' "$train" bench ladder --init "$dir/none"
    expect 2 'ladder' "$train" bench
    expect 2 'ladder' "$train" bench latter
}

every_operation_is_timed() {
    must "$train" bench ops --model L=1,H=2,C=32,T=16,V=50 --out "$dir/ops"
    json="$dir/ops/ops.json"
    sed -n 's/^ *OP_ENTRY(\([a-z_]*\),.*/\1/p' llmc/check/op_cases.c | sort >"$dir/want"
    values_of name "$json" | sed 1d >"$dir/names" # the first is the model's
    sort -u "$dir/names" | cmp -s - "$dir/want" || note "not the operations of op_cases.c: $(cat "$dir/out")"
    values_of layer "$json" | paste -d ' ' "$dir/names" - | sort | uniq -d >"$dir/twice"
    [ ! -s "$dir/twice" ] || note "twice: $(cat "$dir/twice")"
    [ "$(grep -cE '^matmul_(gelu_)?forward$' "$dir/names")" = 4 ] || note "not the four layers of a block"
    for name in ms bytes flops reached; do
        values_of $name "$json" | awk '$1 > 0 { n++ } END { print n + 0 }' >"$dir/count"
        [ "$(cat "$dir/count")" = "$(wc -l <"$dir/names")" ] || note "an operation has no $name"
    done
    [ "$(grep -c '<circle.*<title>' "$dir/ops/ops.svg")" = "$(wc -l <"$dir/names")" ] || note "not a point for each row"
    grep -q '<svg' "$dir/ops/ops.html" || note "no chart in ops.html"
    must "$train" bench ops 'backward qkv' --model L=1,H=2,C=32,T=16,V=50 --batch_size 2 --seq_len 8 --out "$dir/ops"
    # 4 N C OC; inp, dout and weight are read, dinp written, dweight and dbias added to: 4 bytes each
    [ "$(values_of flops "$json")" = 196608.0 ] || note "flops of the qkv layer: $(values_of flops "$json")"
    [ "$(values_of bytes "$json")" = 47872.0 ] || note "bytes of the qkv layer: $(values_of bytes "$json")"
    expect 2 "no operation has 'nothing' in its name" "$train" bench ops matmul nothing --out ""
}

# A Python and an llm.c whose steps take canned times. PyTorch compiled is the better of the two: 100 ms a step.
peers_take_turns() {
    command -v python3 >/dev/null || { skip='python3 is not installed'; return; }
    cat >"$dir/python" <<'END'
#!/bin/sh
case $* in
-c*) exit 0 ;; # imports
*--contender*) ;;
*) exec python3 "$@" ;; # the script itself
esac
case $* in *compiled*) ms=100 ;; *) ms=200 ;; esac
for i in $ms 900 $ms $ms; do echo "step loss 4.000000 | $i.00 ms |"; done
echo 'facts {"torch": "9.9", "peak_bytes": 1073741824}'
END
    printf '#!/bin/sh\nexit 1\n' >"$dir/bare"
    mkdir "$dir/llm.c"
    printf '#!/bin/sh\nwhile echo "step 7: train loss 5.0 (took 400.000000 ms)"; do sleep 0.01; done\n' \
        >"$dir/llm.c/train_gpt2"
    chmod +x "$dir/python" "$dir/bare" "$dir/llm.c/train_gpt2"
    peers="python3 dev/bench/peers.py --program $train --model L=1,H=2,C=32,T=64 --dtype fp32 --steps 2 --threads 1"
    must $peers --python "$dir/python" --llmc "$dir/llm.c" --json "$dir/peers.json"
    grep -q '^| fp32, 4 x 64 tokens | [0-9,]* | 2,560 | [0-9.]* ([0-9.]* to [0-9.]*) | [0-9]* | 1,024 | 640 | ' \
        "$dir/out" || note "not README's row: $(tail -n 1 "$dir/out")"
    json="$dir/peers.json"
    [ "$(values_of better "$json")" = compiled ] || note "the better one: $(values_of better "$json")"
    [ "$(grep -c '"first_step_s": [0-9]' "$json")" = 12 ] || note "not three rounds of four contenders"
    ! grep -q "$dir" "$json" || note "a path of this machine in peers.json"
    expect 1 'has no torch and transformers' $peers --python "$dir/bare"
    expect 1 'no train_gpt2 in' $peers --python "$dir/python" --llmc "$dir"
    expect 1 'takes B 4 and T 64' $peers --python "$dir/python" --llmc "$dir/llm.c" -T 32
}

a_step_is_listed_and_predicted() {
    must "$train" bench step --model d12 --batch_size 16 --total_batch_size 32768 --recompute gelu --out "$dir/step"
    values_of runs "$dir/step/step.json" >"$dir/runs"
    awk 'NR > 2 && $1 != "step" && !/json$/ { runs += $(NF - 3) } $1 == "step" { all = $2 }
        END { exit !(NR > 20 && runs == all) }' "$dir/out" || note "not the sum of its rows: $(cat "$dir/out")"
    [ "$(awk '{ sum += $1 } END { print sum }' "$dir/runs")" = 374 ] || note "step.json: $(cat "$dir/runs")"
    expect 2 'give a number' "$train" bench step --batch_size auto
    expect 2 'options of bench step alone' "$train" bench ladder --total_batch_size 1024
    expect 2 'options of bench step alone' "$train" bench ops --preset gpt2:124m
    expect 2 'contradicts --kernels plain' "$train" bench ops --attention flash --kernels plain --out ""
    expect 2 'cuDNN is for GPUs' "$train" bench ops --attention cudnn --out ""
    for bench in predict presets scale peers data; do
        expect 2 "bench $bench is gone: " "$train" bench $bench
    done
    command -v python3 >/dev/null || { skip='python3 is not installed'; return; }
    predict="python3 dev/bench/predict.py --program $train"
    must $predict --published # llm.c's steps lie in the range
    must $predict --page
    cmp -s "$dir/out" dev/bench/results/predicted.md ||
        note 'out of date: python3 dev/bench/predict.py --page >dev/bench/results/predicted.md'
    must $predict h100 --gpus 8 --price 2 --model d12 --max_steps 100000
    awk '$1 == "step" { low = $2; high = $4 }
        / ms$/ && $1 != "step" { fast += $(NF - 3); slow += $(NF - 1) }
        $2 == "steps:" { cost = substr($7, 2) / (100000 * low / 3.6e6 * 8 * 2) }
        END { exit !(low > 0 && low < high && fast / low > 0.99 && fast / low < 1.01 && slow / high > 0.99 &&
                     slow / high < 1.01 && cost > 0.98 && cost < 1.02) }' "$dir/out" ||
        note "parts, step and price do not fit: $(cat "$dir/out")"
    expect 1 'give one of: T4' $predict V100
    expect 1 'has no matmuls of that type' $predict T4 --dtype bf16
    expect 2 'no option --gpu' $predict H100 --gpu 8
}

# A mixture in rows, prepared and trained on; another length of a sequence is refused.
a_mixture_in_rows_trains() {
    for i in 1 2; do seq 1000 | sed "s/.*/file $i &\n/" >"$dir/$i.txt"; done
    must "$prepare" --out "$dir/m" --tokenizer bytes --split blank --val_size 2000 --rows 16 \
        --mix "$dir/1.txt:2,$dir/2.txt:1"
    model="--model L=1,H=2,C=16,T=32 --tokenizer bytes --batch_size 2 --sample_every 0 --save_every 0"
    model="$model --train_data $dir/m_train_*.bin --val_data $dir/m_val_*.bin --max_steps 2"
    must "$train" $model --seq_len 16 --out "$dir/run"
    expect 1 'its rows were made for --seq_len 16: train with that' "$train" $model --out "$dir/other"
}

# The trainer is killed at its first two checkpoints; supervise.sh starts it again each time.
a_supervised_run_ends_with_the_same_bits() {
    corpus
    common="$small $data --max_steps 60 --save_every 20 --val_every 0"
    must "$train" $common --out "$dir/whole"
    cat >"$dir/killed_twice" <<'KILL'
kills=$(cat "$0.kills" 2>/dev/null || echo 0)
[ $kills = 2 ] && exec "$@"
echo $((kills + 1)) >"$0.kills"
mkfifo "$0.$kills"
"$@" 2>"$0.$kills" & pid=$!
while read -r line; do case $line in *"saved step"*) kill -9 $pid; break ;; esac; done <"$0.$kills"
wait $pid
KILL
    must env PAUSE=0 sh scripts/supervise.sh sh "$dir/killed_twice" "$train" $common --out "$dir/run"
    same_checkpoint "$dir/whole/step_00000060" "$dir/run/step_00000060"
    [ "$(grep -c 'exit code 137 at step [24]0; start' "$dir/run/supervise.log")" = 2 ] ||
        note "$(cat "$dir/run/supervise.log")"
    grep -q 'complete at step 60' "$dir/run/supervise.log" || note "its end is not told"
}

a_supervised_run_is_given_up_with_the_reason() {
    corpus
    mkdir -p "$dir/begun/step_best_of_all" "$dir/begun/step_00000008"
    fails() { env PAUSE=0 RESTARTS=2 sh scripts/supervise.sh sh -c 'echo x >>"$0"; exit "$1"' "$dir/starts" "$@"; }
    expect 1 '3 times at step 8: giving up' fails 1 --out "$dir/begun"
    expect 137 '3 times at step 0: giving up' fails 137 --out "$dir/none"
    expect 137 '3 times at step 8: giving up' fails 137 -o "$dir/begun" # llm.c's
    [ "$(wc -l <"$dir/starts")" = 9 ] || note "$(wc -l <"$dir/starts") starts, not 9"
    for code in 1 2 4 126 127; do # of these a start again cannot help
        rm "$dir/starts"
        expect $code "exit code $code" fails $code --out "$dir/none"
        [ "$(wc -l <"$dir/starts")" = 1 ] || note "exit code $code: $(wc -l <"$dir/starts") starts"
    done
    expect 127 'cannot be run' env PAUSE=0 sh scripts/supervise.sh "$dir/nothing" --out "$dir/none"
    expect 1 'before the first step' env PAUSE=0 sh scripts/supervise.sh "$train" $small --train_data "$dir/nothing" \
        --out "$dir/data"
    expect 2 'the command is wrong' env PAUSE=0 sh scripts/supervise.sh "$train" --max_steps x --out "$dir/a"
    expect 4 'the loss is not finite' env PAUSE=0 sh scripts/supervise.sh "$train" $small $data --lr 1e3 \
        --warmup_steps 0 --weight_decay 1e3 --max_steps 50 --val_every 0 --out "$dir/b"
    expect 2 'has no --out' sh scripts/supervise.sh "$train"
    for number in x 99999999999999999999 08; do
        expect 2 "RESTARTS=$number is no number" env RESTARTS=$number sh scripts/supervise.sh "$train" --out "$dir/c"
    done
    printf 'echo "$@" >>"%s"\nexit 3\n' "$dir/arguments" >"$dir/say"
    for given in "-o $dir/l" "--out=$dir/l" "--out $dir/l --resume x"; do
        env PAUSE=0 RESTARTS=0 sh scripts/supervise.sh sh "$dir/say" $given >/dev/null 2>&1
    done
    printf '%s\n' "-o $dir/l -y 1" "--out=$dir/l --resume auto" "--out $dir/l --resume x" |
        diff - "$dir/arguments" >"$dir/diff" || note "$(cat "$dir/diff")"
    begin sh scripts/supervise.sh "$train" $small $data --max_steps 100000 --val_every 0 --save_every 0 \
        --out "$dir/stopped"
    await '^step *2/' "$dir/out" $pid
    kill -TERM $pid
    wait $pid
    [ $? = 0 ] || note "a stopped run has exit code $?"
    grep -q 'stopped by SIGTERM' "$dir/stopped/supervise.log" || note "$(cat "$dir/stopped/supervise.log")"
}

# dev/learning/study.sh at its smallest size: every run, the tables, the page; what is there is not done again.
a_study_ends_with_a_page_and_goes_on_where_it_stopped() {
    command -v python3 >/dev/null || { skip="no python3"; return; }
    study="env SIZE=smoke WORK=$dir/work RESULTS=$dir/results TRAIN=$train PREPARE=$prepare sh dev/learning/study.sh"
    must $study
    page="$dir/study.md" first="$dir/work/smoke/runs/text-muon-1-1"
    grep -q '^| Built-in corpus | Muon, tuned | AdamW, tuned | .* | .* | .* |$' "$page" || note "no ratio in $page"
    [ "$(grep -c '^| [A-Z].* corpus\|^| Text of' "$page")" -ge 10 ] || note "too few rows in $page"
    for picture in $(sed -n 's/^!\[.*\](\(.*\))$/\1/p' "$page"); do
        python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$dir/$picture" || note "$picture"
    done
    cut -f 1-4 "$dir/results/runs.tsv" >"$dir/first_runs"
    : >"$first/loss"                            # as if it had been stopped
    sed -i 's/0.85/0.5/' "$first/../text-muon-1-2/command" # as if its options had been others
    must $study final page
    [ "$(sed -n 's/^[0-9:]* .* s //p' "$dir/out" | LC_ALL=C sort | tr '\n' ' ')" = "text-muon-1-1 text-muon-1-2 " ] ||
        note "other runs were made: $(cat "$dir/out")"
    cut -f 1-4 "$dir/results/runs.tsv" | cmp -s - "$dir/first_runs" || note "a repeated run has another loss"
    expect 2 "SIZE=x is not one of" env SIZE=x sh dev/learning/study.sh
    expect 2 "no part 'x'" $study x
}

# Tokens to equal loss, where losses fall by a tenth with each doubling of the tokens: sqrt(2) times fewer, and bounds.
a_study_finds_the_tokens_to_equal_loss() {
    command -v python3 >/dev/null || { skip="no python3"; return; }
    mkdir "$dir/results"
    {
        printf 'run\tsteps\ttokens\tval_loss\tprocessor_s\toptions\n'
        for run in 'published-1-1 100000 5.2' 'adamw-1-1 100000 5.0' 'adamw-2-1 50000 5.1' 'adamw-4-1 25000 5.2' \
            'adamw-.5-1 200000 4.9' 'muon-1-1 100000 4.95' 'muon-2-1 50000 5.05' 'muon-4-1 25000 5.15' \
            'muon-.5-1 200000 4.85'; do
            printf 'text-%s\t9\t%s\t%s\t1\t\n' $run
        done
    } >"$dir/results/runs.tsv"
    printf 'run\ttokens\ttrain_loss\ntext-adamw-1-1\t500\t6\ntext-adamw-1-1\t900\t5\n' >"$dir/results/curves.tsv"
    for fact in 'command c' 'program p' 'processor p' 'date d' 'model m' 'batch 100' 'steps 1000' 'floor 0.5'; do
        printf '%s\t%s\n' $fact
    done >"$dir/results/study.tsv"
    must python3 dev/learning/page.py draw "$dir/results" "$dir/study.md"
    for row in 'AdamW, tuned | published settings .*| >4.00 ' 'Muon, tuned | AdamW, tuned .*| 1.41 ' \
        '| 0.05 | 5.1000 | 5.0500 | 1.41 ' '| 0.20 | 4.9000 | 4.8500 | 1.41 '; do
        grep -q "$row" "$dir/study.md" || note "no '$row' in $(cat "$dir/study.md")"
    done
}

run_tests "$0"
end_tests end_to_end
