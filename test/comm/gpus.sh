#!/bin/sh
# Tests that several emulated GPUs train as one does, with NCCL's stand-in (test/emulator/include/nccl.h), under mpirun
# and with --gpus.
. "$(dirname "$0")/lib.sh"
corpus

one_gpu() { [ -d "$root/one_gpu" ] || "$cuda" $gpu $data --batch_size 4 --out "$root/one_gpu" >/dev/null 2>&1; }

gpus_train_as_one_does() {
    one_gpu
    must "$cuda" $gpu $data --batch_size 1 --gpus 2 --out "$dir/two" # four micro-batches on each GPU
    same "$root/one_gpu" "$dir/two"
    must "$cuda" $gpu $data --batch_size 4 --gpus 2 --zero 1 --out "$dir/two_zero" # one micro-batch
    same "$root/one_gpu" "$dir/two_zero"
    must ranks 4 "$cuda" $gpu $data --batch_size 1 --zero 1 --out "$dir/four" # two micro-batches
    same "$root/one_gpu" "$dir/four"
}

# All ranks take them from the checkpoint; before, the second one had them from the first, which alone measures.
gpus_take_the_algorithms_of_rank_0() {
    tuned="$gpu --dtype bf16 --max_steps 4 --val_every 0 --sample_every 0 --save_every 2 --tune anew"
    must env EMU_SLOW=cublaslt_0 "$cuda" $tuned $data --batch_size 2 --gpus 2 --out "$dir/whole"
    go_on "$cuda" "$dir/whole" 2 "$dir/resumed" --gpus 2
    same_checkpoint "$dir/whole/step_00000004" "$dir/resumed/step_00000004"
    # also for matrices of Muon that rank 0 does not own, here fcproj's: X (32,128) = MUON_A X + B X
    must "$cuda" $tuned $data --optimizer muon --zero 1 --batch_size 2 --gpus 2 --max_steps 2 --out "$dir/muon"
    grep -q '"32,128,32,.*,1,1,0 ' "$dir/muon/step_00000002/state.json" || note "rank 1 multiplies untuned"
}

# From Hopper on, backward with its collectives is timed with all multiprocessors, and with fewer.
gpus_leave_multiprocessors_to_nccl_where_that_is_faster() {
    pair="$gpu $data --dtype bf16 --batch_size 2 --gpus 2 --max_steps 4 --save_every 2 --val_every 0 --sample_every 0 \
        --tune anew"
    export EMU_COUNT=1 EMU_SMS=132 EMU_CC=90
    must env EMU_SLOW=cublaslt_ "$cuda" $pair --out "$dir/fewer"
    grep -q '^emu: [0-9]* matmuls on fewer multiprocessors' "$dir/err" || note "none on fewer"
    grep -q ' matmul_sms=fewer"' "$dir/fewer/step_00000002/state.json" ||
        note "$(grep -h attention "$dir"/fewer/step_00000002/state.json)"
    go_on "$cuda" "$dir/fewer" 2 "$dir/resumed" --gpus 2
    # 8 of the block in backward, in two steps; and before them in two passes, for the choice of the algorithms
    [ "$(grep -c '^emu: 32 matmuls on fewer multiprocessors' "$dir/err")" = 2 ] ||
        note "not 32: $(grep 'matmuls on fewer' "$dir/err")"
    same_checkpoint "$dir/fewer/step_00000004" "$dir/resumed/step_00000004"
    must "$cuda" $pair --gpus 4 --tune 1 --out "$dir/four" # the choice of two GPUs is not that of four
    grep -q ' matmul_sms=all"' "$dir/four/step_00000002/state.json" || note "four take the choice of two"
    must "$cuda" $pair --out "$dir/all"
    grep -q ' matmul_sms=all"' "$dir/all/step_00000002/state.json" || note "not all, though as fast"
    must env EMU_CC=80 "$cuda" $pair --out "$dir/ampere"
    grep -q 'matmul_sms' "$dir/ampere/step_00000002/state.json" && note "Ampere has the choice"
    grep -q 'fewer multiprocessors' "$dir/err" && note "Ampere leaves multiprocessors"
    must "$cuda" $pair --kernels plain --max_steps 2 --out "$dir/plain" # whose matmuls are not cuBLASLt's
    grep -q 'matmul_sms' "$dir/plain/step_00000002/state.json" && note "plain kernels have the choice"
    unset EMU_COUNT EMU_SMS EMU_CC
}

