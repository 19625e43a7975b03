#!/bin/sh
# Tests the GPU's kernels, emulated on the CPU (test/emulator/): all operations at three shapes, and training steps,
# against the CPU's.
. "$(dirname "$0")/lib.sh"

# heads of 16, and rows that end within tiles; heads of 7, which do not fit attention in tiles
even="--model L=1,H=2,C=32,T=72,V=133 --batch_size 1 --seq_len 70"

rows=3
if is_checking_build; then rows=2; fi
odd="--model L=1,H=3,C=21,T=40,V=133 --batch_size $rows --seq_len 37"
long_rows="--model L=1,H=3,C=21,T=16,V=4203 --batch_size $rows --seq_len 13" # of logits, which end between two packs
once="--recompute none --max_steps 1 --tune 0"

# Several steps of two layers, with each --recompute. With EMU_CC=90 GELU is fused.
training_steps_agree() {
    steps=2
    [ -z "$long" ] || steps=10
    must "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 --dtype fp32 --max_steps $steps
    must env EMU_CC=90 EMU_ORDER=7 "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 --dtype bf16 --max_steps $steps
}

# EMU_SMS=1: so small a grid that blocks take rows again. EMU_ORDER: a thread that needs another one to run before it is
# wrong in another order, here and in the test above.
odd_shapes_agree() {
    must env EMU_SMS=1 EMU_ORDER=1 "$cuda" check $odd --dtype fp32 $once
    must "$cuda" check $long_rows --dtype bf16 $once
}

# Rows that end within packs of 8 and within the halves of layernorm's sums; rows without packs; plain kernels.
a_residual_stream_in_bf16_agrees() {
    stream="--dtype bf16 --residual bf16"
    must env EMU_CC=90 "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 $stream --max_steps 2
    must "$cuda" check $even $stream --kernels plain $once
    must env EMU_SMS=1 EMU_ORDER=1 "$cuda" check --model L=1,H=2,C=280,T=16,V=133 --batch_size 2 $stream $once
    must env EMU_CC=90 "$cuda" check --model L=1,H=3,C=48,T=80,V=133 --batch_size 2 --seq_len 72 --dtype fp8 \
        --residual bf16 $once
    expect 2 'give --dtype bf16, or leave --residual out' "$cuda" check $even --dtype tf32 --residual bf16
}

tf32_agrees() {
    must env EMU_CC=90 "$cuda" check $even --dtype tf32 $once
    expect 2 'the plain kernels have no TF32: give --dtype fp32' "$cuda" check $even --dtype tf32 --kernels plain
    expect 2 'check --cpu amx: there are no fp32 kernels' "$cuda" check $even --cpu amx
}

unfused_kernels_agree() {
    must "$cuda" check $odd --dtype fp32 --fused 0 --attention plain $once
    is_slow_build || must "$cuda" check $even --dtype bf16 --fused 0 --attention plain $once
}

plain_kernels_agree() {
    must "$cuda" check $odd --dtype bf16 --kernels plain $once
    is_slow_build || must "$cuda" check $even --dtype fp32 --kernels plain $once
}

fp16_agrees() {
    has_fp16 || { expect 2 'built without its kernels' "$cuda" check $even --dtype fp16; return; }
    must env EMU_CC=90 "$cuda" check $even --dtype fp16 --max_steps 2
    must "$cuda" check --model L=1,H=1,C=16,T=16,V=4203 --batch_size 1 --dtype fp16 $once
    must env EMU_CUDNN=1 "$cuda" check $even --dtype fp16 --attention cudnn $once
    [ -n "$long" ] || return # the other kernels are bf16's templates
    must "$cuda" check $odd --dtype fp16 --fused 0 $once
    must "$cuda" check $odd --dtype fp16 --kernels plain $once
}

# Lengths that end before, at and after the end of a tile, for every head size, against double precision.
attention_agrees_at_every_length() {
    lengths="-of_64 -of_127 -documents_in_31" # 256 tokens end at a tile's end too, documents in 127 before it
    [ -z "$long" ] || lengths=
    if is_slow_build; then lengths="of_31 documents_in_64 several_sequences"; fi
    must env EMU_CUDNN=1 "$emu/test_attention_forms" -cpus -memory $lengths
    types=3
    has_fp16 || types=2
    [ "$(grep -c 'do not fit attention in tiles' "$dir/err")" = $types ] || note "not one warning for each type"
}

# Without asynchronous copies, own rows and streamed tiles share memory.
attention_on_turing_agrees_at_every_length() {
    has_fp16 || { skip="no fp16 here"; return; }
    lengths="of_31 of_127 documents_in_64 several_sequences" # at others Turing does what other GPUs do
    [ -z "$long" ] || lengths=
    must env EMU_CC=75 "$emu/test_attention_forms" -cpus $lengths
    [ "$(grep -c 'do not fit attention in tiles' "$dir/err")" = 2 ] || note "fp32 and fp16 did not run"
}

autotuning_finds_single_kernels_and_memory() {
    must env EMU_CUDNN=1 EMU_CC=90 EMU_MEMORY=600000000 "$emu/test_attention_forms" -cpus alone memory
}

