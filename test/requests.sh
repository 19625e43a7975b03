#!/bin/sh
# Tests what a run is asked from outside (signals, --max_time), and its checkpoints, which are written while it goes on.
# usage: requests.sh build/release [WORD...]     runs only tests whose names contain a WORD
release=${1:?usage: requests.sh build/release [WORD...]}
shift
chosen=$*
train="$release/train_gpt2" prepare=build/release/prepare
. "$(dirname "$0")/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() { n=$1; shift; timeout 600 mpirun -np "$n" "$@"; } # N command...: a run that hangs fails after 600 s
quiet="--val_every 0 --sample_every 0"
endless="--max_steps 100000000 --total_batch_size 1048576 --batch_size 1" # a step of 32,768 micro-batches

steps_in() { ls "$1" | sed -n 's/^step_0*//p' | tr '\n' ' '; } # FOLDER: prints the steps of its checkpoints
reason_of() { sed -n 's/.*"kind":"end".*"reason":"\([^"]*\)","words":"\([^"]*\)".*/\1 \2/p' "$1/metrics.jsonl"; }

# Starts a run, waits until its heading is there, sends a signal to the process or, of several, to rank 1, and waits for
# the end with exit code 0.
asked_to_stop() { # SIGNAL FOLDER command...
    signal=$1 folder=$2
    shift 2
    rm -f "$dir/err"
    "$@" --out "$folder" >"$dir/out" 2>"$dir/err" &
    pid=$!
    await 'training tokens' "$dir/err" $pid
    asked=$(rank_pid "$folder" 1)
    kill -s "$signal" "${asked:-$pid}"
    wait $pid
    code=$?
    [ $code = 0 ] || note "exit code $code: $(tail -n 2 "$dir/err")"
}

checkpoints_in_the_background_are_the_same() {
    corpus
    common="$small $data --max_steps 6 --save_every 2 --val_every 2 --keep 0"
    for async in 0 1; do must "$train" $common --save_async $async --out "$dir/$async"; done
    for step in 2 4 6; do
        same_checkpoint "$dir/0/step_0000000$step" "$dir/1/step_0000000$step"
        for folder in 0 1; do # both options are theirs
            sed '/"checksum"/d; /"out"/d; /"save_async"/d' "$dir/$folder/step_0000000$step/state.json" \
                >"$dir/state$folder"
        done
        cmp -s "$dir/state0" "$dir/state1" ||
            note "the states of step $step differ: $(diff "$dir/state0" "$dir/state1")"
    done
    [ "$(grep -c '"kind":"save"' "$dir/1/metrics.jsonl")" = 3 ] || note "not three saves in metrics.jsonl"
    command -v mpirun >/dev/null || return
    for async in 0 1; do
        must ranks 2 "$train" $common --total_batch_size 256 --zero 1 --save_async $async --out "$dir/zero$async"
    done
    for step in 2 4 6; do same_checkpoint "$dir/zero0/step_0000000$step" "$dir/zero1/step_0000000$step"; done
}

replays_change_nothing() {
    corpus
    common="$small $data $quiet --max_steps 6 --save_every 6 --total_batch_size 256"
    for replay in 0 2; do must "$train" $common --replay $replay --out "$dir/$replay"; done
    same_checkpoint "$dir/0/step_00000006" "$dir/2/step_00000006"
}

# The disk has room for one checkpoint and not for two, until a file on it is removed.
a_save_that_fails_is_tried_again() {
    corpus
    for async in 0 1; do
        mkdir "$dir/disk"
        mount -t tmpfs -o size=3000k none "$dir/disk" 2>/dev/null ||
            { skip='cannot mount a small file system here'; return; }
        head -c 1400000 /dev/zero >"$dir/disk/file"
        "$train" $small $data $quiet --max_steps 100000000 --save_every 5 --save_async $async \
            --save_retries 1000000000 --out "$dir/disk/run" >"$dir/out" 2>"$dir/err" &
        pid=$!
        await 'no checkpoint of step 10:.*make room' "$dir/err" $pid
        rm "$dir/disk/file"
        await 'saved step' "$dir/err" $pid
        await '^saved.*step_000000[1-9][0-9]' "$dir/err" $pid
        kill -TERM $pid
        wait $pid || note "exit code $?: $(tail -n 2 "$dir/err")"
        umount "$dir/disk"
        rmdir "$dir/disk"
    done
}

