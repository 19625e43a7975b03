#!/bin/sh
# Tests `tokenize`, tokenizer files, and a tokenizer of one's own.
. "$(dirname "$0")/../lib.sh"

text_goes_through_the_tokenizer_and_back() {
    printf 'Hello, I am a language model, \377\376 caf\303\251\n\n  <|endoftext|>' >"$dir/text"
    "$train" tokenize <"$dir/text" >"$dir/ids" || note "tokenize failed"
    "$train" tokenize --decode <"$dir/ids" >"$dir/back" || note "decode failed"
    cmp -s "$dir/text" "$dir/back" || note "the text did not come back"
    [ "$(printf "Hello, I'm a language model," | "$train" tokenize)" = "15496 11 314 1101 257 3303 2746 11" ] ||
        note "other ids for the lecture's prompt"
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

run_tests
