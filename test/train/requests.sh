#!/bin/sh
# Tests what a run is asked from outside (signals, --max_time), and its checkpoints, which are written while it goes on.
. "$(dirname "$0")/../lib.sh"
corpus
endless="--max_steps 100000000 --total_batch_size 1048576 --batch_size 1" # a step of 32,768 micro-batches

steps_in() { ls "$1" | sed -n 's/^step_0*//p' | tr '\n' ' '; } # FOLDER: prints the steps of its checkpoints
reason_of() { sed -n 's/.*"kind":"end".*"reason":"\([^"]*\)","words":"\([^"]*\)".*/\1 \2/p' "$1/metrics.jsonl"; }

# A rank may come later than the heading of rank 0.
takes_sigterm() { # PID: waits until it does not end by SIGTERM, but for a minute at most
    for i in $(seq 600); do
        caught=$(sed -n 's/^SigCgt:[[:space:]]*/0x/p' "/proc/$1/status") # its bit 14
        [ $((${caught:-0} >> 14 & 1)) = 0 ] || return
        sleep 0.1
    done
    note "process $1 takes no SIGTERM"
}

# Starts a run, waits until its heading is there, sends a signal to the process or, of several, to rank 1, and waits for
# the end with exit code 0.
asked_to_stop() { # SIGNAL FOLDER command...
    signal=$1 folder=$2
    shift 2
    begin "$@" --out "$folder"
    await 'training tokens' "$dir/err" $pid
    asked=$(rank_pid "$folder" 1)
    takes_sigterm "${asked:-$pid}"
    kill -s "$signal" "${asked:-$pid}"
    ends 0 $pid
}

replays_change_nothing() {
    common="$small $data $quiet --max_steps 6 --save_every 6 --total_batch_size 256"
    for replay in 0 2; do must "$train" $common --replay $replay --out "$dir/$replay"; done
    same_checkpoint "$dir/0/step_00000006" "$dir/2/step_00000006"
}

# In the place of a device that breaks: one of some hundred results of libm's tanhf() is wrong, but for the first AFTER.
# The first 200,000 end in step 2.
a_wrong_result_ends_a_run_that_replays() {
    echo '#include <math.h>
        #include <stdlib.h>
        float tanhf(float x) {
            static int n, after;
            if (n++ == 0) { after = atoi(getenv("AFTER")); }
            return (float)tanh(x) + (n > after && n % 509 == 0 ? 0.1f : 0);
        }' |
        ${CC:-cc} -x c -fPIC -shared - -lm -o "$dir/broken.so" || note "the library does not compile"
    broken="env AFTER=200000 LD_PRELOAD=$dir/broken.so $train $small $data $quiet --kernels plain --threads 1
        --max_steps 4"
    must $broken --replay 0 --out "$dir/unseen"
    expect 5 'step 3: the same micro-batch gave two results' $broken --replay 2 --out "$dir/seen"
    ls "$dir/seen" | grep -q '^step_' && note "a checkpoint was saved"
    # and in the first step of a start, whatever its number
    must "$train" $small $data $quiet --kernels plain --threads 1 --max_steps 3 --replay 2 --out "$dir/resumed"
    expect 5 'step 4: the same micro-batch gave two results' env AFTER=0 LD_PRELOAD="$dir/broken.so" \
        "$train" --resume auto --threads 1 --max_steps 4 --out "$dir/resumed"
}

has_saved_by_usr2() { # FOLDER, no test
    [ -n "$(steps_in "$1")" ] || note "nothing was saved: $(tail -n 3 "$dir/err")"
    [ "$(reason_of "$1")" = 'stopped SIGUSR2' ] || note "ended by: $(reason_of "$1")"
}

mpirun_passes_a_stop_on() {
    command -v mpirun >/dev/null || { skip='no mpirun'; return; }
    begin mpirun -np 2 "$train" $small $data $quiet --max_steps 100000000 --out "$dir/run"
    await 'step  200/' "$dir/out" $pid
    kill -USR2 $pid
    ends 0 $pid
    has_saved_by_usr2 "$dir/run"
}

# A terminal sends Ctrl-C to all processes of a command, here to its process group.
ctrl_c_of_scripts_around_mpirun_saves() {
    command -v mpirun >/dev/null || { skip='no mpirun'; return; }
    echo 'localhost slots=2' >"$dir/hosts"
    echo "exec '$PWD/$train' \"\$@\"" >"$dir/script"
    for around in 'env' 'sh scripts/supervise.sh'; do
        begin setsid env --default-signal=INT HOSTFILE="$dir/hosts" $around sh scripts/multi_node/mpi.sh \
            "$dir/script" $small $data $quiet --max_steps 100000000 --out "$dir/run/$around"
        await 'step  200/' "$dir/out" $pid
        kill -INT "-$pid"
        ends 0 $pid
        has_saved_by_usr2 "$dir/run/$around"
    done
}

