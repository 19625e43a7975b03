#!/bin/sh
# Tests the GPU trainer, every kernel emulated on the CPU (test/emulator/), against the CPU trainer and itself.
# usage: emulated.sh build/emu [WORD...]      the folder of `make emu`; runs only tests whose names contain a WORD
emu=${1:?usage: emulated.sh build/emu [WORD...]}
shift
chosen=$*
cuda="$emu/train_gpt2cu" train=build/release/train_gpt2 prepare=build/release/prepare
. "$(dirname "$0")/lib.sh"
# EMU_GUARD=0: closing device memory to the host between launches takes as long as the launches. One test does it.
export ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 EMU_GUARD=0
export EMU_CUDNN=0 # else every start would measure cuDNN's attention; some tests do

tiny="$small --batch_size 2 --val_every 0"

# ----------------------------------------------------------------------------------------------------------------------
# kernels: all operations at three shapes, and training steps, against the CPU's

is_checking_build() { # succeeds in a build that checks every access, which costs
    case $emu in *-check | *-race) return 0 ;; *) return 1 ;; esac
}
is_slow_build() { is_checking_build && [ -z "$long" ]; } # not all is to be tried

# heads of 16, and rows that end within tiles; heads of 7, which do not fit attention in tiles
even="--model L=1,H=2,C=32,T=72,V=133 --batch_size 1 --seq_len 70"
rows=3
if is_checking_build; then rows=2; fi
odd="--model L=1,H=3,C=21,T=40,V=133 --batch_size $rows --seq_len 37"
once="--recompute none --max_steps 1 --tune 0"

# Several steps of two layers, with each --recompute. With EMU_CC=90 GELU is fused.
training_steps_agree() {
    steps=2
    [ -z "$long" ] || steps=10
    must "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 --dtype fp32 --max_steps $steps
    must env EMU_CC=90 "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 --dtype bf16 --max_steps $steps
}
odd_shapes_agree() {
    must env EMU_SMS=1 "$cuda" check $odd --dtype fp32 $once # so small a grid that blocks take rows again
    must "$cuda" check $odd --dtype bf16 $once
}
# Rows that end within packs of 8 and within the halves of layernorm's sums; rows without packs; plain kernels; seed 2,
# since of the 32 elements of a bias one whose gradient is almost 0 may change in the other direction.
a_residual_stream_in_bf16_agrees() {
    stream="--dtype bf16 --residual bf16"
    must env EMU_CC=90 "$cuda" check $even --model L=2,H=2,C=32,T=72,V=133 $stream --max_steps 2 --seed 2
    must "$cuda" check $odd $stream $once
    must "$cuda" check $even $stream --kernels plain $once
    must env EMU_SMS=1 EMU_ORDER=1 "$cuda" check --model L=1,H=2,C=280,T=16,V=133 --batch_size 2 $stream $once
    must env EMU_CC=90 "$cuda" check --model L=1,H=3,C=48,T=80,V=133 --batch_size 2 --seq_len 72 --dtype fp8 \
        --residual bf16 $once
    expect 2 'give --dtype bf16, or leave --residual out' "$cuda" check $even --dtype tf32 --residual bf16
}
tf32_agrees() {
    must env EMU_CC=90 "$cuda" check $even --dtype tf32 $once
}
# Rows of logits that a block holds in registers, ending between two packs.
long_rows_agree() {
    must "$cuda" check --model L=1,H=1,C=16,T=16,V=4203 --batch_size 1 --dtype bf16 $once
    must "$cuda" check --model L=1,H=1,C=32,T=16,V=2203 --batch_size 1 --dtype fp32 $once
}
unfused_kernels_agree() {
    must "$cuda" check $odd --dtype fp32 --fused 0 --attention plain $once
    is_slow_build || must "$cuda" check $even --dtype bf16 --fused 0 --attention plain $once
}
plain_kernels_agree() {
    must "$cuda" check $odd --dtype bf16 --kernels plain $once
    is_slow_build || must "$cuda" check $even --dtype fp32 --kernels plain $once
}
# The checking and race-checking builds have no fp16: its kernels are those of bf16.
has_fp16() { ! is_checking_build; }
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
    lengths=
    if is_slow_build; then lengths="of_31 documents_in_64 several_sequences"; fi
    must env EMU_CUDNN=1 "$emu/test_attention_forms" -cpus $lengths
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
cudnns_attention_agrees() {
    must env EMU_CUDNN=1 "$cuda" check $even $once --attention cudnn
    grep -q 'cuDNN has no attention for 3 x 13 tokens, 3 heads of 14' "$dir/err" ||
        note "no message about what cuDNN lacks"
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" check $even $once
    expect 2 'the stand-in has nothing for this device; give --attention flash' "$cuda" check $even --attention cudnn
    expect 2 'is for --dtype bf16' "$cuda" check $even --attention cudnn --dtype fp32
    expect 2 'one or the other' "$cuda" check $even --attention cudnn --kernels plain
    expect 2 "takes fast|plain, not 'avx2'; give --cpu avx2" "$cuda" check $even --kernels avx2
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
    must env EMU_CC=75 "$cuda" check $odd --dtype fp32 $once
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
    grep -q 'no algorithm for a matmul' "$dir/err" || note "no warning about slow matmuls"
}

# FP8 needs multiples of 16; these also end within tiles. All three matmuls of a layer on Hopper (90), and on Ada (89)
# without fused forms; with no FP8 matmul in cuBLASLt; and with shapes that are computed in bf16.
eight="--model L=1,H=3,C=48,T=80,V=133 --batch_size 2 --seq_len 72 --dtype fp8"
fp8_agrees() {
    must env EMU_CC=90 "$cuda" check $eight --max_steps 1
    must env EMU_CC=89 EMU_LT=1 EMU_ORDER=1 EMU_LAZY=1 "$cuda" check $eight $once
    case $emu in *-check) return ;; esac # the others compute in bf16, which is checked above
    must env EMU_CC=90 EMU_LT=0 "$cuda" check $eight $once
    grep -q 'no FP8 algorithm' "$dir/err" || note "no warning that there is no FP8"
    must env EMU_CC=90 "$cuda" check $odd --dtype fp8 $once
    grep -q 'a layer of 21 x 84 is computed in bf16: FP8 needs multiples of 16' "$dir/err" ||
        note "no message about odd shapes: $(cat "$dir/err")"
}

