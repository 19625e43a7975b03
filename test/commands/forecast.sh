#!/bin/sh
# Tests `forecast` as a program: the law that SciPy fits to the same runs, forecasts, the picture, runs that cannot be
# fitted. The law itself: test/eval/test_law.c.
. "$(dirname "$0")/../lib.sh"
results=dev/forecast/results

# dev/golden/law.py made test/golden/law.tsv.
laws_are_those_of_scipy() {
    while read -r corpus expected; do
        must "$train" forecast $results/$corpus.tsv
        awk -v expected="$expected" 'BEGIN { split(expected, want, "\t"); split("E A alpha B beta", name, " ") }
            { for (i = 1; i <= 5; i++) if ($1 == name[i]) good += $2 / want[i] > 0.99 && $2 / want[i] < 1.01 }
            END { exit good != 5 }' "$dir/out" || note "$corpus: $(sed -n 3,8p "$dir/out"), not $expected"
    done <test/golden/law.tsv
}

forecasts_do_not_depend_on_the_order_of_runs() {
    must "$train" forecast $results/text.tsv
    mv "$dir/out" "$dir/sorted"
    { head -1 $results/text.tsv; tail -n +2 $results/text.tsv | LC_ALL=C sort -k 3; } >"$dir/table"
    must "$train" forecast "$dir/table"
    cmp -s "$dir/out" "$dir/sorted" || note "another forecast from the same runs in another order"
}

# At least nine of ten, on both corpora together; and the interval of E has the entropy of the built-in corpus.
runs_left_out_lie_inside_their_intervals() {
    for corpus in stories text; do
        must "$train" forecast $results/$corpus.tsv
        cat "$dir/out"
    done >"$dir/both"
    awk '/^held out/ { heading = NR + 1 } /are inside/ { exit NR - heading - 1 != $3 }' "$dir/out" ||
        note "other runs are listed than were left out: $(cat "$dir/out")"
    awk '/are inside/ { inside += $1; all += $3 } $1 == "E" && !n++ { low = $3; high = $5 } $1 == "floor" { floor = $2 }
        END { exit !(all > 9 && inside >= 0.9 * all && low <= floor && floor <= high) }' "$dir/both" ||
        note "$(grep -h 'inside\|^E\|^floor' "$dir/both")"
}

budgets_are_read() {
    law="$train forecast $results/text.tsv"
    shape=L=6,H=6,C=192,T=128,V=257
    expect 0 '2.72M parameters, 10.0M tokens (3.68 for each): loss ' $law --model $shape --budget tokens:1e7
    expect 0 'best for 1e+15 FLOP' $law --budget flops:1e15
    awk '$2 == "parameters," { by = 6e12 * $1 * $3 / 1e15; good = by > 0.98 && by < 1.02 } END { exit !good }' \
        "$dir/out" || note "not 1e15 FLOP by 6 for each parameter and token: $(cat "$dir/out")"
    expect 0 '2.72M parameters, 58.1M tokens' $law --model $shape --budget flops:1e15 # with those of attention
    expect 0 'times as far as the runs reach' $law --model $shape --budget tokens:1e9
    expect 0 'has a vocabulary of 50257 tokens, the runs 257' $law --model d12 --budget tokens:1e9
    expect 2 'give tokens:1e10 or flops:1e19' $law --budget 12
    expect 2 'give tokens:1e10' $law --model $shape --budget tokens:1e-10
    expect 2 'give --budget tokens:N' $law --model d12
    expect 2 'give --model too' $law --budget tokens:1e9
    expect 2 'give the folders of finished runs' "$train" forecast
}

a_law_is_drawn() {
    command -v python3 >/dev/null || { skip="no python3"; return; }
    must "$train" forecast $results/stories.tsv --budget flops:1e14 --out "$dir/law.svg"
    runs=$(($(wc -l <$results/stories.tsv) - 1))
    must "$train" forecast $results/stories.tsv --budget flops:1 --out "$dir/far.svg" # a loss of thousands
    for picture in law far; do
        python3 -c 'import sys, xml.etree.ElementTree as t
y = [float(e.get("cy")) for e in t.parse(sys.argv[1]).iter() if e.tag.endswith("circle")]
sys.exit(len(y) != int(sys.argv[2]) or max(y) - min(y) < 80)' "$dir/$picture.svg" $runs ||
            note "$picture.svg has not $runs dots, or all lie on one line"
    done
    must "$train" forecast $results/stories.tsv --out "$dir/law.svg" # its own picture is replaced
    cp $results/stories.tsv "$dir/mine"
    expect 2 'mine is there already, and is not a picture of forecast' "$train" forecast "$dir/mine" --out "$dir/mine"
    cmp -s $results/stories.tsv "$dir/mine" || note "a table was replaced by a picture"
}

