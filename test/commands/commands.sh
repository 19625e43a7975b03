#!/bin/sh
# Tests `generate`, `info` and --help.
. "$(dirname "$0")/../lib.sh"
corpus

generated_text_depends_on_the_seed_alone() {
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
    echo "$(loss fp32) $(loss bf16)" | awk '{ d = exp($2 - $1) - 1; exit !(d != 0 && d * d < 1e-4) }' ||
        note "perplexity changes by more than 1% in bf16, or not at all: $(loss fp32) $(loss bf16)"
}

prompts_come_from_files_and_standard_input() {
    model="--init random --model L=1,H=2,C=16,T=48,V=257 --tokenizer bytes --sample_tokens 8"
    printf 'one\ntwo, longer\r\n\303\244 third' >"$dir/prompts"
    must "$train" generate $model --prompt "@$dir/prompts" --samples 2 --json
    sed 's/{"prompt":"\(.*\)","sample":\([12]\),"text":.*"end":"[a-z]*"}$/\2 \1/' "$dir/out" >"$dir/said"
    printf '%s\n' '1 one' '2 one' '1 two, longer' '2 two, longer' '1 ä third' '2 ä third' | cmp -s - "$dir/said" ||
        note "prompts in JSON: $(cat "$dir/said")"
    [ "$(grep -ac '"ids":\[[0-9]*\(,[0-9]*\)\{7\}\]' "$dir/out")" = 6 ] || note "not 8 tokens each: $(cat "$dir/out")"
    must "$train" generate $model --prompt one
    cp "$dir/out" "$dir/argument"
    printf 'one\n' | "$train" generate $model --prompt - >"$dir/out" 2>"$dir/err"
    cmp -s "$dir/argument" "$dir/out" || note "standard input: another text than with --prompt"
    printf @one | "$train" generate $model --prompt - >"$dir/out" 2>"$dir/err"
    grep -aq ^@one "$dir/out" || note "a prompt that begins with @: $(cat "$dir/err")"
    printf 'one\n\none\n' | # from a terminal, which script is
        timeout 60 script -qec "$train generate $model >$dir/out 2>$dir/err" /dev/null >/dev/null
    { printf one && sed -n 1p "$dir/out"; } | cmp -s - "$dir/argument" || note "interactive: $(cat "$dir/out")"
    must "$train" generate $model --prompt one --logprobs 2
    awk 'NR > 2 && $1 != "sum" { sum += $(NF - 4) } $1 == "sum" { d = sum - $2 }
        END { exit !(NR == 11 && d * d < 1e-4) }' "$dir/out" || note "log-probabilities: $(cat "$dir/out")"
    must "$train" generate $model --prompt one --logprobs 2 --json # a sum; of each token its own and the two best
    grep -ao '"logprob":[-0-9.e]*' "$dir/out" | awk -F : 'NR == 1 { total = $2; next } { i = NR % 3 }
        i == 2 { sum += $2 } i == 0 { best = $2 } i == 1 { sorted += best > $2 }
        END { d = sum - total; exit !(NR == 25 && sorted == 8 && d * d < 1e-6) }' || note "in JSON: $(cat "$dir/out")"
    must "$train" generate $model --prompt 'one that has as many tokens as the model, 48....'

    expect 1 'missing: cannot open' "$train" generate $model --prompt "@$dir/missing"
    printf 'one\n\ntwo\n' >"$dir/empty"
    expect 1 'empty, line 2: an empty prompt' "$train" generate $model --prompt "@$dir/empty"
    printf 'one\nt\377o\n' >"$dir/latin"
    expect 1 'latin, line 2: byte 1 is not UTF-8' "$train" generate $model --prompt "@$dir/latin"
    : >"$dir/none"
    expect 1 'none: no prompts' "$train" generate $model --prompt "@$dir/none"
    expect 1 'standard input is empty' "$train" generate $model --prompt - </dev/null
    expect 1 'standard input: more than 64 MiB' timeout 60 "$train" generate $model --prompt - </dev/zero
    expect 1 'the text: more than 64 MiB' timeout 60 "$train" tokenize </dev/zero
    expect 1 'has 49 tokens, but a text of this model has at most 48' "$train" generate $model \
        --prompt 'one that is longer than the model has positions..'
    expect 2 'from 1 to' "$train" generate $model --samples 0
    expect 2 '--dtype q8_0 is for the files of export gguf' "$train" generate $model --dtype q8_0
}