# A thread that needs another one to run before it is wrong in another order.
kernels_agree_in_any_order_of_threads() {
    must env EMU_ORDER=1 "$cuda" check $odd --dtype fp32 $once
    must env EMU_ORDER=7 "$cuda" check $even --dtype bf16 $once
}

# ----------------------------------------------------------------------------------------------------------------------
# training

# all_digits RUN: prints the losses and norms in a run's metrics, unrounded
all_digits() { records "$1" | sed -n 's/.*"kind":"train".*"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p'; }

near() { # FILE FILE TOLERANCE: two lists of losses and norms agree, relative
    paste -d ' ' "$1" "$2" | awk -v most="$3" '
        { for (i = 1; i <= 2; i++) { d = $i / $(i + 2) - 1; if (d < 0) { d = -d }; if (d > most) bad = 1 }
          if (NF != 4) bad = 1 }
        END { exit bad || !NR }' || note "not within $3: $(paste -d ' ' "$1" "$2")"
}

it_trains_as_the_cpu_does() {
    corpus
    run="$tiny $data --total_batch_size 128 --max_steps 10 --save_every 0"
    must "$train" $run --out "$dir/cpu"
    all_digits "$dir/cpu" >"$dir/cpu.txt"
    must "$cuda" $run --out "$dir/fp32" --dtype fp32
    all_digits "$dir/fp32" >"$dir/fp32.txt"
    near "$dir/fp32.txt" "$dir/cpu.txt" 1e-5
    must "$cuda" $run --out "$dir/bf16" --recompute all
    all_digits "$dir/bf16" >"$dir/bf16.txt"
    near "$dir/bf16.txt" "$dir/cpu.txt" 0.02
    grep -q 'bf16 MFU' "$dir/out" || note "the step line does not name bf16"
    must "$train" $run --out "$dir/cpu_stream" --dtype bf16 --residual bf16
    must "$cuda" $run --out "$dir/stream" --residual bf16
    must "$cuda" $run --out "$dir/again" --residual bf16 --recompute all
    for stream in cpu_stream stream again; do all_digits "$dir/$stream" >"$dir/$stream.txt"; done
    near "$dir/stream.txt" "$dir/cpu_stream.txt" 0.02
    cmp -s "$dir/again.txt" "$dir/stream.txt" || note "a layernorm computed again is not that of the rounded stream"
    cmp -s "$dir/stream.txt" "$dir/bf16.txt" && note "--residual bf16 changed nothing"
}

# cuDNN's attention does not stop at documents.
it_keeps_documents_apart_as_the_cpu_does() {
    corpus
    run="$tiny $data --seq_len 48 --total_batch_size 192 --max_steps 5 --save_every 0"
    must "$train" $run --document_mask --out "$dir/cpu"
    must "$cuda" $run --document_mask --out "$dir/fp32" --dtype fp32
    must "$cuda" $run --document_mask --out "$dir/plain" --dtype fp32 --kernels plain --graph 0
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $run --document_mask --out "$dir/bf16" --recompute all
    grep -q 'attention=flash' "$dir/err" || note "other kernels: $(cat "$dir/err")"
    must "$cuda" $run --out "$dir/whole" --dtype fp32
    for one in cpu fp32 plain bf16 whole; do all_digits "$dir/$one" >"$dir/$one.txt"; done
    near "$dir/fp32.txt" "$dir/cpu.txt" 1e-5
    near "$dir/plain.txt" "$dir/cpu.txt" 1e-5
    near "$dir/bf16.txt" "$dir/cpu.txt" 0.02
    cmp -s "$dir/whole.txt" "$dir/fp32.txt" && note "--document_mask changed nothing"
    expect 2 "only this program's attention stops at documents: give --attention flash" env EMU_CUDNN=1 "$cuda" $run \
        --document_mask --attention cudnn --out ""
}

# Also with weights that are rounded stochastically, by the same random numbers.
it_trains_in_fp16_as_the_cpu_does() {
    has_fp16 || return
    corpus
    run="$tiny $data --max_steps 6 --save_every 3 --keep 0 --dtype fp16"
    for rounding in nearest random; do
        must "$train" $run --out "$dir/cpu"
        all_digits "$dir/cpu" >"$dir/cpu.txt"
        must "$cuda" $run --out "$dir/gpu"
        all_digits "$dir/gpu" >"$dir/gpu.txt"
        near "$dir/gpu.txt" "$dir/cpu.txt" 3e-4
        grep -q 'fp16 MFU' "$dir/out" || note "the step line does not name fp16"
        rm -r "$dir/cpu" "$dir/gpu"
        run="$run --stochastic_round"
    done
}

# Mean relative difference of 200 losses from those in bf16: 2e-4 for fp32, 1.3e-4 for fp8; 3e-3 for a scale that is
# wrong by half, and 1.6e-3 for a weight that is not transposed for the gradient of the activations.
steps_in_fp8_are_those_in_bf16() {
    corpus
    run="--model L=2,H=1,C=16,T=32,V=257 --tokenizer bytes --batch_size 1 --seq_len 32 --lr 2e-3 --warmup_steps 20 \
        --max_steps 80 --val_every 0 --sample_every 0 --save_every 0 --tune 0"
    for type in bf16 fp8; do
        must env EMU_CC=90 "$cuda" $run $data --out "$dir/$type" --dtype $type
        all_digits "$dir/$type" >"$dir/$type.txt"
    done
    grep -q 'fp8 MFU' "$dir/out" || note "the step line does not name fp8"
    paste -d ' ' "$dir/fp8.txt" "$dir/bf16.txt" | awk '
        { d = $1 / $3 - 1; sum += d < 0 ? -d : d; if ($1 != $3) other = 1 }
        END { print sum / NR; exit !(NR == 80 && other && sum / NR < 6e-4) }' >"$dir/mean" ||
        note "losses differ by $(cat "$dir/mean")"
}