a_save_that_goes_on_failing_ends_the_run() {
    corpus
    mkdir "$dir/disk"
    mount -t tmpfs -o size=1800k none "$dir/disk" 2>/dev/null ||
        { skip='cannot mount a small file system here'; return; }
    expect 1 'make room' "$train" $small $data $quiet --max_steps 20 --save_every 5 --save_retries 2 \
        --out "$dir/disk/run"
    [ "$(grep -c 'Trying again' "$dir/err")" = 2 ] || note "not tried twice: $(cat "$dir/err")"
    [ "$(steps_in "$dir/disk/run")" = "5 " ] || note "checkpoints: $(steps_in "$dir/disk/run")"
    expect 1 'make room' "$train" $small $data $quiet --max_steps 10 --save_every 10 --save_retries 1 --resume auto \
        --out "$dir/disk/run" # at the end it waits and tries again
    # with ZeRO and no copy the ranks hand their shards over once: a second try would wait for them
    ! command -v mpirun >/dev/null ||
        expect 1 'make room' ranks 2 "$train" $small $data $quiet --total_batch_size 256 --max_steps 20 --save_every 5 \
            --zero 1 --save_async 0 --save_retries 5 --out "$dir/disk/zero"
    umount "$dir/disk"
}

the_best_and_every_so_many_checkpoints_are_kept() {
    corpus
    common="$small $data --save_every 1 --val_tokens 64 --keep 1"
    must "$train" $common --max_steps 7 --val_every 0 --keep_every 3 --out "$dir/every"
    [ "$(steps_in "$dir/every")" = "3 6 7 " ] || note "kept with --keep_every 3: $(steps_in "$dir/every")"
    # the rate grows until the loss does too
    must "$train" $common --max_steps 12 --val_every 1 --lr 3 --warmup_steps 12 --out "$dir/best"
    best=$(sed -n 's/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/\2 \1/p' "$dir/best/metrics.jsonl" |
        grep -v ' 0$' | sort -g | head -n 1 | cut -d ' ' -f 2)
    [ "$best" != 12 ] || note "the last checkpoint is the best one: this tests nothing"
    [ "$(steps_in "$dir/best")" = "$best 12 " ] || note "kept with --keep_best: $(steps_in "$dir/best"), best $best"
    must "$train" $common --max_steps 14 --val_every 0 --lr 3 --warmup_steps 12 --resume auto --out "$dir/best"
    [ "$(steps_in "$dir/best")" = "$best 14 " ] || note "kept after resuming: $(steps_in "$dir/best"), best $best"
}

a_run_saves_when_it_is_asked_and_goes_on() {
    corpus
    "$train" $small $data $quiet --max_steps 100000000 --save_every 1000000 --out "$dir/run" >"$dir/out" 2>"$dir/err" &
    pid=$!
    await '^step *3/' "$dir/out" $pid
    kill -USR1 $pid
    await '^saved' "$dir/err" $pid
    lines=$(wc -l <"$dir/out")
    await "^step *$((lines + 50))/" "$dir/out" $pid
    kill -TERM $pid
    wait $pid || note "exit code $?"
    [ "$(steps_in "$dir/run" | wc -w)" = 2 ] || note "checkpoints: $(steps_in "$dir/run")"
}

# Each signal, in the middle of a step of thousands of micro-batches: nothing is complete, so nothing is saved.
a_step_is_left_between_micro_batches() {
    corpus
    for signal in INT TERM HUP; do
        asked_to_stop $signal "$dir/$signal" "$train" $small $data $quiet $endless
        [ "$(reason_of "$dir/$signal")" = "stopped SIG$signal" ] || note "reason: $(reason_of "$dir/$signal")"
        [ "$(steps_in "$dir/$signal")" = "" ] || note "saved without a step"
    done
    command -v mpirun >/dev/null || return
    asked_to_stop TERM "$dir/two" mpirun -np 2 "$train" $small $data $quiet $endless
    ! grep -q '^step' "$dir/out" || note "the step was finished"
}

validation_and_samples_are_left() {
    corpus
    "$prepare" --stories 4000000 --tokenizer bytes --val_size 2000000 --out "$dir/long" >/dev/null 2>&1
    long_data="--train_data $dir/long_train_*.bin --val_data $dir/long_val_*.bin"
    asked_to_stop TERM "$dir/val" "$train" $small $long_data --batch_size 1 --val_tokens -1 --max_steps 2
    ! grep -q '^val loss' "$dir/out" || note "the validation was finished"
    asked_to_stop TERM "$dir/sample" "$train" $small $data --sample_every 1 --sample_tokens 100000000 --val_every 0 \
        --max_steps 2
    command -v mpirun >/dev/null || return
    asked_to_stop TERM "$dir/two" mpirun -np 2 "$train" $small $long_data --batch_size 1 --val_tokens -1 --max_steps 2
    ! grep -q '^val loss' "$dir/out" || note "the validation of two processes was finished"
}

time_runs_out() {
    corpus
    must "$train" $small $data $quiet --max_steps 100000000 --save_every 1000000 --max_time 0.0003 --out "$dir/run"
    [ "$(reason_of "$dir/run")" = "stopped --max_time" ] || note "reason: $(reason_of "$dir/run")"
    step=$(steps_in "$dir/run")
    must "$train" $small $data $quiet --max_steps $((step + 1)) --resume auto --out "$dir/run"
    [ "$(reason_of "$dir/run" | tail -n 1)" = "finished " ] || note "reason: $(reason_of "$dir/run")"
}

run_tests "$0"
end_tests requests
