#!/bin/sh
# Runs everything that only a real GPU can show, in parts of less than ten minutes each, three quarters of an hour in
# all on a machine with one GPU and 16 processors. Results go to a folder (default: dev/bench/results/GPU'S NAME), each
# with its command, the machine and the date. Parts that the machine cannot run are named and left out. Failures are
# named, and the rest goes on.
#
# Attention by cuDNN is built in where cuDNN and the headers of its frontend are, which `build` fetches. Without a
# network, copy the headers: run `sh scripts/setup.sh cudnn` where there is one, and bring build/cudnn_frontend along,
# which git ignores; it is the same for all machines. FP8 is left out before compute capability 8.9.
#
# usage: sh dev/bench/gpu.sh [--out FOLDER] [PART...]      PYTHON=... names a Python with torch and transformers
#   build     the programs, for this GPU                                                        2 minutes
#   kernels   the tests of attention and of FP8's casts that the emulator runs, built by nvcc   2 minutes
#   check     every kernel and some training steps against the CPU, in all dtypes               7 minutes
#   ladder    each technique on top of the one before, 124M, 16 x 1024 tokens                   2 minutes
#   ops       the roofline in all dtypes, with what is predicted beside; cuDNN's attention      6 minutes
#   peers     PyTorch eager and compiled beside ours, 124M, tf32, bf16 and fp8                  9 minutes
#   train     steps of 124M, 774M and 1558M, with what is predicted before                      6 minutes
#   sanitize  NVIDIA's sanitizers over the kernels, small shapes                                9 minutes
# The times beside the parts, and those printed, are expectations, not measurements.
set -u
cd "$(dirname "$0")/../.."
out=
[ "${1:-}" != --out ] || { out=${2:?usage: gpu.sh [--out FOLDER] [PART...]}; shift 2; }
parts=${*:-build kernels check ladder ops peers train sanitize}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || { echo "error: no NVIDIA GPU here (nvidia-smi found none)" >&2; exit 1; }
out=${out:-dev/bench/results/$(echo "$gpu" | tr ' /' '__')}
python=${PYTHON:-python3}
fp8=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | awk 'NR == 1 && $1 >= 8.9 { print "fp8" }')
[ -n "$fp8" ] || echo "no FP8 on this GPU: left out"
failed=0 LONGEST=560 # seconds that a step may take
mkdir -p "$out"

has() { command -v "$1" >/dev/null 2>&1; }
with_cudnn() {
    [ -f build/release/attention_cudnn.o ] || { echo "built without cuDNN: its attention is left out"; false; }
}
limit() { if has timeout; then timeout "$LONGEST" "$@"; else "$@"; fi; }

# note SECONDS FILE command...: writes the command, the machine, the date and the command's output to the file
note() {
    expected=$1 file="$out/$2" begun=$(date +%s)
    shift 2
    echo "about $expected s: $*"
    { echo "$ $*"
      echo "$(nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm \
          --format=csv,noheader | head -n 1), $(date +%F)"
    } >"$file"
    limit "$@" >>"$file" 2>&1
    code=$?
    echo "  $(($(date +%s) - begun)) s; $(tail -n 1 "$file")"
    [ $code = 0 ] || { failed=1; echo "  FAILED with exit code $code: see $file"; }
}

part_build() {
    has nvcc || [ -x /usr/local/cuda/bin/nvcc ] || echo "no nvcc in the path: CUDA_HOME=... may say where it is"
    [ -f build/cudnn_frontend/include/cudnn_frontend.h ] || sh scripts/setup.sh cudnn ||
        echo "no headers of cuDNN's frontend: built without"
    note 120 build.txt make -j "$(nproc)"
}

