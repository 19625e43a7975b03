#!/bin/sh
# Asks a GPU what only a GPU can answer, in parts of at most nine minutes each. A part needs no network, no compiler and
# no git. It leaves one file, PART.tar, and writes it again after each step, so that it is there however the part ends.
# In the tar, summary.txt has each step's exit code, seconds and last line, NAME.txt a step's output, and clocks.csv the
# GPU's clocks, watts and degrees. A step that fails, hangs or lacks its tool is named, and the rest goes on.
#
# For a machine that has little, build here, for its GPU, and bring it one file:
#
#     sh scripts/setup.sh cudnn && GPU=90 sh dev/bench/gpu.sh pack    # build/gpu_box.tar.gz: 21 MB for one GPU
#     tar -xf gpu_box.tar.gz && sh gpu_box/dev/bench/gpu.sh first     # there
#
# In a repository, `make -j all build/release/cuda_test_attention_forms` and `./prepare --stories 4000000 --out
# build/gpu_corpus` do the same. FP8 is left out before compute capability 8.9. Turing (T4) has no bf16 and TF32: there
# all runs in fp16.
#
# usage: sh dev/bench/gpu.sh PART [FOLDER]     FOLDER: where PART.tar goes (build/gpu)
#   first     does it work, how fast is it, and beside PyTorch: 124M, 64 x 1024 tokens; what ncu says of five kernels
#   second    determinism, the ladder, all types, 1558M, a run that is resumed with the same bits
#   sanitize  NVIDIA's sanitizers over the kernels in three types
#   train     steps of 350M and 774M, and of 124M and 1558M in fp8
#   ops       the roofline in all types
#   peers     PyTorch eager and compiled beside ours, in tf32 and fp8
#   profile   where a step's time goes, by nsys
#   gpus      several GPUs: collectives, and two runs bit for bit, with and without NVLS
#   pack      the file for a machine that has little
# Variables: PYTHON names a Python with torch and transformers; GPU_SECONDS limits a part (540); GPU_SMALL=1 makes all
# sizes small, to rehearse on the emulator.
set -uf # -f: the programs expand patterns, not the shell
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
[ $# -gt 0 ] || { sed -n '/^# usage/,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
parts="first second sanitize train ops peers profile gpus pack"
part=$1 out=${2:-build/gpu} python=${PYTHON:-python3}
export LC_ALL=C # in which a number has a point, whatever reads it
case $out in /*) ;; *) [ $# -lt 2 ] || out=$PWD/$out ;; esac
case $python in /*) ;; */*) python=$PWD/$python ;; esac
export PYTHON="$python" # of the same script below timeout
case " $parts " in
*" $part "*) ;;
*) echo "error: no part '$part'; parts are $(echo $parts | sed 's/ /, /g')" >&2; exit 2 ;;
esac
CDPATH='' cd "$(dirname "$0")/../.." || exit 1
folder=build/gpu/$part corpus=build/gpu_corpus forms=build/release/cuda_test_attention_forms

pack() (
    set -e
    box=build/gpu_box
    rm -rf $box
    make -j "$(nproc)" portable prepare $forms
    mkdir -p $box/build/release $box/dev/bench $box/scripts
    ./prepare --stories 4000000 --out $box/$corpus
    cp build/portable/train_gpt2cu $box
    strip -o $box/$forms $forms
    cp dev/bench/gpu.sh dev/bench/peers.py dev/bench/torch_ops.py $box/dev/bench
    cp -r dev/profile $box/dev
    cp scripts/gpu_health.sh $box/scripts
    tar -C build -czf $box.tar.gz gpu_box
    ls -l $box.tar.gz
)
[ "$part" != pack ] || { pack; exit; }
[ -x train_gpt2cu ] || { echo "error: no train_gpt2cu here: make builds it, gpu.sh pack brings it" >&2; exit 1; }

# The part runs below timeout, which ends it even if it waits for a process that the driver does not let go. The last
# seconds are left for steps and the part to be killed.
if [ -z "${GPU_DEADLINE:-}" ]; then
    seconds=${GPU_SECONDS:-540}
    export GPU_DEADLINE=$(($(date +%s) + seconds - 14))
    exec timeout -k 4 $((seconds - 4)) sh dev/bench/gpu.sh "$part" "$out"
fi

# ----------------------------------------------------------------------------------------------------------------------
# steps

