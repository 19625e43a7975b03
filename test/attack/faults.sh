#!/bin/sh
# Tests that nothing is lost: kills, failing system calls and allocations, damaged bytes, lost output, forged files.
# Attacks print `N tried, M lost`; `long` tries every call, else a sample.
# In memory, if there is enough and programs run there: on a disk a run of attack.sh mostly waits for fsync().
free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${free:-0}" -gt 1000000 ] && probe=$(mktemp -p /dev/shm 2>/dev/null); then
    cp "$(command -v cat)" "$probe" && chmod +x "$probe" && "$probe" </dev/null 2>/dev/null &&
        export TMPDIR="${TMPDIR:-/dev/shm}"
    rm -f "$probe"
fi
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/attack.sh"
corpus

# ----------------------------------------------------------------------------------------------------------------------
# attacks on a run

# Every call that writes is a place to be killed at.
killed_at_a_call_that_writes_it_goes_on_to_the_same_end() {
    attack_begin || return
    each=${each:-1}
    [ -n "$long" ] || each=29
    attack_each fresh kill 3 $each 100000
    attack_each half kill 2 $each 100000
    attack_end "kills"
}

a_system_call_that_fails_loses_nothing() {
    attack_begin || return
    each=${each:-1} errors=${errors:-EIO ENOSPC EMFILE EACCES EINTR ENOMEM}
    [ -n "$long" ] || each=97 errors="EIO EMFILE"
    first=1
    for error in $errors; do
        attack_each fresh $error $first $each 100000
        attack_each half $error $((first + 7)) $each 100000
        first=$((first + 13)) # the samples of the errors differ
        [ -z "$long" ] || first=1
    done
    attack_end "failing system calls"
}

# A library that is loaded late can fail to load. libgomp loads one when a thread with a team ends.
no_library_is_loaded_during_a_run() {
    LD_DEBUG=files "$train" $small $data --max_steps 4 --save_every 2 --val_every 0 --out "$dir/run" 2>"$dir/err" \
        >/dev/null || note "$(tail -n 1 "$dir/err")"
    grep -q 'transferring control' "$dir/err" || { skip='the loader does not log'; return; }
    sed '1,/transferring control: .*train_gpt2/d' "$dir/err" | grep 'libgcc_s.*generating link map' >"$dir/late"
    [ ! -s "$dir/late" ] || note "loaded during the run: $(cat "$dir/late")"
}

an_allocation_that_fails_loses_nothing() {
    attack_begin || return
    each=${each:-1}
    [ -n "$long" ] || each=499
    (cd "$dir/try" && FAULT_COUNT="$dir/count" LD_PRELOAD="$tools/alloc.so" $attacked --out run >/dev/null 2>&1)
    attack_each half alloc 1 $each "$(cat "$dir/count")"
    attack_end "failing allocations"
}

# The last allocations of the two commands, in which they write a tokenizer's files and a GGUF header. Each ends with
# the same files, or says that memory has ended.
files_made_in_memory_are_whole_or_an_error() {
    ${CC:-cc} -O1 -fPIC -shared test/attack/alloc.c -o "$dir/alloc.so" || note "the tool does not compile"
    must "$prepare" --train_tokenizer 300 --out "$dir/tokenizer" README.md
    learn="$prepare --train_tokenizer 300 --out $dir/try README.md"
    set_of=test/golden/eval
    write="$train export gguf --init $set_of/model --tokenizer $set_of/tokenizer.bin --out $dir/try/it"
    mkdir "$dir/gguf"
    must $write --out "$dir/gguf/it"
    for what in learn:tokenizer write:gguf; do
        eval "command=\$${what%:*}"
        rm -rf "$dir/try" && mkdir "$dir/try"
        must env OMP_NUM_THREADS=1 FAULT_COUNT="$dir/count" LD_PRELOAD="$dir/alloc.so" $command
        n=$(cat "$dir/count") refused=0
        for at in $(seq $((n - 80)) "$n"); do
            rm -rf "$dir/try" && mkdir "$dir/try"
            OMP_NUM_THREADS=1 FAULT_ALLOC=$at LD_PRELOAD="$dir/alloc.so" $command >"$dir/out" 2>"$dir/err"
            case $? in
            0) diff -r "$dir/${what#*:}" "$dir/try" >"$dir/diff" || note "allocation $at: $(head -n 1 "$dir/diff")" ;;
            1) refused=$((refused + 1)); grep -qi memory "$dir/err" || note "allocation $at: $(tail -n 1 "$dir/err")" ;;
            *) note "allocation $at: $(tail -n 1 "$dir/err")" ;;
            esac
        done
        [ $refused -gt 9 ] || note "of $command only $refused tries failed"
    done
}