# 2,000 lines are more than a pipe holds.
a_reader_that_does_not_read_stops_no_run() {
    mkfifo "$dir/pipe"
    { until [ -e "$dir/awake" ]; do sleep 0.1; done; cat; } <"$dir/pipe" >"$dir/read" &
    reader=$!
    begin sh -c 'exec "$@" >"$0"' "$dir/pipe" "$train" $small $data $quiet --max_steps 100000000 --save_every 0 \
        --model L=1,H=1,C=4,T=8,V=257 --seq_len 8 --batch_size 1 --threads 1 --out "$dir/run"
    await '^step *2000/' "$dir/run/log.txt" $pid # more than the pipe holds
    touch "$dir/awake" # the reader is told what it has missed, in a line of its own
    await '^(lines are missing here' "$dir/read" $pid
    kill -TERM $pid
    ends 0 $pid
    wait $reader
    ! grep -n 'step.*missing' "$dir/read" >"$dir/joined" || note "$(cat "$dir/joined")"
    awk '/^\(lines/ { if (was_note) exit 1; was_note = 1; next } { was_note = 0 }' "$dir/read" || note "said twice"
    steps=$(grep -c '^step ' "$dir/run/log.txt")
    tail -n 1 "$dir/run/log.txt" | grep -q "^ended after step $steps: stopped" || note "log.txt has $steps steps"
}

# The folder in which step 50 is to be saved is too small. To save takes longer than steps of eight tokens.
a_save_that_fails_is_tried_again_after_the_next_step() {
    short="--model L=4,H=2,C=128,T=48,V=257 --batch_size 1 --seq_len 8 --total_batch_size 8"
    tiny="$dir/run/.tmp-step_00000050"
    mkdir -p "$tiny"
    small_disk 4k "$tiny" || return 0
    # killed if it saves for ever
    must timeout -s KILL 300 "$train" $small $short $data $quiet --max_steps 100 --save_every 50 --keep 0 \
        --out "$dir/run"
    umount "$tiny"
    [ "$(grep -c 'Trying again' "$dir/err")" = 1 ] || note "not one failure: $(tail -n 3 "$dir/err")"
    [ "$(steps_in "$dir/run" | wc -w)" = 2 ] || # the next step after the failure, and 100
        note "saved: $(steps_in "$dir/run")"
}

a_save_that_goes_on_failing_ends_the_run() {
    mkdir "$dir/disk"
    small_disk 1800k "$dir/disk" || return 0
    expect 1 'make room' "$train" $small $data $quiet --max_steps 20 --save_every 5 --out "$dir/disk/run"
    [ "$(grep -c 'Trying again' "$dir/err")" = 3 ] || note "not tried three times: $(cat "$dir/err")"
    [ "$(steps_in "$dir/disk/run")" = "5 " ] || note "checkpoints: $(steps_in "$dir/disk/run")"
    umount "$dir/disk"
}

# The checkpoint before the loss that is not finite finds no room, until a file is removed while rank 0 tries again.
ranks_wait_for_the_last_save_and_hint_of_rank_0() {
    command -v mpirun >/dev/null || { skip='no mpirun'; return; }
    common="$small $data $quiet --total_batch_size 256 --lr 1e3 --grad_clip 0 --max_steps 200"
    expect 4 'not finite' ranks 2 "$train" $common --save_every 0 --out "$dir/first"
    last=$(($(sed -n 's/.*error: step \([0-9]*\): loss.*/\1/p' "$dir/err") - 1))
    mkdir "$dir/disk"
    small_disk 3000k "$dir/disk" || return 0
    head -c 2000000 /dev/zero >"$dir/disk/file"
    begin ranks 2 "$train" $common --save_every $last --out "$dir/disk/run"
    await "no checkpoint of step $last:.*(1 of 3" "$dir/err" $pid # it waits for one, two and four seconds more
    rm "$dir/disk/file"
    ends 4 $pid
    grep -q 'has no good checkpoint to go back to' "$dir/err" || note "no hint: $(tail -n 3 "$dir/err")"
    [ "$(steps_in "$dir/disk/run")" = "$last " ] || note "checkpoints: $(steps_in "$dir/disk/run")"
    umount "$dir/disk"
}

