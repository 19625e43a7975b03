#!/bin/sh
# Tests wrong options, which are named with the right one, and llm.c's.
. "$(dirname "$0")/../lib.sh"
corpus

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
    begin $run -e L=1,H=2,C=16,T=48 -x 100000000 -n 100000000 -o "$dir/stopped"
    await '^step *2/' "$dir/out" $pid
    kill -TERM $pid
    ends 0 $pid
    must $run -e L=1,H=2,C=16,T=48 -x 1 -n 0 -o "$dir/unsaved"
    ! ls "$dir/stopped" "$dir/unsaved" | grep DONE || note "the file is there without the end, or without a checkpoint"
    must "$train" $small --train_data "$dir/c_train_*.bin" --val_data "" --tokenizer none --model L=1,H=2,C=16,T=48 \
        --max_steps 1 --out "$dir/other"
    [ ! -f "$dir/other/DONE_00000001" ] || note "the file is there without llm.c's letters"
}

wrong_options_are_named_with_the_right_one() {
    expect 2 "'generate' is not an option; a command goes first" "$train" --out "$dir" generate
    expect 2 'no option --max_toks; --help lists' "$train" eval --max_toks 5 # only generate and train have one like it
    expect 2 "--max_time takes a number, not '5m' (hours after which the run saves and ends" "$train" --max_time 5m
    expect 0 "usage: $train generate [--option" "$train" --help generate
    expect 0 "has 257 tokens, the model's vocabulary 600: --model L=1,H=1,C=8,T=48,V=257 saves" "$train" $small $data \
        --model L=1,H=1,C=8,T=48,V=600 --max_steps 1 --out ""
    one=$(taskset -cp $$ 2>/dev/null | sed 's/.*: \([0-9]*\).*/\1/') # a processor that there is
    [ -z "$one" ] || expect 0 '3 threads on 1 processor only wait for one another' taskset -c "$one" "$train" $small \
        $data --threads 3 --max_steps 1 --out ""
    expect 2 '--max_steps 2000000001 is too many' "$train" $small $data --max_steps 2000000001 \
        --max_time 0.0001 --out ""
    expect 2 'steps are too many: give a larger --total_batch_size' "$train" $small $data --total_batch_size 128 \
        --max_steps 2000000000 --batch_ramp 32:1000000000 --max_time 0.0001 --out ""
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
    expect 2 '--decay_frac 0.5 has no effect' "$train" $run --decay_frac 0.5 --out "$dir/untouched"
    [ ! -e "$dir/untouched" ] || note "a wrong option leaves the folder of --out"
    eval="$train eval --init $weights --tokenizer bytes --threads 1"
    expect 2 '--document_mask 1 has no effect with --text' $eval --text test/golden/eval/text.txt --document_mask 1
    expect 2 '--eval_rules limit:2 has no effect without --eval_data: leave it out' $eval --eval_rules limit:2
    must $eval --text test/golden/eval/text.txt --config "$dir/file" # of all commands
    echo 'gpus 2' >"$dir/file" # of commands that run in several processes
    must "$train" generate --init "$weights" --tokenizer bytes --config "$dir/file" --sample_tokens 1
    expect 2 'no option --link: python3 dev/bench/predict.py' "$train" bench scale --link 1GB/s:1us
    cp "$root/corpus_val_000000.bin" "$dir/plain.bin" # without the record of its tokenizer
    must "$train" -i "$dir/plain.bin" -j "$dir/plain.bin" -e L=1,H=2,C=16,T=48 -b 1 -t 48 -x 1 -v 0 -s 0 -k constant \
        -nm 5 # and no -o: llm.c's letters
}

texts_are_read_before_a_folder_is_made() {
    for option in "--skip_windows 3-" "--keep none" "--loss_scale 3" "--skip_z x" "--on_spike go" "--batch_ramp 64" \
        "--seq_ramp 64:" "--eval_rules mine" "--optimizer muon --momentum 2"; do
        expect 2 'give ' "$train" $small $data $option --out "$dir/run"
    done
    [ ! -e "$dir/run" ] || note 'a run with a wrong option made its folder'
}

shapes_that_do_not_fit_are_refused() {
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

folders_are_not_overwritten() {
    must "$train" $small $data --max_steps 4 --val_every 0 --out "$dir/run"
    expect 1 'holds checkpoints of another run' "$train" $small $data --max_steps 4 --out "$dir/run"
    "$train" $small $data --max_steps 100000 --val_every 0 --save_every 0 --out "$dir/busy" >"$dir/log" 2>&1 &
    pid=$!
    await '^step' "$dir/log" $pid
    expect 1 'another run is writing to this folder' "$train" $small $data --max_steps 4 --out "$dir/busy"
    kill -9 $pid
    finish $pid 2>/dev/null
    must "$train" $small $data --max_steps 4 --val_every 0 --out "$dir/busy" # logs without checkpoints are replaced
    printf x >"$dir/file"
    expect 1 "$dir/file" "$train" $small $data --out "$dir/file"
    expect 1 '/proc' "$train" $small $data --out /proc/run
}

run_tests
