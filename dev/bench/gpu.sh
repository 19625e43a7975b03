#!/bin/sh
# Everything that only a real GPU can show, in one run: check, NVIDIA's sanitizers, the ladder and PyTorch beside it. Results
# go to a folder (default: dev/bench/results/GPU'S NAME), each with its command, the machine and the date.
# usage: sh dev/bench/gpu.sh [FOLDER]     PYTHON=... names a Python with torch and transformers
set -u
cd "$(dirname "$0")/../.."
name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' /' '__')
[ -n "$name" ] || { echo "error: no NVIDIA GPU here (nvidia-smi found none)" >&2; exit 1; }
out=${1:-dev/bench/results/$name}
failed=0
mkdir -p "$out"
make -j "$(nproc)" >/dev/null || exit 1

# note FILE command...: what it prints goes to the file, under the command, the machine and the date
note() {
    file="$out/$1"
    shift
    { echo "$ $*"; echo "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1), $(date +%F)"; } >"$file"
    "$@" >>"$file" 2>&1 || { failed=1; echo "FAILED: $* ($file)"; }
    tail -n 1 "$file"
}

for dtype in fp32 tf32 bf16; do
    note "check_$dtype.txt" ./train_gpt2cu check --dtype $dtype --model gpt2 --batch_size 4 --seq_len 128
    note "check_${dtype}_plain.txt" ./train_gpt2cu check --dtype $dtype --kernels plain --model L=2,H=4,C=256,T=256 --batch_size 2
done
note check_unfused.txt ./train_gpt2cu check --fused 0 --flash 0 --model L=2,H=4,C=256,T=256 --batch_size 2

for tool in memcheck racecheck initcheck; do
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer: skipped"; break; }
    for dtype in fp32 bf16; do
        note "${tool}_$dtype.txt" compute-sanitizer --tool $tool --error-exitcode 9 ./train_gpt2cu check --dtype $dtype \
            --model L=1,H=2,C=128,T=96,V=300 --batch_size 2
    done
done

note ladder.txt ./train_gpt2cu bench ladder --model gpt2 --batch_size 16 --seq_len 1024 --out "$out"
for dtype in fp32 bf16; do
    note ops_$dtype.txt ./train_gpt2cu bench ops --model gpt2 --dtype $dtype --batch_size 16 --seq_len 1024 --out "$out/ops_$dtype"
done

python=${PYTHON:-python3}
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    note pytorch.txt "$python" dev/bench/peers.py --device cuda --dtype fp32 tf32 bf16 -B 16 -T 1024 --rounds 3 --steps 20 \
        --json "$out/pytorch.json"
else echo "no PyTorch in $python: not compared"; fi
exit $failed
