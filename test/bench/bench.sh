#!/bin/sh
# Tests `check`, `bench`, and the studies of dev/ that call the programs.
. "$(dirname "$0")/../lib.sh"

fast_kernels_are_checked_against_the_plain_ones() {
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16
    tail -n 1 "$dir/out" | grep -q '^[1-9][0-9]* comparisons, 0 failed$' || note "$(tail -n 1 "$dir/out")"
    expect 2 'are what the others are checked against' "$train" check --kernels plain
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16 --dtype bf16
    must "$train" check --model L=1,H=2,C=32,T=16,V=50 --seq_len 16 --dtype fp16
}

the_ladder_leaves_a_table_and_a_picture() {
    must "$train" bench ladder --model L=1,H=2,C=32,T=16,V=50 --max_steps 2 --threads 2 --out "$dir/ladder"
    json="$dir/ladder/ladder.json"
    for rung in 'plain loops' 'vectors and blocks' fused 'flash attention' bf16 'padded vocabulary' 'all threads'; do
        grep -q "this program has no $rung" "$dir/err" && continue
        grep -q "^$rung .*[0-9]x .* ok" "$dir/out" || note "no rung '$rung'"
        [ "$(values_of name "$json" | grep -cx "$rung")" = 1 ] || note "ladder.json does not have '$rung' once"
        grep -q ">$rung<" "$dir/ladder/ladder.svg" || note "the chart lacks '$rung'"
    done
    [ "$(values_of ok "$json" | sort -u)" = true ] || note "a rung is not ok: $(cat "$dir/out")"
    # gains are ratios of tokens per second, which are a step's tokens over its time; memory and the peak were measured
    values_of tok_s "$json" >"$dir/tok_s"
    for name in ms gain total_gain mfu used_bytes; do
        values_of $name "$json" | paste -d ' ' "$dir/tok_s" - >"$dir/both"
        mv "$dir/both" "$dir/tok_s"
    done
    awk 'function off(a, b) { return a / b > 1.000001 || a / b < 0.999999 }
         NR == 1 { first = before = $1 }
         off($1, 64 / $2 * 1e3) || off($3, $1 / before) || off($4, $1 / first) || !($5 > 0 && $6 > 1e6) {
             print "rung " NR ": " $0
         }
         { before = $1 }
         END { if (NR < 6) print NR " rungs" }' "$dir/tok_s" >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || note "tok_s ms gain total_gain mfu used_bytes do not agree: $(cat "$dir/wrong")"
    [ "$(values_of threads "$json" | tail -n 1)" = 2 ] || note "the last rung has other than 2 threads"
    values_of level "$json" | grep -qvE '^(generic|avx2|avx512|avx512_bf16|amx)$' &&
        note "an unknown level: $(values_of level "$json")"
    expect 0 "'all threads' is left out" "$train" bench ladder --model L=1,H=2,C=32,T=16,V=50 --max_steps 1 \
        --threads 1 \
        --out ""
    # a row of the embedding so large that no rung has a finite loss
    cp -r test/golden/gpt2 "$dir/huge"
    weights="$dir/huge/model.safetensors"
    printf '\377\377\177\177%.0s' $(seq 36) |
        dd of="$weights" bs=1 seek=$(($(wc -c <"$weights") - 4 * 36)) conv=notrunc 2>/dev/null
    expect 3 'FAILED' "$train" bench ladder --init "$dir/huge" --seq_len 16 --max_steps 1 --threads 2 --out ""
    expect 2 'leave it out' "$train" bench ladder --attention plain
    expect 2 "bench ladder takes no word after it, but got 'foo'" "$train" bench ladder foo
    expect 2 'bench foo: give one of: ladder' "$train" bench foo
    expect 1 'no such file or folder' "$train" bench ladder --init "$dir/none"
    expect 2 'ladder' "$train" bench
    expect 2 'ladder' "$train" bench latter
}

every_operation_is_timed() {
    must "$train" bench ops --model L=1,H=2,C=32,T=16,V=50 --out "$dir/ops"
    json="$dir/ops/ops.json"
    sed -n 's/^ *OP_ENTRY(\([a-z_]*\),.*/\1/p' llmc/check/op_cases.c | sort >"$dir/want"
    values_of name "$json" | sed 1d >"$dir/names" # the first is the model's
    sort -u "$dir/names" | cmp -s - "$dir/want" || note "not the operations of op_cases.c: $(cat "$dir/out")"
    values_of layer "$json" | paste -d ' ' "$dir/names" - | sort | uniq -d >"$dir/twice"
    [ ! -s "$dir/twice" ] || note "twice: $(cat "$dir/twice")"
    [ "$(grep -cE '^matmul_(gelu_)?forward$' "$dir/names")" = 4 ] || note "not the four layers of a block"
    for name in ms bytes flops reached; do
        values_of $name "$json" | awk '$1 > 0 { n++ } END { print n + 0 }' >"$dir/count"
        [ "$(cat "$dir/count")" = "$(wc -l <"$dir/names")" ] || note "an operation has no $name"
    done
    [ "$(grep -c '<circle.*<title>' "$dir/ops/ops.svg")" = "$(wc -l <"$dir/names")" ] || note "not a point for each row"
    must "$train" bench ops 'backward qkv' --model L=1,H=2,C=32,T=16,V=50 --batch_size 2 --seq_len 8 --out "$dir/ops"
    # 4 N C OC; inp, dout and weight are read, dinp and dweight written, dbias added to: 4 bytes each
    [ "$(values_of flops "$json")" = 196608.0 ] || note "flops of the qkv layer: $(values_of flops "$json")"
    [ "$(values_of bytes "$json")" = 35584.0 ] || note "bytes of the qkv layer: $(values_of bytes "$json")"
    must "$train" bench ops cached logits --model L=1,H=2,C=32,T=16,V=50 --batch_size 2 --seq_len 8 --out "$dir/ops"
    # one token of each sequence: 4 C (T keys) for attention, 2 C V for the logits
    [ "$(values_of flops "$json" | xargs)" = '2048.0 6400.0' ] || note "flops of a token: $(values_of flops "$json")"
    expect 2 "no operation has 'nothing' in its name" "$train" bench ops matmul nothing --out ""
}