the_best_and_every_so_many_checkpoints_are_kept() {
    common="$small $data --save_every 1 --val_tokens 64 --keep 1,best"
    must "$train" $common --max_steps 7 --val_every 0 --keep 1,every:3 --out "$dir/every"
    [ "$(steps_in "$dir/every")" = "3 6 7 " ] || note "kept with --keep 1,every:3: $(steps_in "$dir/every")"
    # a kill may have come before the others were removed: the next start does it, before it saves
    must "$train" $common --max_steps 8 --val_every 0 --save_every 0 --resume auto --out "$dir/every"
    [ "$(steps_in "$dir/every")" = "7 " ] || note "kept by the next start with --keep 1,best: $(steps_in "$dir/every")"
    # the rate grows until the loss does too
    must "$train" $common --max_steps 12 --val_every 1 --lr 3 --warmup_steps 12 --out "$dir/best"
    best=$(sed -n 's/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/\2 \1/p' "$dir/best/metrics.jsonl" |
        grep -v ' 0$' | sort -g | head -n 1 | cut -d ' ' -f 2)
    [ "$best" != 12 ] || note "the last checkpoint is the best one: this tests nothing"
    [ "$(steps_in "$dir/best")" = "$best 12 " ] || note "kept with --keep 1,best: $(steps_in "$dir/best"), best $best"
    must "$train" $common --max_steps 14 --val_every 0 --lr 3 --warmup_steps 12 --resume auto --out "$dir/best"
    [ "$(steps_in "$dir/best")" = "$best 14 " ] || note "kept after resuming: $(steps_in "$dir/best"), best $best"
    rm -r "$dir/best/$(printf step_%08d "$best")" # of those that are there the next one is the best
    must "$train" $common --max_steps 15 --val_every 1 --lr 3 --warmup_steps 12 --resume auto --out "$dir/best"
    tr -d ' \n' <"$dir/best/step_00000015/state.json" | grep -q '"best":{"step":15,' || note "a missing one is the best"
    # losses of other data do not compare
    must "$train" $common --max_steps 16 --val_every 1 --val_tokens 128 --lr 1e3 --warmup_steps 12 --resume auto \
        --out "$dir/best"
    sed -n 's/.*"kind":"val","step":1[56],.*"loss":\([^,}]*\).*/\1/p' "$dir/best/metrics.jsonl" | tail -n 2 |
        sort -c -g || note "the last loss is the lowest: this tests nothing"
    tr -d ' \n' <"$dir/best/step_00000016/state.json" | grep -q '"best":{"step":16,' || note "the first on other data"
}

# The folder in which the best checkpoint is to be saved is too small: the next best one is kept.
a_checkpoint_that_could_not_be_saved_is_not_the_best() {
    common="$small $data --save_every 1 --val_tokens 64 --keep 1,best --val_every 1 --max_steps 12 --lr 3"
    common="$common --warmup_steps 12"
    must "$train" $common --out "$dir/whole"
    sed -n 's/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/\2 \1/p' "$dir/whole/metrics.jsonl" |
        grep -v ' 0$' | sort -g | cut -d ' ' -f 2 >"$dir/steps"
    best=$(sed -n 1p "$dir/steps") second=$(sed -n 2p "$dir/steps")
    tiny="$dir/run/$(printf .tmp-step_%08d "$best")"
    mkdir -p "$tiny"
    small_disk 4k "$tiny" || return 0
    must "$train" $common --out "$dir/run"
    umount "$tiny"
    grep -q "no checkpoint of step $best:" "$dir/err" || note "step $best was saved: $(tail -n 2 "$dir/err")"
    [ "$(steps_in "$dir/run")" = "$second 12 " ] || note "kept: $(steps_in "$dir/run"), not $second and 12"
}

# Token 257 is abc, of which Hugging Face's files cannot say how it is merged.
a_tokenizer_that_cannot_be_saved_is_told_once() {
    bytes=test/golden/eval/tokenizer.bin
    { head -c 8 $bytes; printf '\002\001'; tail -c +11 $bytes; printf '\003abc'; } >"$dir/abc.bin"
    must "$prepare" --stories 60000 --tokenizer "$dir/abc.bin" --val_size 6000 --out "$dir/c"
    shards="--train_data $dir/c_train_*.bin --val_data $dir/c_val_*.bin"
    must "$train" $small $shards $quiet --model L=2,H=2,C=32,T=48,V=258 --tokenizer "$dir/abc.bin" --max_steps 6 \
        --save_every 2 --out "$dir/run"
    warnings=$(grep -c 'without a tokenizer.*token 257' "$dir/err")
    [ "$warnings" = 1 ] || note "$warnings warnings"
    [ "$(steps_in "$dir/run")" = "2 4 6 " ] || note "checkpoints: $(steps_in "$dir/run")"
}

a_run_saves_when_it_is_asked_and_goes_on() {
    begin "$train" $small $data $quiet --max_steps 100000000 --save_every 1000000 --out "$dir/run"
    await '^step *3/' "$dir/out" $pid
    kill -USR1 $pid
    await '^saved' "$dir/err" $pid
    lines=$(wc -l <"$dir/out")
    await "^step *$((lines + 50))/" "$dir/out" $pid
    kill -TERM $pid
    ends 0 $pid
    [ "$(steps_in "$dir/run" | wc -w)" = 2 ] || note "checkpoints: $(steps_in "$dir/run")"
}

