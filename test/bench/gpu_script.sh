#!/bin/sh
# Tests dev/bench/gpu.sh without a GPU, so that no typing error wastes a GPU's minutes: every part runs with the
# emulated trainer, whose shapes are made small, and with stand-ins for NVIDIA's tools and for Python.
. "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1 EMU_GUARD=0 EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3'

program() { cat >"$tree/$1"; chmod +x "$tree/$1"; } # FILE: writes an executable script

make_tree() { # makes a folder $tree in which gpu.sh finds what it needs
    tree="$dir/tree"
    mkdir -p "$tree/dev/bench" "$tree/dev/profile" "$tree/build/release" "$tree/bin"
    cp dev/bench/gpu.sh "$tree/dev/bench"
    cp dev/profile/profile.sh "$tree/dev/profile"
    cp -r test "$tree/test"
    : >"$tree/build/release/attention_cudnn.o" # so that the parts with cuDNN run
    : >"$tree/build/release/libllmc.a"
    tiny="--model L=1,H=2,C=32,T=32,V=257 --batch_size 2 --seq_len 32"
    program train_gpt2cu <<EOF
#!/bin/sh
case \$1-\$2 in
check-*) exec "$PWD/$cuda" "\$@" --model L=1,H=1,C=16,T=8,V=50 --batch_size 2 --seq_len 8 --max_steps 1 ;;
bench-ops) [ "\$3" = attention_forward ] || { shift 2; set -- bench ops loss_add "\$@"; }
    exec "$PWD/$cuda" "\$@" $tiny ;;
bench-*) exec "$PWD/$cuda" "\$@" $tiny --max_steps 1 ;;
--resume-*) exec "$PWD/$cuda" "\$@" ;;
*) exec "$PWD/$cuda" "\$@" $tiny --total_batch_size 128 --tokenizer bytes ;;
esac
EOF
    program prepare <<EOF
#!/bin/sh
exec "$PWD/$build/prepare" "\$@" --stories 60000 --tokenizer bytes --val_size 6000
EOF
    program bin/nvidia-smi <<'EOF'
#!/bin/sh
for word; do
    case $word in --query-gpu=*) fields=$(echo "${word#*=}" | tr , ' ') ;; -lms) loop=1 ;; esac
done
while :; do
    line=
    for field in $fields; do
        case $field in
        name) value=${GPU_NAME:-NVIDIA H100 80GB HBM3} ;; compute_cap) value=${GPU_CAP:-9.0} ;;
        memory.total) value=${GPU_MIB:-81559} ;;
        driver_version) value=580.65.06 ;; power.limit) value=700.00 ;; power.draw) value=653.21 ;;
        clocks.sm | clocks.mem | clocks.max.sm) value=1980 ;; temperature.gpu) value=61 ;;
        *) echo "Field \"$field\" is not a valid field to query."; exit 2 ;;
        esac
        line="${line:+$line, }$value"
    done
    for i in $(seq "${GPUS:-1}"); do echo "$line"; done
    [ -n "${loop:-}" ] || exit 0
    sleep 0.1
done
EOF
    program bin/compute-sanitizer <<'EOF'
#!/bin/sh
while [ "$1" != ./train_gpt2cu ]; do shift; done
exec "$@"
EOF
    program bin/nsys <<'EOF'
#!/bin/sh
[ "$1" != stats ] || { echo "$*"; exit 0; }
while [ "$1" != ./train_gpt2cu ]; do shift; done
exec "$@"
EOF
    program bin/python <<'EOF'
#!/bin/sh
[ "$1" = -c ] || echo "$*"
EOF
    program bin/nvcc <<'EOF'
#!/bin/sh
case "$*" in *-std=c++20*build/release/libllmc.a*) ;; *) echo "the library is C++20: $*"; exit 1 ;; esac
for word; do
    case $word in *.cu) [ -f "$word" ] || exit 1 ;; esac
    [ "${before:-}" != -o ] || { printf '#!/bin/sh\necho passed\n' >"$word"; chmod +x "$word"; }
    before=$word
done
EOF
    program bin/make <<'EOF'
#!/bin/sh
for word; do
    case $word in build/release/cuda_test_*) printf '#!/bin/sh\necho passed\n' >"$word"; chmod +x "$word" ;; esac
done
EOF
}

