#!/bin/sh
# Writes the committed predictions, by `bench predict`: GPT-2 of four sizes in bf16 on an A100 and an H100, and on the
# H100 the smallest and the largest in FP8 too. Needs no GPU.
# usage: sh dev/bench/predict.sh [PROGRAM]      ./train_gpt2 by default; ./train_gpt2cu gives the same
set -eu
cd "$(dirname "$0")/../.."
program=${1:-./train_gpt2}
results=dev/bench/results/predicted
rm -rf "$results"/a100_* "$results"/h100_*

# predict FOLDER GPU MODEL B [DTYPE]: 524,288 tokens in a step, as the lecture's and llm.c's
predict() {
    mkdir -p "$results/$1"
    set -- "$1" bench predict "$2" --model "$3" --batch_size "$4" --seq_len 1024 --total_batch_size 524288 \
        --dtype "${5:-bf16}"
    folder=$results/$1
    shift
    { echo "\$ $program $*"; "$program" "$@" --out "$folder" | sed '$d'; } >"$folder/predict.txt"
    grep '^predicted step' "$folder/predict.txt" | sed "s|^|$folder: |"
}
for gpu in a100 h100; do
    name=A100-SXM-80GB
    [ $gpu = a100 ] || name=H100-SXM
    predict ${gpu}_124m $name gpt2 64
    predict ${gpu}_350m $name gpt2-medium 32
    predict ${gpu}_774m $name gpt2-large 16
    predict ${gpu}_1558m $name gpt2-xl 16
done
predict h100_124m_fp8 H100-SXM gpt2 64 fp8
predict h100_1558m_fp8 H100-SXM gpt2-xl 16 fp8