# record NAME LOSS REASON V: writes the metrics.jsonl of a run.
record() { mkdir -p "$dir/$1"; echo '{"kind":"config","step":0,"model":{"L":1,"NH":1,"C":16,"T":8,"V":'"$4"'}}
{"kind":"train","step":2,"tokens":64,"loss":5,"ms":1}
{"kind":"val","step":2,"loss":'"$2"'}
{"kind":"end","step":2,"reason":"'"$3"'"}' >"$dir/$1/metrics.jsonl"; }

runs_that_cannot_be_fitted_are_refused() {
    folders=
    for i in 1 2 3 4 5 6 7; do record same$i 4 finished 257; folders="$folders $dir/same$i"; done
    record cut 4 stopped 257
    record wild 9 finished 257
    record blind null finished 257
    record other 4 finished 1024
    record early 4 finished 257
    sed -i 's/"val","step":2/"val","step":1/' "$dir/early/metrics.jsonl"
    expect 1 '7 runs of 1 size and 1 length: a law has five numbers' "$train" forecast $folders
    expect 1 'cut: the run has not finished (stopped)' "$train" forecast "$dir/cut"
    expect 1 'wild: its validation loss of 9 is above' "$train" forecast "$dir/wild"
    expect 1 'blind: no final validation loss' "$train" forecast "$dir/blind"
    expect 1 'early: no final validation loss' "$train" forecast "$dir/early"
    expect 1 'other: a vocabulary of 1024 tokens, but 257 in the runs before' \
        "$train" forecast "$dir/same1" "$dir/other"
    expect 1 'nothing/metrics.jsonl' "$train" forecast "$dir/nothing"
    printf 'model tokens loss\nL=1,H=1,C=16,T=8,V=257 many 3\n' >"$dir/table"
    expect 1 'table, line 2: not a model' "$train" forecast "$dir/table"
    row=L=1,H=1,C=16,T=8,V=257
    printf 'model\n\n%s 1e400 3\n' $row >"$dir/table" # a blank line is passed over
    expect 1 'table, line 3: inf tokens are not the length' "$train" forecast "$dir/table"
    printf 'model\n%s 1e6 3 0.5\n%s 1e6 3 0.503\n%s 2e6 3 0.51' $row $row $row >"$dir/table" # its last line has no end
    expect 1 'table, line 4: a floor of 0.51, but 0.503' "$train" forecast "$dir/table"
    expect 1 'was one given twice?' "$train" forecast "$dir/same1" "$dir/same1"
    sed -i 's/"step":0,/&"options":{"val_data":"other"},/' "$dir/same2/metrics.jsonl"
    expect 1 'same2 has --val_data other, the first run' "$train" forecast "$dir/same1" "$dir/same2"
    sed -i 's/"options":{/&"val_tokens":1000,/' "$dir/same2/metrics.jsonl"
    cp -r "$dir/same2" "$dir/fewer"
    sed -i 's/"val_tokens":1000/"val_tokens":10/' "$dir/fewer/metrics.jsonl"
    expect 1 'fewer has --val_data other --val_tokens 10, the first run --val_data other --val_tokens 1000: a law' \
        "$train" forecast "$dir/same2" "$dir/fewer"
}

# dev/forecast/runs.sh at its smallest size: every run, the tables; what is there is not done again.
the_study_goes_on_where_it_stopped() {
    study="SIZE=smoke TEXT=README.md WORK=$dir/work RESULTS=$dir/results PREPARE=$prepare sh dev/forecast/runs.sh"
    must env TRAIN="$train" $study
    [ "$(cat "$dir/results/text.tsv" "$dir/results/stories.tsv" | wc -l)" = 12 ] ||
        note "not five runs and a heading in each table"
    rm "$dir/work/runs/text-L1H1C16-8-1/row" # as if stopped before it was written
    printf '#!/bin/sh\nexec %s "$@" --max_time 1e-9\n' "$train" >"$dir/stopped"
    chmod +x "$dir/stopped"
    expect 123 'text-L1H1C16-8-1: stopped before its end' env TRAIN="$dir/stopped" $study # the code of xargs
    must env TRAIN="$train" $study
    [ "$(grep -c '^[0-9:]* text L=' "$dir/out")" = 1 ] || note "other runs were made: $(cat "$dir/out")"
}

run_tests