# A scale of 2^24 is too large for fp16: the first steps overflow. Every step has the same batch, so that the others are
# those of a run with the fixed scale that was found, to the bit. A change of the scale records the micro-steps of both
# batch buffers anew (in the first step one of them is warm-up); otherwise they are replayed.
overflows_in_fp16_skip_updates() {
    corpus
    run="$tiny $data --dtype fp16 --overfit --schedule constant --total_batch_size 128 --save_every 1 --keep 0 \
        --optimizer muon --momentum_warmup none"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --loss_scale dynamic:16777216 --max_steps 8 --out "$dir/run"
    graphs=$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err") state="$dir/run/step_00000008/state.json"
    scale=$(values_of scale "$state") updates=$(values_of updates "$state")
    overflows=$(grep -c '"kind":"skip"' "$dir/run/metrics.jsonl")
    [ "$updates" = $((8 - overflows)) ] && [ "$overflows" -ge 2 ] && [ "$updates" -ge 2 ] ||
        note "$updates updates, $overflows overflows"
    [ "$graphs" = $((3 + 2 * overflows)) ] || note "$overflows overflows, $graphs graphs"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --loss_scale "$scale" --max_steps "$updates" --out "$dir/fixed"
    grep -q ' 4 graphs' "$dir/err" || note "a fixed scale: $(tail -n 1 "$dir/err")"
    same_checkpoint "$dir/fixed/step_$(printf %08d "$updates")" "$dir/run/step_00000008"
    must "$cuda" $run --graph 0 --loss_scale dynamic:16777216 --max_steps 8 --skip_loss_z 9 --skip_norm_z 9 \
        --out "$dir/waits"
    same_files "$dir/run" "$dir/waits" 8
    mkdir "$dir/again"
    cp -r "$dir/run/step_00000002" "$dir/run/metrics.jsonl" "$dir/again"
    must "$cuda" --out "$dir/again" --resume auto
    same_files "$dir/run" "$dir/again" 8
    expect 4 'not finite, so the run ends here. Give --loss_scale dynamic' "$cuda" $run --loss_scale 16777216 --out ""
    for program in "$train" "$cuda"; do
        must "$program" $run --max_steps 8 --save_every 0 --out "$dir/${program##*/}"
        all_digits "$dir/${program##*/}" >"$dir/${program##*/}.txt"
    done
    near "$dir/train_gpt2cu.txt" "$dir/train_gpt2.txt" 2e-3
}

# An infinite weight must not become FP8's largest number. The test writes the largest float, which is infinite in bf16.
fp8_hides_no_infinity() {
    corpus
    export EMU_CC=90
    must "$train" $tiny $data --max_steps 1 --out "$dir/run"
    mkdir "$dir/bad"
    cp "$dir/run/step_00000001/config.json" "$dir/run/step_00000001/model.safetensors" "$dir/bad"
    file="$dir/bad/model.safetensors"
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    begin=$(head -c $((8 + header)) "$file" |
        sed 's/.*"transformer.h.1.mlp.c_fc.weight": *{[^}]*"data_offsets": *\[\([0-9]*\),.*/\1/' | tail -n 1)
    must "$cuda" $tiny $data --dtype fp8 --max_steps 1 --save_every 0 --init "$dir/bad" --out "$dir/good"
    printf '\377\377\177\177' | dd of="$file" bs=1 seek=$((8 + header + begin)) conv=notrunc 2>/dev/null
    expect 4 'not finite' "$cuda" $tiny $data --dtype fp8 --max_steps 1 --init "$dir/bad" --out "$dir/inf"
    unset EMU_CC
}

# Device memory is closed to the host between launches, except in builds that check memory themselves.
two_steps_touch_only_what_they_may() {
    corpus
    guard=1 types=bf16 # what the host may touch does not depend on the type
    if is_checking_build; then guard=0 types="fp32 bf16"; fi
    for type in $types; do
        must env EMU_GUARD=$guard "$cuda" $tiny $data --dtype $type --total_batch_size 128 --max_steps 2 --val_every 2 \
            --val_tokens 300 --sample_every 2 --sample_tokens 4 --save_every 2 --out "$dir/$type"
    done
}

same_files() { # FOLDER FOLDER STEP: weights and moments of two runs have the same bits
    step=step_$(printf %08d "$3")
    same_checkpoint "$1/$step" "$2/$step"
}

# Weights and moments have the same bits in other orders of threads and blocks, and with streams that run only when the
# host waits for them.
the_same_run_gives_the_same_bits() {
    corpus
    for type in fp32 bf16; do
        run="$tiny $data --dtype $type --max_steps 3 --save_every 3"
        must "$cuda" $run --out "$dir/$type"
        must env EMU_ORDER=1 "$cuda" $run --out "$dir/$type.reverse"
        must env EMU_ORDER=5 EMU_LAZY=1 "$cuda" $run --out "$dir/$type.lazy"
        for other in reverse lazy; do same_files "$dir/$type" "$dir/$type.$other" 3; done
    done
}

# The CPU fills the windows of z-scores. On the GPU step 134, windows 266 and 267, is a spike: the run ends, goes on from
# step 132 without windows 264 to 267, and ends with the bits of a run on data without them.
a_run_goes_back_and_leaves_out_a_spike() {
    seq -f %07g 2000 | sed '1065,1072s/.*/~~~~~~~/' >"$dir/bad.txt"
    sed 1057,1072d "$dir/bad.txt" >"$dir/clean.txt"
    for name in bad clean; do
        must "$prepare" --format text --tokenizer bytes --val_size 0 --out "$dir/$name" "$dir/$name.txt"
        must "$train" $tiny --shuffle 0 --schedule constant --max_steps 130 --save_every 130 --skip_loss_z 3 \
            --on_spike stop --bad_steps 1 --train_data "$dir/${name}_train_*.bin" --out "$dir/$name"
    done
    on="--resume auto --max_steps 138 --save_every 2 --keep 0"
    must env EMU_LAZY=1 "$cuda" --out "$dir/clean" $on
    expect 4 'step_00000132. To go on from it without the data since then: --resume auto --skip_windows 264-267' \
        env EMU_LAZY=1 "$cuda" --out "$dir/bad" $on
    must env EMU_LAZY=1 "$cuda" --out "$dir/bad" $on --skip_windows 264-267
    same_files "$dir/clean" "$dir/bad" 138
}

checkpoints_go_from_one_device_to_the_other() {
    corpus
    run="$tiny $data --max_steps 8 --save_every 4"
    must "$train" $run --out "$dir/cpu"
    all_digits "$dir/cpu" >"$dir/cpu.txt"
    mkdir "$dir/to_gpu" "$dir/to_cpu"
    cp -r "$dir/cpu/step_00000004" "$dir/cpu/metrics.jsonl" "$dir/to_gpu"
    must "$cuda" --out "$dir/to_gpu" --resume auto
    all_digits "$dir/to_gpu" >"$dir/to_gpu.txt"
    near "$dir/to_gpu.txt" "$dir/cpu.txt" 1e-5
    must "$cuda" $run --dtype fp32 --out "$dir/gpu"
    cp -r "$dir/gpu/step_00000004" "$dir/gpu/metrics.jsonl" "$dir/to_cpu"
    must "$train" --out "$dir/to_cpu" --resume auto
    all_digits "$dir/to_cpu" >"$dir/to_cpu.txt"
    near "$dir/to_cpu.txt" "$dir/cpu.txt" 1e-5
}