# Each signal, in the middle of a step of thousands of micro-batches: nothing is complete, so nothing is saved. Where
# the tests run under nohup, SIGHUP stops only a process for which env restores it.
a_step_is_left_between_micro_batches() {
    restored='' signals='INT TERM'
    ! env --default-signal=HUP true 2>/dev/null || restored='env --default-signal=HUP' signals='INT TERM HUP'
    for signal in $signals; do
        asked_to_stop $signal "$dir/$signal" $restored "$train" $small $data $quiet $endless
        [ "$(reason_of "$dir/$signal")" = "stopped SIG$signal" ] || note "reason: $(reason_of "$dir/$signal")"
        [ "$(steps_in "$dir/$signal")" = "" ] || note "saved without a step"
    done
    command -v mpirun >/dev/null || return
    asked_to_stop TERM "$dir/two" mpirun -np 2 "$train" $small $data $quiet $endless
    ! grep -q '^step' "$dir/out" || note "the step was finished"
}

a_run_under_nohup_goes_on_after_sighup() {
    begin sh -c 'trap "" HUP; exec "$@"' sh "$train" $small $data $quiet --max_steps 100000000 --out "$dir/run"
    await '^step *3/' "$dir/out" $pid
    kill -HUP $pid
    steps=$(grep -c '^step' "$dir/out")
    await "^step *$((steps + 50))/" "$dir/out" $pid
    kill -TERM $pid
    ends 0 $pid
    [ "$(reason_of "$dir/run")" = "stopped SIGTERM" ] || note "reason: $(reason_of "$dir/run")"
}

# As under `| tee log` after a Ctrl-C, which ends tee first; and under `2>&1 | tee log`. The pipe has no reader once
# this shell has closed it.
a_run_whose_output_nobody_reads_goes_on_and_saves() {
    mkfifo "$dir/pipe"
    for errors in err pipe; do
        run="$dir/$errors-run"
        : >"$dir/err"
        exec 3<>"$dir/pipe"
        "$train" $small $data $quiet --max_steps 100000000 --save_every 1000000 --out "$run" >"$dir/pipe" \
            2>"$dir/$errors" 3<&- &
        pid=$!
        await '^step *3/' "$run/log.txt" $pid
        exec 3<&-
        await 'standard output: cannot write: Broken pipe; the run goes on without it' "$run/log.txt" $pid
        steps=$(grep -c '^step' "$run/log.txt")
        await "^step *$((steps + 50))/" "$run/log.txt" $pid
        kill -INT $pid
        ends 0 $pid
        [ "$(reason_of "$run")" = "stopped SIGINT" ] || note "reason: $(reason_of "$run")"
        steps=$(grep -c '^step' "$run/log.txt")
        [ "$(steps_in "$run")" = "$steps " ] || note "checkpoints after $steps steps: $(steps_in "$run")"
        [ "$(grep -c 'Broken pipe' "$run/log.txt")" = 1 ] || note "it is not said once"
    done
}

# Waits for a line of the run $pid, stops it, and sets $command to the one that it prints.
stop_after() { # PATTERN FILE
    await "$1" "$2" $pid
    kill -TERM $pid
    ends 0 $pid
    command=$(sed -n 's/^continue with: //p' "$dir/err")
}

# After no step, some steps, and no step of a resumed start that changed its options; the folder needs quotation marks.
the_command_that_goes_on_is_printed() {
    begin "$train" $small $data $quiet $endless --out "$dir/it's a run"
    stop_after 'training tokens' "$dir/err"
    case $command in "$train --out '"*" --resume auto --threads 2") ;; *) note "not the command: $command" ;; esac
    begin sh -c "exec $command --total_batch_size 128"
    stop_after '^step *3/' "$dir/out"
    begin sh -c "exec $command --max_steps 90000000 --total_batch_size 1048576"
    stop_after 'resumed after step' "$dir/err"
    case $command in *"--max_steps 90000000"*) ;; *) note "changed options are lost: $command" ;; esac
    begin sh -c "exec $command"
    stop_after 'training tokens' "$dir/err"
    grep -q '32768 micro-batches' "$dir/err" || note "the command goes on otherwise: $command"
}

