# Small runs of learning/study.sh and forecast/runs.sh, which source this: a tokenizer for the built-in corpus, and a
# run that ends at its last step. $train and $prepare are the programs, $work is the folder of the data.
# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154  # variables of those that source it

# Learns $work/stories_tokenizer from so many bytes of the built-in corpus.
learn_stories() { # BYTES VOCABULARY
    "$prepare" --stories "$1" --val_size 1000 --tokenizer bytes --force 1 --out "$work/stories_bytes"
    tail -c +1025 "$work/stories_bytes_train_000001.bin" | od -An -v -tu2 | # behind the header, 16-bit ids
        "$train" tokenize --decode --tokenizer bytes | sed 's/<|endoftext|>/\n\n/g' >"$work/stories.txt"
    "$prepare" --train_tokenizer "$2" --split blank --out "$work/stories_tokenizer" "$work/stories.txt"
}

# Trains a run in an empty folder. Sets $loss, of validation after the last step, and $seconds, of processor time. Fails
# if a signal has stopped the run, which then ends with exit code 0.
train_small() { # FOLDER STEPS OPTION...
    into=$1 last=$2
    shift 2
    # a subshell whose children's time is that of this run
    ( "$train" "$@" --out "$into" >"$into/out" 2>&1 || exit 1
      times >"$into/times" ) || { echo "error: $into: $(tail -n 1 "$into/out")" >&2; return 1; }
    loss=$(sed -n "/^step *$last\//,\$s/^val loss //p" "$into/out")
    [ -n "$loss" ] || { echo "error: $into: stopped before its end" >&2; return 1; }
    seconds=$(awk -F '[ms ]+' 'NR == 2 { print 60 * ($1 + $3) + $2 + $4 }' "$into/times")
    rm -f "$into/report.html" "$into/log.txt" "$into/times"
}