a_resumed_run_keeps_its_bits_and_its_dtype() {
    corpus
    run="$tiny $data --max_steps 4 --save_every 2"
    export EMU_CC=90
    for type in tf32 bf16 fp16 fp8; do
        [ $type != fp16 ] || has_fp16 || continue
        round="--stochastic_round 1" # where weights are rounded
        [ $type != tf32 ] || round=
        must "$cuda" $run --dtype $type $round --out "$dir/$type"
        mkdir "$dir/again"
        cp -r "$dir/$type/step_00000002" "$dir/$type/metrics.jsonl" "$dir/again"
        must "$cuda" --out "$dir/again" --resume auto
        grep -q ", $type, " "$dir/err" || note "$type run resumed in another dtype: $(grep TFLOP "$dir/err")"
        same_files "$dir/$type" "$dir/again" 4
        rm -r "$dir/again"
    done
    cp -r "$dir/fp8/step_00000002" "$dir/fp8/metrics.jsonl" "$dir/tf32" && rm -r "$dir/tf32/step_00000004"
    must "$cuda" --out "$dir/tf32" --resume auto --dtype bf16
    grep -q 'changed since the checkpoint: --dtype bf16 (was fp8)' "$dir/err" || note "fp8 to bf16: $(cat "$dir/err")"
    unset EMU_CC
}

# A resumed run keeps the variants that were chosen by timing, if they exist here, even if others are faster now.
chosen_is() { # RUN VARIANTS: the last checkpoint of the run names these
    set +f
    grep -qF "\"$2\"" "$1"/step_*4/state.json || note "not $2: $(grep -h attention= "$1"/step_*4/state.json)"
    set -f
}
the_fastest_kernels_are_chosen_and_kept() {
    corpus
    run="$tiny $data --batch_size 4 --val_every 4 --val_tokens 200 --max_steps 4 --save_every 2"
    must "$cuda" $run --out "$dir/none"
    chosen_is "$dir/none" 'attention=flash gelu_forward=apart gelu_backward=apart'
    must env EMU_CC=90 EMU_CUDNN=1 "$cuda" $run --out "$dir/equal"
    chosen_is "$dir/equal" 'attention=flash gelu_forward=fused gelu_backward=fused'
    must env EMU_CUDNN=1 EMU_SLOW=gelu_forward "$cuda" $run --out "$dir/gelu"
    chosen_is "$dir/gelu" 'attention=flash gelu_forward=fused gelu_backward=apart'
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $run --attention flash --out "$dir/forced"
    chosen_is "$dir/forced" 'attention=flash gelu_forward=apart gelu_backward=apart'
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $run --out "$dir/cudnn"
    chosen_is "$dir/cudnn" 'attention=cudnn gelu_forward=apart gelu_backward=apart'
    cmp -s "$dir/cudnn/step_00000004/model.safetensors" "$dir/none/step_00000004/model.safetensors" &&
        note "cuDNN's attention gives the bits of ours"
    mkdir "$dir/again" "$dir/lacking"
    cp -r "$dir/cudnn/step_00000002" "$dir/again"
    cp -r "$dir/cudnn/step_00000002" "$dir/lacking"
    must env EMU_CUDNN=1 EMU_SLOW=gelu "$cuda" --out "$dir/again" --resume auto
    chosen_is "$dir/again" 'attention=cudnn gelu_forward=apart gelu_backward=apart'
    same_files "$dir/cudnn" "$dir/again" 4
    expect 0 'attention=cudnn, which the checkpoint was trained with, does not exist here' \
        "$cuda" --out "$dir/lacking" --resume auto
    chosen_is "$dir/lacking" 'attention=flash gelu_forward=apart gelu_backward=apart'
}

# Tilings of flash attention, which heads of 64 channels have several of. A name without a number slows all of them
# equally.
tilings_of_attention_are_chosen_and_kept() {
    corpus
    run="$small $data --model L=1,H=1,C=64,T=40,V=257 --batch_size 2 --seq_len 40 --val_every 0 --max_steps 4 \
        --save_every 2 --dtype bf16 --tune 0"
    rest='attention=flash gelu_forward=apart gelu_backward=apart'
    must env EMU_SLOW=flash "$cuda" $run --out "$dir/equal"
    chosen_is "$dir/equal" "$rest flash_forward=4x32x32 flash_keys=4x32x16 flash_queries=4x32x16"
    first='[with Type = __nv_bfloat16; int HD = 64; int VARIANT = 0; bool DOCUMENTS = false]'
    for kernel in forward backward_keys backward_queries; do
        must env EMU_SLOW="flash_${kernel}_kernel $first" "$cuda" $run --out "$dir/$kernel"
    done
    chosen_is "$dir/forward" "$rest flash_forward=4x32x64 flash_keys=4x32x16 flash_queries=4x32x16"
    chosen_is "$dir/backward_keys" "$rest flash_forward=4x32x32 flash_keys=4x32x32 flash_queries=4x32x16"
    chosen_is "$dir/backward_queries" "$rest flash_forward=4x32x32 flash_keys=4x32x16 flash_queries=4x32x32"
    mkdir "$dir/again"
    cp -r "$dir/forward/step_00000002" "$dir/forward/metrics.jsonl" "$dir/again"
    must "$cuda" --out "$dir/again" --resume auto # with equally fast tilings
    chosen_is "$dir/again" "$rest flash_forward=4x32x64 flash_keys=4x32x16 flash_queries=4x32x16"
    same_files "$dir/forward" "$dir/again" 4
    # with documents 4x32x64 does not exist, so only 8x16x32 is left beside 4x32x32
    masked='[with Type = __nv_bfloat16; int HD = 64; int VARIANT = 0; bool DOCUMENTS = true]'
    must env EMU_SLOW="flash_forward_kernel $masked" "$cuda" $run --document_mask --out "$dir/masked"
    kept="$rest flash_forward=8x16x32 flash_keys=4x32x16 flash_queries=4x32x16"
    chosen_is "$dir/masked" "$kept"
    mkdir "$dir/masked_again"
    cp -r "$dir/masked/step_00000002" "$dir/masked/metrics.jsonl" "$dir/masked_again"
    must "$cuda" --out "$dir/masked_again" --resume auto
    chosen_is "$dir/masked_again" "$kept"
}

