#!/bin/sh
# Trains the small runs that forecast.md fits: a grid of sizes and lengths on two corpora, each run with a schedule that
# ends at its length. `./train_gpt2 forecast` reads their folders; results/CORPUS.tsv keeps their losses.
#
# usage: sh dev/forecast/runs.sh
#   SIZE=smoke               a few steps on a small text: tests that the script works
#   JOBS=2                   runs at a time, of one thread each; half an hour of processor time in all
#   TEXT=data/tinyshakespeare.txt   the real text; without this file only the built-in corpus is learnt
#   WORK=build/forecast      data and runs
#   RESULTS=dev/forecast/results
#   TRAIN=./train_gpt2, PREPARE=./prepare   the programs
#
# It can be stopped at any time: the same command goes on, and finished runs are not repeated. Losses do not depend on
# the machine's load, nor on JOBS.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
CDPATH='' cd "$(dirname "$0")/../.."
script=dev/forecast/runs.sh
jobs=${JOBS:-2} work=${WORK:-build/forecast} results=${RESULTS:-dev/forecast/results}
text=${TEXT:-data/tinyshakespeare.txt}
train=${TRAIN:-./train_gpt2} prepare=${PREPARE:-./prepare}
. dev/small_runs.sh
step=1024 # tokens

# Lengths in steps, those with a second seed, and sizes. Below a million tokens of the built-in corpus no law of this
# form holds (forecast.md).
text_lengths="512 1024 256 2048 4096" stories_lengths="1024 2048 1536 3072 4096 6144"
text_repeated="512 1024" stories_repeated=1024
shapes="L=2,H=2,C=24 L=2,H=2,C=32 L=2,H=3,C=48 L=3,H=4,C=64 L=3,H=6,C=96"
largest=L=3,H=6,C=96 largest_steps=2048 # the largest size is not trained for longer
stories_tokens=9000000 val_tokens=65536
[ "${SIZE:-}" != smoke ] || {
    text_lengths="4 8" stories_lengths="4 8" shapes="L=1,H=1,C=16 L=2,H=1,C=16" text_repeated=4 stories_repeated=4
    largest=L=2,H=1,C=16 largest_steps=4 stories_tokens=40000 val_tokens=1024
}

# The tokenizer of the built-in corpus learns from two million bytes of it. Windows of 512 of its tokens hold a whole
# story and more, so that little is lost at their beginnings.
prepare_stories() {
    [ ! -f "$work/stories.ready" ] || return 0
    learn_stories 2000000 1024
    "$prepare" --stories $stories_tokens --tokenizer "$work/stories_tokenizer" --val_size $((val_tokens + 1)) \
        --force 1 --out "$work/stories"
    touch "$work/stories.ready"
}

prepare_text() {
    [ ! -f "$work/text.ready" ] || return 0
    "$prepare" --tokenizer bytes --val_size $((val_tokens + 1)) --force 1 --out "$work/text" "$text"
    touch "$work/text.ready"
}

# Trains one run, unless it is there. Muon's best rate hardly depends on the size (dev/learning), so all runs have one.
run() { # CORPUS SHAPE STEPS SEED
    folder=$work/runs/$1-$(echo "$2" | tr -d =,)-$3-$4
    [ ! -s "$folder/row" ] || return 0
    case $1 in
    stories) shape=$2,T=512,V=1024 tokenizer=$work/stories_tokenizer batch=2 ;;
    text) shape=$2,T=128,V=257 tokenizer=bytes batch=8 ;;
    esac
    rm -rf "$folder"
    mkdir -p "$folder"
    train_small "$folder" "$3" --model "$shape" --tokenizer "$tokenizer" --train_data "$work/$1_train_*.bin" \
        --val_data "$work/$1_val_*.bin" --batch_size $batch --max_steps "$3" --seed "$4" \
        --optimizer muon --lr 0.006 --matrix_lr 0.02 --momentum "0.95,warmup:$(($3 / 4)):0.85" --init_out zero \
        --cautious_decay 1 --warmup_steps $(($3 / 10)) --schedule wsd_linear --decay_frac 0.5 --min_lr_frac 0 \
        --dtype bf16 --threads 1 --val_every "$3" --val_tokens $val_tokens --sample_every 0 --save_every 0 || return 1
    printf '%s\t%s\t%s\t-\t%s\t%s\n' "$shape" $(($3 * step)) "$loss" "$4" "$seconds" >"$folder/row"
    echo "$(date +%T) $1 $(cat "$folder/row")"
}

# Lists the runs of a corpus.
list_runs() { # CORPUS LENGTHS REPEATED
    for steps in $2; do
        for shape in $shapes; do
            [ "$shape" != $largest ] || [ "$steps" -le $largest_steps ] || continue
            echo "$1 $shape $steps 1"
            case " $3 " in
            *" $steps "*) echo "$1 $shape $steps 2" ;;
            esac
        done
    done
}

tabulate() { # CORPUS
    mkdir -p "$results"
    floor=$(sed -n 's/.*"floor": \([0-9.]*\).*/\1/p' "$work/$1_val.json" 2>/dev/null || true)
    { printf 'model\ttokens\tloss\tfloor\tseed\tprocessor_s\n'
      cat "$work/runs/$1"-*/row | sed "s/\t-\t/\t${floor:--}\t/" |
          LC_ALL=C sort -t "$(printf '\t')" -k 2,2n -k 1,1 -k 5,5n; } >"$results/$1.tsv"
}

if [ "${1:-}" = --run ]; then shift; run "$@"; exit; fi
mkdir -p "$work"
corpora=stories
[ ! -f "$text" ] || corpora="text stories"
for corpus in $corpora; do
    prepare_$corpus
    case $corpus in
    text) list_runs text "$text_lengths" "$text_repeated" ;;
    stories) list_runs stories "$stories_lengths" "$stories_repeated" ;;
    esac | xargs -P "$jobs" -L 1 sh "$script" --run
    tabulate $corpus
done