gpu_sh() { # CODE PART...: runs gpu.sh in the tree; its output is kept in $dir/out
    code=$1
    shift
    env PATH="$tree/bin:$PATH" PYTHON="$tree/bin/python" sh "$tree/dev/bench/gpu.sh" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || note "exit code $got: $(grep -A 1 FAILED "$dir/out" | head -n 4) $(tail -n 1 "$dir/err")"
    [ ! -s "$dir/err" ] || note "$(head -n 2 "$dir/err")"
}
results='dev/bench/results/NVIDIA_H100_80GB_HBM3'

the_first_minutes_answer_the_questions() {
    make_tree
    gpu_sh 0 first
    for pair in 'flash and flash_launches' 'flash and whole'; do
        grep -q "^  $pair: the same bits" "$dir/out" || note "$pair: $(cat "$dir/out")"
    done
    [ "$(grep -c 'safetensors: the same bits' "$dir/out")" = 2 ] || note "no comparison of checkpoints"
    for file in check check_wide plans flash cudnn flash_launches cudnn_launches whole again ops; do
        [ -s "$tree/$results/first_$file.txt" ] || note "no first_$file.txt"
    done
    grep -q 'most power of [1-9][0-9]* samples: 653 W, at SM 1980 MHz and memory 1980 MHz; at most 61 degrees' \
        "$tree/$results/first_flash.txt" || note "clocks: $(tail -n 1 "$tree/$results/first_flash.txt")"
    [ "$(grep -c . "$tree/$results/digits_flash.txt")" = 20 ] || note "not the digits of 20 steps"
    [ ! -e "$tree/build/gpu_whole" ] || note "checkpoints were left behind"
}

# The stand-in trains with another rate if it does not replay graphs.
runs_that_differ_are_a_failure() {
    make_tree
    sed -i '2i case "$*" in *"--graph 0"*) set -- "$@" --lr 1e-3 ;; esac' "$tree/train_gpt2cu"
    gpu_sh 1 first
    grep -q 'FAILED: flash and flash_launches differ' "$dir/out" || note "$(cat "$dir/out")"
}

all_other_parts_run() {
    make_tree
    gpu_sh 0 profile sanitize peers train kernels check ladder ops
    ! grep FAILED "$dir/out" || note "a part failed"
    for file in profile_timeline memcheck_fp8 peers_bf16 train_124m train_1558m_fp8 cuda_test_attention_forms \
        cuda_test_casts check_cudnn ladder ops_fp8 attention_cudnn; do
        [ -s "$tree/$results/$file.txt" ] || note "no $file.txt"
    done
}

a_t4_is_measured_in_fp16() {
    make_tree
    set -- env GPU_NAME='Tesla T4' GPU_CAP=7.5 GPU_MIB=15360 EMU_CC=75 EMU_NAME='Tesla T4'
    code=0
    "$@" PATH="$tree/bin:$PATH" PYTHON="$tree/bin/python" sh "$tree/dev/bench/gpu.sh" first peers train kernels check \
        >"$dir/out" 2>"$dir/err" || code=$?
    [ $code = 0 ] || note "exit code $code: $(tail -n 2 "$dir/err")"
    for file in first_check first_flash peers_fp16 train_124m train_350m cuda_test_attention_forms check_fp16; do
        [ -s "$tree/dev/bench/results/Tesla_T4/$file.txt" ] || note "no $file.txt"
    done
    grep -q '774m needs 22000 MiB of memory: left out' "$dir/out" || note "774m was tried"
    ! grep -rlE 'dtype (bf16|tf32|fp8)' "$tree/dev/bench/results/Tesla_T4" || note "not in fp16"
}

several_gpus_are_compared() {
    make_tree
    export GPUS=2
    gpu_sh 0 gpus
    unset GPUS
    grep -q '^  gpus and gpus_again: the same bits' "$dir/out" || note "$(cat "$dir/out")"
    [ -s "$tree/$results/first_gpus_nvls.txt" ] || note "no run with NVLS"
}

wrong_parts_and_missing_gpus_are_named() {
    make_tree
    expect 2 "no part 'frist'; parts are build, first, " env PATH="$tree/bin:$PATH" sh "$tree/dev/bench/gpu.sh" frist
    rm "$tree/bin/nvidia-smi"
    expect 1 'no NVIDIA GPU here' env PATH="$tree/bin:/usr/bin:/bin" sh "$tree/dev/bench/gpu.sh" first
}

run_tests