a_finished_run_that_is_resumed_is_left_alone() {
    must "$train" $small $data --val_every 2 --max_steps 4 --out "$dir/run"
    find "$dir/run" -type f -exec cksum {} + | sort >"$dir/before"
    for resume in auto "$dir/run/step_00000004"; do
        expect 0 'finished at step 4; to go on, give a larger --max_steps' "$train" --resume "$resume" --out "$dir/run"
        find "$dir/run" -type f -exec cksum {} + | sort >"$dir/after"
        cmp -s "$dir/before" "$dir/after" || note "changed: $(diff "$dir/before" "$dir/after")"
    done
    expect 0 'finished at step 4' "$train" --resume "$dir/run/step_00000004" --out "$dir/other"
    [ ! -f "$dir/other/metrics.jsonl" ] || note "there is nothing to log in another folder"
    sed -i '$d' "$dir/run/metrics.jsonl" "$dir/run/log.txt" # as after a kill: the end is recorded now
    expect 0 'finished at step 4' "$train" --resume auto --out "$dir/run"
    [ "$(reason_of "$dir/run")" = "finished " ] || note "reason: $(reason_of "$dir/run")"
    must "$train" --resume auto --max_steps 5 --keep 0 --out "$dir/run"
    [ -d "$dir/run/step_00000005" ] || note "it did not go on"
    for ends in 5 4 5; do # the end of step 5 is not that of step 4, nor is a stop the end of a run
        [ $ends = 5 ] || rm -r "$dir/run/step_00000005"
        [ $ends = 4 ] || sed -i '$s/finished/stopped/' "$dir/run/metrics.jsonl"
        must "$train" --resume auto --max_steps $ends --out "$dir/run"
        tail -n 1 "$dir/run/metrics.jsonl" | grep -q "\"kind\":\"end\",\"step\":$ends,\"reason\":\"finished\"" ||
            note "no end at step $ends: $(tail -n 1 "$dir/run/metrics.jsonl")"
    done
    command -v mpirun >/dev/null || return
    expect 0 'finished at step 5' ranks 2 "$train" --resume auto --batch_size 2 --out "$dir/run"
}

left_at_step_2() { # KIND 'OPTIONS' MAX_STEPS FOLDER [LAUNCHER...]: a stop leaves a validation or sample
    kind=$1 options=$2 steps=$3 out=$4
    shift 4
    must "$train" $small $data --val_every 0 --max_steps 1 --batch_size 2 --total_batch_size 128 --out "$out"
    begin "$@" "$train" --resume auto --max_steps $steps $options --out "$out"
    await '^step *2/' "$dir/out" $pid
    sleep 0.2 # it should have begun; if not yet, it is left as well
    asked=$(rank_pid "$out" 0)
    kill -TERM "${asked:-$pid}"
    ends 0 $pid
    grep -q 'continue with' "$dir/err" || note "$kind, $steps steps: not said how to go on: $(tail -n 2 "$dir/err")"
    tr -d ' \n' <"$out/step_00000002/state.json" | grep -q "\"pending\":{[^}]*\"$kind\":true" ||
        note "$kind, $steps steps: not pending: $(tr -d ' \n' <"$out/step_00000002/state.json" | grep -o '"pending.*')"
}

validation_and_samples_are_left() {
    "$prepare" --stories 4000000 --tokenizer bytes --val_size 2000000 --out "$dir/long" >/dev/null 2>&1
    long_data="--train_data $dir/long_train_*.bin --val_data $dir/long_val_*.bin"
    asked_to_stop TERM "$dir/val" "$train" $small $long_data --batch_size 1 --val_tokens -1 --max_steps 2
    ! grep -q '^val loss' "$dir/out" || note "the validation was finished"
    asked_to_stop TERM "$dir/sample" "$train" $small $data --sample_every 1 --sample_tokens 100000000 --val_every 0 \
        --max_steps 2
    endless='--sample_every 1 --sample_tokens 100000000'
    left_at_step_2 sample "$endless" 2 "$dir/last"
    command -v mpirun >/dev/null || return
    left_at_step_2 sample "$endless" 3 "$dir/ranks" mpirun -np 2
    left_at_step_2 val "--val_data $dir/long_val_*.bin --val_tokens -1 --val_every 2" 3 "$dir/later" mpirun -np 2
    asked_to_stop TERM "$dir/two" mpirun -np 2 "$train" $small $long_data --batch_size 1 --val_tokens -1 --max_steps 2
    ! grep -q '^val loss' "$dir/out" || note "the validation of two processes was finished"
}