rm -rf "$folder"
mkdir -p "$out" "$folder" || exit 1
failed=0 running=
say() { echo "$*" | tee -a "$folder/summary.txt"; }
write_tar() { # tar's exit code 1: a file changed meanwhile
    tar -cf "$out/$part.new" -C build/gpu "$part" 2>/dev/null
    if [ $? -le 1 ]; then mv "$out/$part.new" "$out/$part.tar"
    else failed=1; echo "error: cannot write to $out" >&2; fi
}
finish() {
    trap '' TERM INT HUP
    # timeout makes a process group of a step. The group is ended too: a timeout that is ended just while it starts its
    # command leaves it behind.
    kill $sampler ${running:+$! -$!} 2>/dev/null
    write_tar # it may fail
    say "$part: $1, exit code $failed; $out/$part.tar"
    write_tar
    exit $failed
}
sampler=
trap 'failed=1; finish "stopped in ${name:-its beginning}"' TERM INT HUP

# step NAME SECONDS COMMAND...: runs a command for so long at most, and no longer than the part has left
step() {
    name=$1 limit=$2 begun=$(date +%s)
    shift 2
    [ $((GPU_DEADLINE - begun)) -ge "$limit" ] || limit=$((GPU_DEADLINE - begun))
    [ "$limit" -gt 0 ] || { failed=1; say "$name: not run, the part's time is over"; return 1; }
    report="$folder/$name.txt" sampled=$(wc -l <"$folder/clocks.csv")
    { echo "$ $*"; echo "$machine, $(date)"; } >"$report"
    running=1
    timeout -k 5 "$limit" "$@" >>"$report" 2>&1 &
    wait $!
    code=$? running= took=$(($(date +%s) - begun))
    if [ $code = 0 ]; then ended=done
    elif [ $took -ge "$limit" ]; then failed=1 ended="CUT at its limit, exit code $code"
    else failed=1 ended="FAILED, exit code $code"; fi
    power=$(tail -n +$((sampled + 1)) "$folder/clocks.csv" | awk -F ', *' '
        $3 > watts { watts = $3; sm = $1; memory = $2 }
        $4 > hot { hot = $4 }
        END { if (watts) printf ", up to %.0f W (%d and %d MHz), %d degrees", watts, sm, memory, hot }')
    say "$name: $ended, $took s$power: $(tail -n 1 "$report" | cut -c 1-200)"
    write_tar
    return $code
}

# ----------------------------------------------------------------------------------------------------------------------
# the machine

PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
# PyTorch's packages have the libraries of the toolkit.
libraries=$("$python" -c 'import glob, sys
print(":".join(folder for path in sys.path for folder in glob.glob(path + "/nvidia/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
# has TOOL 'SENTENCE': fails, and says the sentence, if there is no such tool
has() { command -v "$1" >/dev/null || { say "no $1 in the path: $2"; false; }; }
# with_torch NAME SECONDS SCRIPT OPTIONS: a step of Python
with_torch() {
    name=$1 limit=$2
    shift 2
    if "$python" -c 'import importlib.util as u; exit(not (u.find_spec("torch") and u.find_spec("transformers")))' \
        2>/dev/null; then step "$name" "$limit" "$python" "$@"
    else say "no torch and transformers in $python (PYTHON=...): $name is left out"; fi
}
ask() { timeout 10 nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | head -n 1; } # GPU 0
: >"$folder/clocks.csv"
if has nvidia-smi 'clocks are left out; an H100 is assumed'; then
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 250 \
        >"$folder/clocks.csv" 2>/dev/null &
    sampler=$!
fi
machine="$(ask name,driver_version,memory.total,power.limit,clocks.max.sm) (MiB, W, MHz)"
capability=$(ask compute_cap) memory=$(ask memory.total) batch=64
capability=${capability:-9.0}
fp8=$(echo "$capability" | awk '$1 >= 8.9 { print "fp8" }') half=bf16 types="fp32 tf32 fp16 bf16 $fp8"
case $capability in 7.*) half=fp16 types="fp32 fp16" ;; esac
[ "${memory:-80000}" -ge 40000 ] || batch=16 # 64 take 28 GB

after_turing() { [ $half != bf16 ] || "$@"; } # COMMAND...: runs what needs bf16, or cuDNN

# Options that come last in the commands, and make them small.
small='' small_run='' small_check='' small_forms='' steps=20 operations=
if [ -n "${GPU_SMALL:-}" ]; then
    small="--model L=1,H=2,C=32,T=32,V=257 --batch_size 2 --seq_len 32" steps=4 operations=loss_add
    small_run="$small --total_batch_size 128 --tokenizer bytes"
    small_check="--model L=1,H=1,C=16,T=8,V=50 --batch_size 2 --seq_len 8 --max_steps 1" small_forms=of_1_token
fi

# ----------------------------------------------------------------------------------------------------------------------
# steps of the trainer

# check NAME OPTIONS: kernels and a training step against the CPU's plain loops, so the sizes are small
check() {
    name=$1
    shift
    step "$name" 60 $below ./train_gpt2cu check --model L=1,H=2,C=128,T=64,V=300 --batch_size 2 --max_steps 1 "$@" \
        $small_check
}
below= # the tool that runs the trainer

# bench NAME SECONDS COMMAND OPTIONS: the results are in a folder NAME too
bench() {
    name=$1 limit=$2 command=$3
    shift 3
    step "$name" "$limit" ./train_gpt2cu bench $command --model gpt2 --batch_size $batch --seq_len 1024 \
        --out "$folder/$name" "$@" $small
}

# run NAME OPTIONS: steps of 124M, of two micro-batches; losses and norms go to metrics.jsonl in build/gpu/run_NAME
run() {
    name=$1
    shift
    rm -rf "build/gpu/run_$name"
    step "$name" 60 $below ./train_gpt2cu --model gpt2 --dtype $half --batch_size $batch --seq_len 1024 \
        --total_batch_size $((2 * batch * 1024)) --max_steps $steps --train_data "${corpus}_train_*.bin" \
        --val_every 0 --sample_every 0 --save_every 0 --out "build/gpu/run_$name" "$@" $small_run
}

# same_files NAME FILE FILE HINT: fails unless two files are there, with the same bytes
same_files() {
    if [ -s "$2" ] && cmp "$2" "$3" 2>/dev/null; then say "  $1: the same bits"
    else failed=1; say "  FAILED: $1: $2 and $3 are not the same$4"; fi
}

# same_digits NAME NAME: fails unless two runs have the same losses and norms, bit for bit
same_digits() {
    for name in "$1" "$2"; do
        sed -n 's/.*"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2 \3/p' \
            "build/gpu/run_$name/metrics.jsonl" 2>/dev/null >"$folder/digits_$name.txt"
    done
    same_files "$1 and $2" "$folder/digits_$1.txt" "$folder/digits_$2.txt" \
        "; $1.txt and $2.txt name the variants that each chose"
}

sanitized() { # TOOL DTYPE
    has compute-sanitizer "$1 is left out" || return
    below="compute-sanitizer --tool $1 --error-exitcode 9"
    check "$1_$2" --dtype "$2" --model L=1,H=1,C=64,T=16,V=50 --batch_size 1 --seq_len 16 # racecheck takes long
    below=
}

# Prints, of kernels that take much of a step, what they reach and what limits them.
counters() {
    has ncu 'counters of kernels are left out' || return
    below="ncu --clock-control none --set basic --launch-count 60 --kernel-name"
    below="$below regex:^(flash_(forward|backward_keys|backward_queries)|layernorm_backward_held|softmax_held)_kernel$"
    run ncu --model L=2,H=12,C=768,T=1024 --total_batch_size $((batch * 1024)) --max_steps 1 --attention flash --graph 0
    below=
}

peers() { # DTYPE SECONDS OPTIONS
    dtype=$1 limit=$2
    shift 2
    with_torch "peers_$dtype" "$limit" dev/bench/peers.py --device cuda --dtype "$dtype" -T 1024 --warmup 5 --steps 20 \
        --json "$folder/peers_$dtype.json" "$@"
}

# ----------------------------------------------------------------------------------------------------------------------
# parts

# In the order of what would be most costly to find out late.
part_first() {
    step libraries 20 sh -c '
        nvidia-smi; nvidia-smi -q -d CLOCK,POWER; sh scripts/gpu_health.sh; nproc; head -n 3 /proc/meminfo
        ldconfig -p | grep -E "libcu|libnccl"; ls $(echo "$LD_LIBRARY_PATH" | tr : " ")
        ldd ./train_gpt2cu; ./train_gpt2cu --version'
    check check --dtype $half
    check check_wide --dtype $half --model L=1,H=12,C=768,T=128,V=1000 --batch_size 1
    check check_flash --dtype $half --attention flash --model L=2,H=4,C=256,T=1024 --batch_size 1 --seq_len 1024
    [ -z "$fp8" ] || check check_fp8 --dtype fp8
    step attention_forms 40 $forms -cpus $small_forms
    sanitized memcheck $half
    sanitized racecheck $half
    bench plans 60 plans --dtype $half
    run flash --attention flash
    after_turing run cudnn --attention cudnn
    after_turing run residual --attention flash --residual bf16
    run launches --attention flash --graph 0
    same_digits flash launches
    bench ops 90 "ops $operations" --dtype $half
    with_torch torch_ops 60 dev/bench/torch_ops.py
    peers $half 230 -B 32 --rounds 2
    counters
}

# again NAME SECONDS COMMAND...: resumes the run in run_whole from halfway, and compares where both end
again() {
    to=build/gpu/run_$1
    rm -rf $to
    mkdir $to
    cp -r build/gpu/run_whole/$half_way build/gpu/run_whole/metrics.jsonl $to
    step "$@" --out $to
    for file in model optimizer; do
        same_files "$file after $1" build/gpu/run_whole/$end/$file.safetensors $to/$end/$file.safetensors ""
    done
    rm -rf $to # 5 GB
}

# A run that stops halfway and is resumed has the choices of the first run, so it must end with the bits of that run.
same_bits_after_resuming() {
    half_way=step_$(printf %08d $((steps / 2))) end=step_$(printf %08d $steps)
    run whole --attention flash --save_every $((steps / 2)) --keep 0 || return
    again resuming 60 ./train_gpt2cu --resume auto
    again offloading 60 ./train_gpt2cu --resume auto --offload optimizer
    rm -rf build/gpu/run_whole
}

part_second() {
    after_turing run cudnn --attention cudnn
    after_turing run cudnn_any_order --attention cudnn --deterministic 0
    bench ladder 150 ladder --batch_size 16
    for dtype in $types; do
        check check_$dtype --dtype $dtype
        run $dtype --dtype $dtype --batch_size 16 --total_batch_size 32768
    done
    check check_plain --dtype fp32 --kernels plain
    check check_unfused --dtype $half --fused 0 --attention plain
    after_turing check check_residual --dtype $half --residual bf16
    after_turing check check_cudnn --dtype $half --attention cudnn --model L=2,H=4,C=256,T=1024 --batch_size 1 \
        --seq_len 1024
    run 1558m --model gpt2-xl --batch_size auto --total_batch_size 131072 --max_steps 10
    run 1558m_offloaded --model gpt2-xl --recompute all --offload optimizer --batch_size 1 --total_batch_size 16384 \
        --max_steps 5
    same_bits_after_resuming
}

part_train() {
    run 350m --model gpt2-medium --batch_size auto --total_batch_size 262144 --max_steps 10
    run 774m --model gpt2-large --batch_size auto --total_batch_size 131072 --max_steps 10
    [ -n "$fp8" ] || return
    run 124m_fp8 --dtype fp8
    run 1558m_fp8 --dtype fp8 --model gpt2-xl --batch_size auto --total_batch_size 131072 --max_steps 10
}

part_ops() {
    for dtype in $types; do
        bench ops_$dtype 90 "ops $operations" --dtype $dtype --batch_size 16
    done
    after_turing bench attention_cudnn 30 "ops attention" --dtype $half --attention cudnn
}

part_peers() {
    for dtype in tf32 $fp8; do peers $dtype 250 -B 16 --rounds 3; done
}

part_sanitize() {
    for tool in memcheck racecheck initcheck synccheck; do
        for dtype in fp32 $half $fp8; do sanitized $tool $dtype; done
    done
}

part_profile() {
    ! has nsys 'no timeline' || step timeline 120 sh dev/profile/profile.sh --out "$folder" timeline --model gpt2 \
        --dtype $half --batch_size 16 --seq_len 1024 $small_run
}

# Two runs must have the same bits; with NVLS, which may be faster, they need not.
part_gpus() {
    count=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
    [ "$count" -ge 2 ] || { say "one GPU: nothing to connect"; return; }
    bench comm 60 comm --gpus "$count"
    for name in gpus gpus_again gpus_nvls; do
        [ $name != gpus_nvls ] || export NCCL_ALGO=Ring,Tree,NVLS,NVLSTree
        run $name --gpus "$count" --batch_size 16 --total_batch_size $((count * 2 * 16 * 1024)) --attention flash
    done
    unset NCCL_ALGO
    same_digits gpus gpus_again
}

[ -f ${corpus}_val.json ] || step corpus 60 ./prepare --stories 4000000 ${GPU_SMALL:+--tokenizer bytes} --out $corpus
part_$part
finish "all steps were tried"