# The same with two processes. The first one, which writes, is killed at a call; then one of the two at a random
# collective.
killed_ranks_go_on_to_the_same_end() {
    command -v mpirun >/dev/null || { skip='no mpirun'; return; }
    attack_begin || return
    export OMP_NUM_THREADS=1
    each=3 most=100
    [ -n "$long" ] || each=200 most=3
    attacked="$attacked --batch_size 1 --total_batch_size 32"
    again="mpirun -np 2 $attacked --out run --resume auto"
    (cd "$dir/whole" && rm -r run && $again >/dev/null 2>&1) || { skip="$(tail -n 1 "$dir/err")"; return; }
    n=30
    while [ $n -lt 600 ]; do # MPI's own calls are among them
        rm -rf "$dir/try"
        mkdir "$dir/try"
        (cd "$dir/try" && unlike "exec $tools/fault kill $n $attacked --out run" "exec $attacked --out run" \
            >/dev/null 2>"$dir/err")
        [ $? != 0 ] || break
        code=137 kills=1 what="2 ranks, kill, call $n" tried=$((tried + 1))
        (cd "$dir/try" && timeout 120 $again >/dev/null 2>"$dir/err") || attack_lose "$(tail -n 1 "$dir/err")"
        attack_compare
        n=$((n + each))
    done
    attacked="$attacked --max_steps 60 --save_every 6 --val_every 30 --sample_every 0"
    again="mpirun -np 2 $attacked --out run --resume auto"
    (cd "$dir/whole" && rm -r run && $again >/dev/null 2>&1)
    rm -rf "$dir/try"
    mkdir "$dir/try"
    last=step_00000060 what="2 ranks, random kills"
    for i in $(seq $most); do # each goes on where the one before was killed; after the end a new run begins
        sum=$(awk -v n=$i 'BEGIN { srand(n); print 1 + int(60 * rand()) }')
        (cd "$dir/try" && KILL_RANK=$((i % 2)) KILL_AT=$sum timeout 300 mpirun -np 2 \
            env LD_PRELOAD="$here/$build/count_collectives.so" $attacked --out run --resume auto \
            >/dev/null 2>"$dir/err") || { tried=$((tried + 1)); continue; }
        attack_compare
        rm -rf "$dir/try"
        mkdir "$dir/try"
    done
    (cd "$dir/try" && timeout 300 $again >/dev/null 2>"$dir/err") || attack_lose "$(tail -n 1 "$dir/err")"
    attack_compare
    attack_end "kills of one of two processes"
}

# ----------------------------------------------------------------------------------------------------------------------
# numbers that are not finite