# A run that a spike stops leaves what is due after that step. Resumed, it has the records of one that was not stopped.
what_a_stop_has_left_is_done_when_the_run_goes_on() {
    "$prepare" --stories 800000 --tokenizer bytes --val_size 400000 --out "$dir/long" >/dev/null 2>&1
    due="$small --train_data $dir/long_train_*.bin --val_data $dir/long_val_*.bin --batch_size 1 --threads 1
        --val_tokens -1 --val_every 2 --sample_every 2 --sample_tokens 8 --save_every 1 --keep 1 --max_steps 3
        --eval_data test/golden/eval/hellaswag.jsonl --eval_rules limit:2,every:2"
    must "$train" $due --out "$dir/whole"
    begin "$train" $due --out "$dir/stop"
    await '^step *2/' "$dir/out" $pid # then it validates
    kill -TERM $pid
    ends 0 $pid
    for kind in val eval sample; do
        ! grep -q "\"kind\":\"$kind\",\"step\":2," "$dir/stop/metrics.jsonl" || note "$kind was not left"
    done
    cp -r "$dir/stop" "$dir/longer"
    must "$train" --resume auto --threads 1 --out "$dir/stop"
    for kind in val eval sample; do
        for run in whole stop; do grep "\"kind\":\"$kind\"" "$dir/$run/metrics.jsonl" >"$dir/$run.txt"; done
        [ "$(grep -c . "$dir/whole.txt")" -ge 3 ] || note "too few $kind records: this tests nothing"
        cmp -s "$dir/whole.txt" "$dir/stop.txt" || note "other $kind records: $(diff "$dir/whole.txt" "$dir/stop.txt")"
    done
    [ "$(steps_in "$dir/whole")" = "$(steps_in "$dir/stop")" ] || note "kept: $(steps_in "$dir/stop")"
    must "$train" --resume auto --val_every 0 --sample_every 3 --eval_rules limit:2,every:3 --threads 1 \
        --out "$dir/longer" # not what is no longer asked for
    ! grep '"kind":"\(val\|eval\|sample\)","step":2,' "$dir/longer/metrics.jsonl" >"$dir/done" ||
        note "no longer asked for: $(cat "$dir/done")"
}

# Stopped in its last validation, a run is not finished. Resumed again, it has one record of this step.
the_last_validation_is_made_up() {
    "$prepare" --stories 800000 --tokenizer bytes --val_size 400000 --out "$dir/long" >/dev/null 2>&1
    begin "$train" $small --train_data "$dir/long_train_*.bin" --val_data "$dir/long_val_*.bin" --batch_size 1 \
        --threads 1 --val_tokens -1 --val_every 2 --max_steps 2 --out "$dir/run"
    await '^step *2/' "$dir/out" $pid
    kill -TERM $pid
    ends 0 $pid
    [ "$(reason_of "$dir/run")" = "stopped SIGTERM" ] || note "reason: $(reason_of "$dir/run")"
    worse="--max_steps 3 --lr 1e3 --schedule constant --warmup_steps 0"
    must "$train" --resume "$dir/run/step_00000002" --threads 1 --val_tokens 64 $worse --out "$dir/other"
    tr -d ' \n' <"$dir/other/step_00000003/state.json" | grep -q '"best":{"step":3,' ||
        note "step 2, which is elsewhere, is the best"
    for i in 1 2; do
        must "$train" --resume auto --threads 1 --out "$dir/run"
        [ "$(records "$dir/run" | grep -c '"kind":"val","step":2,')" = 1 ] || note "resumed $i: not one validation"
        [ "$(reason_of "$dir/run" | tail -n 1)" = "finished " ] || note "resumed $i: $(reason_of "$dir/run")"
    done
    must "$train" --resume auto --threads 1 $worse --out "$dir/run"
    tr -d ' \n' <"$dir/run/step_00000003/state.json" | grep -q '"best":{"step":2,' || note "step 2 is not the best"
}

time_runs_out() {
    must "$train" $small $data $quiet --max_steps 100000000 --save_every 1000000 --max_time 0.0003 --out "$dir/run"
    [ "$(reason_of "$dir/run")" = "stopped --max_time" ] || note "reason: $(reason_of "$dir/run")"
    step=$(steps_in "$dir/run")
    [ "${step:-0 }" = "$(grep -c '^step' "$dir/out") " ] || note "saved: $step, not the last step"
    must "$train" $small $data $quiet --max_steps $((step + 1)) --resume auto --out "$dir/run"
    [ "$(reason_of "$dir/run" | tail -n 1)" = "finished " ] || note "reason: $(reason_of "$dir/run")"
}

# Text with rare letters in the data of step 140, which make its loss jump: $poison. $clean is the same text without the
# data of the steps 121 to 140, windows 960 to 1119. All windows begin with the end of a line, so that what is left has
# the windows of the whole text.
poisoned() { # sets also $spiky, the options of a run on it
    [ -f "$root/poison.txt" ] || {
        seq -f %07g 6000 | sed '4449,4480s/.*/~~~~~~~/' >"$root/poison.txt"
        sed 3841,4480d "$root/poison.txt" >"$root/clean.txt"
        for name in poison clean; do
            "$prepare" --format text --tokenizer bytes --val_size 0 --out "$root/$name" "$root/$name.txt" \
                >/dev/null 2>&1
        done
    }
    poison="--train_data $root/poison_train_*.bin" clean="--train_data $root/clean_train_*.bin"
    spiky="$small $quiet --threads 1 --shuffle 0 --schedule constant --max_steps 150 --save_every 20 --keep 0 \
        --batch_size 4 --total_batch_size 256 --skip_z 5"
}
without='--resume auto --skip_windows 960-1119'