# NVSwitches do not repeat their bits (llmc/cuda/nccl.cuh): they add up only if NCCL_ALGO says so, and log and
# state.json name what NCCL may use. Its stream has the highest priority.
gpus_repeat_their_bits_unless_asked() {
    pair="$gpu $data --batch_size 4 --gpus 2 --max_steps 1 --val_every 0 --sample_every 0 --save_every 1"
    must env -u NCCL_ALGO EMU_COUNT=1 "$cuda" $pair --out "$dir/bits"
    grep -qF 'NCCL: algorithms ^NVLS,NVLSTree, streams of priority -5' "$dir/err" ||
        note "$(grep 'emu: NCCL' "$dir/err")"
    grep -q '^NCCL_ALGO=^NVLS,NVLSTree$' "$dir/bits/log.txt" || note "not in the log"
    grep -q '"nccl_algo": "^NVLS,NVLSTree"' "$dir/bits"/step_00000001/state.json || note "not in state.json"
    must env NCCL_ALGO=Ring EMU_COUNT=1 "$cuda" $pair --out "$dir/ring"
    grep -q 'NCCL: algorithms Ring' "$dir/err" || note "NCCL_ALGO=Ring: $(grep 'emu: NCCL' "$dir/err")"
}

# Two kinds of GPUs in one run: Muon's matmuls may have other bits on each.
muon_needs_equal_gpus_or_zero() {
    pair="$gpu $data --batch_size 4 --optimizer muon --max_steps 1 --val_every 0 --sample_every 0 --save_every 0"
    printf '#!/bin/sh\nEMU_NAME=GPU$OMPI_COMM_WORLD_RANK exec "$@"\n' >"$dir/named"
    chmod +x "$dir/named"
    expect 2 "has GPU1, rank 0 GPU0, and the matmuls of an update" \
        ranks 2 "$dir/named" "$cuda" $pair --out "$dir/run"
    must ranks 2 "$dir/named" "$cuda" $pair --zero 1 --out "$dir/run"
    printf '#!/bin/sh\nEMU_CC=$((80 - 5 * OMPI_COMM_WORLD_RANK)) exec "$@"\n' >"$dir/named" # the second is a Turing
    expect 2 '--dtype auto is fp16 on ' ranks 2 "$dir/named" "$cuda" $gpu $data --batch_size 4 --dtype auto --zero 1 \
        --out "$dir/types"
}

# Many containers cannot set up NVLS. Who asks for it is told NCCL's own reason.
gpus_connect_without_multicast() {
    trio="$gpu $data --batch_size 4 --gpus 3 --total_batch_size 192 --max_steps 1 --val_every 0 --sample_every 0"
    must env -u NCCL_ALGO -u NCCL_NVLS_ENABLE EMU_MULTICAST=0 "$cuda" $trio --out "$dir/run"
    expect 1 'NCCL failed: unhandled cuda error (ncclCommInitRank: cannot bind multicast memory for NVLS)' \
        env NCCL_ALGO=Ring,Tree,NVLS,NVLSTree EMU_MULTICAST=0 "$cuda" $trio --out "$dir/nvls"
}

# As after an error of the network: a collective does not end, and only NCCL knows why.
a_collective_that_fails_ends_the_run() {
    for nth in 1 10; do # the first one is that of connecting
        expect 1 'NCCL failed: remote process exited or there was a network error' env EMU_NCCL_FAIL=$nth \
            "$cuda" $gpu $data --batch_size 4 --gpus 2 --out "$dir/run$nth"
    done
}

# NCCL's queue runs as late as it may (EMU_LAZY=1), or as early (2): before backward, if it did not wait for it.
gpus_follow_a_ramp_and_run_late_or_early() {
    ramp="$gpu --batch_ramp 16:300 --max_steps 6 --save_every 6"
    must "$cuda" $ramp $data --batch_size 4 --out "$dir/one"
    must ranks 4 "$cuda" $ramp $data --batch_size 1 --out "$dir/four"
    same "$dir/one" "$dir/four"
    for lazy in 1 2; do
        must env EMU_LAZY=$lazy EMU_ORDER=3 "$cuda" $ramp $data --batch_size 2 --gpus 2 --zero $((2 - lazy)) \
            --out "$dir/lazy$lazy"
        same "$dir/one" "$dir/lazy$lazy"
    done
}

gpus_in_bf16_give_the_same_bits_with_and_without_zero() {
    for zero in 0 1; do
        must "$cuda" $gpu $data --dtype bf16 --grad_clip 0 --batch_size 2 --gpus 2 --max_steps 4 --val_every 0 \
            --save_every 4 --zero $zero --out "$dir/$zero"
    done
    for lazy in 1 2; do
        must env EMU_LAZY=$lazy "$cuda" $gpu $data --dtype bf16 --grad_clip 0 --batch_size 2 --gpus 2 --max_steps 4 \
            --val_every 0 --save_every 4 --zero 1 --offload optimizer --out "$dir/offloaded$lazy"
    done
    for name in 1 offloaded1 offloaded2; do same_checkpoint "$dir/0/step_00000004" "$dir/$name/step_00000004"; done
}

