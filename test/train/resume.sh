#!/bin/sh
# Tests that a run which was killed, stopped or damaged goes on to the same end, by itself and supervised.
. "$(dirname "$0")/../lib.sh"
corpus

# Killed between two changes, in a run whose batch grows too; validation is at the full length.
growing_sequences_resume_with_the_same_bits() {
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
    ! grep 'learning rate goes' "$dir/err" >"$dir/said" || note "no option has changed: $(cat "$dir/said")"
    same_checkpoint "$dir/run/$last" "$dir/again/$last"
    expect 2 'batch_ramp "": the run being resumed has 32:6000' \
        "$train" --out "$dir/again" --resume auto --batch_ramp ''
}

# A run that is counted in tokens trains on as many after its batch has changed.
a_run_has_its_tokens_with_another_batch() {
    common="$small $data --val_every 0 --save_every 8 --keep 0"
    must "$train" $common --total_batch_size 512 --batch_ramp 128:3000 --max_steps 12 --out "$dir/ramp"
    go_on "$train" "$dir/ramp" 8 "$dir/twice" --total_batch_size 1024
    grep -q 'the learning rate goes from .* at this resumption' "$dir/err" || note "no warning: $(cat "$dir/err")"
    must "$train" $common --train_data "$root/corpus_val_*.bin" --total_batch_size 512 --max_steps -1 --out "$dir/epoch"
    go_on "$train" "$dir/epoch" 8 "$dir/half" --total_batch_size 128
    grep -q '(13 steps then, 30 now)' "$dir/err" || note "steps of the epoch: $(grep warning "$dir/err")"
    then=$(sed -n 's/.*"step":9,.*"lr":\([0-9.]*\),.*/\1/p' "$dir/epoch/metrics.jsonl" | awk '{ printf "%.2e", $1 }')
    expect 0 "goes from $then to 1.51e-03 at this resumption, because its options changed (13 steps then, 15 now)" \
        "$train" --resume "$dir/epoch/step_00000008" --total_batch_size 1024 --max_steps 15 --out "$dir/steps"
    grep -q '15 steps of 1024 tokens (1.62 epochs)' "$dir/err" || note "epochs: $(grep epochs "$dir/err")"
    epoch=$(tokens_of "$dir/epoch")
    while read -r run least; do
        tokens=$(tokens_of "$dir/$run")
        [ "$tokens" -ge "$least" ] && [ "$tokens" -lt $((least + 1024)) ] || note "$run: $tokens tokens, not $least"
    done <<END
ramp $((12 * 512))
twice $((12 * 1024))
half $epoch
END
}
tokens_of() { sed -n 's/.*"kind":"train".*"tokens":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; } # RUN

# Each try is killed at another moment after it has made a checkpoint; some of them while they write the next. No try
# comes to its end; the length of the run is chosen afterwards.
killed_ten_times_and_resumed_it_ends_with_the_same_bits() {
    most=10
    [ -z "$long" ] || most=100
    common="$small $data --total_batch_size 256 --schedule constant --val_every 30 --val_tokens 512 --save_every 7 \
        --keep 2 --sample_every 40 --sample_tokens 8"
    for try in $(seq $most); do
        begin "$train" $common --max_steps 100000000 --out "$dir/killed" --resume auto
        await 'saved step' "$dir/err" $pid
        sleep "0.$(awk -v n=$try 'BEGIN { srand(n); printf "%03d", 60 * rand() }')"
        kill -9 $pid
        finish $pid 2>/dev/null
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

a_damaged_checkpoint_is_passed_over() {
    must "$train" $small $data --max_steps 20 --save_every 10 --val_every 0 --out "$dir/run"
    cp -r "$dir/run" "$dir/copy"
    dd if=/dev/zero of="$dir/run/step_00000020/optimizer.safetensors" bs=1 seek=50000 count=64 conv=notrunc 2>/dev/null
    must "$train" $small $data --max_steps 20 --save_every 10 --val_every 0 --out "$dir/run" --resume auto
    grep -q 'damaged or edited.*trying the checkpoint before it' "$dir/err" || note "no warning: $(cat "$dir/err")"
    same_checkpoint "$dir/run/step_00000020" "$dir/copy/step_00000020"
    printf x >>"$dir/copy/step_00000010/model.safetensors"
    expect 1 'model.safetensors' "$train" generate --init "$dir/copy/step_00000010" --sample_tokens 1
    expect 1 'holds checkpoints of another run' "$train" $small $data --out "$dir/run" \
        --resume "$dir/copy/step_00000020"
    expect 1 'holds newer checkpoints' "$train" $small $data --out "$dir/run" --resume "$dir/run/step_00000010"
    rm -r "$dir/run/step_00000010"
    printf x >>"$dir/run/step_00000020/model.safetensors"
    expect 1 'none of its 1 checkpoints can be read' "$train" $small $data --out "$dir/run" --resume auto
    rm "$dir/copy/step_00000020/checkpoint.b2sums" # version 2.0 wrote none
    sed -i 's/"format": 2/"format": 1/' "$dir/copy/step_00000020/state.json"
    expect 1 'a checkpoint of version 2.0 or earlier' "$train" $small $data --out "$dir/new" \
        --resume "$dir/copy/step_00000020"
    expect 1 'a checkpoint of version 2.0 or earlier' "$train" $small $data --out "$dir/copy" --resume auto
    [ -d "$dir/copy/step_00000020" ] || note "a checkpoint that is not damaged was set aside"
    must "$train" generate --init "$dir/copy/step_00000020" --sample_tokens 1
    rm "$dir/copy/step_00000020/state.json"
    expect 1 'state.json: cannot open: No such file' "$train" $small $data --out "$dir/new" \
        --resume "$dir/copy/step_00000020"
}

muon_resumes_with_the_same_bits_and_no_other_optimizer() {
    muon="--optimizer muon --embedding_lr 1e-3 --momentum 0.95,cooldown:2:0.9 --cautious_decay 1 --schedule constant"
    must "$train" $small $data $muon --max_steps 8 --save_every 4 --keep 0 --val_every 0 --out "$dir/run"
    go_on "$train" "$dir/run" 4 "$dir/again"
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
    must "$train" $small $data --max_steps 10 --val_every 0 --lr 2e-3 --out "$dir/run"
    ln -s "$root"/corpus_val* "$dir/"
    must "$train" --out "$dir/run" --resume auto --max_steps 14 --weight_decay 0.2 --threads 1 \
        --val_data "$dir/corpus_val_*.bin"
    grep -q "changed since the checkpoint: --val_data $dir/corpus_val_\*.bin (was $root" "$dir/err" ||
        note "--val_data: $(cat "$dir/err")"
    grep -q 'changed since the checkpoint: --max_steps 14 (was 10)' "$dir/err" || note "--max_steps: $(cat "$dir/err")"
    grep -q 'changed since the checkpoint: --weight_decay 0.2 (was 0.1)' "$dir/err" ||
        note "--weight_decay: $(cat "$dir/err")"
    [ "$(losses "$dir/out" | wc -l)" = 4 ] || note "not 4 more steps"
    expect 0 'warning: the learning rate goes from ' "$train" --out "$dir/run" --resume auto --max_steps 15 --lr 1e-4
    [ "$(losses "$dir/run/log.txt" | awk '{ print $1 }' | tr '\n' ' ')" = "$(seq 15 | tr '\n' ' ')" ] ||
        note "log: $(cat "$dir/run/log.txt")"
    expect 2 'would not be the same run' "$train" --out "$dir/run" --resume auto --seed 5
    expect 2 'would not be the same run' "$train" --out "$dir/run" --resume auto --seq_len 16
    expect 2 'is not the model in' "$train" --out "$dir/run" --resume auto --model d12
    expect 1 'not the data that the run' "$train" --out "$dir/run" --resume auto --max_steps 20 \
        --train_data "$root/corpus_val_*.bin"
    expect 2 'it would not be the same run' "$train" --out "$dir/run" --resume auto --init test/golden/gpt2
    must "$train" $small $data $quiet --preset muon:124m --total_batch_size 128 --max_steps 1 --out "$dir/preset"
    must "$train" --out "$dir/preset" --resume auto --max_steps 2
    [ "$(grep -c '"preset":"muon:124m"' "$dir/preset/metrics.jsonl")" = 2 ] || note "the preset is forgotten"
    expect 2 'preset fast:124m: the run being resumed has muon:124m' "$train" --out "$dir/preset" --resume auto \
        --preset fast:124m
}

# Down to a tenth after 10 of 10 steps; half of the way from 3e-3, or from 1e-3, to its tenth after 10 of 20.
a_jump_of_the_learning_rate_is_told_with_both_rates() {
    must "$train" $small $data $quiet --schedule linear --warmup_steps 0 --max_steps 10 --out "$dir/run"
    warns() { # 'WORDS' options...
        rm -rf "$dir/other"
        words="warning: the learning rate$1 at this resumption, because its options changed (10 steps then, 20 now)"
        shift
        expect 0 "$words" "$train" --resume "$dir/run/step_00000010" --max_steps 20 "$@" --out "$dir/other"
    }
    warns ' goes from 3.00e-04 to 1.65e-03'
    warns ' of matrices goes from 3.00e-04 to 5.50e-04' --embedding_lr 1e-3 --matrix_lr 1e-3
    grep -q ' of vectors goes from 3.00e-04 to 1.65e-03' "$dir/err" || note "vectors: $(cat "$dir/err")"
    warns ' goes from 3.00e-04 to 2.90e-04' --schedule constant --lr 2.9e-4
    must "$train" --resume auto --max_steps 20 --schedule constant --lr 3.04e-4 --out "$dir/run" # by 1.3%
    ! grep -q warning "$dir/err" || note "a small jump is told: $(cat "$dir/err")"
}

a_run_cannot_have_fewer_steps_than_it_has_done() {
    must "$train" $small $data $quiet --max_steps 4 --out "$dir/run"
    expect 2 '--max_steps 3: the run has done 4 steps: give at least as many' "$train" --resume auto --max_steps 3 \
        --out "$dir/run"
    must "$train" --resume auto --max_steps 4 --out "$dir/run"
    ramp="$small $data $quiet --total_batch_size 512 --batch_ramp 128:3000"
    must "$train" $ramp --max_steps 6 --out "$dir/ramp"
    expect 0 'finished at step' "$train" $ramp --resume auto --max_steps 6 --out "$dir/ramp"
    expect 2 '--max_steps 1: the run has done ' "$train" --resume auto --max_steps 1 --out "$dir/ramp"
}

# A run that begins from another one's checkpoint is killed before it has its own.
a_run_keeps_the_checkpoint_it_began_from() {
    must "$train" $small $data $quiet --max_steps 4 --save_every 2 --keep 0 --out "$dir/base"
    must "$train" --resume "$dir/base/step_00000002" --max_steps 8 --save_every 8 --lr 1e-3 --out "$dir/run"
    mkdir "$dir/killed"
    cp "$dir/run/options.json" "$dir/killed"
    for i in 1 2; do # killed again, and then not
        rm -rf "$dir/killed/step_00000008"
        must "$train" --resume auto --out "$dir/killed"
        grep -q "starting afresh from $dir/base/step_00000002" "$dir/err" || note "start $i: $(cat "$dir/err")"
    done
    same_checkpoint "$dir/run/step_00000008" "$dir/killed/step_00000008"
    expect 0 'finished at step 8' "$train" --resume auto --out "$dir/killed"
}

# A reader that has loaded the weights a second ago, and is in the middle of its work.
a_checkpoint_that_is_read_is_not_removed() {
    must "$train" $small $data $quiet --model L=4,H=4,C=256,T=48,V=257 --max_steps 2 --save_every 1 --keep 0 \
        --out "$dir/run"
    begin "$train" eval --init "$dir/run/step_00000001" --threads 1 --val_data "$root/corpus_train_*.bin"
    for i in $(seq 6000); do
        [ "$(cut -d ' ' -f 14 "/proc/$pid/stat")" -lt 100 ] || break # of its processor time, in hundredths of a second
        sleep 0.1
    done
    kill -STOP $pid || note "eval has ended too early: $(cat "$dir/err")"
    must "$train" --out "$dir/run" --resume auto --max_steps 3 --keep 1
    [ -d "$dir/run/step_00000001" ] || note "it was removed"
    [ ! -d "$dir/run/step_00000002" ] || note "no other one was removed"
    kill -CONT $pid
    kill -KILL $pid
    finish $pid
}

# A run with --init that was killed before its first checkpoint begins again with the same weights.
a_run_keeps_the_weights_it_began_with() {
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
    must "$train" $small $data --max_steps 10 --val_every 5 --save_every 5 --val_tokens 256 --sample_every 5 \
        --sample_tokens 4 --eval_data test/golden/eval/piqa.jsonl --eval_rules limit:1 --out "$dir/run"
    must "$train" --out "$dir/run" --resume auto --max_steps 15
    for kind in val sample eval; do
        steps=$(sed -n "s/.*\"kind\":\"$kind\",\"step\":\([0-9]*\).*/\1/p" "$dir/run/metrics.jsonl" | tr '\n' ' ')
        [ "$steps" = "0 5 10 15 " ] || note "$kind at steps $steps"
    done
    steps=$(sed -n 's/.*"kind":"save","step":\([0-9]*\).*/\1/p' "$dir/run/metrics.jsonl" | tr '\n' ' ')
    [ "$steps" = "5 10 15 " ] || note "saved at steps $steps"
}

# The trainer is killed at its first two checkpoints; supervise.sh starts it again each time.
a_supervised_run_ends_with_the_same_bits() {
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
    grep -q 'ended at step 60, exit code 0' "$dir/run/supervise.log" || note "its end is not told"
}

a_supervised_run_is_given_up_with_the_reason() {
    mkdir -p "$dir/begun/step_best_of_all" "$dir/begun/step_00000008" "$dir/none"
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
    expect 137 "no $dir/absent here" fails 137 --out "$dir/absent" # the command has it in another folder
    expect 127 'cannot be run' env PAUSE=0 sh scripts/supervise.sh "$dir/nothing" --out "$dir/none"
    expect 1 'before the first step' env PAUSE=0 sh scripts/supervise.sh "$train" $small --train_data "$dir/nothing" \
        --out "$dir/data"
    expect 2 'the command is wrong' env PAUSE=0 sh scripts/supervise.sh "$train" --max_steps x --out "$dir/a"
    expect 4 'the loss is not finite' env PAUSE=0 sh scripts/supervise.sh "$train" $small $data --lr 1e3 \
        --warmup_steps 0 --weight_decay 1e3 --max_steps 50 --val_every 0 --out "$dir/b"
    expect 2 'has no --out' sh scripts/supervise.sh "$train"
    for number in x 99999999999999999999 08; do
        expect 2 "RESTARTS=$number is not a number" env RESTARTS=$number sh scripts/supervise.sh "$train" --out "$dir/c"
    done
    printf 'echo "$@" >>"%s"\nexit 3\n' "$dir/arguments" >"$dir/say"
    for given in "-o $dir/l" "--out=$dir/l" "--out $dir/l --resume x"; do
        env PAUSE=0 RESTARTS=0 sh scripts/supervise.sh sh "$dir/say" $given >/dev/null 2>&1
    done
    env PAUSE=0 RESTARTS=1 sh scripts/supervise.sh sh "$dir/say" --out "$dir/begun" --resume x >/dev/null 2>&1
    printf 'echo "$@" >>"%s"\nmkdir -p "%s/step_00000004"\nexit 3\n' "$dir/arguments" "$dir/new" >"$dir/say"
    for given in "--out $dir/new --resume x" "-o $dir/new"; do
        rm -rf "$dir/new"
        env PAUSE=0 RESTARTS=1 sh scripts/supervise.sh sh "$dir/say" $given >/dev/null 2>&1
    done
    printf '%s\n' "-o $dir/l -y 1" "--out=$dir/l --resume auto" "--out $dir/l --resume x" \
        "--out $dir/begun --resume x" "--out $dir/begun --resume x" \
        "--out $dir/new --resume x" "--out $dir/new --resume x --resume auto" "-o $dir/new -y 1" "-o $dir/new -y 1" |
        diff - "$dir/arguments" >"$dir/diff" || note "$(cat "$dir/diff")"
    begin sh scripts/supervise.sh "$train" $small $data --max_steps 100000 --val_every 0 --save_every 0 \
        --out "$dir/stopped"
    await '^step *2/' "$dir/out" $pid
    kill -TERM $pid
    ends 0 $pid
    grep -q 'stopped by SIGTERM' "$dir/stopped/supervise.log" || note "$(cat "$dir/stopped/supervise.log")"
    : >"$dir/stopped/.lock"
    expect 1 'another run is writing' flock "$dir/stopped/.lock" sh scripts/supervise.sh false --out "$dir/stopped"
    # Ctrl-C, which a terminal sends to the whole group, comes to the program as SIGTERM alone; it ends pauses too. What
    # a shell starts with & ignores SIGINT, unless env says otherwise.
    takes_int='env --default-signal=INT'
    begin setsid $takes_int sh scripts/supervise.sh $takes_int sh -c 'trap "exit 8" INT
        trap "exit 7" TERM
        echo begun
        while :; do sleep 0.1; done' waits --out "$dir/none"
    await begun "$dir/out" $pid
    kill -INT "-$pid"
    ends 7 $pid
    mkdir "$dir/paused"
    begin $takes_int PAUSE=3600 sh scripts/supervise.sh sh -c 'exit 9' fails --out "$dir/paused"
    await 'in 3600 s' "$dir/err" $pid
    kill -INT $pid
    ends 9 $pid
    grep -q 'stopped by SIGINT' "$dir/err" || note "$(cat "$dir/err")"
}

run_tests
