#!/bin/sh
# Writes the committed predictions, by `bench predict`: GPT-2 of four sizes in bf16 on an A100, H100, H200 and B200; the
# smallest with cuDNN's attention, and with the residual stream in bf16; where there is FP8, the smallest and the
# largest in it. Needs no GPU.
# usage: sh dev/bench/predict.sh [PROGRAM]      ./train_gpt2 by default; ./train_gpt2cu gives the same
set -eu
cd "$(dirname "$0")/../.."
program=${1:-./train_gpt2}
results=dev/bench/results/predicted
rm -rf "$results"/[abh]*00_*

# predict FOLDER GPU MODEL B [OPTIONS...]: 524,288 tokens in a step, as the lecture's and llm.c's
predict() {
    folder=$results/$1
    what="bench predict $2 --model $3 --batch_size $4 --seq_len 1024 --total_batch_size 524288"
    shift 4
    set -- $what "$@"
    mkdir -p "$folder"
    { echo "\$ $program $*"; "$program" "$@" --out "$folder" | sed '$d'; } >"$folder/predict.txt"
    sed -n "s|^in training|$folder: &|p" "$folder/predict.txt"
}
for gpu in a100 h100 h200 b200; do
    case $gpu in
    a100) name=A100-SXM-80GB ;;
    b200) name=B200 ;;
    *) name=$gpu-SXM ;;
    esac
    predict ${gpu}_124m $name gpt2 64
    predict ${gpu}_350m $name gpt2-medium 32
    predict ${gpu}_774m $name gpt2-large 16
    predict ${gpu}_1558m $name gpt2-xl 16
    predict ${gpu}_124m_cudnn $name gpt2 64 --attention cudnn
    predict ${gpu}_124m_residual $name gpt2 64 --residual bf16
    [ $gpu = a100 ] || predict ${gpu}_124m_fp8 $name gpt2 64 --dtype fp8
    [ $gpu = a100 ] || predict ${gpu}_1558m_fp8 $name gpt2-xl 16 --dtype fp8
done
