#!/bin/sh
# Runs everything that only a real GPU can show, in parts of less than ten minutes each, about an hour in all on a
# machine with one GPU and 16 processors. Results go to a folder (default: dev/bench/results/GPU'S NAME), each with its
# command, the machine and the date. Parts that the machine cannot run are named and left out. Failures are named, and
# the rest goes on.
#
# Where minutes of a GPU are dear, build before, on a machine without one, for all GPUs since Turing, and copy the
# folder:
#
#     sh scripts/setup.sh cudnn && make -j GPU=all all build/release/cuda_test_attention_forms
#     ./prepare --stories 4000000 --out build/gpu_corpus
#     sh dev/bench/gpu.sh first            # then, on the GPU
#
# Attention by cuDNN is built in where cuDNN and the headers of its frontend are, which `build` fetches. Without a
# network, copy the headers: run `sh scripts/setup.sh cudnn` where there is one, and bring build/cudnn_frontend along,
# which git ignores; it is the same for all machines. FP8 is left out before compute capability 8.9. Turing (T4) has no
# bf16 and TF32: there all parts run in fp16. Models that do not fit into the GPU's memory are left out.
#
# usage: sh dev/bench/gpu.sh [--out FOLDER] [PART...]      PYTHON=... names a Python with torch and transformers
#   build     the programs, for this GPU                                                        2 minutes
#   first     does it work, how fast is it, does it repeat its bits: 124M, 64 x 1024 tokens     4 minutes
#   profile   where a step's time goes, by nsys                                                 1 minute
#   sanitize  NVIDIA's sanitizers over the kernels, small shapes                                9 minutes
#   peers     PyTorch eager and compiled beside ours, 124M, tf32, bf16 and fp8                  9 minutes
#   train     steps of 124M to 1558M, with what is predicted before                             7 minutes
#   kernels   the tests of attention and of FP8's casts that the emulator runs, built by nvcc   2 minutes
#   check     every kernel and some training steps against the CPU, in all dtypes               7 minutes
#   ladder    each technique on top of the one before, 124M, 16 x 1024 tokens                   2 minutes
#   ops       the roofline in all dtypes; cuDNN's attention                                     6 minutes
#   gpus      several GPUs: collectives, and two runs bit for bit, with and without NVLS        4 minutes
# The times beside the parts, and those printed, are expectations, not measurements.
set -u
cd "$(dirname "$0")/../.."
out=
[ "${1:-}" != --out ] || { out=${2:?usage: gpu.sh [--out FOLDER] [PART...]}; shift 2; }
all="build first profile sanitize peers train kernels check ladder ops gpus"
parts=${*:-$all}
ask() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | head -n 1; } # about the first GPU
gpu=$(ask name)
[ -n "$gpu" ] || { echo "error: no NVIDIA GPU here (nvidia-smi found none)" >&2; exit 1; }
out=${out:-dev/bench/results/$(echo "$gpu" | tr ' /' '__')}
python=${PYTHON:-python3}
capability=$(ask compute_cap)
fp8=$(echo "$capability" | awk '$1 >= 8.9 { print "fp8" }')
[ -n "$fp8" ] || echo "no FP8 on this GPU: left out"
half=bf16 tf32=tf32
case $capability in 7.*) half=fp16 tf32= ; echo "no bf16 and TF32 on this GPU: fp16 in their place" ;; esac
memory=$(ask memory.total) # MiB
failed=0 LONGEST=560 # seconds that a step may take
mkdir -p "$out"

has() { command -v "$1" >/dev/null 2>&1; }
with_cudnn() {
    [ $half = bf16 ] || { echo "cuDNN has no attention for this GPU: left out"; return 1; }
    [ -f build/release/attention_cudnn.o ] || { echo "built without cuDNN: its attention is left out"; false; }
}
limit() { if has timeout; then timeout "$LONGEST" "$@"; else "$@"; fi; }