# The algorithms of matmuls are part of the run too. Those of the emulated library differ in their last bits.
the_fastest_algorithms_are_chosen_and_kept() {
    corpus
    run="$tiny $data --dtype bf16 --max_steps 4 --save_every 2"
    export XDG_CACHE_HOME="$dir/cache"
    must "$cuda" $run --tune 0 --out "$dir/untuned"
    grep -q '"matmuls"' "$dir/untuned/step_00000004/state.json" && note "--tune 0 chose"
    must "$cuda" $run --tune anew --out "$dir/equal" # none is faster than the library's first proposal
    same_files "$dir/untuned" "$dir/equal" 4
    rm -r "$dir/cache"
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --tune 1 --out "$dir/tuned"
    model=step_00000004/model.safetensors
    cmp -s "$dir/tuned/$model" "$dir/equal/$model" && note "another algorithm gives the same bits"
    mkdir "$dir/again"
    cp -r "$dir/tuned/step_00000002" "$dir/tuned/metrics.jsonl" "$dir/again"
    must "$cuda" --out "$dir/again" --resume auto --tune anew # of the checkpoint, though the first is as fast now
    same_files "$dir/tuned" "$dir/again" 4
    must "$cuda" $run --tune 1 --out "$dir/cached"
    same_files "$dir/tuned" "$dir/cached" 4
    sed -i 's/ [^ ]*$/ 1.2.3/' "$(find "$dir/cache" -type f)" # what the library does not know
    expect 0 'no longer offers the algorithm' "$cuda" $run --tune 1 --out "$dir/unknown"
    same_files "$dir/equal" "$dir/unknown" 4
    export XDG_CACHE_HOME="$root/cache"
}

# Sets of 1 to 26 items have matmuls of their own, in all more than the table of plans has room for.
scoring_many_sets_changes_no_algorithm_of_training() {
    corpus
    sets=
    for items in $(seq 26); do
        seq "$items" | sed 's/.*/{"text": "a b"}/' >"$dir/lambada_$items.jsonl"
        sets="${sets:+$sets,}$dir/lambada_$items.jsonl"
    done
    run="$tiny $data --dtype bf16 --batch_size 26 --seq_len 8 --max_steps 2 --save_every 2 --tune anew \
        --graph 0"
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --out "$dir/alone"
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --eval_data "$sets" --eval_every 2 --out "$dir/scored"
    same_files "$dir/alone" "$dir/scored" 2
}

# A fused epilogue that takes longer than kernels of its own is left out: as with --fused 0, but for GELU's way.
slow_epilogues_are_computed_apart() {
    corpus
    run="$tiny $data --dtype bf16 --max_steps 4 --save_every 2 --tune anew"
    must env EMU_SLOW=cublaslt_fused "$cuda" $run --out "$dir/apart"
    grep -q ' apart"' "$dir/apart/step_00000004/state.json" || note "no epilogue is apart"
    must "$cuda" $run --fused 0 --out "$dir/unfused"
    same_files "$dir/apart" "$dir/unfused" 4
    mkdir "$dir/again"
    cp -r "$dir/apart/step_00000002" "$dir/apart/metrics.jsonl" "$dir/again"
    must "$cuda" --out "$dir/again" --resume auto
    same_files "$dir/apart" "$dir/again" 4
    must env EMU_SLOW=cublaslt_0 "$cuda" bench plans --model L=1,H=2,C=32,T=32,V=64 --batch_size 1 --out "$dir/plans"
    awk '/ x / { fused = / \+ / } fused { next } /^   0\*/ { bad = 1 } /^   1\*/ { n++ } END { exit bad || !n }' \
        "$dir/out" || note "not the second algorithm: $(cat "$dir/out")"
    grep -q '"chosen": true' "$dir/plans/plans.json" || note "plans.json names no choice"
    expect 2 'run train_gpt2cu' "$train" bench plans --out ""
}

stochastic_rounding_is_a_run_of_its_own() {
    corpus
    must "$cuda" $tiny $data --max_steps 3 --save_every 0 --out "$dir/nearest"
    must "$cuda" $tiny $data --max_steps 3 --save_every 0 --out "$dir/random" --stochastic_round
    all_digits "$dir/nearest" >"$dir/nearest.txt"
    all_digits "$dir/random" >"$dir/random.txt"
    near "$dir/random.txt" "$dir/nearest.txt" 0.02
    cmp -s "$dir/random.txt" "$dir/nearest.txt" && note "no different"
}

# Replayed graphs give the bits of kernels launched one by one: with one, two and three micro-batches a step (after an
# odd number the next step begins with the other of the two batch buffers), with streams that run late, and with
# validation and samples in between.
graphs_change_no_bit() {
    corpus
    for tokens in 64 128 192; do
        run="$tiny $data --seq_len 16 --batch_size 4 --total_batch_size $tokens --max_steps 4 --save_every 4 \
            --val_every 2 --val_tokens 160 --sample_every 3 --sample_tokens 3"
        must "$cuda" $run --graph 0 --out "$dir/launches"
        must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --out "$dir/graphs"
        grep -q ' 4 graphs' "$dir/err" ||
            note "not the graphs of two micro-steps, norm and update: $(tail -n 1 "$dir/err")"
        same_files "$dir/launches" "$dir/graphs" 4
        rm -r "$dir/launches" "$dir/graphs"
    done
}

