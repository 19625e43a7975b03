#!/bin/sh
# The GPU trainer, every kernel emulated on the CPU (test/emulator/), against the CPU trainer.
# usage: emulated.sh build/emu [WORD...]      the folder of `make emu`; only the tests whose names contain a word
emu=${1:?usage: emulated.sh build/emu [WORD...]}
shift
chosen=$*
cuda="$emu/train_gpt2cu" train=build/release/train_gpt2 prepare=build/release/prepare
. "$(dirname "$0")/lib.sh"
# Closing device memory to the host between launches takes as long as the launches: one test does it.
export ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 EMU_GUARD=0

tiny="$small --batch_size 2 --val_every 0"

# ----------------------------------------------------------------------------------------------------------------------
# kernels: all operations at two shapes, one with tails everywhere, and ten training steps, against the CPU's

# heads of 16 and tiles that are cut; heads of 7, which tiles do not take
even="--model L=2,H=2,C=32,T=72,V=133 --batch_size 1 --seq_len 70"
short="--recompute none --max_steps 1"
odd="--model L=1,H=3,C=21,T=40,V=133 --batch_size 3 --seq_len 37"

# Ten steps in each way to recompute activations; on a GPU of Hopper's kind, where GELU is fused.
ten_training_steps_agree() {
    must "$cuda" check $even --dtype fp32
    must env EMU_CC=90 "$cuda" check $even --dtype bf16
}
odd_shapes_agree() {
    must "$cuda" check $odd --dtype fp32 $short
    must "$cuda" check $odd --dtype bf16 $short
}
tf32_agrees() {
    must env EMU_CC=90 "$cuda" check $even --dtype tf32 $short
}
unfused_kernels_agree() {
    must "$cuda" check $even --dtype fp32 --fused 0 --flash 0 $short
    must "$cuda" check $even --dtype bf16 --fused 0 --flash 0 $short
}
plain_kernels_agree() {
    must "$cuda" check $even --dtype fp32 --kernels plain $short
    must "$cuda" check $odd --dtype bf16 --kernels plain $short
}
# The sizes of heads that attention in tiles is compiled for, and one that fills its tile only in part.
every_head_size_agrees() {
    for size in 64 80 128; do
        for type in fp32 bf16; do
            must "$cuda" check --model L=1,H=1,C=$size,T=72,V=70 --batch_size 1 --seq_len 50 --dtype $type $short
        done
    done
}
# Which fused forms cuBLASLt has depends on its version: what it lacks is done in another way.
products_agree_that_cublaslt_does_not_know() {
    must env EMU_LT=1 EMU_CC=90 "$cuda" check $even --dtype bf16 $short
    must env EMU_LT=0 "$cuda" check $even --dtype fp32 $short
    grep -q 'no algorithm for a matmul' "$dir/err" || note "no word about slow products"
}

# Sizes that cut tiles and are multiples of 16, as FP8 wants them; all three products, with and without the bias inside;
# on Ada, which has it too; and shapes that bf16 has to take.
eight="--model L=1,H=3,C=48,T=80,V=133 --batch_size 2 --seq_len 72 --dtype fp8"
fp8_agrees() {
    must env EMU_CC=90 "$cuda" check $eight --max_steps 4
    must env EMU_CC=89 EMU_LT=1 EMU_ORDER=1 EMU_LAZY=1 "$cuda" check $eight $short
    must env EMU_CC=90 EMU_LT=0 "$cuda" check $eight $short
    grep -q 'no FP8 algorithm' "$dir/err" || note "no word that there is no FP8"
    must env EMU_CC=90 "$cuda" check $odd --dtype fp8 $short
    grep -q 'FP8 takes multiples of 16 alone, a layer has 21 x 84: bf16' "$dir/err" || note "no word about odd shapes: $(cat "$dir/err")"
}

# A thread that is right only because another one ran before it is wrong in another order.
kernels_agree_in_any_order_of_threads() {
    for order in 1 7; do
        must env EMU_ORDER=$order "$cuda" check $even --dtype bf16 $short
        must env EMU_ORDER=$order "$cuda" check $odd --dtype fp32 $short
    done
}