a_spike_ends_a_run_that_goes_on_without_its_data() {
    poisoned
    must "$train" $spiky $clean --out "$dir/clean"
    expect 4 "/step_00000120. To go on from it without the data since then: $without" "$train" $spiky $poison \
        --on_spike stop --out "$dir/run"
    [ "$(reason_of "$dir/run" | cut -d ' ' -f 1)" = spike ] || note "reason: $(reason_of "$dir/run")"
    z=$(printf %.2f "$(sed -n 's/.*"step":140,"what":"loss","z":\(.*\)}$/\1/p' "$dir/run/metrics.jsonl")")
    said="step 140: loss [5-9].* (z-score $z), norm of the gradient .* windows 1112 to 1119\..*: $without"
    tail -n 1 "$dir/run/log.txt" | grep -q "^ended after step 139: spike: $said\$" ||
        note "$(tail -n 1 "$dir/run/log.txt")"
    [ "$(steps_in "$dir/run")" = "20 40 60 80 100 120 " ] || note "checkpoints: $(steps_in "$dir/run")"
    cp -r "$dir/run" "$dir/two"
    cp "$dir/run/metrics.jsonl" "$dir/run/log.txt" "$dir"
    must "$train" $without --out "$dir/run"
    same_checkpoint "$dir/clean/step_00000150" "$dir/run/step_00000150"
    for log in metrics.jsonl log.txt; do # they only grow
        head -c "$(wc -c <"$dir/$log")" "$dir/run/$log" | cmp -s - "$dir/$log" || note "$log has changed"
    done
    for run in clean run; do # losses, norms and z-scores
        records "$dir/$run" |
            sed -n 's/^{"kind":"train","step":\([0-9]*\),.*\("loss":.*\)"lr".*\("loss_z".*\)/\1 \2 \3/p' >"$dir/$run.n"
    done
    cmp -s "$dir/clean.n" "$dir/run.n" ||
        note "other losses or z-scores: $(diff "$dir/clean.n" "$dir/run.n" | head -n 3)"
    [ "$(wc -l <"$dir/run.n")" = 150 ] || note "not 150 steps"
    must "$train" info "$dir/run"
    grep -q ' in 19 steps lost to restarts' "$dir/out" || note "$(cat "$dir/out")"
    grep -qF -- '--skip_windows 960-1119' "$dir/out" || note "$(cat "$dir/out")"
    grep -q '<td>120</td><td>resumed</td><td>.*, 19 steps done again' "$dir/run/report.html" || note "not in the report"
    # a run that was killed, with and without the option
    rm -r "$dir/run/step_00000150"
    cp -r "$dir/run" "$dir/again"
    must "$train" --resume auto --out "$dir/run"
    must "$train" $without --out "$dir/again"
    for run in run again; do same_checkpoint "$dir/clean/step_00000150" "$dir/$run/step_00000150"; done
    ! ls "$dir/again" | grep rewound || note "it went back again"
    command -v mpirun >/dev/null || return
    must ranks 2 "$train" $without --batch_size 2 --out "$dir/two" # with other ranks, in smaller batches
    "$build/compare_checkpoints" "$dir/clean/step_00000150" "$dir/two/step_00000150" 1e-3 >"$dir/out" 2>&1 ||
        note "two ranks: $(tail -n 1 "$dir/out")"
}

several_ranks_end_at_a_spike_and_leave_out_the_same() {
    command -v mpirun >/dev/null || { skip='no mpirun'; return; }
    poisoned
    for zero in $([ -z "$long" ] || echo 0) 1; do
        expect 4 "$without" ranks 4 "$train" $spiky $poison --batch_size 2 --zero $zero --on_spike stop \
            --out "$dir/$zero"
        must ranks 4 "$train" $without --out "$dir/$zero"
        must ranks 4 "$train" $spiky $clean --batch_size 2 --zero $zero --out "$dir/clean$zero"
        same_checkpoint "$dir/clean$zero/step_00000150" "$dir/$zero/step_00000150"
    done
}