cudnns_attention_agrees() {
    must env EMU_CUDNN=1 "$cuda" check $even $once --attention cudnn
    grep -q 'cuDNN has no attention for 3 x 13 tokens, 3 heads of 14' "$dir/err" ||
        note "no message about what cuDNN lacks"
    expect 2 'the stand-in has nothing for this device; give --attention flash' "$cuda" check $even --attention cudnn
    expect 2 '2 heads of 16: sequences must be multiples of 128 tokens; give --attention flash' \
        env EMU_CUDNN=128 "$cuda" check $even --attention cudnn
    corpus
    must env EMU_CUDNN=128 EMU_SLOW=flash "$cuda" $tiny $data --max_steps 1 --save_every 0 --out ""
    expect 2 'is for --dtype bf16' "$cuda" check $even --attention cudnn --dtype fp32
    expect 2 'one or the other' "$cuda" check $even --attention cudnn --kernels plain
    expect 2 "takes fast|plain, not 'avx2'" "$cuda" check $even --kernels avx2
}

# Turing has other instructions and less shared memory, but the same sums. 64 SMs: layernorm's blocks, between which
# rows are divided, are then as many on both.
turing_has_the_bits_of_ampere() {
    has_fp16 || return
    corpus
    run="$tiny $data --max_steps 3"
    must env EMU_CC=75 EMU_SMS=64 EMU_NAME='Tesla T4' "$cuda" $run --out "$dir/turing"
    grep -q 'fp16 MFU' "$dir/out" || note "--dtype auto is not fp16: $(tail -n 3 "$dir/out")"
    must env EMU_SMS=64 "$cuda" $run --dtype fp16 --out "$dir/ampere"
    same_checkpoint "$dir/turing/step_00000003" "$dir/ampere/step_00000003"
}

turing_agrees() {
    has_fp16 || return
    must env EMU_CC=75 "$cuda" check $even $once
    expect 2 'bf16 needs compute capability 8.0, this GPU has 7.5: give --dtype fp16' \
        env EMU_CC=75 "$cuda" check $even --dtype bf16
    expect 2 'TF32 needs compute capability 8.0, this GPU has 7.5: give --dtype fp16' \
        env EMU_CC=75 "$cuda" check $even --dtype tf32
    expect 2 "cuDNN's attention needs compute capability 8.0; give --attention flash" \
        env EMU_CC=75 EMU_CUDNN=1 "$cuda" check $even --attention cudnn
    must env EMU_CC=75 "$cuda" check --model L=1,H=1,C=96,T=16,V=33 --batch_size 1 --dtype fp32 $once
    grep -q 'heads of 96 channels do not fit attention in tiles, which takes multiples of 8 up to 64' "$dir/err" ||
        note "no message about large heads in fp32"
}

# cuBLASLt's fused forms depend on its version: the program replaces those that it lacks.
products_agree_that_cublaslt_does_not_know() {
    must env EMU_LT=1 EMU_CC=90 "$cuda" check $even --dtype bf16 $once
    must env EMU_LT=0 "$cuda" check $even --dtype fp32 $once
    for seed in 11 ${long:+3 12}; do must env EMU_LT=$seed EMU_CC=90 "$cuda" check $even --dtype bf16 $once; done
    for seed in 4 ${long:+11}; do must env EMU_LT=$seed EMU_CC=90 "$cuda" check $eight $once; done
    grep -q 'no algorithm for a matmul' "$dir/err" || note "no warning about slow matmuls"
}

# FP8 needs multiples of 16; these also end within tiles. All three matmuls of a layer on Hopper (90), and on Ada (89)
# without fused forms; with no FP8 matmul in cuBLASLt; and with shapes that are computed in bf16.
eight="--model L=1,H=3,C=48,T=80,V=133 --batch_size 2 --seq_len 72 --dtype fp8"

fp8_agrees() {
    must env EMU_CC=90 "$cuda" check $eight --max_steps 1
    must env EMU_CC=89 EMU_LT=1 EMU_ORDER=1 EMU_LAZY=1 "$cuda" check $eight $once
    ! is_checking_build || return 0 # the others compute in bf16, which is checked above
    corpus
    must env EMU_CC=90 EMU_LT=0 "$cuda" $tiny $data --dtype fp8 --max_steps 1 --save_every 0 --out ""
    grep -q 'no FP8 algorithm' "$dir/err" || note "no warning that there is no FP8"
    must env EMU_CC=90 "$cuda" check $odd --dtype fp8 $once
    grep -q 'a layer of 21 x 84 is computed in bf16: FP8 needs multiples of 16' "$dir/err" ||
        note "no message about odd shapes: $(cat "$dir/err")"
}

# For the build that checks every access; others run such steps in many tests.
two_steps_touch_only_what_they_may() {
    is_checking_build || return 0
    corpus
    for type in fp32 bf16; do
        must "$cuda" $tiny $data --dtype $type --total_batch_size 128 --max_steps 2 --val_every 2 \
            --val_tokens 300 --sample_every 2 --sample_tokens 4 --save_every 2 --out "$dir/$type"
    done
}

run_tests