# Muon trains as on the CPU, also with more matrices than a stack holds. Graphs, a resumption and algorithms that were
# chosen before change no bit.
muon_trains_as_the_cpu_does() {
    corpus
    run="$tiny $data --optimizer muon --matrix_lr 0.05 --cautious_decay 1 --schedule constant --max_steps 10 \
        --save_every 3 --keep 0"
    deep="$run --model L=17,H=1,C=12,T=48,V=257 --max_steps 3 --kernels plain"
    must "$train" $run --dtype fp32 --out "$dir/cpu"
    must "$cuda" $run --dtype fp32 --out "$dir/fp32"
    must "$train" $deep --dtype fp32 --out "$dir/deep_cpu"
    must "$cuda" $deep --dtype fp32 --out "$dir/deep"
    for name in cpu fp32 deep_cpu deep; do all_digits "$dir/$name" >"$dir/$name.txt"; done
    near "$dir/fp32.txt" "$dir/cpu.txt" 1e-5
    near "$dir/deep.txt" "$dir/deep_cpu.txt" 1e-5

    run="$run --dtype bf16 --max_steps 6 --tune anew"
    must env EMU_SLOW=cublaslt_0 EMU_LAZY=1 EMU_COUNT=1 "$cuda" $run --out "$dir/bf16"
    grep -q ',8,1 ' "$dir/bf16/step_00000006/state.json" || note "no algorithm for a stack of 8 matrices was chosen"
    grep -q ' 4 graphs' "$dir/err" || note "$(tail -n 1 "$dir/err")"
    head -n 6 "$dir/cpu.txt" >"$dir/begin.txt"
    all_digits "$dir/bf16" >"$dir/bf16.txt"
    near "$dir/bf16.txt" "$dir/begin.txt" 1e-2
    must "$cuda" $run --stochastic_round 1 --max_steps 2 --save_every 0 --out "$dir/stochastic"
    all_digits "$dir/stochastic" >"$dir/stochastic.txt"
    head -n 2 "$dir/cpu.txt" >"$dir/begin.txt"
    near "$dir/stochastic.txt" "$dir/begin.txt" 1e-2
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --graph 0 --out "$dir/launches"
    same_files "$dir/bf16" "$dir/launches" 6
    mkdir "$dir/resumed"
    cp -r "$dir/bf16/step_00000003" "$dir/bf16/metrics.jsonl" "$dir/resumed"
    must "$cuda" --out "$dir/resumed" --resume auto --tune anew
    same_files "$dir/bf16" "$dir/resumed" 6
}

# Values that a graph holds change: the weight of a token in the loss, and the rows of a micro-batch that is not full.
graphs_follow_a_growing_batch_and_a_resumed_run() {
    corpus
    run="$tiny $data --seq_len 16 --batch_size 4 --total_batch_size 192 --batch_ramp 48:400 --max_steps 5 \
        --save_every 6 --keep 0"
    must "$cuda" $run --dtype fp32 --graph 0 --out "$dir/launches"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --dtype fp32 --out "$dir/graphs"
    [ "$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err")" -gt 4 ] ||
        note "nothing was recorded again: $(tail -n 1 "$dir/err")"
    same_files "$dir/launches" "$dir/graphs" 10
    all_digits "$dir/launches" >"$dir/launches.txt"
    all_digits "$dir/graphs" | cmp -s - "$dir/launches.txt" || note "other losses and norms"
    mkdir "$dir/resumed"
    cp -r "$dir/graphs/step_00000006" "$dir/graphs/metrics.jsonl" "$dir/resumed"
    must "$cuda" --out "$dir/resumed" --resume auto
    same_files "$dir/launches" "$dir/resumed" 10
}

# Graphs are recorded anew for each length. cuDNN computes attention of the full length, our kernels the others.
sequences_grow_as_on_the_cpu() {
    corpus
    run="$tiny $data --total_batch_size 192 --seq_ramp 8:384 --max_steps 4 --save_every 2"
    must "$train" $run --out "$dir/cpu"
    must env EMU_COUNT=1 EMU_LAZY=1 "$cuda" $run --dtype fp32 --out "$dir/graphs"
    [ "$(sed -n 's/^emu: .* \([0-9]*\) graphs.*/\1/p' "$dir/err")" = 8 ] ||
        note "not two graphs of each length, norm and update: $(tail -n 1 "$dir/err")"
    must "$cuda" $run --dtype fp32 --graph 0 --out "$dir/launches"
    for r in cpu graphs launches; do all_digits "$dir/$r" >"$dir/$r.txt"; done
    near "$dir/graphs.txt" "$dir/cpu.txt" 1e-5
    same_files "$dir/launches" "$dir/graphs" 4
    mkdir "$dir/resumed"
    cp -r "$dir/graphs/step_00000002" "$dir/graphs/metrics.jsonl" "$dir/resumed"
    must "$cuda" --out "$dir/resumed" --resume auto
    same_files "$dir/launches" "$dir/resumed" 4
    must env EMU_CUDNN=1 "$cuda" $run --attention cudnn --out "$dir/cudnn"
    all_digits "$dir/cudnn" >"$dir/cudnn.txt"
    near "$dir/cudnn.txt" "$dir/cpu.txt" 0.02
}

growing_sequences_keep_documents_apart() {
    corpus
    run="$tiny $data --total_batch_size 192 --seq_len 48 --seq_ramp 12:384 --document_mask --max_steps 4 --save_every 2"
    must "$train" $run --dtype fp32 --out "$dir/cpu"
    must "$cuda" $run --dtype fp32 --out "$dir/gpu"
    must "$train" $run --dtype fp32 --document_mask 0 --out "$dir/whole"
    for r in cpu gpu whole; do all_digits "$dir/$r" >"$dir/$r.txt"; done
    near "$dir/gpu.txt" "$dir/cpu.txt" 1e-5
    cmp -s "$dir/whole.txt" "$dir/cpu.txt" && note "--document_mask changed nothing"
    for r in cpu gpu; do
        mkdir "$dir/again_$r"
        cp -r "$dir/$r/step_00000002" "$dir/$r/metrics.jsonl" "$dir/again_$r"
    done
    must "$train" --out "$dir/again_cpu" --resume auto
    must "$cuda" --out "$dir/again_gpu" --resume auto
    for r in cpu gpu; do same_files "$dir/$r" "$dir/again_$r" 4; done
}

# Capturing piece 20, in the micro-step, or piece 77, in the update, fails: training goes on without graphs, and says so
# once. With --skip_loss_z the host waits for the loss before it queues the update: the bits stay the same.
training_does_without_graphs_that_cannot_be_recorded() {
    corpus
    run="$tiny $data --max_steps 4 --save_every 4"
    must "$cuda" $run --graph 0 --out "$dir/launches"
    for piece in 20 77; do
        must env EMU_CAPTURE=$piece "$cuda" $run --out "$dir/graphs"
        [ "$(grep -c 'cannot be recorded as a CUDA graph' "$dir/err")" = 1 ] ||
            note "piece $piece: $(grep -a graph "$dir/err")"
        same_files "$dir/launches" "$dir/graphs" 4
        rm -r "$dir/graphs"
    done
    must "$cuda" $run --skip_loss_z 9 --skip_norm_z 9 --out "$dir/graphs"
    same_files "$dir/launches" "$dir/graphs" 4
}