# A Python and an llm.c whose steps take canned times. PyTorch compiled is the better of the two: 100 ms a step.
peers_take_turns() {
    command -v python3 >/dev/null || { skip='python3 is not installed'; return; }
    cat >"$dir/python" <<'END'
#!/bin/sh
case $* in
-c*) exit 0 ;; # imports
*--contender*) ;;
*) exec python3 "$@" ;; # the script itself
esac
case $* in *compiled*) ms=100 ;; *) ms=200 ;; esac
for i in $ms 900 $ms $ms; do echo "step loss 4.000000 | $i.00 ms |"; done
echo 'facts {"torch": "9.9", "peak_bytes": 1073741824}'
END
    printf '#!/bin/sh\nexit 1\n' >"$dir/bare"
    mkdir "$dir/llm.c"
    printf '#!/bin/sh\nwhile echo "step 7: train loss 5.0 (took 400.000000 ms)"; do sleep 0.01; done\n' \
        >"$dir/llm.c/train_gpt2"
    chmod +x "$dir/python" "$dir/bare" "$dir/llm.c/train_gpt2"
    peers="python3 dev/bench/peers.py --program $train --model L=1,H=2,C=32,T=64 --dtype fp32 --steps 2 --threads 1"
    must $peers --python "$dir/python" --llmc "$dir/llm.c" --json "$dir/peers.json"
    grep -q '^| fp32, 4 x 64 tokens | [0-9,]* | 2,560 | [0-9.]* ([0-9.]* to [0-9.]*) | [0-9]* | 1,024 | 640 | ' \
        "$dir/out" || note "not README's row: $(tail -n 1 "$dir/out")"
    json="$dir/peers.json"
    [ "$(values_of better "$json")" = compiled ] || note "the better one: $(values_of better "$json")"
    [ "$(grep -c '"first_step_s": [0-9]' "$json")" = 12 ] || note "not three rounds of four contenders"
    ! grep -q "$dir" "$json" || note "a path of this machine in peers.json"
    expect 1 'has no torch and transformers' $peers --python "$dir/bare"
    expect 1 'no train_gpt2 in' $peers --python "$dir/python" --llmc "$dir"
    expect 1 'takes B 4 and T 64' $peers --python "$dir/python" --llmc "$dir/llm.c" -T 32
}

a_step_is_listed_and_predicted() {
    must "$train" bench step --model d12 --batch_size 16 --total_batch_size 32768 --recompute gelu --out "$dir/step"
    values_of runs "$dir/step/step.json" >"$dir/runs"
    awk 'NR > 2 && $1 != "step" && !/json$/ { runs += $(NF - 3) } $1 == "step" { all = $2 }
        END { exit !(NR > 20 && runs == all) }' "$dir/out" || note "not the sum of its rows: $(cat "$dir/out")"
    [ "$(awk '{ sum += $1 } END { print sum }' "$dir/runs")" = 374 ] || note "step.json: $(cat "$dir/runs")"
    # 32768 tokens, each 6 x 124475904 parameters, those of padding included, and 6 x 12 x 768 x 1024 of attention
    grep -q '"mfu_flops": 26328384405504.0' "$dir/step/step.json" || note "$(grep mfu_flops "$dir/step/step.json")"
    expect 2 'give a number' "$train" bench step --batch_size auto
    expect 2 'options of bench step alone' "$train" bench ladder --total_batch_size 1024
    expect 2 'options of bench step alone' "$train" bench ops --preset gpt2:124m
    expect 2 'contradicts --kernels plain' "$train" bench ops --attention flash --kernels plain --out ""
    expect 2 'cuDNN is for GPUs' "$train" bench ops --attention cudnn --out ""
    expect 2 'bench predict: give one of: ladder' "$train" bench predict
    command -v python3 >/dev/null || { skip='python3 is not installed'; return; }
    predict="python3 dev/bench/predict.py --program $train"
    expect 0 'a workspace of 1.6 GB' $predict h100 --model d12 --batch_size 64
    must $predict --published # llm.c's steps lie in the range
    must $predict --page
    cmp -s "$dir/out" dev/bench/results/predicted.md ||
        note 'out of date: python3 dev/bench/predict.py --page >dev/bench/results/predicted.md'
    must $predict h100 --gpus 8 --price 2 --model d12 --max_steps 100000
    awk '$1 == "step" { low = $2; high = $4 }
        / ms$/ && $1 != "step" { fast += $(NF - 3); slow += $(NF - 1) }
        $2 == "steps:" { cost = substr($7, 2) / (100000 * low / 3.6e6 * 8 * 2) }
        END { exit !(low > 0 && low < high && fast / low > 0.99 && fast / low < 1.01 && slow / high > 0.99 &&
                     slow / high < 1.01 && cost > 0.98 && cost < 1.02) }' "$dir/out" ||
        note "parts, step and price do not fit: $(cat "$dir/out")"
    expect 0 '--offload optimizer: 18.7 GB each way' $predict h100 --model d48 --batch_size 4 --offload optimizer
    grep -q '^  PCIe 4: copies 698 to 989 ms, of which the update hides ' "$dir/out" || note "$(tail -n 3 "$dir/out")"
    expect 1 'give one of: T4' $predict V100
    expect 1 'has no matmuls of that type' $predict T4 --dtype bf16
    expect 2 'no option --gpu' $predict H100 --gpu 8
}

