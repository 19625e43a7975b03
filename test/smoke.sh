#!/bin/sh
# Makes one small run on each backend, for `scripts/test.sh quick`: two steps, a validation, a checkpoint, and two more
# steps from it. Compares the operations of the emulated GPU with the CPU's.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=2 EMU_CUDNN=0

goes_on() { # NAME PROGRAM OPTIONS...: a run resumed after two steps ends with the bits of a whole run of four
    run="$dir/$1"
    shift
    must "$@" $small $data --max_steps 4 --save_every 2 --val_every 2 --val_tokens 128 --out "$run"
    go_on "$1" "$run" 2 "$run.again" # with the dtype and level of the checkpoint
    same_checkpoint "$run/step_00000004" "$run.again/step_00000004"
}

each_level_of_the_cpu_trains() {
    corpus
    tried=
    for dtype in fp32 bf16 fp16; do
        for level in generic avx2 avx512 avx512_bf16 amx; do
            "$train" check --cpu $level --dtype $dtype --model nonsense 2>&1 | grep -q 'there are:' && continue
            goes_on $dtype-$level "$train" --dtype $dtype --cpu $level
            tried=1
        done
    done
    [ -n "$tried" ] || note "no level was tried"
}

each_dtype_of_the_gpu_trains() {
    corpus
    export EMU_CC=90
    for dtype in fp32 tf32 bf16 fp16 fp8; do goes_on $dtype "$cuda" --dtype $dtype; done
    unset EMU_CC
}

kernels_of_the_gpu_agree() {
    shape="--model L=1,H=2,C=32,T=40,V=133 --batch_size 2 --seq_len 37 --recompute none --max_steps 1"
    for dtype in fp32 bf16; do must "$cuda" check $shape --dtype $dtype; done
}

run_tests
