#!/bin/sh
# Tests shards that are damaged, missing, repeated, or of another tokenizer.
. "$(dirname "$0")/../lib.sh"
corpus

bad_data_is_named() {
    expect 1 'nothing_*.bin' "$train" $small --train_data "$dir/nothing_*.bin" --val_data "" --out "$dir/none"
    [ ! -e "$dir/none" ] || note "a folder of a run without data"
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

damaged_tokens_are_found_by_their_checksum() {
    must "$prepare" --stories 20000 --tokenizer bytes --val_size 2000 --out "$dir/c"
    info="$train info --model L=1,H=1,C=8,T=48,V=257 --val_data $dir/c_val_*.bin"
    expect 0 'its checksum is right' $info --train_data "$dir/c_train_*.bin"
    printf a | dd of="$dir/c_train_000001.bin" bs=1 seek=3000 conv=notrunc 2>/dev/null
    printf b | dd of="$dir/c_train_000001.bin" bs=1 seek=3002 conv=notrunc 2>/dev/null
    expect 3 'c_train_000001.bin' $info --train_data "$dir/c_train_*.bin"
}

# Without --val_data: _val_ in place of _train_ in the names of files, not of folders.
validation_shards_stand_beside_those_for_training() {
    mkdir -p "$dir/my_train_set"
    cp "$root/corpus_train_000001.bin" "$dir/my_train_set"
    beside="$train $small --train_data $dir/my_train_set/corpus_train_*.bin --max_steps 1"
    expect 1 'my_train_set/corpus_val_*.bin: no such file' $beside --out "$dir/none"
    grep -q "or --val_data '' to do without validation" "$dir/err" || note "no way out: $(cat "$dir/err")"
    [ ! -e "$dir/none" ] || note "a folder of a run without data"
    must $beside --val_every 0 --out ""
    cp "$root/corpus_val_000000.bin" "$dir/my_train_set"
    must $beside --out "$dir/run"
    grep '^val loss' "$dir/out" >"$dir/beside"
    must $beside --val_data "$root/corpus_val_*.bin" --out ""
    grep '^val loss' "$dir/out" | cmp -s - "$dir/beside" || note "another loss: $(cat "$dir/beside" "$dir/out")"
    must "$train" --out "$dir/run" --resume auto --max_steps 2 --train_data "$root/corpus_train_*.bin"
    grep -q '"val_data": "[^"]*/my_train_set/corpus_val_\*.bin"' "$dir/run/step_00000002/state.json" ||
        note "a resumed run has other data to validate on"
    for given in "$dir/my_train_set/corpus_train_000001.bin" \
        "$dir/my_train_set/*0001.bin,$dir/my_train_set/corpus_train_000001.bin"; do
        must $beside --train_data "$given" --out ""
        grep '^val loss' "$dir/out" | cmp -s - "$dir/beside" || note "another loss with $given: $(cat "$dir/out")"
    done
    for resume in '' "--resume auto"; do
        expect 0 'no validation: there is no _train_ in --train_data' $beside $resume \
            --train_data "$dir/my_train_set/*0001.bin" --out "$dir/unnamed$resume"
    done
    rm "$dir/my_train_set/corpus_val_000000.bin"
    expect 1 "or --val_data '' to do without validation" $beside --resume auto --out "$dir/none"
    expect 1 "give --val_data 'FILES', or --val_data ''" "$train" --out "$dir/run" --resume auto --max_steps 4 \
        --train_data "$root/corpus_train_*.bin"
    expect 1 "did you mean '$root/corpus_train_*.bin'?" $beside --train_data "$root/corpus" --out ""
}

# By the record of ./prepare, beside training and validation data; shards without one by their ids.
data_of_another_tokenizer_is_refused() {
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

missing_and_repeated_shards_are_named() {
    cp "$root/corpus_train_000001.bin" "$dir/part_000001.bin"
    cp "$root/corpus_train_000001.bin" "$dir/part_000004.bin"
    cp "$root/corpus_val_000000.bin" "$dir/part_000006.bin"
    must "$train" $small --train_data "$dir/part_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q '2 shards are missing between .*/part_000001.bin and .*/part_000004.bin$' "$dir/err" ||
        note "no word of the missing shards: $(cat "$dir/err")"
    grep -q '1 shard is missing between .*/part_000004.bin and .*/part_000006.bin$' "$dir/err" ||
        note "no word of the missing shard: $(cat "$dir/err")"
    grep -q '/part_000004.bin begins, ends and is as long as .*/part_000001.bin: ' "$dir/err" ||
        note "no word of the copy: $(cat "$dir/err")"
    rm "$dir/part_000004.bin"
    mv "$dir/part_000006.bin" "$dir/port_000006.bin" # of another set
    for i in 1 10 11; do cp "$root/corpus_val_000000.bin" "$dir/plain_$i.bin"; done # 2 to 9 may have the other length
    must "$train" $small --train_data "$dir/plain_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q 'missing between' "$dir/err" && note "numbers of other lengths compared: $(cat "$dir/err")"
    must "$train" $small --train_data "$dir/p[ao]rt_*.bin" --val_data "" --max_steps 1 --out ""
    grep -q warning "$dir/err" && note "a warning of sound shards: $(cat "$dir/err")"
}

run_tests