# dev/learning/study.sh at its smallest size: every run, the tables, the page; what is there is not done again.
a_study_ends_with_a_page_and_goes_on_where_it_stopped() {
    command -v python3 >/dev/null || { skip="no python3"; return; }
    study="env SIZE=smoke WORK=$dir/work RESULTS=$dir/results TRAIN=$train PREPARE=$prepare sh dev/learning/study.sh"
    must $study
    page="$dir/study.md" first="$dir/work/smoke/runs/text-muon-1-1"
    grep -q '^| Built-in corpus | Muon, tuned | AdamW, tuned | .* | .* | .* |$' "$page" || note "no ratio in $page"
    [ "$(grep -c '^| [A-Z].* corpus\|^| Text of' "$page")" -ge 10 ] || note "too few rows in $page"
    for picture in $(sed -n 's/^!\[.*\](\(.*\))$/\1/p' "$page"); do
        python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$dir/$picture" || note "$picture"
    done
    cut -f 1-4 "$dir/results/runs.tsv" >"$dir/first_runs"
    : >"$first/loss"                            # as if it had been stopped
    sed -i 's/0.85/0.5/' "$first/../text-muon-1-2/command" # as if its options had been others
    must $study final page
    [ "$(sed -n 's/^[0-9:]* .* s //p' "$dir/out" | LC_ALL=C sort | tr '\n' ' ')" = "text-muon-1-1 text-muon-1-2 " ] ||
        note "other runs were made: $(cat "$dir/out")"
    cut -f 1-4 "$dir/results/runs.tsv" | cmp -s - "$dir/first_runs" || note "a repeated run has another loss"
    expect 2 "SIZE=x is not one of" env SIZE=x sh dev/learning/study.sh
    expect 2 "no part 'x'" $study x
}

# Tokens to equal loss, where losses fall by a tenth with each doubling of the tokens: sqrt(2) times fewer, and bounds.
a_study_finds_the_tokens_to_equal_loss() {
    command -v python3 >/dev/null || { skip="no python3"; return; }
    mkdir "$dir/results"
    {
        printf 'run\tsteps\ttokens\tval_loss\tprocessor_s\toptions\n'
        for run in 'published-1-1 100000 5.2' 'adamw-1-1 100000 5.0' 'adamw-2-1 50000 5.1' 'adamw-4-1 25000 5.2' \
            'adamw-.5-1 200000 4.9' 'muon-1-1 100000 4.95' 'muon-2-1 50000 5.05' 'muon-4-1 25000 5.15' \
            'muon-.5-1 200000 4.85'; do
            printf 'text-%s\t9\t%s\t%s\t1\t\n' $run
        done
    } >"$dir/results/runs.tsv"
    printf 'run\ttokens\ttrain_loss\ntext-adamw-1-1\t500\t6\ntext-adamw-1-1\t900\t5\n' >"$dir/results/curves.tsv"
    for fact in 'command c' 'program p' 'processor p' 'date d' 'model m' 'batch 100' 'steps 1000' 'floor 0.5'; do
        printf '%s\t%s\n' $fact
    done >"$dir/results/study.tsv"
    must python3 dev/learning/page.py draw "$dir/results" "$dir/study.md"
    for row in 'AdamW, tuned | published settings .*| >4.00 ' 'Muon, tuned | AdamW, tuned .*| 1.41 ' \
        '| 0.05 | 5.1000 | 5.0500 | 1.41 ' '| 0.20 | 4.9000 | 4.8500 | 1.41 '; do
        grep -q "$row" "$dir/study.md" || note "no '$row' in $(cat "$dir/study.md")"
    done
}

run_tests