text_and_validation_are_the_cpus() {
    corpus
    must "$train" $tiny $data --max_steps 30 --save_every 30 --out "$dir/run"
    "$train" generate --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon' \
        >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" generate --dtype fp32 --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon'
    cmp -s "$dir/out" "$dir/cpu.txt" || note "another text: $(cat "$dir/out")"
    "$train" eval --out "$dir/run" --val_tokens 2000 >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" eval --dtype fp32 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-10) }' ||
        note "$(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" eval --dtype bf16 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-5) }' ||
        note "bf16: $(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" generate --dtype bf16 --out "$dir/run" --sample_tokens 10
    must "$cuda" info --model L=2,H=2,C=32,T=48,V=257
    grep -q 'standard deviation of the residual stream' "$dir/out" || note "info ended early"
}

test_sets_have_the_scores_of_the_cpu() {
    scored="--init test/golden/gpt2 --tokenizer test/golden/eval/tokenizer.bin --eval_data \
        test/golden/eval/hellaswag.jsonl,test/golden/eval/lambada.jsonl"
    "$train" eval $scored 2>/dev/null | grep '^[HL]' >"$dir/cpu.txt"
    for dtype in fp32 bf16; do
        must "$cuda" eval $scored --dtype $dtype --batch_size 3
        grep '^[HL]' "$dir/out" | cmp -s - "$dir/cpu.txt" || note "$dtype: $(cat "$dir/out"), not $(cat "$dir/cpu.txt")"
    done
}

every_rung_of_the_ladder_arrives_at_the_same_loss() {
    ladder="bench ladder --model L=1,H=1,C=16,T=16,V=50 --batch_size 1 --max_steps 1 --out $dir/ladder"
    must "$cuda" $ladder
    [ "$(grep -c ' ok ' "$dir/out")" = 9 ] || note "not nine rungs: $(cat "$dir/out")"
    grep -q '^fp8 .*FP8 needs compute capability 8.9, this GPU has 8.0' "$dir/out" ||
        note "no reason why there is no FP8"
    must env EMU_CC=90 "$cuda" $ladder
    awk '$1 == "fp8" { found = / ok / && $7 <= $6 } END { exit !found }' "$dir/out" || note "fp8: $(cat "$dir/out")"
}

# Graphs replay as many launches as the operations that `bench step` lists have together. Of the three steps the first
# runs without graphs.
a_step_replays_the_kernels_of_its_list() {
    corpus
    shape="--model L=1,H=2,C=32,T=48,V=257 --batch_size 16 --seq_len 48 --total_batch_size 768"
    for options in "--dtype bf16 --residual bf16" "--dtype tf32 --fused 0 --recompute all" \
        "--dtype bf16 --optimizer muon"; do
        must env EMU_COUNT=1 EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3' "$cuda" $small $data --val_every 0 \
            $shape $options --max_steps 3 --save_every 0 --out "$dir/run"
        ran=$(sed -n 's/^emu: .* replays of \([0-9]*\) pieces.*/\1/p' "$dir/err")
        unfused=0
        case $options in *--fused*) unfused=1 ;; esac
        must "$cuda" bench step $shape $options --out ""
        listed=$(awk -v unfused=$unfused '
            BEGIN { # launches of an operation that has more than one; unfused: the bias, and GELU
                of["matmul_forward"] = 1 + unfused
                of["matmul_gelu_forward"] = 1 + 2 * unfused
                of["matmul_backward"] = 3 + unfused
                of["matmul_gelu_backward"] = 3 + 2 * unfused
                of["attention_backward"] = of["layernorm_backward"] = of["encoder_backward"] = 3
                of["classifier_backward"] = 4
                of["norm_squared"] = 2
                of["muon_update"] = 3 + 5 * 3
            }
            NR > 2 && $1 != "step" { sum += $(NF - 3) * ($1 in of ? of[$1] : 1) }
            END { print sum + 2 } # the gradient of the residual stream is zeroed, settings are copied
        ' "$dir/out")
        [ "$ran" = $((2 * listed)) ] || note "$options: $ran in two steps, $listed listed for one"
        rm -r "$dir/run"
    done
}

a_step_is_listed_without_a_gpu() {
    for options in "--dtype bf16" "--dtype tf32 --recompute all" "--dtype fp8 --residual bf16 --optimizer muon"; do
        must env EMU_DEVICES=0 "$cuda" bench step $options --batch_size 16 --out ""
        "$train" bench step $options --batch_size 16 --out "" | cmp -s - "$dir/out" || note "$options: two lists"
    done
}

operations_have_the_data_sheet_beside() {
    must env EMU_NAME='NVIDIA A100-SXM4-80GB' "$cuda" bench ops loss_add \
        --model L=1,H=1,C=16,T=16,V=50 --batch_size 1 --out "$dir/ops"
    must env EMU_CC=90 "$cuda" bench ops loss_add --dtype fp8 --model L=1,H=1,C=16,T=16,V=50 --batch_size 1 --out ""
    grep -q '"published_gflop_s": 312000' "$dir/ops/ops.json" || note "no data sheet in ops.json: $(cat "$dir/out")"
    grep -q 'dashed, by data sheet' "$dir/ops/ops.svg" || note "no data sheet's roof in the chart"
    ops="bench ops attention_forward attention_backward --attention cudnn --model L=1,H=2,C=32,T=16,V=50 \
        --batch_size 1 --out"
    must env EMU_CUDNN=1 "$cuda" $ops "$dir/ops"
    [ "$(grep -c '^attention_.* of ' "$dir/out")" = 2 ] && ! grep -q 'our own kernels run instead' "$dir/err" ||
        note "not cuDNN's: $(cat "$dir/out" "$dir/err")"
    expect 2 'the stand-in has nothing for this device' env EMU_CUDNN=0 "$cuda" $ops ""
}

operations_are_timed_with_the_choices_of_training() {
    ops="bench ops loss_add --dtype bf16 --model L=1,H=2,C=32,T=16,V=50 --batch_size 1 --tune 1 --out $dir"
    export XDG_CACHE_HOME="$dir/cache"
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $ops --tune 0
    grep -q '^ops: .* attention=cudnn .* kernels' "$dir/out" && grep -q '"attention=cudnn ' "$dir/ops.json" ||
        note "attention was not chosen: $(cat "$dir/out")"
    grep -q "^matmuls: the first algorithm .* --tune 0" "$dir/out" || note "--tune 0: $(cat "$dir/out")"
    [ ! -d "$dir/cache" ] || note "--tune 0 tunes"
    must "$cuda" $ops
    grep -q '^matmuls: the fastest algorithm' "$dir/out" || note "not the fastest: $(cat "$dir/out")"
    [ "$(find "$dir/cache" -type f -exec cat {} + | wc -l)" -gt 10 ] || note "no matmul of training was tuned"
    export XDG_CACHE_HOME="$root/cache"
}

