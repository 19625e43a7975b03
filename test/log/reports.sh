#!/bin/sh
# Tests what a run leaves for its readers: report.html, event files.
. "$(dirname "$0")/../lib.sh"
corpus

# After three steps the report of the first one is written, though nothing is saved. The run is then killed.
a_run_can_be_watched_from_its_first_steps_on() {
    "$train" $small $data --max_steps 100000000 --val_every 0 --save_every 0 --out "$dir/run" >"$dir/log" 2>&1 &
    pid=$!
    await 'step *3/' "$dir/log" $pid
    grep -q '^loss: \[\[1,' "$dir/run/report.html" || note "no loss in the report"
    expect 0 'not yet: it is training' "$train" info "$dir/run"
    kill -9 $pid
    finish $pid 2>/dev/null
    expect 0 'it was killed' "$train" info "$dir/run"
    must "$train" $small $data --max_steps 7 --val_every 0 --save_every 0 --out "$dir/short"
    grep -q '<span>Steps</span><b>7</b>' "$dir/short/report.html" || note "the last report does not have all steps"
    expect 0 'ended       finished' "$train" info "$dir/short"
}

# The files themselves: test/log/test_tensorboard.c.
event_files_change_no_bit() {
    common="$small $data --max_steps 6 --val_every 0 --save_every 6"
    must "$train" $common --out "$dir/without"
    must "$train" $common --tensorboard 1 --out "$dir/run"
    same_checkpoint "$dir/without/step_00000006" "$dir/run/step_00000006"
    expect 2 'has no effect without --out' "$train" $common --tensorboard 1 --save_every 0 --out ''
}

reports_are_written() {
    must "$train" $small $data --max_steps 10 --val_every 5 --out "$dir/a"
    must "$train" $small $data --max_steps 10 --val_every 5 --lr 1e-3 --out "$dir/b"
    grep -q '^const runs = ' "$dir/a/report.html" || note "no data in report.html"
    rm "$dir/a/report.html"
    must "$train" report "$dir/a"
    grep -q '^const runs = ' "$dir/a/report.html" || note "no data in a new report.html"
    here=$(pwd)
    (cd "$dir" && "$here/$train" report a b >/dev/null) || note "report a b failed"
    [ "$(grep -c '^loss: ' "$dir/report.html")" = 2 ] || note "not two runs in the comparison"
    must "$train" report "$dir/a" "$dir/b" --out "$dir/new/pages"
    echo '<!DOCTYPE html>' >"$dir/mine.html"
    expect 2 'mine.html is there already, and is not a report' "$train" report "$dir/a" --out "$dir/mine.html"
    [ -s "$dir/new/pages/report.html" ] || note "no page in the folder of --out"
    must "$train" report "$dir/a" --out "$dir/page.html"
    [ -s "$dir/page.html" ] || note "no page in the file of --out"
    expect 1 'nothing' "$train" report "$dir/nothing"
}

# Runs a report's script: test/log/draw.js prints what is drawn, each a name, class, path and text. "$dir/first" is what
# stands there before a button is pressed.
drawn() { must node test/log/draw.js "$1/report.html"; sed '/^==/,$d' "$dir/out" >"$dir/first"; } # FOLDER

