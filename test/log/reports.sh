#!/bin/sh
# Tests what a run leaves for its readers: report.html, event files.
. "$(dirname "$0")/../lib.sh"

# After three steps the report of the first one is written, though nothing is saved. The run is then killed.
a_run_can_be_watched_from_its_first_steps_on() {
    corpus
    "$train" $small $data --max_steps 100000000 --val_every 0 --save_every 0 --out "$dir/run" >"$dir/log" 2>&1 &
    pid=$!
    await 'step *3/' "$dir/log" $pid
    grep -q 'class="line c0' "$dir/run/report.html" || note "no line in the report"
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
    corpus
    common="$small $data --max_steps 6 --val_every 0 --save_every 6"
    must "$train" $common --out "$dir/without"
    must "$train" $common --tensorboard 1 --out "$dir/run"
    same_checkpoint "$dir/without/step_00000006" "$dir/run/step_00000006"
    expect 2 'has no effect without --out' "$train" $common --tensorboard 1 --save_every 0 --out ''
}

reports_are_written() {
    corpus
    must "$train" $small $data --max_steps 10 --val_every 5 --out "$dir/a"
    must "$train" $small $data --max_steps 10 --val_every 5 --lr 1e-3 --out "$dir/b"
    grep -q '<svg' "$dir/a/report.html" || note "no chart in report.html"
    rm "$dir/a/report.html"
    must "$train" report "$dir/a"
    grep -q '<svg' "$dir/a/report.html" || note "no chart in a new report.html"
    here=$(pwd)
    (cd "$dir" && "$here/$train" report a b >/dev/null) || note "report a b failed"
    grep -q '<svg' "$dir/report.html" || note "no chart in the comparison"
    if command -v node >/dev/null; then # the script's syntax
        sed '1,/^<script>/d; /^<\/script>/,$d' "$dir/report.html" >"$dir/script.js"
        grep -q '^update();' "$dir/script.js" || note "no script in the comparison"
        must node --check "$dir/script.js"
    fi
    must "$train" report "$dir/a" "$dir/b" --out "$dir/new/pages"
    grep -q '<svg' "$dir/new/pages/report.html" || note "no chart in the folder of --out"
    must "$train" report "$dir/a" --out "$dir/page.html"
    grep -q '<svg' "$dir/page.html" || note "no chart in the file of --out"
    expect 1 'nothing' "$train" report "$dir/nothing"
}

run_tests