# Tests attention at every length around a tile's, which check does not, and FP8's numbers against NVIDIA's header.
part_kernels() {
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") objects=
    ! with_cudnn || objects="build/release/attention_cudnn.o -lcudnn"
    for test in test_attention:fp32 test_attention:bf16 emulator/test_fp8:bf16 emulator/test_casts:bf16; do
        name=${test%:*} type=${test#*:}
        program=build/release/cuda_$(basename "$name")_$type define=
        rm -f "$program"
        [ "$name" != test_attention ] || define="-DFLOATX=$type $objects" # the others define it
        [ "$name" != emulator/test_casts ] || [ -n "$fp8" ] || continue
        note 20 "build_$(basename "$program").txt" "$nvcc" -std=c++17 -O2 -arch=native -D_GNU_SOURCE \
            -Xcompiler -fopenmp "test/$name.cu" $define -o "$program" -L"$(dirname "$nvcc")/../lib64" \
            -lcublasLt -ljansson -ldl -lpthread -lm
        note 10 "$(basename "$program").txt" "$program"
    done
}

# The reference is the CPU's plain loops, so sizes are small; the second shapes have the real widths.
part_check() {
    for dtype in fp32 tf32 bf16 $fp8; do
        note 40 check_$dtype.txt ./train_gpt2cu check --dtype $dtype --model L=2,H=4,C=256,T=256 --batch_size 2
        note 60 check_${dtype}_wide.txt ./train_gpt2cu check --dtype $dtype --model L=2,H=12,C=768,T=256 \
            --batch_size 1 --max_steps 2
    done
    note 40 check_plain.txt ./train_gpt2cu check --dtype fp32 --kernels plain --model L=2,H=4,C=256,T=128 --batch_size 2
    note 40 check_flash.txt ./train_gpt2cu check --dtype bf16 --attention flash --model L=2,H=4,C=256,T=1024 \
        --batch_size 1 --seq_len 1024 --max_steps 2
    ! with_cudnn || note 40 check_cudnn.txt ./train_gpt2cu check --dtype bf16 --attention cudnn \
        --model L=2,H=4,C=256,T=1024 --batch_size 1 --seq_len 1024 --max_steps 2
    note 40 check_unfused.txt ./train_gpt2cu check --dtype bf16 --fused 0 --flash 0 --model L=2,H=4,C=256,T=256 \
        --batch_size 2
}

part_ladder() {
    note 120 ladder.txt ./train_gpt2cu bench ladder --model gpt2 --batch_size 16 --seq_len 1024 --out "$out"
}

part_ops() {
    for dtype in fp32 tf32 bf16 $fp8; do
        note 80 ops_$dtype.txt ./train_gpt2cu bench ops --model gpt2 --dtype $dtype --batch_size 16 --seq_len 1024 \
            --out "$out/ops_$dtype"
    done
    attention flash
    ! with_cudnn || attention cudnn
}

# attention KERNELS: alone, with heads of 64 and 1024 tokens, forward and backward
attention() {
    note 15 attention_$1.txt ./train_gpt2cu bench ops attention_forward attention_backward --attention $1 --model gpt2 \
        --dtype bf16 --batch_size 16 --seq_len 1024 --out "$out/attention_$1"
}

part_peers() {
    "$python" -c 'import torch, transformers' 2>/dev/null ||
        { echo "no torch and transformers in $python (PYTHON=...): not compared"; return; }
    note 200 peers_bf16.txt "$python" dev/bench/peers.py --device cuda --dtype bf16 -B 16 -T 1024 \
        --rounds 3 --warmup 5 --steps 30 --json "$out/peers_bf16.json"
    note 150 peers_tf32.txt "$python" dev/bench/peers.py --device cuda --dtype tf32 -B 16 -T 1024 \
        --rounds 2 --warmup 5 --steps 20 --json "$out/peers_tf32.json"
    [ -z "$fp8" ] || note 200 peers_fp8.txt "$python" dev/bench/peers.py --device cuda --dtype fp8 -B 16 -T 1024 \
        --rounds 3 --warmup 5 --steps 30 --json "$out/peers_fp8.json" # beside PyTorch's bf16
}

# train NAME MODEL TOKENS STEPS [DTYPE]: tokens in a step, as many micro-batches as memory asks for
train() {
    data=build/gpu_corpus dtype=${5:-bf16}
    [ -f ${data}_val.json ] || ./prepare --stories 4000000 --out $data >/dev/null 2>&1 ||
        { echo "no corpus: prepare failed"; failed=1; return; }
    note 5 "predicted_$1.txt" ./train_gpt2cu bench predict "$gpu" --model "$2" --dtype "$dtype" --batch_size 8 \
        --seq_len 1024 --total_batch_size "$3" --out ""
    note 60 "train_$1.txt" ./train_gpt2cu --model "$2" --dtype "$dtype" --batch_size auto --seq_len 1024 \
        --total_batch_size "$3" --max_steps "$4" --train_data "${data}_train_*.bin" --val_data "" \
        --sample_every 0 --save_every 0 --out ""
}
part_train() {
    train 124m gpt2 524288 20
    train 774m gpt2-large 131072 10
    train 1558m gpt2-xl 131072 8
    [ -z "$fp8" ] || train 124m_fp8 gpt2 524288 20 fp8
    [ -z "$fp8" ] || train 1558m_fp8 gpt2-xl 131072 8 fp8
}

part_sanitize() {
    has compute-sanitizer || { echo "no compute-sanitizer: skipped"; return; }
    for tool in memcheck racecheck initcheck synccheck; do
        for dtype in fp32 bf16 $fp8; do
            note 45 "${tool}_$dtype.txt" compute-sanitizer --tool $tool --error-exitcode 9 ./train_gpt2cu check \
                --dtype $dtype --model L=1,H=2,C=128,T=96,V=300 --batch_size 2 --max_steps 1
        done
    done
}

for part in $parts; do
    case $part in
    build|kernels|check|ladder|ops|peers|train|sanitize)
        [ "$part" = build ] || [ -x train_gpt2cu ] || { echo "no train_gpt2cu: run the part build first"; exit 1; }
        echo "== $part"
        part_$part ;;
    *)
        echo "error: no part '$part'; parts are build, kernels, check, ladder, ops, peers, train, sanitize" >&2
        exit 2 ;;
    esac
done
echo "results in $out"
exit $failed