# A run of 100 steps on FineWeb, whose loss falls from 6 in its first steps, with a spike at step 50.
charts_are_drawn() {
    command -v node >/dev/null || { skip='node is not installed'; return; }
    for floor in 3.1 -20; do
        mkdir -p "$dir/run"
        awk -v floor=$floor 'BEGIN {
            print "{\"kind\":\"config\",\"step\":0,\"model\":{\"parameters\":124439808},\"floor\":" floor \
                ",\"options\":{\"val_data\":\"data/fineweb_val_0.bin\",\"tokenizer\":\"gpt2\"}}"
            for (s = 1; s <= 100; s++) {
                loss = s == 50 ? 3.9 : 3.3 + 8 * exp(-s) + 0.001 * (100 - s)
                print "{\"kind\":\"train\",\"step\":" s ",\"tokens\":" s * 104857600 ",\"loss\":" loss \
                    ",\"norm\":" 1000 * exp(-s) + 1 ",\"lr\":" 0.001 / s ",\"ms\":2000,\"tok_s\":1}"
            }
            print "{\"kind\":\"val\",\"step\":100,\"loss\":3.4}" }' >"$dir/run/metrics.jsonl"
        must "$train" report "$dir/run"
        drawn "$dir/run"
        expected=$([ $floor = 3.1 ] && echo 1 || echo 0)
        [ "$(grep -c '^text|.*|floor ' "$dir/first")" = $expected ] ||
            note "floor $floor: $(grep '|floor' "$dir/first")"
        grep -q "|OpenAI's GPT-2 124M 3.425\$" "$dir/first" || note "no published loss"
        grep -q '|↑ up to 6.[0-9]* at the start$' "$dir/first" || note "nothing about the fall at the start"
    done
    # the published curve, after 250 steps of 2^19 tokens, is at step 1.25 of 100, of a frame of 1058 pixels
    grep -q '^path|line published|M0.0 [-0-9.]* 13.2 ' "$dir/first" || note "$(grep published "$dir/first")"
    for tick in 2 5 100 200; do grep -q "^text|.*|$tick\$" "$dir/first" || note "no tick $tick on the norm's axis"; done
    [ "$(grep -c '^path|line c1 dots|M1058.0 [0-9.]*h0|' "$dir/first")" = 1 ] || note "not one dot for the validation"
    # the pointer is at 500 of 1120 pixels: step 44.6 of 100, each of 104,857,600 tokens and 2 s
    pressed() { sed -n "/^== $1/,/^== /p" "$dir/out"; } # BUTTON: what it changes
    grep -qxF 'tip|44.643 steps|training 3.355|validation 3.4|llm.c 124M 3.392' "$dir/first" ||
        note "steps: $(grep tip "$dir/first")"
    pressed tokens | grep -qF 'tip|4.681B tokens|' || note "tokens: $(pressed tokens | grep tip)"
    pressed time | grep -qF 'tip|1.4881 minutes|' || note "time: $(pressed time | grep tip)"
    pressed time | grep -qxF 'text|||2.5' || note "no tick at 2.5 minutes: $(pressed time | grep '^text')"
    for last in 3.301 3.4; do grep -qxF "b|||$last" "$dir/first" || note "the legend lacks the last loss, $last"; done
    # without smoothing on a logarithmic axis from 3.3 to 6.342: 348 * (1 - ln(3.9 / 3.3) / ln(6.342 / 3.3)) at step 50
    sed -n '/^== smoothing/,$p' "$dir/out" |
        grep -q '^path|line thin c0|M10.6 0.00 .* 529.0 259.01 .* 1058.0 348.00|' ||
        note "unsmoothed: $(grep 'line thin' "$dir/out" | cut -c 1-80)"
    mkdir "$dir/empty" "$dir/strange"
    : >"$dir/empty/metrics.jsonl"
    printf '{"kind":"train","step":%s,"tokens":%s,"loss":%s,"norm":%s}\n' 1 10 1e300 1e-300 2 5 -1e300 1e300 -3 0 0 0 \
        >"$dir/strange/metrics.jsonl"
    must "$train" report "$dir/empty"
    drawn "$dir/empty"
    [ "$(grep -c '|no data yet$' "$dir/first")" = 4 ] || note "an empty run has a line"
    run="$dir/run"
    must "$train" report "$run" "$dir/empty" "$dir/strange" "$run" "$run" "$run" "$run" "$run" "$run" --out "$dir/all"
    drawn "$dir/all"
    grep -q '^path|line c0 dashed|M' "$dir/first" || note "the ninth run is not dashed"
}

run_tests