# Later positions of a model that began at random have never been trained.
texts_stay_within_the_positions_that_are_trained() {
    text="--prompt abc --sample_tokens 40 --temperature 1 --top_k 0 --seed 1337"
    must "$train" $small $data --seq_len 8 --max_steps 1 --val_every 0 --sample_every 1 $text --out "$dir/run"
    must "$train" generate --out "$dir/run" $text --json
    sed -n 's/.*"kind":"sample","step":1,"text":"abc\(.*\)"}$/\1/p' "$dir/run/metrics.jsonl" >"$dir/in_run"
    [ -s "$dir/in_run" ] && grep -qFf "$dir/in_run" "$dir/out" || note "$(cat "$dir/in_run") is not $(cat "$dir/out")"
    expect 1 'has 10 tokens, but a text of this model has at most 8' "$train" generate --out "$dir/run" \
        --prompt 0123456789
    must "$train" $small $data --seq_len 8 --max_steps 1 --val_every 0 --init "$dir/run/step_00000001" --seed 1 \
        --out "$dir/tuned"
    must "$train" generate --out "$dir/tuned" --prompt 0123456789
}

help_and_info_answer() {
    expect 0 '--total_batch_size' "$train" --help
    expect 0 '--prompt' "$train" -h
    expect 0 '--top_k' "$train" generate --help
    grep -q 'total_batch_size' "$dir/out" && note "generate --help lists options of train"
    expect 0 'decayed: 50 tensors, 124318464 parameters' "$train" info --model d12 --seq_len 64
    grep -q 'not decayed: 98 tensors, 121344' "$dir/out" || note "not decayed"
    grep -q '^wte .* 38597376$' "$dir/out" || note "elements of wte, without padding: $(cat "$dir/out")"
    grep -q '^  a sequence more  *[1-9]' "$dir/out" || note "memory of a sequence more: $(cat "$dir/out")"
    expect 0 'in bf16, residual stream in bf16 with --batch_size' "$train" info --model L=4,H=4,C=64,T=64,V=512 \
        --dtype bf16 --residual bf16
    expect 0 'gpt2-xl          all' "$train" info --model all
    expect 0 ' in 1 file, ' "$train" info --model L=4,H=4,C=64,T=64,V=257 --train_data "$root/corpus_train_*.bin"
    once="$train $small $data --max_steps 1 --val_every 0 --save_every 0"
    expect 0 ' in 1 file; 1 step of 128 tokens (0.00113 epochs), 1 micro-batch of 4 x 32' $once --out ""
    ! grep -q warning "$dir/err" || note "a warning: $(cat "$dir/err")"
    expect 0 'warning: --warmup_steps 2: the rate never reaches --lr in 1 step' $once --warmup_steps 2 --out ""
    expect 0 'the rate never reaches --lr in 2 full steps' $once --max_steps 2 --warmup_steps 3 \
        --total_batch_size 256 --batch_ramp 128:9999 --out "" # which are four smaller ones
    expect 0 'warning: --val_data is the data that the run is trained on' $once --val_every 1 \
        --val_tokens 64 --val_data "$root/corpus_train_*.bin" --out ""
}

a_run_is_summed_up() {
    must "$train" $small $data --max_steps 20 --val_every 10 --save_every 10 --keep 0 --out "$dir/run"
    for again in 1 2; do
        rm -r "$dir/run/step_00000020"
        must "$train" --out "$dir/run" --resume auto
    done
    expect 0 'steps       20 of 20, 2.56k tokens' "$train" info "$dir/run"
    for words in ' in 20 steps lost to restarts' ', resumed at step 10' '35.2k parameters, fp32' \
        'ended       finished' '--model L=2,H=2,C=32,T=48,V=257' '--save_every 10' 'at step 20, the best' \
        'step_00000010  whole' 'step_00000020  whole'; do
        grep -qF -- "$words" "$dir/out" || note "no '$words' from info: $(cat "$dir/out")"
    done
    must "$train" $small $data $quiet --max_steps 0 --out "$dir/none"
    expect 0 '0:00 in these steps; – tok/s at the end' "$train" info "$dir/none"
    must "$train" $small --model L=1,H=2,C=128,T=48,V=257 $data $quiet --total_batch_size 512 --batch_ramp 128:9999 \
        --max_steps 3 --out "$dir/ramp"
    sed -i '/"step":6,/,$d' "$dir/ramp/metrics.jsonl" # killed after five of twelve steps
    expect 0 'ended       not recorded: it was killed' "$train" info "$dir/ramp"
    grep -q ' whole, 2.7 MiB$' "$dir/out" || note "12 bytes a parameter: $(cat "$dir/out")"
    printf x >>"$dir/run/step_00000020/model.safetensors" # the first that is verified
    expect 3 'step_00000020/model.safetensors' "$train" info "$dir/run"
    expect 3 'model.safetensors' "$train" info "$dir/run/step_00000020"
    expect 3 'a checkpoint, whole' "$train" info "$dir/run" "$dir/run/step_00000010"
    expect 0 'a checkpoint, whole' "$train" info "$dir/run/step_00000010"
    expect 1 'no such file or folder' "$train" info "$dir/nothing"
    expect 1 'the folder of neither a run' "$train" info "$dir"
}