# A run that went on through the spike goes back: its checkpoints with the data are set aside.
a_run_goes_back_behind_the_windows_that_it_leaves_out() {
    poisoned
    must "$train" $spiky $clean --out "$dir/clean"
    must "$train" $spiky $poison --out "$dir/run"
    expect 1 'it has been trained on some of --skip_windows 960-1119' "$train" --resume "$dir/run/step_00000140" \
        --skip_windows 960-1119 --out "$dir/run"
    expect 1 'each checkpoint in' "$train" --resume auto --skip_windows 3 --out "$dir/run"
    expect 2 "--skip_windows '5-4'" "$train" --resume auto --skip_windows 5-4 --out "$dir/run"
    [ "$(steps_in "$dir/run")" = "20 40 60 80 100 120 140 150 " ] || note "changed: $(steps_in "$dir/run")"
    expect 0 'step_00000150 is now' "$train" $without --out "$dir/run"
    for step in 140 150; do [ -d "$dir/run/rewound-step_00000$step" ] || note "step $step was not set aside"; done
    same_checkpoint "$dir/clean/step_00000150" "$dir/run/step_00000150"
    # ranges that begin and end within a step
    must "$train" $spiky $poison --skip_windows 960-962,963-1119 --max_steps 122 --out "$dir/new"
    must "$train" $spiky $clean --max_steps 122 --out "$dir/short"
    same_checkpoint "$dir/short/step_00000122" "$dir/new/step_00000122"
    expect 4 ' --skip_windows 0-7,20-27,976-1119' "$train" $spiky $poison --skip_windows 0-7,20-27 --on_spike stop \
        --out "$dir/two" # what was left out stays so
    must "$train" $spiky $poison --skip_windows 956-1115 --max_steps 122 --out "$dir/across"
    tr -d ' \n' <"$dir/across/step_00000122/state.json" | grep -q '"window":1136[,}]' || note "it stands elsewhere"
}

# A threshold that the loss crosses again and again.
a_run_without_a_good_checkpoint_says_so() {
    poisoned
    often="$spiky $poison --skip_z 1 --max_steps 300"
    expect 4 'has no good checkpoint to go back to' "$train" $often --on_spike stop --save_every 1000 --out "$dir/none"
    expect 4 'The last good checkpoint is' "$train" $often --on_spike stop:2 --out "$dir/two"
    expect 4 '2 bad steps in a row' "$train" $often --on_spike stop:2 --out ''
    ! grep -q 'good checkpoint' "$dir/err" || note "without --out: $(cat "$dir/err")"
    step=$(sed -n 's/.*error: step \([0-9]*\): .*/\1/p' "$dir/err")
    for before in 1 2; do # the checkpoint of the first bad step, and that with the weights that made it
        expect 4 'has no good checkpoint to go back to' "$train" $often --on_spike stop:2 \
            --save_every $((step - before)) --out "$dir/$before"
        grep -q "error: step $step: " "$dir/err" || note "another step: $(cat "$dir/err")"
    done
    expect 4 "good checkpoint is $dir/3/step_00000$((step - 3))." "$train" $often --on_spike stop:2 \
        --save_every $((step - 3)) --out "$dir/3"
    expect 4 "error: step $step: " "$train" --resume auto --threads 1 --out "$dir/1"
    expect 2 'give skip, stop or stop:N' "$train" $often --on_spike '' --out "$dir/wrong"
    expect 2 'scripts/supervise.sh goes back and leaves the data out' "$train" $often --on_spike rewind:9 \
        --out "$dir/wrong"
}

supervise() { REWINDS=$1; shift; PAUSE=0 REWINDS=$REWINDS sh scripts/supervise.sh "$@"; }

a_supervised_run_leaves_out_the_data_of_a_spike() {
    poisoned
    must "$train" $spiky $clean --out "$dir/clean"
    must supervise 20 "$train" $spiky $poison --on_spike stop --out "$dir/run"
    same_checkpoint "$dir/clean/step_00000150" "$dir/run/step_00000150"
    grep -q 'leaves out windows 960-1119 (rewind 1 of 20)' "$dir/run/supervise.log" ||
        note "$(cat "$dir/run/supervise.log")"
    often="$spiky $poison --skip_z 1 --max_steps 300 --on_spike stop --save_every 10"
    expect 4 'and would again' supervise 3 "$train" $often --out "$dir/often"
    [ "$(grep -c 'goes back' "$dir/often/supervise.log")" = 3 ] || note "$(cat "$dir/often/supervise.log")"
    # what was left out once stays so: the ranges grow
    sed -n 's/.*leaves out windows \([^ ]*\) .*/\1/p' "$dir/often/supervise.log" | tail -n 1 >"$dir/ranges"
    tail -n 1 "$dir/often/log.txt" | grep -q ' --resume auto --skip_windows' || note "$(tail -n 1 "$dir/often/log.txt")"
    expect 4 'and would again' supervise 20 "$train" $spiky $poison --lr 1e3 --grad_clip 0 --skip_z 0 \
        --out "$dir/skip" # not by --on_spike skip
}

run_tests