# note SECONDS FILE command...: writes the command, the machine, the date and the command's output to the file
note() {
    expected=$1 file="$out/$2" begun=$(date +%s)
    shift 2
    echo "about $expected s: $*"
    { echo "$ $*"
      echo "$(ask name,driver_version,memory.total,power.limit,clocks.max.sm) (MiB, W, MHz), $(date +%F)"
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
    note 120 build.txt make -j "$(nproc)" all build/release/cuda_test_attention_forms
}

# Tests attention at every length around a tile's, which check does not, and FP8's numbers against NVIDIA's header.
part_kernels() {
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    attention=build/release/cuda_test_attention_forms
    [ -x "$nvcc" ] || { echo "no nvcc (CUDA_HOME=... says where it is): not built"; return; }
    [ -x "$attention" ] || note 120 build_test_attention_forms.txt make -j "$(nproc)" "$attention"
    [ ! -x "$attention" ] || note 20 cuda_test_attention_forms.txt "$attention" -cpus
    for name in test_fp8 test_casts; do
        program=build/release/cuda_$name
        rm -f "$program"
        [ $name != test_casts ] || [ -n "$fp8" ] || continue
        note 60 "build_$name.txt" "$nvcc" -std=c++20 -O2 -arch="sm_$(echo "$capability" | tr -d .)" \
            -D_GNU_SOURCE -Xcompiler -fopenmp "test/emulator/$name.cu" build/release/libllmc.a -o "$program" \
            -L"$(dirname "$nvcc")/../lib64" -lcublasLt -ljansson -ldl -lpthread -lm
        [ ! -x "$program" ] || note 10 "cuda_$name.txt" "$program"
    done
}

# The reference is the CPU's plain loops, so sizes are small; the second shapes have the real widths.
part_check() {
    for dtype in fp32 $tf32 $half $fp8; do
        note 40 check_$dtype.txt ./train_gpt2cu check --dtype $dtype --model L=2,H=4,C=256,T=256 --batch_size 2
        note 60 check_${dtype}_wide.txt ./train_gpt2cu check --dtype $dtype --model L=2,H=12,C=768,T=256 \
            --batch_size 1 --max_steps 2
    done
    [ $half != bf16 ] || note 40 check_residual.txt ./train_gpt2cu check --dtype bf16 --residual bf16 \
        --model L=2,H=4,C=256,T=256 --batch_size 2
    note 40 check_plain.txt ./train_gpt2cu check --dtype fp32 --kernels plain --model L=2,H=4,C=256,T=128 --batch_size 2
    note 40 check_flash.txt ./train_gpt2cu check --dtype $half --attention flash --model L=2,H=4,C=256,T=1024 \
        --batch_size 1 --seq_len 1024 --max_steps 2
    ! with_cudnn || note 40 check_cudnn.txt ./train_gpt2cu check --dtype $half --attention cudnn \
        --model L=2,H=4,C=256,T=1024 --batch_size 1 --seq_len 1024 --max_steps 2
    note 40 check_unfused.txt ./train_gpt2cu check --dtype $half --fused 0 --attention plain --model L=2,H=4,C=256,T=256 \
        --batch_size 2
}

part_ladder() {
    note 120 ladder.txt ./train_gpt2cu bench ladder --model gpt2 --batch_size 16 --seq_len 1024 --out "$out"
}

part_ops() {
    for dtype in fp32 $tf32 $half $fp8; do
        note 80 ops_$dtype.txt ./train_gpt2cu bench ops --model gpt2 --dtype $dtype --batch_size 16 --seq_len 1024 \
            --out "$out/ops_$dtype"
    done
    attention flash
    ! with_cudnn || attention cudnn
}

# attention KERNELS: alone, with heads of 64 and 1024 tokens, forward and backward
attention() {
    note 15 attention_$1.txt ./train_gpt2cu bench ops attention_forward attention_backward --attention $1 --model gpt2 \
        --dtype $half --batch_size 16 --seq_len 1024 --out "$out/attention_$1"
}

part_peers() {
    "$python" -c 'import torch, transformers' 2>/dev/null ||
        { echo "no torch and transformers in $python (PYTHON=...): not compared"; return; }
    note 200 peers_$half.txt "$python" dev/bench/peers.py --device cuda --dtype $half -B 16 -T 1024 \
        --rounds 3 --warmup 5 --steps 30 --json "$out/peers_$half.json"
    [ -z "$tf32" ] || note 150 peers_tf32.txt "$python" dev/bench/peers.py --device cuda --dtype tf32 -B 16 -T 1024 \
        --rounds 2 --warmup 5 --steps 20 --json "$out/peers_tf32.json"
    [ -z "$fp8" ] || note 200 peers_fp8.txt "$python" dev/bench/peers.py --device cuda --dtype fp8 -B 16 -T 1024 \
        --rounds 3 --warmup 5 --steps 30 --json "$out/peers_fp8.json" # beside PyTorch's bf16
}

corpus=build/gpu_corpus
with_corpus() {
    [ -f ${corpus}_val.json ] || ./prepare --stories 4000000 --out $corpus >/dev/null 2>&1 ||
        { echo "no corpus: prepare failed"; failed=1; false; }
}
# options of a run that only trains
only_train="--train_data ${corpus}_train_*.bin --val_every 0 --sample_every 0"
set -f # the programs expand patterns, not the shell

# train NAME MODEL TOKENS STEPS [DTYPE]: tokens in a step, as many micro-batches as memory asks for
train() {
    dtype=${5:-$half}
    with_corpus || return
    [ "$dtype" = fp8 ] || note 5 "predicted_$1.txt" "$python" dev/bench/predict.py "$gpu" --program ./train_gpt2cu \
        --model "$2" --dtype "$dtype" --batch_size 8 --seq_len 1024 --total_batch_size "$3"
    note 60 "train_$1.txt" ./train_gpt2cu --model "$2" --dtype "$dtype" --batch_size auto --seq_len 1024 \
        --total_batch_size "$3" --max_steps "$4" $only_train --save_every 0 --out ""
}
# fits MIB NAME: succeeds if the GPU has so much memory
fits() { [ "$memory" -ge "$1" ] || { echo "$2 needs $1 MiB of memory: left out"; false; }; }
part_train() {
    train 124m gpt2 524288 20
    [ -z "$fp8" ] || train 124m_fp8 gpt2 524288 20 fp8
    ! fits 15000 350m || train 350m gpt2-medium 262144 10
    ! fits 22000 774m || train 774m gpt2-large 131072 10
    ! fits 40000 1558m || train 1558m gpt2-xl 131072 8
    [ -z "$fp8" ] || [ "$memory" -lt 40000 ] || train 1558m_fp8 gpt2-xl 131072 8 fp8
}

# ----------------------------------------------------------------------------------------------------------------------
# the first minutes

# sampled FILE COMMAND...: runs the command, and adds the GPU's clocks, watts and degrees meanwhile to the file
sampled() {
    samples="$out/$1.csv" report="$out/$1"
    shift
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 250 \
        >"$samples" 2>/dev/null &
    sampler=$!
    "$@"
    kill $sampler 2>/dev/null
    wait $sampler 2>/dev/null
    awk -F ', *' '$3 > 0 { n++; if ($3 > watts) { watts = $3; sm = $1; memory = $2 } if ($4 > hot) { hot = $4 } }
        END { printf "most power of %d samples: %.0f W, at SM %d MHz and memory %d MHz; at most %d degrees\n",
            n, watts, sm, memory, hot }' "$samples" | tee -a "$report" | sed 's/^/  /'
}

# steps NAME OPTIONS...: 20 steps of 124M, of two micro-batches; losses and norms go to metrics.jsonl in build/gpu_NAME
steps() {
    name=$1 batch=64
    shift
    [ "$memory" -ge 40000 ] || batch=16 # 64 take 28 GB
    rm -rf "build/gpu_$name"
    sampled "first_$name.txt" note 15 "first_$name.txt" ./train_gpt2cu --model gpt2 --dtype $half --batch_size $batch \
        --seq_len 1024 --total_batch_size $((2 * batch * 1024)) --max_steps 20 $only_train --out "build/gpu_$name" "$@"
}

# Prints losses and norms of a run in all their digits.
digits() { sed -n 's/.*"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2 \3/p' "$1"; }

# same_digits NAME NAME: fails unless two runs have the same losses and norms, bit for bit
same_digits() {
    digits "build/gpu_$1/metrics.jsonl" >"$out/digits_$1.txt"
    digits "build/gpu_$2/metrics.jsonl" >"$out/digits_$2.txt"
    if [ -s "$out/digits_$1.txt" ] && cmp "$out/digits_$1.txt" "$out/digits_$2.txt"; then
        echo "  $1 and $2: the same bits in all losses and norms"
    else
        failed=1
        echo "  FAILED: $1 and $2 differ, see $out/digits_*.txt; if other variants were chosen, first_*.txt names them"
    fi
}

# A run stopped at step 10 and resumed has the choices of the first run, so it must end with the bits of that run.
same_bits_after_resuming() {
    whole=build/gpu_whole again=build/gpu_again
    steps whole --attention flash --save_every 10 --keep 0
    rm -rf $again
    mkdir -p $again
    cp -r $whole/step_00000010 $whole/metrics.jsonl $again
    note 15 first_again.txt ./train_gpt2cu --resume auto --out $again
    for file in model.safetensors optimizer.safetensors; do
        if cmp $whole/step_00000020/$file $again/step_00000020/$file; then echo "  $file: the same bits"
        else failed=1; echo "  FAILED: $file differs between $whole and $again"; fi
    done
}

# In the order of what would be most costly to find out late.
part_first() {
    note 5 first_check.txt ./train_gpt2cu check --dtype $half --model L=1,H=2,C=128,T=64,V=300 --batch_size 2 \
        --max_steps 1
    note 10 first_check_wide.txt ./train_gpt2cu check --dtype $half --model L=1,H=12,C=768,T=128,V=1000 --batch_size 1 \
        --max_steps 1
    note 15 first_plans.txt ./train_gpt2cu bench plans --model gpt2 --dtype $half --batch_size 64 --seq_len 1024
    with_corpus || return
    steps flash --attention flash --save_every 0
    ! with_cudnn || steps cudnn --attention cudnn --save_every 0
    steps flash_launches --attention flash --graph 0 --save_every 0
    ! with_cudnn || steps cudnn_launches --attention cudnn --graph 0 --save_every 0
    same_digits flash flash_launches
    same_bits_after_resuming
    same_digits flash whole
    rm -rf build/gpu_whole build/gpu_again # 10 GB
    note 60 first_ops.txt ./train_gpt2cu bench ops --model gpt2 --dtype $half --batch_size 16 --seq_len 1024 \
        --out "$out/first_ops"
}

# ----------------------------------------------------------------------------------------------------------------------
# tools and several GPUs

part_profile() {
    has nsys || { echo "no nsys (Nsight Systems): skipped"; return; }
    note 60 profile_timeline.txt sh dev/profile/profile.sh --out "$out/profile" timeline --model gpt2 --dtype $half \
        --batch_size 16 --seq_len 1024
}

# Two runs must have the same bits; with NVLS, which may be faster, they need not.
part_gpus() {
    count=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
    [ "$count" -ge 2 ] || { echo "one GPU: nothing to connect"; return; }
    with_corpus || return
    note 30 comm.txt ./train_gpt2cu bench comm --gpus "$count" --model gpt2 --out "$out"
    total=$((count * 2 * 16 * 1024))
    for name in gpus gpus_again gpus_nvls; do
        [ $name != gpus_nvls ] || export NCCL_ALGO=Ring,Tree,NVLS,NVLSTree
        steps $name --gpus "$count" --batch_size 16 --total_batch_size $total --attention flash --save_every 0
    done
    unset NCCL_ALGO
    same_digits gpus gpus_again
}

part_sanitize() {
    has compute-sanitizer || { echo "no compute-sanitizer: skipped"; return; }
    for tool in memcheck racecheck initcheck synccheck; do
        for dtype in fp32 $half $fp8; do
            note 45 "${tool}_$dtype.txt" compute-sanitizer --tool $tool --error-exitcode 9 ./train_gpt2cu check \
                --dtype $dtype --model L=1,H=2,C=128,T=96,V=300 --batch_size 2 --max_steps 1
        done
    done
}

for part in $parts; do
    case " $all " in
    *" $part "*)
        [ "$part" = build ] || [ -x train_gpt2cu ] || { echo "no train_gpt2cu: run the part build first"; exit 1; }
        echo "== $part"
        part_$part ;;
    *)
        echo "error: no part '$part'; parts are $(echo $all | sed 's/ /, /g')" >&2
        exit 2 ;;
    esac
done
echo "results in $out"
exit $failed
