#!/bin/sh
# Measures what the mean of the last checkpoints (`export hf --average N`) is worth: validation losses of a run's last
# weights, and of means of 3, 5 and 10 checkpoints, at 1/4, 1/2, 3/4 and the end of runs under several schedules. The
# model, the text and the rate are those of study.sh's SIZE=medium on the built-in corpus; a checkpoint every 40th of
# the run. Prints a table of README.md: means over the seeds.
#
# usage: sh dev/learning/average.sh    after `SIZE=medium sh dev/learning/study.sh data`; 20 minutes of one core
#   WORK=build/learning/medium, SEEDS="1 2 3", STEPS=1000, TRAIN=./train_gpt2
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
CDPATH='' cd "$(dirname "$0")/../.."
work=${WORK:-build/learning/medium} seeds=${SEEDS:-1 2 3} steps=${STEPS:-1000} train=${TRAIN:-./train_gpt2}
every=$((steps / 40))
runs=$work/average
mkdir -p "$runs"

train_run() { # NAME SEED OPTION...
    folder=$runs/$1-$2 seed=$2
    shift 2
    "$train" --model L=4,H=4,C=128,T=128,V=2048 --tokenizer "$work/stories_tokenizer" --batch_size 16 --seed "$seed" \
        --train_data "$work/stories_train_*.bin" --val_data "" --max_steps "$steps" --warmup_steps $((steps / 10)) \
        --lr 3e-3 --dtype bf16 --threads 1 --sample_every 0 --save_every $every --keep 0 "$@" --out "$folder" \
        >"$folder.txt"
}

loss_of() { # FOLDER
    "$train" eval --init "$1" --val_data "$work/stories_val_*.bin" --tokenizer "$work/stories_tokenizer" \
        --dtype fp32 --batch_size 16 | sed -n 's/^val loss //p'
}

# Prints a row of the table's figures.
report() { # NAME QUARTER CHECKPOINTS FOLDER
    loss=$(loss_of "$4")
    [ -n "$loss" ] || { echo "error: no loss of $4" >&2; exit 1; }
    echo "$1 $2 $3 $loss"
}

# Measures the newest checkpoint and the means, removes those of the last quarter, and begins again.
measure_run() { # NAME SEED
    run=$runs/$1-$2
    for quarter in 4 3 2 1; do
        last=$(printf 'step_%08d' $((steps * quarter / 4)))
        report "$1" $quarter 1 "$run/$last"
        for n in 3 5 10; do
            [ $n -le $((10 * quarter)) ] || continue
            rm -rf "$runs/mean"
            "$train" export hf --init "$run" --average $n --out "$runs/mean" >/dev/null
            report "$1" $quarter $n "$runs/mean"
        done
        find "$run" -maxdepth 1 -name 'step_*' | while read -r folder; do
            step=$(basename "$folder" | sed 's/step_0*//')
            [ "$step" -le $((steps * (quarter - 1) / 4)) ] || rm -r "$folder"
        done
    done
    rm -rf "$run"
}

for seed in $seeds; do
    while read -r name options; do
        train_run "$name" "$seed" $options
        measure_run "$name" "$seed"
    done <<END
constant --schedule constant
cosine --schedule cosine --min_lr_frac 0.1
wsd --schedule wsd_linear --decay_frac 0.4 --min_lr_frac 0
END
done >"$runs/losses"
awk '{ key = $1 " " $2 " " $3; sum[key] += $4; count[key]++ }
    END {
        print "| schedule | of the run | last | mean of 3 | of 5 | of 10 |\n|---|---|---|---|---|---|"
        split("constant cosine wsd", names); split("1 3 5 10", sizes)
        for (s = 1; s <= 3; s++) for (q = 1; q <= 4; q++) {
            line = "| " names[s] " | " q "/4"
            for (n = 1; n <= 4; n++) {
                key = names[s] " " q " " sizes[n]
                line = line " | " sprintf("%.4f", sum[key] / count[key])
            }
            print line " |"
        }
    }' "$runs/losses"
