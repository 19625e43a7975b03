#!/bin/sh
# Tests what can be wrong with a GPU: it is missing, too small, or fails.
. "$(dirname "$0")/lib.sh"
corpus

a_missing_driver_or_gpu_is_named() {
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

# 1558M fits into 40 GB, but not into 24: its weights, gradients and moments alone take more.
what_fits_is_known_without_a_gpu() {
    expect 0 'no GPU here' env EMU_DEVICES=0 "$cuda" info --model all
    awk '$1 == "gpt2-xl" && $2 == "all" { found = $5 == "-" && $6 >= 4 && $7 > $6 }
        END { exit !found }' "$dir/out" || note "$(cat "$dir/out")"
    expect 0 'a sequence more' env EMU_DRIVER=0 "$cuda" info --model gpt2-xl --batch_size 4
    expect 2 'there is no GPU here' env EMU_DEVICES=0 "$cuda" info --batch_size auto
}

# A quarter of a large batch's logits are computed at a time, but at least 8192 rows: 1572 MiB of 65,536 tokens, 786 MiB
# of 16,384, which are a quarter of the other activations.
large_batches_have_larger_chunks_of_logits() {
    for batch in 64 16; do
        must "$cuda" info --model d12 --batch_size $batch
        awk '$1 == "activations" { print $2 }' "$dir/out"
    done | awk '{ mib[NR] = $1 } END { more = mib[1] - 4 * mib[2]; exit !(NR == 2 && more > -1573 && more < -1571) }' ||
        note "other activations: $(cat "$dir/out")"
}

# The most memory that a run allocates is what it plans, to a tenth of a MiB, but for what both have beside the model: a
# margin of 48 MiB in the plan, and 144 MiB that device_open() takes on the GPU. An A100's peak is in a table: measuring
# it would take memory. With --attention flash the plan has no workspace of cuDNN, which is allocated only if cuDNN is
# chosen.
the_plan_is_what_is_allocated() {
    run="$tiny $data --max_steps 1 --save_every 0 --attention flash"
    for options in "--recompute none" "--recompute gelu --dtype fp32" \
        "--recompute all --model L=2,H=2,C=32,T=1024,V=257 --sample_every 1 --sample_tokens 2" \
        "--offload optimizer --dtype bf16 --optimizer muon"; do
        must env EMU_COUNT=1 EMU_NAME='NVIDIA A100-SXM4-80GB' "$cuda" $run --out "$dir/run" $options
        plan=$(sed -n 's/.* \([0-9.]*\) MiB of memory$/\1/p' "$dir/err")
        most=$(sed -n 's/^emu: .* \([0-9]*\) bytes at most$/\1/p' "$dir/err")
        awk -v plan="$plan" -v most="$most" '
            BEGIN { d = plan - 48 - (most / 1048576 - 144); exit !(most > 0 && d > -0.1 && d < 0.1) }' ||
            note "$options: $plan MiB planned, $most bytes allocated"
    done
}

copied() { # STEPS OPTION...: runs so many steps; prints the bytes copied to the device, and from it
    steps=$1
    shift
    must env EMU_COUNT=1 "$cuda" $tiny $data --save_every 0 --max_steps "$steps" --out "$dir/run" "$@"
    sed -n 's/^emu: \([0-9]*\) bytes copied to the device, \([0-9]*\) from it$/\1 \2/p' "$dir/err"
}

# Each update copies masters and moments once each way: 12 bytes of a parameter in bf16, 8 in fp32.
an_update_copies_the_state_once_each_way() {
    must "$cuda" info --model L=2,H=2,C=32,T=48,V=257
    n=$(sed -n 's/^parameters: .* with padding: //p' "$dir/out")
    for type in bf16:12 fp32:8; do
        { copied 1 --dtype ${type%:*}; copied 3 --dtype ${type%:*}
          copied 1 --dtype ${type%:*} --offload optimizer; copied 3 --dtype ${type%:*} --offload optimizer; } |
            awk -v want=$((n * ${type#*:})) '
                { sent[NR] = $1; back[NR] = $2 }
                END { print (sent[4] - sent[3] - sent[2] + sent[1]) / 2 - want,
                          (back[4] - back[3] - back[2] + back[1]) / 2 - want }' >"$dir/more"
        [ "$(cat "$dir/more")" = "0 0" ] || note "$type: other bytes than planned, each way: $(cat "$dir/more")"
    done
}

# The table of `info`, --batch_size auto and the check before a run agree, and the largest batch runs.
the_largest_batch_runs_and_a_larger_one_is_refused() {
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

# Launch or synchronization 210, of step 5, fails, and all after it: a checkpoint before it is good. In fp32 nothing is
# chosen by timing, so that the number of launches is always the same.
a_gpu_that_fails_leaves_the_last_checkpoint_good() {
    run="$tiny $data --dtype fp32 --max_steps 6 --save_every 2"
    must "$cuda" $run --out "$dir/whole"
    for error in 214 719 700; do
        env EMU_FAIL=210:$error "$cuda" $run --out "$dir/run" >"$dir/out" 2>"$dir/err"
        [ $? = 1 ] || note "error $error: exit code not 1: $(tail -n 1 "$dir/err")"
        [ $error != 214 ] || grep -q 'memory is damaged' "$dir/err" || note "not ECC: $(tail -n 1 "$dir/err")"
        grep -q 'go on with --resume auto' "$dir/err" || note "error $error: $(tail -n 1 "$dir/err")"
        ls "$dir/run" | grep -q step_0 || note "error $error came before the first checkpoint"
        must "$cuda" --out "$dir/run" --resume auto
        same_files "$dir/whole" "$dir/run" 6
        rm -r "$dir/run"
    done
}

run_tests