# ----------------------------------------------------------------------------------------------------------------------
# training

# the losses and norms of a run's metrics with all their digits
all_digits() { sed -n 's/.*"kind":"train".*"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# near FILE FILE TOLERANCE: two lists of losses and norms, relative
near() { paste -d ' ' "$1" "$2" | awk -v most="$3" '{ for (i = 1; i <= 2; i++) { d = $i / $(i + 2) - 1; if (d < 0) { d = -d }; if (d > most) bad = 1 }; if (NF != 4) bad = 1 }
    END { exit bad || !NR }' || note "not within $3: $(paste -d ' ' "$1" "$2")"; }

it_trains_as_the_cpu_does() {
    corpus
    must "$train" $tiny $data --total_batch_size 128 --max_steps 10 --save_every 0 --out "$dir/cpu"
    all_digits "$dir/cpu" >"$dir/cpu.txt"
    must "$cuda" $tiny $data --total_batch_size 128 --max_steps 10 --save_every 0 --out "$dir/fp32" --dtype fp32
    all_digits "$dir/fp32" >"$dir/fp32.txt"
    near "$dir/fp32.txt" "$dir/cpu.txt" 1e-5
    must "$cuda" $tiny $data --total_batch_size 128 --max_steps 10 --save_every 0 --out "$dir/bf16" --recompute all
    all_digits "$dir/bf16" >"$dir/bf16.txt"
    near "$dir/bf16.txt" "$dir/cpu.txt" 0.02
    grep -q 'bf16 MFU' "$dir/out" || note "the step line does not name bf16"
}

# The losses of 200 steps: on average fp32 is 2e-4 from bf16 here, and fp8 1.3e-4; with a scale that is wrong by a half, or
# with the weight untransposed in the gradient of the activations, it is 3e-3 and 1.6e-3.
two_hundred_steps_in_fp8_are_those_in_bf16() {
    corpus
    run="--model L=2,H=1,C=16,T=32,V=257 --tokenizer bytes --batch_size 1 --seq_len 32 --lr 2e-3 --warmup_steps 20 --max_steps 200"
    for type in bf16 fp8; do
        must env EMU_CC=90 "$cuda" $run $data --val_every 0 --sample_every 0 --save_every 0 --out "$dir/$type" --dtype $type
        all_digits "$dir/$type" >"$dir/$type.txt"
    done
    grep -q 'fp8 MFU' "$dir/out" || note "the step line does not name fp8"
    paste -d ' ' "$dir/fp8.txt" "$dir/bf16.txt" | awk '{ d = $1 / $3 - 1; sum += d < 0 ? -d : d; if ($1 != $3) other = 1 }
        END { print sum / NR; exit !(NR == 200 && other && sum / NR < 6e-4) }' >"$dir/mean" || note "losses differ by $(cat "$dir/mean")"
}

# A weight that is infinite, as the largest float is in bf16, must not become the largest number of its format.
fp8_hides_no_infinity() {
    corpus
    export EMU_CC=90
    must "$train" $tiny $data --max_steps 1 --out "$dir/run"
    mkdir "$dir/bad"
    cp "$dir/run/step_00000001/config.json" "$dir/run/step_00000001/model.safetensors" "$dir/bad"
    file="$dir/bad/model.safetensors"
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    begin=$(head -c $((8 + header)) "$file" | sed 's/.*"transformer.h.1.mlp.c_fc.weight": *{[^}]*"data_offsets": *\[\([0-9]*\),.*/\1/' | tail -n 1)
    must "$cuda" $tiny $data --dtype fp8 --max_steps 1 --save_every 0 --init "$dir/bad" --out "$dir/good"
    printf '\377\377\177\177' | dd of="$file" bs=1 seek=$((8 + header + begin)) conv=notrunc 2>/dev/null
    expect 4 'not finite' "$cuda" $tiny $data --dtype fp8 --max_steps 1 --init "$dir/bad" --out "$dir/inf"
    unset EMU_CC
}

the_host_never_touches_device_memory() {
    corpus
    must env EMU_GUARD=1 "$cuda" $tiny $data --total_batch_size 128 --max_steps 2 --val_every 2 --val_tokens 300 --sample_every 2 --sample_tokens 4 --save_every 2 --out "$dir/run"
}

# The same run in another order of threads and blocks, with streams that run only when somebody waits for them, and
# once more: the same bits of weights and moments.
the_same_run_gives_the_same_bits() {
    corpus
    for type in fp32 bf16; do
        run="$tiny $data --dtype $type --max_steps 3 --save_every 3"
        must "$cuda" $run --out "$dir/$type"
        must env EMU_ORDER=1 "$cuda" $run --out "$dir/$type.reverse"
        must env EMU_ORDER=5 EMU_LAZY=1 "$cuda" $run --out "$dir/$type.lazy"
        for other in reverse lazy; do
            for file in model optimizer; do
                cmp -s "$dir/$type/step_00000003/$file.safetensors" "$dir/$type.$other/step_00000003/$file.safetensors" ||
                    note "$type, $other: another $file"
            done
        done
    done
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
    for type in tf32 bf16 fp8; do
        must "$cuda" $run --dtype $type --out "$dir/$type"
        mkdir "$dir/again"
        cp -r "$dir/$type/step_00000002" "$dir/$type/metrics.jsonl" "$dir/again"
        must "$cuda" --out "$dir/again" --resume auto
        grep -q ", $type, " "$dir/err" || note "$type run resumed in another dtype: $(grep TFLOP "$dir/err")"
        for file in model optimizer; do
            cmp -s "$dir/$type/step_00000004/$file.safetensors" "$dir/again/step_00000004/$file.safetensors" || note "$type: another $file"
        done
        rm -r "$dir/again"
    done
    cp -r "$dir/fp8/step_00000002" "$dir/fp8/metrics.jsonl" "$dir/tf32" && rm -r "$dir/tf32/step_00000004"
    must "$cuda" --out "$dir/tf32" --resume auto --dtype bf16
    grep -q 'changed since the checkpoint: --dtype bf16 (was fp8)' "$dir/err" || note "fp8 to bf16: $(cat "$dir/err")"
    unset EMU_CC
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

text_and_validation_are_the_cpus() {
    corpus
    must "$train" $tiny $data --max_steps 30 --save_every 30 --out "$dir/run"
    "$train" generate --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon' >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" generate --dtype fp32 --out "$dir/run" --temperature 0 --sample_tokens 60 --prompt 'Once upon'
    cmp -s "$dir/out" "$dir/cpu.txt" || note "another text: $(cat "$dir/out")"
    "$train" eval --out "$dir/run" --val_tokens 2000 >"$dir/cpu.txt" 2>/dev/null
    must "$cuda" eval --dtype fp32 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-10) }' || note "$(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" eval --dtype bf16 --out "$dir/run" --val_tokens 2000
    paste -d ' ' "$dir/out" "$dir/cpu.txt" | awk '{ d = $3 / $6 - 1; exit !(d * d < 1e-5) }' || note "bf16: $(cat "$dir/out" "$dir/cpu.txt")"
    must "$cuda" generate --dtype bf16 --out "$dir/run" --sample_tokens 10
    must "$cuda" info --model L=2,H=2,C=32,T=48,V=257
    grep -q 'standard deviation of the residual stream' "$dir/out" || note "info ended early"
}

every_rung_of_the_ladder_arrives_at_the_same_loss() {
    must "$cuda" bench ladder --model L=1,H=1,C=16,T=16,V=50 --batch_size 1 --max_steps 1 --out "$dir/ladder"
    [ "$(grep -c ' ok ' "$dir/out")" = 7 ] || note "not seven rungs: $(cat "$dir/out")"
    grep -q '^fp8 .*FP8 needs compute capability 8.9, this GPU has 8.0' "$dir/out" || note "no reason why there is no FP8"
    must env EMU_CC=90 "$cuda" bench ladder --model L=1,H=1,C=16,T=16,V=50 --batch_size 1 --max_steps 1 --out "$dir/ladder"
    awk '$1 == "fp8" { found = / ok / && $7 <= $6 } END { exit !found }' "$dir/out" || note "fp8: $(cat "$dir/out")"
}

# ----------------------------------------------------------------------------------------------------------------------
# what can be wrong with a GPU

a_missing_driver_or_gpu_is_named() {
    corpus
    run="$cuda $tiny $data --max_steps 2 --out $dir/run"
    expect 1 'no NVIDIA driver' env EMU_DRIVER=0 $run
    expect 1 'driver is too old: it knows CUDA 11.4' env EMU_DRIVER=11040 $run
    expect 1 'no NVIDIA GPU that this process can see' env EMU_DEVICES=0 $run
    expect 2 'there are 2 GPUs, numbered from 0' env EMU_DEVICES=2 $run --device 2
    expect 1 'has compute capability 7.5' env EMU_CC=75 $run
    expect 2 'loss scaler' $run --dtype fp16
    expect 2 'this GPU has 8.6: give --dtype bf16' env EMU_CC=86 $run --dtype fp8
    expect 2 'the plain kernels have no FP8: give --dtype bf16' env EMU_CC=90 $run --dtype fp8 --kernels plain
    expect 0 'a peak of 1979 TFLOP/s' env EMU_CC=90 EMU_NAME='NVIDIA H100 80GB HBM3' "$cuda" $tiny $data --dtype fp8 --max_steps 1 --save_every 0 --out "$dir/h100"
    expect 0 'usage:' env EMU_DRIVER=0 "$cuda" --help
    expect 0 'a peak of 312 TFLOP/s' env EMU_NAME='NVIDIA A100-SXM4-80GB' "$cuda" $tiny $data --max_steps 1 --save_every 0 --out "$dir/a100"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

too_little_memory_is_refused_before_anything_is_allocated() {
    corpus
    expect 1 'not enough memory on the GPU' env EMU_MEMORY=500000000 "$cuda" $tiny $data --model L=2,H=2,C=64,T=64,V=257 --seq_len 64 --batch_size 2048 --max_steps 1 --out "$dir/run"
    grep -q -- '--batch_size [1-9]' "$dir/err" || note "no batch size that fits: $(cat "$dir/err")"
    expect 0 'fits' env EMU_MEMORY=500000000 "$cuda" $tiny $data --model L=2,H=2,C=64,T=64,V=257 --seq_len 64 --total_batch_size 512 --batch_size auto --max_steps 1 --save_every 0 --out "$dir/auto"
}

# The Nth launch or synchronization fails, and all that follow; the checkpoint before it is good.
a_gpu_that_fails_leaves_the_last_checkpoint_good() {
    corpus
    run="$tiny $data --max_steps 6 --save_every 2"
    must "$cuda" $run --out "$dir/whole"
    for error in 214 719 700; do
        env EMU_FAIL=160:$error "$cuda" $run --out "$dir/run" >"$dir/out" 2>"$dir/err"
        [ $? = 1 ] || note "error $error: exit code not 1: $(tail -n 1 "$dir/err")"
        grep -q 'go on with --resume auto' "$dir/err" || note "error $error: $(tail -n 1 "$dir/err")"
        ls "$dir/run" | grep -q step_0 || note "error $error came before the first checkpoint"
        must "$cuda" --out "$dir/run" --resume auto
        for file in model optimizer; do
            cmp -s "$dir/whole/step_00000006/$file.safetensors" "$dir/run/step_00000006/$file.safetensors" || note "error $error: another $file"
        done
        rm -r "$dir/run"
    done
    env EMU_FAIL=160:214 "$cuda" $run --out "$dir/run" >/dev/null 2>"$dir/err"
    grep -q 'memory is damaged' "$dir/err" || note "ECC error not named: $(tail -n 1 "$dir/err")"
}

run_tests "$0"
end_tests emulated