# Steps 31 to 40 are done twice, one of them with a skip; the lowest validation loss comes twice, and not at the end.
a_summary_has_the_numbers_of_the_records() {
    config() { # STEP DATE
        echo "{\"kind\":\"config\",\"step\":$1,\"date\":\"$2\",\"device\":\"CPU\",
            \"model\":{\"name\":\"d12\",\"parameters\":124439808},
            \"options\":{\"train_data\":\"folder_with_a_long_name/corpus_train.bin\",\"tokenizer\":\"bytes\",
            \"max_steps\":70,\"val_every\":20,\"dtype\":\"bf16\",\"seed\":7}}" | tr -d ' \n' && echo
    }
    steps() { # FIRST LAST LOSS
        seq "$1" "$2" |
            sed "s/.*/{\"kind\":\"train\",\"step\":&,\"tokens\":&00,\"loss\":$3,\"ms\":2000,\"tok_s\":50.&}/"
    }
    { config 0 noon && steps 1 40 9
        printf '{"kind":"%s","step":%d,"loss":%s}\n' val 20 4.5 skip 25 null skip 35 null
        config 30 midnight && steps 31 59 9 && steps 60 60 5
        printf '{"kind":"%s","step":%d,"loss":%s}\n' val 40 4.5 skip 50 null val 60 4.75
    } >"$dir/metrics.jsonl"
    must "$train" info "$dir"
    sed -i 's/ $//' "$dir/out" # lines of options end with a space
    diff - "$dir/out" >"$dir/diff" <<END || note "$(cat "$dir/diff")"
run         $dir
model       d12, 124M parameters, bf16 on CPU
options     --seed 7 --tokenizer bytes --train_data folder_with_a_long_name/corpus_train.bin --max_steps 70
            --dtype bf16 --val_every 20
steps       60 of 70, 6.00k tokens
time        2:00 in these steps, 0:20 in 10 steps lost to restarts; 50.6 tok/s at the end
started     noon
            midnight, resumed at step 30
skipped     2 updates, the last at step 50
loss        7, smoothed; last 5
val loss    4.7500 at step 60, the best 4.5000 at step 20
checkpoints none
ended       not recorded: it was killed, or lost its machine; --resume auto continues it
END
}

a_file_of_weights_is_described() {
    # 123 positions: byte 8 of llm.c's form is '{', as in safetensors
    must "$train" --model L=1,H=1,C=8,T=123,V=257 --tokenizer bytes $data --max_steps 1 $quiet --out "$dir/run"
    must "$train" export llmc --init "$dir/run/step_00000001" --out "$dir/new/model.bin" # makes the folder
    must "$train" export llmc --init "$dir/run/step_00000001" --out "$dir/model.bin" --force
    expect 2 'export hf needs --out PATH' "$train" export hf --init "$dir/model.bin"
    expect 2 'export hf needs --init PATH' "$train" export hf --out "$dir/hf"
    expect 2 '--train_data has no effect on info' "$train" info "$dir/run" --train_data x
    expect 1 "give one of its checkpoints, such as $dir/run/step_00000001" "$train" --resume "$dir/run" --out "$dir/new"
    expect 1 'continue with --resume auto' "$train" --out "$dir/run" # before it looks for data
    expect 1 '--resume ' "$train" --resume "$dir/model.bin" --out "$dir/new"
    ln -s nowhere "$dir/link"
    expect 2 'link is there already: nothing was written' "$train" export llmc --init "$dir/run/step_00000001" \
        --out "$dir/link" --force
    expect 0 'all tensors fp32' "$train" info "$dir/model.bin"
    expect 0 'checkpoint.b2sums is right' "$train" info "$dir/run/step_00000001/model.safetensors"
    cp "$dir/run/step_00000001/model.safetensors" "$dir/nan"
    cp -r "$dir/run/step_00000001" "$dir/damaged"
    printf '\001' | dd of="$dir/damaged/model.safetensors" bs=1 seek=$(($(wc -c <"$dir/nan") - 4)) conv=notrunc \
        2>/dev/null # a low bit of a mantissa
    expect 3 'checksum' "$train" info "$dir/damaged/model.safetensors"
    printf '\000\000\300\177' | dd of="$dir/nan" bs=1 seek=$(($(wc -c <"$dir/nan") - 4)) conv=notrunc 2>/dev/null
    expect 3 ' is not finite' "$train" info "$dir/nan"
    printf '\000\000\300\177' | dd of="$dir/model.bin" bs=1 seek=1024 conv=notrunc 2>/dev/null
    expect 3 'tensor wte: element 0 is not finite' "$train" info "$dir/model.bin"
}

# The run holds the lock of a checkpoint that it removes, and has removed a file of it.
info_leaves_out_a_checkpoint_that_is_removed_meanwhile() {
    command -v flock >/dev/null || { skip='no flock'; return; }
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

run_tests
