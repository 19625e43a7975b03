#!/bin/sh
# Tests `eval`: test sets, texts, and the loss of a checkpoint.
. "$(dirname "$0")/../lib.sh"
corpus

test_sets_are_scored_alone_and_while_training() {
    sets="test/golden/eval/hellaswag.jsonl,test/golden/eval/lambada.jsonl"
    must "$train" $small $data --max_steps 4 --val_every 0 --eval_data "$sets" --eval_rules every:2 --out "$dir/run"
    for line in HellaSwag LAMBADA; do
        [ "$(grep -c "^$line: [0-9]*/11 = 0" "$dir/out")" = 3 ] || note "not three scores of $line: $(cat "$dir/out")"
        grep "^$line" "$dir/out" | tail -n 1 >>"$dir/want"
    done
    [ "$(grep -c '"kind":"eval","step":[024],.*"rules":"l.*"total":11' "$dir/run/metrics.jsonl")" = 6 ] ||
        note "not six records: $(grep eval "$dir/run/metrics.jsonl")"
    expect 2 'is never scored: give --val_every' "$train" $small $data --val_every 0 --eval_data "$sets" --out ""
    must "$train" eval --out "$dir/run" --eval_data "$sets" --batch_size 2
    grep '^[HL]' "$dir/out" | cmp -s - "$dir/want" || note "other scores than in training: $(cat "$dir/out")"
    grep -q 'published: OpenAI' "$dir/out" || note "no published scores"
    expect 0 'HellaSwag: ' "$train" eval --out "$dir/run" --eval_data "$sets" --eval_rules lm-eval,limit:3
    grep -q '/3 = ' "$dir/out" || note "not three items: $(cat "$dir/out")"
    must "$train" eval --out "$dir/run" --threads 1
    cp "$dir/out" "$dir/want"
    expect 0 'batch_size 64 fits' "$train" eval --out "$dir/run" --batch_size auto --threads 1
    cmp "$dir/out" "$dir/want" || note "another loss: $(cat "$dir/out")"
    printf 'total_batch_size 512\nbatch_ramp 128:2048\nseq_ramp 8:1000\n' >"$dir/file" # which training reads too
    must "$train" eval --out "$dir/run" --threads 1 --config "$dir/file" --batch_size 3
    cmp "$dir/out" "$dir/want" || note "with options of training: $(cat "$dir/out")"
    expect 1 'eval_data nowhere: no such file' "$train" eval --out "$dir/run" --eval_data nowhere
    expect 1 'needs a --tokenizer' "$train" eval --out "$dir/run" --tokenizer none --eval_data "$sets"
    expect 2 'here it is called --eval_data' "$train" eval --hellaswag test/golden/eval/hellaswag.bin
}

texts_examples_and_core_are_scored() {
    eval="$train eval --init test/golden/eval/model --tokenizer test/golden/eval/tokenizer.bin --threads 1"
    must $eval --text test/golden/eval/text.txt,test/golden/eval/tex*.jsonl --seq_len 48
    for line in 'text.txt: perplexity 34.244' '; 651 tokens of 651 bytes' "lm-eval's rolling windows" 'context 48' \
        'loss 3.533535 per token, 5.097813 bits per byte' 'text.jsonl: perplexity ' '; 431 tokens of 431 bytes'; do
        grep -qF -- "$line" "$dir/out" || note "no '$line': $(cat "$dir/out")"
    done
    expect 0 'context 48, stride 20' $eval --text test/golden/eval/text.txt --seq_len 48 --stride 20
    grep -q 'perplexity 34.054' "$dir/out" || note "not transformers' perplexity: $(cat "$dir/out")"
    core_folder "$dir/core"
    must $eval --eval_data "$dir/core"
    grep -q '^CORE: ' "$dir/out" || note "no CORE: $(tail -n 3 "$dir/out")"
    [ "$(grep -c 'centered ' "$dir/out")" = 23 ] || note "not 22 centered accuracies and their mean"
    sed -n 's|^[a-z].* = \([0-9.]*\)$|\1|p; s/.*; centered \([-0-9.]*\), guessing \([0-9.]*\).*/\1 \2/p' "$dir/out" |
        awk 'NF == 1 { of = $1 } NF == 2 { d = $1 - (of - $2) / (1 - $2); bad += d * d > 1e-7; n++ }
            END { exit bad || n != 22 }' || note "not centered on guessing: $(cat "$dir/out")"
    expect 0 'standard error 0.1521' $eval --eval_data test/golden/eval/boolq.jsonl # of 7 of 11
    expect 0 'standard error 0.1220; by the sum of losses 0.5455, standard error 0.1575' $eval \
        --eval_data test/golden/eval/piqa.jsonl # of 9, and of 6
    expect 0 '; perplexity of the ending 883.98' $eval --eval_data test/golden/eval/lambada.jsonl
    expect 0 '; 2 examples in front' $eval --eval_data test/golden/eval/mmlu.jsonl \
        --eval_rules shots:2,examples:test/golden/eval/mmlu_dev.jsonl
    head -n 1 test/golden/eval/piqa.jsonl >"$dir/one.jsonl" # an item is no example of itself
    expect 1 'there are only 0 examples for it' $eval --eval_data "$dir/one.jsonl" \
        --eval_rules "shots:1,examples:$dir/../${dir##*/}/one.jsonl"
    expect 2 "--eval_rules 'llm': give llm.c or lm-eval, shots:N" $eval --eval_data nowhere --eval_rules llm
    expect 1 'text.txt is text, which needs a --tokenizer' "$train" eval --init test/golden/eval/model \
        --tokenizer none --text test/golden/eval/text.txt
    : >"$dir/empty.txt"
    expect 1 'empty.txt: there is nothing to score in it' $eval --text "$dir/empty.txt"
    expect 1 'nowhere.txt' $eval --text "$dir/nowhere.txt"
    expect 1 'mmlu.jsonl:1: no field "text"' $eval --text test/golden/eval/mmlu.jsonl
    grep -q 'skip_bad' "$dir/err" && note "an option that eval does not have"
    must $eval --text test/golden/eval/mmlu.jsonl --field question
    expect 2 '--stride 49 is more than --seq_len 48' $eval --text test/golden/eval/text.txt --seq_len 48 --stride 49
    expect 1 'eval_data/language_understanding/hellaswag.jsonl: cannot open' $eval --eval_data "$dir"
    grep -q 'a folder is read as that of CORE' "$dir/err" || note "no reason: $(cat "$dir/err")"
    expect 2 'two folders of CORE' $eval --eval_data "$dir/core,$dir/core"
    must "$train" $small $data --max_steps 2 --val_data "" --val_every 2 --out "$dir/run" \
        --eval_data "$dir/core,test/golden/eval/piqa.jsonl" --eval_rules limit:12
    [ "$(grep -c '"kind":"eval","step":[02],' "$dir/run/metrics.jsonl")" = 46 ] ||
        note "not 46 records: $(grep -c eval "$dir/run/metrics.jsonl")"
    [ "$(grep -c 'CORE: .*of 22 tasks' "$dir/run/log.txt")" = 2 ] || note "CORE is not in log.txt twice"
    # scores of the last step that cannot be: the run is finished without them
    must "$train" $small $data --max_steps 1 --val_every 0 --dtype fp16 --loss_scale off --lr 1e3 --warmup_steps 0 \
        --save_every 0 --out "$dir/wild" --eval_data "$dir/core" --eval_rules limit:1,every:1
    [ "$(grep -c 'no score: .*the loss is not finite' "$dir/err")" = 22 ] || note "$(tail -n 3 "$dir/err")"
    [ "$(grep -c 'CORE: ' "$dir/wild/log.txt")" = 1 ] || note "CORE without scores: $(cat "$dir/wild/log.txt")"
    tail -n 1 "$dir/wild/metrics.jsonl" | grep -q '"reason":"finished"' || note "$(tail -n 1 "$dir/wild/metrics.jsonl")"
}

a_loss_that_is_not_finite_has_an_exit_code() {
    must "$train" $small $data --max_steps 1 --val_every 0 --dtype fp16 --loss_scale off --lr 1e3 --warmup_steps 0 \
        --out "$dir/wild"
    expect 4 'step_00000001: the loss is not finite' "$train" eval --out "$dir/wild" --dtype fp16
    [ "$(cat "$dir/out")" = 'val loss nan' ] || note "$(cat "$dir/out")"
}

evaluating_a_checkpoint_gives_the_loss_of_training() {
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

run_tests