# ----------------------------------------------------------------------------------------------------------------------
# what can be wrong with a GPU

a_missing_driver_or_gpu_is_named() {
    corpus
    run="$cuda $tiny $data --max_steps 2 --out $dir/run"
    expect 1 'no NVIDIA driver' env EMU_DRIVER=0 $run
    expect 1 'driver is too old: it knows CUDA 11.4' env EMU_DRIVER=11040 $run
    expect 1 'no NVIDIA GPU that this process can see' env EMU_DEVICES=0 $run
    expect 1 'has compute capability 7.0: this program needs 7.5' env EMU_CC=70 $run
    expect 2 'this GPU has 8.6: give --dtype bf16' env EMU_CC=86 $run --dtype fp8
    expect 2 'the plain kernels have no FP8: give --dtype bf16' env EMU_CC=90 $run --dtype fp8 --kernels plain
    one="$tiny $data --max_steps 1 --save_every 0"
    expect 0 'a peak of 1979 TFLOP/s' env EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3' \
        "$cuda" $one --dtype fp8 --out "$dir/h100"
    expect 0 'usage:' env EMU_DRIVER=0 "$cuda" --help
    expect 0 'a peak of 312 TFLOP/s' env EMU_NAME='NVIDIA A100-SXM4-80GB' "$cuda" $one --out "$dir/a100"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

too_little_memory_is_refused_before_anything_is_allocated() {
    corpus
    run="$tiny $data --model L=2,H=2,C=64,T=64,V=257 --seq_len 64 --max_steps 1"
    expect 1 'not enough memory on the GPU' env EMU_MEMORY=600663296 "$cuda" $run --batch_size 2048 --out "$dir/run"
    grep -q -- '--batch_size [1-9]' "$dir/err" || note "no batch size that fits: $(cat "$dir/err")"
    expect 0 'fits' env EMU_MEMORY=600663296 "$cuda" $run --total_batch_size 512 --batch_size auto --save_every 0 \
        --out "$dir/auto"
}

# 1558M fits into 40 GB, but not into 24: its weights, gradients and moments alone take more.
what_fits_is_known_without_a_gpu() {
    expect 0 'no GPU here' env EMU_DEVICES=0 "$cuda" info --model all
    awk '$1 == "gpt2-xl" && $2 == "all" { found = $5 == "-" && $6 >= 4 && $7 > $6 }
        END { exit !found }' "$dir/out" || note "$(cat "$dir/out")"
    expect 0 'a sequence more' env EMU_DRIVER=0 "$cuda" info --model gpt2-xl --batch_size 4
    expect 2 'there is no GPU here' env EMU_DEVICES=0 "$cuda" info --batch_size auto
}

# The most memory that a run allocates is what it plans, to a tenth of a MiB, but for what both have beside the model: a
# margin of 48 MiB in the plan, and 144 MiB that device_open() takes on the GPU. An A100's peak is in a table: measuring
# it would take memory. With --attention flash the plan has no workspace of cuDNN, which is allocated only if cuDNN is
# chosen.
the_plan_is_what_is_allocated() {
    corpus
    run="$tiny $data --max_steps 1 --save_every 0 --attention flash"
    for options in "--recompute none" "--recompute gelu --dtype fp32" \
        "--recompute all --model L=2,H=2,C=32,T=1024,V=257 --sample_every 1 --sample_tokens 2"; do
        must env EMU_COUNT=1 EMU_NAME='NVIDIA A100-SXM4-80GB' "$cuda" $run --out "$dir/run" $options
        plan=$(sed -n 's/.* \([0-9.]*\) MiB of memory$/\1/p' "$dir/err")
        most=$(sed -n 's/^emu: .* \([0-9]*\) bytes at most$/\1/p' "$dir/err")
        awk -v plan="$plan" -v most="$most" '
            BEGIN { d = plan - 48 - (most / 1048576 - 144); exit !(most > 0 && d > -0.1 && d < 0.1) }' ||
            note "$options: $plan MiB planned, $most bytes allocated"
    done
}

# The table of `info`, --batch_size auto and the check before a run agree, and the largest batch runs.
the_largest_batch_runs_and_a_larger_one_is_refused() {
    corpus
    export EMU_MEMORY=479663296
    run="$tiny $data --seq_len 16 --max_steps 1 --save_every 0"
    must "$cuda" info --model L=2,H=2,C=32,T=48,V=257 --seq_len 16
    most=$(awk '$2 == "none" { print $8 }' "$dir/out")
    expect 0 "batch_size $most fits" "$cuda" $run --sample_every 1 --sample_tokens 2 --batch_size auto \
        --total_batch_size $((16 * most)) --out "$dir/auto"
    expect 1 "give --batch_size" "$cuda" $run --sample_every 1 --batch_size $((2 * most)) --out "$dir/run"
    expect 1 "not enough memory on the GPU" "$cuda" $run --sample_every 1 --batch_size $((most + 1)) --out "$dir/run"
    unset EMU_MEMORY
}

# Launch or synchronization 210, of step 5, fails, and all after it: a checkpoint before it is good. In fp32 nothing is chosen by
# timing, so that the number of launches is always the same.
a_gpu_that_fails_leaves_the_last_checkpoint_good() {
    corpus
    run="$tiny $data --dtype fp32 --max_steps 6 --save_every 2"
    must "$cuda" $run --out "$dir/whole"
    for error in 214 719 700; do
        env EMU_FAIL=210:$error "$cuda" $run --out "$dir/run" >"$dir/out" 2>"$dir/err"
        [ $? = 1 ] || note "error $error: exit code not 1: $(tail -n 1 "$dir/err")"
        grep -q 'go on with --resume auto' "$dir/err" || note "error $error: $(tail -n 1 "$dir/err")"
        ls "$dir/run" | grep -q step_0 || note "error $error came before the first checkpoint"
        must "$cuda" --out "$dir/run" --resume auto
        same_files "$dir/whole" "$dir/run" 6
        rm -r "$dir/run"
    done
    env EMU_FAIL=210:214 "$cuda" $run --out "$dir/run" >/dev/null 2>"$dir/err"
    grep -q 'memory is damaged' "$dir/err" || note "ECC error not named: $(tail -n 1 "$dir/err")"
}

run_tests "$0"
end_tests emulated