# poke FILE BYTE ESCAPES COUNT: writes COUNT times the bytes, as octal escapes, at that byte of a file
poke() { escapes=$3 awk -v n="$4" 'BEGIN { while (n-- > 0) printf "%s", ENVIRON["escapes"] }' | # -v would decode them
        { read -r escapes; printf "$escapes"; } | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
# tensor_begin FILE NAME: the byte of a safetensors file where a tensor begins
tensor_begin() { header=$(od -An -v -tu8 -N 8 "$1" | tr -d ' ')
    at=$(dd if="$1" bs=1 skip=8 count=$header 2>/dev/null |
        sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    echo $((8 + header + at)); }

# A model that gives a loss that is not finite for each sequence with a certain rare byte: its embedding is -3e38, of
# which layernorm computes NaN, and the last layernorm gives ones, so that its logit is -inf elsewhere.
overflowing_model() { # the test's folder gets model/ and $byte
    must "$train" $small $data --max_steps 1 --val_every 0 --out "$dir/one"
    mv "$dir/one/step_00000001" "$dir/model"
    rm "$dir/model/state.json" "$dir/model/checkpoint.b2sums"
    byte=$(od -An -v -tu2 -w2 -j 1024 "$root/corpus_train_000001.bin" | sort -n | uniq -c |
        awk '{ d = $1 - 80; if (d < 0) d = -d; if (NR == 1 || d < least) { least = d; byte = $2 } } END { print byte }')
    file="$dir/model/model.safetensors"
    poke "$file" $(($(tensor_begin "$file" transformer.wte.weight) + 128 * byte)) '\346\261\141\377' 32
    poke "$file" "$(tensor_begin "$file" transformer.ln_f.weight)" '\000\000\000\000' 32
    poke "$file" "$(tensor_begin "$file" transformer.ln_f.bias)" '\000\000\200\077' 32
}

batches_that_are_not_finite_are_skipped() {
    overflowing_model
    common="$small $data --init $dir/model --max_steps 60 --val_every 0 --save_every 0"
    expect 4 'not finite' "$train" $common --out "$dir/stops"
    must "$train" $common --skip_z 50 --out "$dir/skips"
    skips=$(grep -c '"skip".*"z":null' "$dir/skips/metrics.jsonl")
    [ "$skips" -ge 1 ] && [ "$skips" -le 30 ] || note "$skips skipped"
    [ "$skips" = "$(grep -c '"train".*"loss":null' "$dir/skips/metrics.jsonl")" ] || note "not those without a loss"
    # bad weights are not skipped for ever
    expect 4 'not finite' "$train" $small $data --max_steps 400 --val_every 0 --save_every 0 --lr 1e3 --grad_clip 0 \
        --weight_decay 100 --schedule constant --skip_z 1e9 --out "$dir/all"
    skips=$(grep -c '"kind":"skip"' "$dir/all/metrics.jsonl")
    [ "$skips" = 8 ] || note "$skips skipped of all"
}

overflowing_weights_are_an_error_of_generate_and_eval() {
    overflowing_model
    letter=$(printf "\\$(printf %o "$byte")")
    expect 4 'the weights are damaged or have overflowed' "$train" generate --init "$dir/model" --tokenizer bytes \
        --prompt "$letter" --sample_tokens 3
    expect 4 'the loss is not finite' "$train" eval --init "$dir/model" --tokenizer bytes --seq_len 32 \
        --val_data "$root/corpus_train_*.bin"
}

# ----------------------------------------------------------------------------------------------------------------------
# files and streams

a_file_that_may_not_grow_is_an_error() {
    expect 1 'metrics.jsonl: cannot write: File too large' sh -c 'ulimit -f 60 && exec "$@"' - "$train" $small $data \
        --max_steps 5000 --val_every 0 --save_every 0 --out "$dir/run"
}

lost_output_is_an_error() {
    [ -w /dev/full ] || { skip='no /dev/full'; return; }
    must "$train" $small $data --max_steps 2 --val_every 0 --out "$dir/run"
    shape='--model L=1,H=1,C=8,T=16,V=257'
    full() { "$@" >/dev/full 2>"$dir/err"; got=$?
        [ $got = 1 ] && grep -q 'standard output: cannot write' "$dir/err" ||
            note "exit code $got of $*: $(tail -n 1 "$dir/err")"; }
    full "$train" --help
    full "$train" --version
    full "$train" info $shape
    full "$train" eval --out "$dir/run"
    full "$train" report "$dir/run"
    full "$train" generate --out "$dir/run" --sample_tokens 2
    full "$train" check $shape --max_steps 1
    full "$train" bench step --batch_size 4 --out ""
    full "$prepare" --help
    full "$prepare" --stories 1000 --tokenizer bytes --val_size 100 --out "$dir/p"
    echo text | full "$train" tokenize
}

closed_streams_are_no_files() {
    "$train" $small $data --max_steps 2 --val_every 0 --out "$dir/run" <&- >&- 2>&- || note "exit code $?"
    [ -s "$dir/run/.lock" ] && note "in .lock: $(cat "$dir/run/.lock")"
    ls "$dir/run" | grep -q step_00000002 || note "no checkpoint"
}

folders_that_cannot_be_written_say_why() {
    mkdir "$dir/disk"
    mount -t tmpfs -o ro none "$dir/disk" 2>/dev/null || { skip='cannot mount a file system here'; return; }
    expect 1 'Read-only file system' "$train" $small $data --out "$dir/disk/run"
    umount "$dir/disk"
}

pipes_in_the_place_of_files_are_refused() {
    must "$train" $small $data --max_steps 2 --save_every 1 --val_every 0 --out "$dir/run"
    for file in config.json state.json model.safetensors optimizer.safetensors checkpoint.b2sums; do
        rm -rf "$dir/pipe"
        cp -r "$dir/run" "$dir/pipe"
        rm "$dir/pipe/step_00000002/$file"
        mkfifo "$dir/pipe/step_00000002/$file"
        expect 0 'not a regular file' timeout 60 "$train" --out "$dir/pipe" --resume auto
        [ -p "$dir/pipe/damaged-step_00000002/$file" ] || note "$file: not set aside: $(ls "$dir/pipe")"
    done
    mkdir "$dir/parts"
    cp "$dir/run/step_00000002/config.json" "$dir/parts"
    mkfifo "$dir/parts/model.safetensors.index.json" "$dir/text"
    expect 1 'not a regular file' timeout 60 "$train" eval --init "$dir/parts" --seq_len 32 --tokenizer bytes \
        --val_data "$root/corpus_val_*.bin"
    expect 1 'not a regular file' timeout 60 "$prepare" --out "$dir/p" "$dir/text"
    expect 2 'not a regular file' timeout 60 "$train" --config "$dir/text"
}

# A run that saves and removes after each step, and readers of its newest checkpoint.
a_reader_beside_a_run_never_fails() {
    "$train" $small $data --max_steps 1000000 --save_every 1 --keep 1 --val_every 0 --out "$dir/run" >"$dir/out" \
        2>"$dir/log" &
    pid=$!
    await 'saved step' "$dir/log" $pid
    most=8 failed_evals=0
    [ -z "$long" ] || most=200
    for i in $(seq $most); do
        "$train" eval --out "$dir/run" --val_tokens 64 --threads 1 >"$dir/out2" 2>"$dir/err" ||
            { failed_evals=$((failed_evals + 1)); grep -a 'error' "$dir/err" >"$dir/why"; }
        grep -qa damaged "$dir/err" && note "taken for damaged: $(grep -a damaged "$dir/err")"
    done
    kill -TERM $pid
    ends 0 $pid "$dir/log"
    [ $failed_evals = 0 ] || note "$failed_evals of $most failed: $(cat "$dir/why")"
}

changed_data_and_tokenizers_are_noticed() {
    must "$prepare" --stories 60000 --tokenizer bytes --val_size 6000 --out "$dir/c"
    (cd "$dir" && command -v b2sum >/dev/null && ! b2sum -c c.b2sums >/dev/null) && note "b2sum disagrees"
    shards="--train_data $dir/c_train_*.bin --val_data $dir/c_val_*.bin"
    shape="--model L=1,H=1,C=8,T=16,V=257"
    expect 0 'its checksum is right' "$train" info $shape $shards
    poke "$dir/c_train_000001.bin" 50000 '\101' 1
    poke "$dir/c_train_000001.bin" 50002 '\102' 1
    expect 3 'c_train_000001.bin: damaged or edited' "$train" info $shape $shards
    rm "$dir/c.b2sums"
    expect 0 'it has no checksum' "$train" info $shape $shards
    cp data/gpt2_tokenizer.bin "$dir/t.bin"
    must "$prepare" --stories 20000 --tokenizer "$dir/t.bin" --val_size 2000 --out "$dir/g"
    shards="--train_data $dir/g_train_*.bin --val_data $dir/g_val_*.bin"
    must "$train" $small $shards --model L=1,H=1,C=8,T=48,V=50257 --tokenizer "$dir/t.bin" --max_steps 1 --val_every 0 \
        --out "$dir/run"
    poke "$dir/t.bin" $(($(wc -c <"$dir/t.bin") - 20)) '\001' 1 # the last byte of the last token but the end of text
    must "$train" --out "$dir/run" --resume auto --max_steps 2 # by the checkpoint's own copy
    expect 1 'not the tokenizer that the run' "$train" --out "$dir/run" --resume auto --max_steps 3 \
        --tokenizer "$dir/t.bin"
    # what is given to begin with, or to read, may be another
    for command in "generate --prompt a --sample_tokens 1 --tokenizer bytes" "eval --text LICENSE --tokenizer bytes" \
        "export hf --out $dir/hf --tokenizer bytes" \
        "--max_steps 1 $quiet --save_every 0 $data --out $dir/tuned --tokenizer bytes"; do
        expect 0 'not the tokenizer that the run' "$train" $command --init "$dir/run/step_00000002"
        grep -q '^warning: --tokenizer' "$dir/err" || note "not a warning: $(cat "$dir/err")"
    done
    must "$train" generate --init "$dir/hf" --sample_tokens 1
    ! grep -q warning "$dir/err" || note "the model's own tokenizer: $(cat "$dir/err")"
    expect 0 'warning: --tokenizer gpt2: not the tokenizer that the model in' "$train" generate --init "$dir/hf" \
        --tokenizer gpt2 --sample_tokens 1
    must "$train" $small $data --tokenizer none --max_steps 1 --val_every 0 --out "$dir/none"
    must "$train" generate --out "$dir/none" --prompt a --sample_tokens 1 --tokenizer bytes # of its data, perhaps
    ! grep -q warning "$dir/err" || note "a run without a tokenizer: $(cat "$dir/err")"
    sed -i 's/"!":0,/"?!":0,/' "$dir/run/step_00000002/tokenizer.json"
    expect 0 'tokenizer.json: damaged or edited' "$train" generate --out "$dir/run" # and takes step 1
}

run_tests
