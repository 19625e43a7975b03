#!/bin/sh
# Tests ./prepare beside test_prepare and test_mix: a full disk, training on what it made.
. "$(dirname "$0")/../lib.sh"

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

run_tests