# In the first steps of the ramp the second GPU has no window: only the first one's gradient overflows.
gpus_in_fp16_skip_the_same_updates() {
    for zero in 0 1; do
        must "$cuda" $gpu $data --dtype fp16 --loss_scale dynamic:0x1p22 --grad_clip 0 --batch_ramp 16:128 $quiet \
            --batch_size 1 --gpus 2 --save_every 1 --keep 0 --zero $zero --out "$dir/$zero"
        grep -q '"kind":"skip","step":1,"what":"overflow"' "$dir/$zero/metrics.jsonl" || note "zero $zero: no overflow"
    done
    last=$(ls "$dir/0" | grep '^step_' | tail -n 1)
    same_checkpoint "$dir/0/$last" "$dir/1/$last"
    [ "$(values_of updates "$dir/0/$last/state.json")" -ge 2 ] || note "no updates"
}

# A run on two GPUs goes on on three. Each has more than one micro-batch, so that all but the last are replayed.
gpus_go_on_with_other_gpus_in_bf16_and_fp8() {
    export EMU_CC=90
    for type in bf16 fp8; do
        wide="$gpu --dtype $type --total_batch_size 192 --max_steps 6 --val_every 6 --sample_every 0 --save_every 3"
        must "$cuda" $wide $data --batch_size 4 --out "$dir/$type"
        must "$cuda" $wide $data --batch_size 2 --gpus 2 --zero 1 --out "$dir/$type.two"
        close=2e-3 weights=any
        same "$dir/$type" "$dir/$type.two"
        rm -r "$dir/$type.two/step_00000006"
        must "$cuda" --resume auto --gpus 3 --batch_size 1 --out "$dir/$type.two"
        same "$dir/$type" "$dir/$type.two"
        unset close weights
    done
    unset EMU_CC
}

gpus_validate_as_one_does() {
    one_gpu
    must "$cuda" eval --dtype fp32 --val_tokens 1000 --out "$root/one_gpu"
    cp "$dir/out" "$dir/one"
    must "$cuda" eval --dtype fp32 --val_tokens 1000 --gpus 2 --out "$root/one_gpu"
    cmp -s "$dir/one" "$dir/out" || note "$(cat "$dir/out"), not $(cat "$dir/one")"
}

# Ctrl-C reaches the process that launched the ranks of --gpus.
interrupting_all_gpus_saves() {
    # some parents leave SIGCHLD ignored
    begin env --ignore-signal=CHLD "$cuda" $gpu $data --zero 1 --max_steps 1000000 $quiet --save_every 1000000 \
        --batch_size 2 --gpus 2 --out "$dir/run"
    await 'step .*/' "$dir/out" $pid
    kill -INT $pid
    ends 0 $pid
    ls "$dir/run" | grep -q step_ || note "nothing was saved"
}

# Under torchrun's variables alone they meet by a file in --out. A dead run of the same name has left one.
gpus_meet_by_a_file() {
    pair="$gpu $data --batch_size 1"
    must "$cuda" $pair --gpus 2 --out "$dir/sockets"
    begin env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$cuda" $pair --out "$dir/file"
    left='' tries=0
    until [ -n "$left" ] || ! kill -0 $pid || [ $tries = 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
        left=$(ls -A "$dir/file" 2>/dev/null | grep '^\.tmp-ranks-')
    done
    cp -p "$dir/file/$left" "$dir/left"
    kill -KILL $pid
    finish $pid 2>/dev/null
    cmp -s "$dir/left" "$dir/file/$left" || note "the killed run has removed its file"
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 "$cuda" $pair --out "$dir/file" >"$dir/other" 2>&1 & other=$!
    must env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$cuda" $pair --out "$dir/file"
    ends 0 $other "$dir/other"
    same_checkpoint "$dir/sockets/step_00000008" "$dir/file/step_00000008"
    [ ! -e "$dir/file/$left" ] || note "the file has stayed"
    expect 1 'give --out a folder that all of them see' env RANK=0 WORLD_SIZE=2 "$cuda" $pair --save_every 0 --out ""
}

too_few_gpus_are_refused() {
    expect 2 '2 GPUs: start at most 2 here' env EMU_DEVICES=2 "$cuda" $gpu $data --batch_size 1 --gpus 4 \
        --out "$dir/run"
    expect 2 'share a GPU' env EMU_DEVICES=1 "$cuda" $gpu $data --batch_size 1 --gpus 2 --out "$dir/run"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

gpus_time_their_sums() {
    gpus='--gpus 2' timed_well 2 "$cuda"
    gpus='--dtype fp32' timed_well 3 ranks 3 "$cuda"
}

run_tests
