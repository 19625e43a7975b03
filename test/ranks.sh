#!/bin/sh
# Tests that several processes train as one does: the CPU trainer under mpirun, and the emulated GPU trainer, with
# NCCL's stand-in (test/emulator/include/nccl.h), under mpirun and with --gpus.
# usage: ranks.sh build/release [build/emu [WORD...]]     runs only tests whose names contain a WORD
release=${1:?usage: ranks.sh build/release [build/emu [WORD...]]}
cuda="${2:-build/emu}/train_gpt2cu"
[ $# -ge 2 ] && shift
shift
chosen=$*
train="$release/train_gpt2" prepare=build/release/prepare
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 EMU_GUARD=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

run="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --seq_len 32 --sample_tokens 12 --max_steps 20 --lr 1e-4"
often="--val_every 10 --val_tokens 1000 --sample_every 10 --save_every 10 --total_batch_size 512"
quiet="--val_every 0 --sample_every 0"
ranks() { n=$1; shift; timeout 600 mpirun -np "$n" "$@"; } # N command...: a run that hangs fails after 600 s

numbers() { # FOLDER: prints the losses and norms of a run and its validation losses, unrounded
    records "$1" | sed -n 's/.*"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),.*/train \1 \2 \3/p
        s/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/val \1 \2 \2/p'
}
samples() { records "$1" | sed -n 's/.*"kind":"sample".*"text":\(.*\)}/\1/p'; }

# Two runs are the same: every loss and norm within 1e-5 ($close), relative; equal samples; parameters and moments of
# the last checkpoint within 1e-5 ($weights; any: not compared) of each tensor's norm, except the biases of keys, whose
# true gradient is zero.
same() { # FOLDER FOLDER
    numbers "$1" >"$dir/a"
    numbers "$2" >"$dir/b"
    [ -s "$dir/a" ] || note "no metrics in $1"
    paste -d ' ' "$dir/a" "$dir/b" | awk -v most="${close:-1e-5}" '
        { for (i = 3; i <= 4; i++) { d = $i / $(i + 4) - 1; if (d < 0) { d = -d }; if (d > most) bad = 1 }
          if ($1 != $5 || $2 != $6) bad = 1 }
        END { exit bad }' || note "not the same run: $2: $(paste -d ' ' "$dir/a" "$dir/b" | head -n 3)"
    [ "$(samples "$1")" = "$(samples "$2")" ] || note "other samples in $2"
    last=$(ls "$1" | grep step_ | tail -n 1)
    [ "${weights:-1e-5}" = any ] || "$tensors" "$1/$last" "$2/$last" "${weights:-1e-5}" >"$dir/out" 2>&1 ||
        note "$2: $(tail -n 1 "$dir/out")"
}

one() { [ -d "$root/one" ] || "$train" $run $often $data --batch_size 4 --out "$root/one" >/dev/null 2>&1; }

cpu_ranks_train_as_one_process_does() {
    corpus
    one
    for zero in 0 1; do
        for split in 2:8 2:2 4:4 4:1; do # processes:batch_size; a process has 1 or 4 micro-batches a step
            n=${split%:*}
            must ranks "$n" "$train" $run $often $data --batch_size "${split#*:}" --zero $zero --out "$dir/$zero-$split"
            same "$root/one" "$dir/$zero-$split"
        done
    done
}

ranks_keep_documents_apart_as_one_process_does() {
    corpus
    documents="$run $often $data --seq_len 48 --total_batch_size 384 --document_mask --batch_size 4"
    must "$train" $documents --out "$dir/one"
    must ranks 2 "$train" $documents --zero 1 --out "$dir/two"
    same "$dir/one" "$dir/two"
}

cpu_ranks_train_so_in_bf16_and_with_recomputation() {
    corpus
    must "$train" $run $often $data --dtype bf16 --residual bf16 --batch_size 4 --out "$dir/one"
    for zero in 0 1; do
        must ranks 2 "$train" $run $often $data --dtype bf16 --residual bf16 --recompute all --batch_size 4 \
            --zero $zero --out "$dir/$zero"
        close=2e-3; weights=any; same "$dir/one" "$dir/$zero" # some parameters are rounded to the other bf16 neighbour
    done
    unset close weights
    cmp -s "$dir/0/step_00000020/model.safetensors" "$dir/1/step_00000020/model.safetensors" ||
        note "ZeRO gives other bits in bf16"
}

# A step of a ramp may have fewer rows than there are processes. Sequences grow meanwhile.
a_batch_ramp_may_leave_ranks_without_rows() {
    corpus
    ramp="$run --max_steps 8 --total_batch_size 256 --batch_ramp 32:1200 --seq_ramp 8:1600 $quiet --save_every 100"
    must "$train" $ramp $data --batch_size 4 --out "$dir/one"
    for zero in 0 1; do
        must ranks 4 "$train" $ramp $data --batch_size 1 --zero $zero --out "$dir/four$zero"
        same "$dir/one" "$dir/four$zero"
    done
}

ranks_compare_their_times() {
    corpus
    for zero in 0 1; do
        must ranks 2 "$train" $run $data --max_steps 200 $quiet --save_every 0 --batch_size 2 --zero $zero \
            --tensorboard 1 --out "$dir/$zero"
        compared=$(sed -n 's/^{"kind":"ranks","step":\([0-9]*\),"slowest":[01],"ms":[0-9.]*,"slowdown":[1-9].*}$/\1/p' \
            "$dir/$zero/metrics.jsonl" | tr '\n' ' ')
        [ "$compared" = "100 200 " ] || note "zero $zero: ranks were compared after steps $compared"
    done
}

# Ranks without rows in the first steps compute nothing again, but compare weights with the others.
replays_with_ranks_without_rows() {
    corpus
    ramp="$run --max_steps 8 --total_batch_size 256 --batch_ramp 32:1200 $quiet --save_every 100 --batch_size 1"
    for replay in 0 3; do must ranks 4 "$train" $ramp $data --replay $replay --out "$dir/$replay"; done
    last=$(ls "$dir/0" | grep step_ | tail -n 1) # small batches make more than --max_steps
    same_checkpoint "$dir/0/$last" "$dir/3/$last"
}

# Each matrix of Muon has one rank as its owner with --zero 1. Runs go on with other ranks and the other --zero.
muon_on_ranks_trains_as_one_process_does() {
    corpus
    muon="$run --optimizer muon --max_steps 10 --total_batch_size 512 --save_every 5 --keep 0 $quiet"
    must "$train" $muon $data --batch_size 4 --out "$dir/one"
    for n in 2 4; do
        for zero in 0 1; do
            must ranks $n "$train" $muon $data --batch_size 4 --zero $zero --out "$dir/$n-$zero"
            same "$dir/one" "$dir/$n-$zero"
        done
        same_checkpoint "$dir/$n-0/step_00000010" "$dir/$n-1/step_00000010"
    done
    for change in 2-1:2:0 4-0:4:1 4-1:2:1; do # run:ranks:zero
        set -- $(echo $change | tr : ' ')
        rm -r "$dir/$1/step_00000010"
        must ranks "$2" "$train" --resume auto --zero "$3" --out "$dir/$1"
        same "$dir/one" "$dir/$1"
    done
    same_checkpoint "$dir/2-0/step_00000010" "$dir/2-1/step_00000010"
    for zero in 0 1; do
        must ranks 2 "$train" $muon $data --dtype bf16 --batch_size 4 --zero $zero --out "$dir/bf16-$zero"
    done
    same_checkpoint "$dir/bf16-0/step_00000010" "$dir/bf16-1/step_00000010"
    # more ranks than large matrices, whose sizes are no multiples of TENSOR_ALIGN
    odd="$muon --model L=1,H=2,C=10,T=48,V=257 --total_batch_size 384 --batch_size 4"
    must "$train" $odd $data --out "$dir/odd"
    must ranks 3 "$train" $odd $data --zero 1 --out "$dir/odd-3"
    same "$dir/odd" "$dir/odd-3"
}

# Counts MPI's collectives. A layer's gradients are one all-reduce, in the last of four micro-batches. "numbers" are the
# losses of each step and validation.
gradients_are_added_up_once_a_step() {
    corpus
    for zero in 0 1 "1 --optimizer muon"; do
        must ranks 2 env LD_PRELOAD="$release/count_collectives.so" "$train" $run $data --total_batch_size 256 \
            --batch_size 1 --max_steps 5 --val_every 5 --val_tokens 100 --sample_every 0 --save_every 0 --zero $zero \
            --out "$dir/${zero% --*}"
        case $zero in # in each of 5 steps 4: 2 layers, the tensors before them, the tensors after them
        0) want="20 sums, 0 scatters, 0 gathers, 7 numbers, 0 reduces, 0 broadcasts" ;;
        1) want="0 sums, 20 scatters, 24 gathers, 7 numbers, 0 reduces, 0 broadcasts" ;; # 4 for the initial weights
        *) want="0 sums, 20 scatters, 24 gathers, 7 numbers, 60 reduces, 72 broadcasts" ;; # and 6 matrices a layer
        esac
        grep -q "collectives: $want" "$dir/out" || note "zero $zero: $(grep collectives "$dir/out"), not $want"
    done
}

the_same_ranks_give_the_same_bits() {
    corpus
    for zero in 0 1; do
        for i in 1 2; do
            must ranks 3 "$train" $run $data --total_batch_size 192 --batch_size 1 --max_steps 6 $quiet --zero $zero \
                --out "$dir/$zero.$i"
        done
        same_checkpoint "$dir/$zero.1/step_00000006" "$dir/$zero.2/step_00000006"
    done
}

# A run goes on with another number of ranks, another micro-batch and the other --zero.
a_run_goes_on_with_other_ranks() {
    corpus
    one
    for change in 4:1:2:4:0 1:4:4:2:1 4:2:1:8:1; do # ranks:batch_size, both after the change, --zero before it
        set -- $(echo $change | tr : ' ')
        must ranks "$1" "$train" $run $often $data --batch_size "$2" --zero "$5" --max_steps 20 --save_every 10 \
            --out "$dir/$change"
        rm -r "$dir/$change/step_00000020"
        must ranks "$3" "$train" --resume auto --batch_size "$4" --zero $((1 - $5)) --out "$dir/$change"
        same "$root/one" "$dir/$change"
    done
}

validation_is_over_the_same_windows() {
    corpus
    one
    "$train" eval --out "$root/one" --seq_len 32 >"$dir/one" 2>/dev/null
    for n in 2 3; do
        ranks $n "$train" eval --out "$root/one" --seq_len 32 >"$dir/$n" 2>/dev/null
        cmp -s "$dir/one" "$dir/$n" || note "$n ranks: $(cat "$dir/$n"), not $(cat "$dir/one")"
    done
}

test_sets_have_the_scores_of_one_process() {
    sets="test/golden/eval/hellaswag.jsonl,test/golden/eval/lambada.jsonl"
    for n in 1 2 3; do
        ranks $n "$train" eval --init test/golden/gpt2 --tokenizer test/golden/eval/tokenizer.bin --eval_data "$sets" \
            --batch_size 2 >"$dir/$n" 2>"$dir/err" || note "$n ranks: $(tail -n 1 "$dir/err")"
        cmp -s "$dir/1" "$dir/$n" || note "$n ranks: $(cat "$dir/$n"), not $(cat "$dir/1")"
    done
    grep -q 'LAMBADA: 6/11' "$dir/1" || note "not PyTorch's score: $(cat "$dir/1")"
    for n in 1 2; do
        ranks $n "$train" eval --init test/golden/eval/model --tokenizer test/golden/eval/tokenizer.bin --eval_data \
            test/golden/eval/core --text test/golden/eval/text.txt >"$dir/$n" 2>"$dir/err" ||
            note "$n ranks: $(tail -n 1 "$dir/err")"
    done
    cmp -s "$dir/1" "$dir/2" || note "2 ranks: $(cat "$dir/2"), not $(cat "$dir/1")"
    grep -q '^CORE: ' "$dir/1" || note "no CORE"
}

stopping_one_rank_saves_and_stops_all() {
    corpus
    begin ranks 2 "$train" $run $data --max_steps 100000000 --total_batch_size 256 $quiet --out "$dir/run"
    await 'step .*/' "$dir/out" $pid
    signal_rank TERM "$dir/run" 1
    ends_well $pid
    ls "$dir/run" | grep -q step_ || note "nothing was saved"
}

# ----------------------------------------------------------------------------------------------------------------------
# GPUs, emulated

gpu="--model L=1,H=2,C=32,T=16,V=257 --tokenizer bytes --seq_len 16 --max_steps 8 --total_batch_size 128 --dtype fp32 \
    --val_every 4 --val_tokens 100 --sample_every 8 --sample_tokens 4 --save_every 8 --tune 0"
one_gpu() { [ -d "$root/one_gpu" ] || "$cuda" $gpu $data --batch_size 4 --out "$root/one_gpu" >/dev/null 2>&1; }

gpus_train_as_one_does() {
    corpus
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
    corpus
    tuned="$gpu --dtype bf16 --max_steps 4 --val_every 0 --sample_every 0 --save_every 2 --tune anew"
    must env EMU_SLOW=cublaslt_0 "$cuda" $tuned $data --batch_size 2 --gpus 2 --out "$dir/whole"
    mkdir "$dir/resumed"
    cp -r "$dir/whole/step_00000002" "$dir/whole/metrics.jsonl" "$dir/resumed"
    must "$cuda" --gpus 2 --out "$dir/resumed" --resume auto
    same_checkpoint "$dir/whole/step_00000004" "$dir/resumed/step_00000004"
    # also for matrices of Muon that rank 0 does not own, here fcproj's: X (32,128) = MUON_A X + B X
    must "$cuda" $tuned $data --optimizer muon --zero 1 --batch_size 2 --gpus 2 --max_steps 2 --out "$dir/muon"
    grep -q '"32,128,32,.*,0,1 ' "$dir/muon/step_00000002/state.json" || note "rank 1 multiplies untuned"
}

# NVSwitches do not repeat their bits (llmc/cuda/nccl.cuh): they add up only if NCCL_ALGO says so, and log and state.json
# name what NCCL may use. Its stream has the highest priority.
gpus_repeat_their_bits_unless_asked() {
    corpus
    pair="$gpu $data --batch_size 4 --gpus 2 --max_steps 1 --val_every 0 --sample_every 0 --save_every 1"
    must env -u NCCL_ALGO EMU_COUNT=1 "$cuda" $pair --out "$dir/bits"
    grep -qF 'NCCL: algorithms ^NVLS,NVLSTree, streams of priority -5' "$dir/err" ||
        note "$(grep 'emu: NCCL' "$dir/err")"
    grep -q '^NCCL_ALGO=^NVLS,NVLSTree$' "$dir/bits/log.txt" || note "not in the log"
    grep -q '"nccl_algo": "^NVLS,NVLSTree"' "$dir/bits"/step_00000001/state.json || note "not in state.json"
    must env NCCL_ALGO=Ring EMU_COUNT=1 "$cuda" $pair --out "$dir/ring"
    grep -q 'NCCL: algorithms Ring' "$dir/err" || note "NCCL_ALGO=Ring: $(grep 'emu: NCCL' "$dir/err")"
}

gpus_follow_a_ramp_and_run_late() {
    corpus
    ramp="$gpu --batch_ramp 16:300 --max_steps 6 --save_every 6 --val_every 0"
    must "$cuda" $ramp $data --batch_size 4 --out "$dir/one"
    must ranks 4 "$cuda" $ramp $data --batch_size 1 --out "$dir/four"
    same "$dir/one" "$dir/four"
    must env EMU_LAZY=1 EMU_ORDER=3 "$cuda" $ramp $data --batch_size 2 --gpus 2 --zero 1 --out "$dir/lazy"
    same "$dir/one" "$dir/lazy"
}

gpus_in_bf16_give_the_same_bits_with_and_without_zero() {
    corpus
    for zero in 0 1; do
        must "$cuda" $gpu $data --dtype bf16 --grad_clip 0 --batch_size 2 --gpus 2 --max_steps 4 --val_every 0 \
            --save_every 4 --zero $zero --out "$dir/$zero"
    done
    same_checkpoint "$dir/0/step_00000004" "$dir/1/step_00000004"
}

# In the first steps of the ramp the second GPU has no window: only the first one's gradient overflows.
gpus_in_fp16_skip_the_same_updates() {
    corpus
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
    corpus
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
    corpus
    one_gpu
    must "$cuda" eval --dtype fp32 --val_tokens 1000 --out "$root/one_gpu"
    cp "$dir/out" "$dir/one"
    must "$cuda" eval --dtype fp32 --val_tokens 1000 --gpus 2 --out "$root/one_gpu"
    cmp -s "$dir/one" "$dir/out" || note "$(cat "$dir/out"), not $(cat "$dir/one")"
}

# Ctrl-C reaches the process that launched the ranks of --gpus.
interrupting_all_gpus_saves() {
    corpus
    begin "$cuda" $gpu $data --zero 1 --max_steps 1000000 $quiet --save_every 1000000 --batch_size 2 --gpus 2 \
        --out "$dir/run"
    await 'step .*/' "$dir/out" $pid
    kill -INT $pid
    ends_well $pid
    ls "$dir/run" | grep -q step_ || note "nothing was saved"
}

# Under torchrun's variables alone they meet by a file in --out. A dead run of the same name has left one.
gpus_meet_by_a_file() {
    corpus
    pair="$gpu $data --batch_size 1"
    must "$cuda" $pair --gpus 2 --out "$dir/sockets"
    begin env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$cuda" $pair --out "$dir/file"
    left=
    until [ -n "$left" ] || ! kill -0 $pid; do
        sleep 0.1
        left=$(ls -A "$dir/file" 2>/dev/null | grep '^\.tmp-ranks-')
    done
    cp -p "$dir/file/$left" "$dir/left"
    kill -KILL $pid
    wait $pid 2>/dev/null
    cmp -s "$dir/left" "$dir/file/$left" || note "the killed run has removed its file"
    RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 "$cuda" $pair --out "$dir/file" >"$dir/other" 2>&1 & other=$!
    must env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$cuda" $pair --out "$dir/file"
    wait $other || note "rank 1: $(tail -n 1 "$dir/other")"
    same_checkpoint "$dir/sockets/step_00000008" "$dir/file/step_00000008"
    [ ! -e "$dir/file/$left" ] || note "the file has stayed"
    expect 1 'give --out a folder that all of them see' env RANK=0 WORLD_SIZE=2 "$cuda" $pair --save_every 0 --out ""
}

too_few_gpus_are_refused() {
    corpus
    expect 2 '2 GPUs: start at most 2 here' env EMU_DEVICES=2 "$cuda" $gpu $data --batch_size 1 --gpus 4 \
        --out "$dir/run"
    expect 2 'share a GPU' env EMU_DEVICES=1 "$cuda" $gpu $data --batch_size 1 --gpus 2 --out "$dir/run"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

# ----------------------------------------------------------------------------------------------------------------------
# bench

tiny="--model L=1,H=1,C=16,T=8,V=50 --batch_size 2 --seq_len 8"

timed_well() { # N COMMAND...: N processes time all collectives; results are right, bandwidths fit times and bytes
    n=$1
    shift
    must "$@" bench comm $tiny --out "$dir/comm" ${gpus:-}
    json="$dir/comm/comm.json"
    values_of name "$json" | sed 1d >"$dir/names" # the first is the model's
    for name in bytes ms algorithm_gb_s bus_gb_s ok; do
        values_of $name "$json" | paste -d ' ' "$dir/names" - >"$dir/both"
        mv "$dir/both" "$dir/names"
    done
    awk -v n="$n" 'function off(a, b) { return a / b > 1.000001 || a / b < 0.999999 }
        { moves = ($1 == "numbers" || $1 == "all-reduce" ? 2 : 1) * (n - 1) / n; seen[$1]++ }
        $2 % n || off($4, $2 / $3 / 1e6) || off($5, $4 * moves) || $6 != "true" { print }
        END { if (seen["numbers"] < 2 || seen["all-reduce"] < 6 || seen["reduce-scatter"] < 6 || seen["all-gather"] < 6)
                  print NR " rows" }' "$dir/names" >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || note "$n: $(head -n 2 "$dir/wrong")"
    [ "$(grep -c 'all gradients.* ok$' "$dir/out")" = 3 ] || note "$n: no line for all gradients: $(cat "$dir/out")"
}

sums_are_timed_and_looked_at() {
    for n in 2 3; do timed_well $n ranks $n "$train"; done
    expect 3 'a sum is wrong' \
        ranks 2 env LD_PRELOAD="$release/count_collectives.so" SPOIL_SUMS=1 "$train" bench comm $tiny --out ""
    grep -q '^all-reduce .*WRONG$' "$dir/out" || note "the wrong line does not say so: $(cat "$dir/out")"
    grep -q '^all-gather .*WRONG$' "$dir/out" && note "another line says so too"
    expect 2 'start several, by mpirun' "$train" bench comm $tiny --out ""
    expect 2 'is for one process' ranks 2 "$train" bench ladder $tiny --out ""
}

gpus_time_their_sums() {
    gpus='--gpus 2' timed_well 2 "$cuda"
    gpus='--dtype fp32' timed_well 3 ranks 3 "$cuda"
}

# ----------------------------------------------------------------------------------------------------------------------
# stopped, killed and differing ranks, wrong options

# Waits for a run, our child, which must end with 0.
ends_well() { # RUN
    wait "$1"
    code=$?
    [ $code = 0 ] || note "exit code $code: $(tail -n 2 "$dir/err")"
}
forever="--max_steps 100000000 --total_batch_size 256 $quiet --save_every 50"
none_left() { # FOLDER: all its processes end within a minute; those that do not are killed
    for i in $(seq 600); do
        [ -n "$(processes_of "$1")" ] || return 0
        sleep 0.1
    done
    note "still there: $(processes_of "$1")"
    kill -KILL $(processes_of "$1") 2>/dev/null
}

a_stopped_or_killed_rank_ends_the_run() {
    corpus
    for signal in STOP KILL; do
        begin ranks 4 "$train" $run $data $forever --batch_size 1 --timeout 5 --out "$dir/$signal"
        await 'saved step' "$dir/err" $pid
        signal_rank $signal "$dir/$signal" 2
        wait $pid
        code=$?
        [ $code != 0 ] || note "$signal: exit code 0"
        [ $signal = KILL ] || grep -q 'rank 2.* on .*step' "$dir/err" ||
            note "$signal: rank, host and step not named: $(grep -v '^-' "$dir/err" | tail -n 3)"
        none_left "$dir/$signal"
    done
}

# A run of four ranks, one of them killed, goes on with two ranks and the losses of a run that never stopped.
a_run_whose_rank_was_killed_goes_on_with_two() {
    corpus
    common="$run $data --total_batch_size 256 --max_steps 60 --save_every 10 --val_every 30 --val_tokens 500 \
        --sample_every 0"
    must "$train" $common --batch_size 4 --out "$dir/one"
    ranks 4 env LD_PRELOAD="$release/count_collectives.so" KILL_AT=150 "$train" $common --batch_size 1 \
        --out "$dir/run" >"$dir/out" 2>"$dir/err" && note "exit code 0: no rank was killed"
    none_left "$dir/run"
    ls "$dir/run" >"$dir/kept"
    { grep -q step_ "$dir/kept" && ! grep -q step_00000060 "$dir/kept"; } || note "checkpoints: $(cat "$dir/kept")"
    must ranks 2 "$train" --resume auto --batch_size 2 --out "$dir/run"
    weights=1e-4
    same "$dir/one" "$dir/run"
    unset weights
}

a_killed_gpu_rank_ends_the_run() {
    corpus
    for signal in STOP KILL; do
        begin "$cuda" $gpu $data $forever --save_every 3 --total_batch_size 64 --batch_size 1 --gpus 4 \
            --timeout 5 --out "$dir/$signal"
        await 'saved step' "$dir/err" $pid
        signal_rank $signal "$dir/$signal" 2
        wait $pid
        code=$?
        [ $code != 0 ] || note "$signal: exit code 0"
        grep -q 'rank 2' "$dir/err" || note "$signal: rank not named: $(tail -n 3 "$dir/err")"
        none_left "$dir/$signal"
    done
}

# A loss that is not finite ends all ranks; all ranks skip the same updates.
jumps_are_seen_by_all_ranks() {
    corpus
    common="$run $data --total_batch_size 256 --batch_size 4 $quiet --save_every 0"
    for zero in 0 1; do
        expect 4 'Lower --lr' ranks 2 "$train" $common --zero $zero --lr 1e3 --grad_clip 0 --max_steps 200 \
            --out "$dir/wild$zero"
        must ranks 2 "$train" $common --zero $zero --skip_norm_z 0.1 --max_steps 160 --out "$dir/skip$zero"
        grep -q '"kind":"skip"' "$dir/skip$zero/metrics.jsonl" || note "zero $zero: no update was skipped"
    done
    must "$train" $common --skip_norm_z 0.1 --max_steps 160 --out "$dir/skip"
    want=$(grep -c '"kind":"skip"' "$dir/skip/metrics.jsonl")
    [ "$(grep -c '"kind":"skip"' "$dir/skip1/metrics.jsonl")" = "$want" ] || note "not $want updates skipped"
}

# The first steps of the ramp have one window of one token, on rank 0: the loss scale makes its gradient overflow, while
# that of the other ranks is zero. The update is skipped on all ranks, or their weights would differ at the save.
an_overflow_on_one_rank_skips_the_update_of_all() {
    corpus
    common="$run $data $quiet --seq_len 1 --total_batch_size 4 --batch_ramp 1:12 --batch_size 1 --max_steps 8 \
        --loss_scale dynamic:0x1p127 --save_every 1 --keep 0"
    must "$train" $common --out "$dir/one"
    last=$(ls "$dir/one" | grep '^step_' | tail -n 1)
    grep -q '"kind":"skip","step":1,"what":"overflow"' "$dir/one/metrics.jsonl" || note "no overflow"
    for zero in 0 1; do
        must ranks 4 "$train" $common --zero $zero --out "$dir/$zero"
        grep -q '"kind":"skip","step":1,"what":"overflow"' "$dir/$zero/metrics.jsonl" || note "zero $zero: no overflow"
        for name in updates scale good_steps; do
            values_of $name "$dir/one/$last/state.json" >"$dir/a"
            values_of $name "$dir/$zero/$last/state.json" | cmp -s - "$dir/a" || note "zero $zero: another $name"
        done
    done
}

# A bit flips in what rank 1 receives: a gradient or, with ZeRO, a weight. Without clipping it changes no other weight.
# It is noticed when the weights are compared next: every --replay steps, or before a checkpoint, which is not written.
# (With ZeRO it happens in the last step before: the next step's all-gather would set the weight right again.)
a_flipped_bit_is_noticed_and_named() {
    corpus
    common="$run $data --total_batch_size 256 --batch_size 4 $quiet --max_steps 8 --grad_clip 0"
    for case in 0:9:2:100:ln_f.weight 1:35:100:8:h.1.ln_1.weight; do # zero:collective:replay:save_every:tensor
        set -- $(echo $case | tr : ' ')
        expect 5 'the weights of rank 1 on ' ranks 2 env LD_PRELOAD="$release/count_collectives.so" FLIP_BIT=$2 \
            "$train" $common --zero $1 --replay $3 --save_every $4 --out "$dir/$1"
        grep -q "are not those of rank 0 on .*, first in $5:" "$dir/err" || note "zero $1: $(cat "$dir/err")"
        ! ls "$dir/$1" | grep -q step_ || note "zero $1: wrong weights were saved"
    done
}

ranks_that_differ_are_named() {
    corpus
    common="$run $data --total_batch_size 256 --batch_size 2 $quiet --out $dir/run"
    expect 2 'on ' timeout 600 mpirun -np 1 "$train" $common --lr 1e-3 : -np 1 "$train" $common --lr 2e-3
    grep -q -- '--lr is 0.002, for rank 0 it is 0.001' "$dir/err" || note "not named: $(cat "$dir/err")"
    cp "$train" "$dir/other"
    echo other >>"$dir/other"
    expect 1 'another version of this program' timeout 600 mpirun -np 1 "$train" $common : -np 1 "$dir/other" $common
    mkdir "$dir/a" "$dir/b"
    cp "$root/corpus_train_000001.bin" "$dir/a"
    cp "$root/corpus_train_000001.bin" "$dir/b"
    printf '\001\000' | dd of="$dir/b/corpus_train_000001.bin" bs=1 seek=1030 conv=notrunc 2>/dev/null
    common="$common --train_data corpus_train_*.bin"
    expect 1 'the data is not that of rank 0' timeout 600 mpirun \
        -wdir "$dir/a" -np 1 "$PWD/$train" $common : -wdir "$dir/b" -np 1 "$PWD/$train" $common
    echo '{"text": "a b"}' >"$dir/a/set"
    echo '{"text": "a c"}' >"$dir/b/set"
    common="eval --init $PWD/test/golden/gpt2 --tokenizer bytes --eval_data set"
    expect 1 '--eval_data: on ' timeout 600 mpirun \
        -wdir "$dir/a" -np 1 "$PWD/$train" $common : -wdir "$dir/b" -np 1 "$PWD/$train" $common
}

bad_ranks_are_refused() {
    corpus
    expect 2 'not a multiple of batch_size * seq_len * processes' \
        ranks 3 "$train" $run $data --total_batch_size 256 --batch_size 1 --out "$dir/run"
    grep -q 'or start 1, 2, 4 processes' "$dir/err" || note "no numbers of processes that fit: $(cat "$dir/err")"
    expect 2 'only train, eval and bench run in several' ranks 2 "$train" generate --out "$root/one"
    expect 1 'start them with mpirun -np 2' "$train" $run $data --gpus 2 --out "$dir/run"
    expect 1 'srun started 2 processes, but MPI counts 1' \
        env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$train" $run $data --out "$dir/run"
    expect 2 'WORLD_SIZE' env RANK=0 "$train" $run $data --out "$dir/run"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

# ----------------------------------------------------------------------------------------------------------------------
# scripts/

# Starts each script on the CPU with a tiny model, and stops it when metrics.jsonl has its settings. The table has, for
# each script, the model of its preset and the settings of the run that it follows.
run_scripts_have_the_settings_of_their_sources() {
    corpus
    while read -r name model settings; do
        case $name in *:*) script="run_preset.sh $name" ;; *) script=run_$name.sh ;; esac
        TRAINER="$train" GPUS=1 sh scripts/$script $data --model L=1,H=1,C=2,T=8,V=257 --tokenizer bytes \
            --batch_size 1024 $quiet --save_every 0 --out "$dir/$name" </dev/null >"$dir/out" 2>"$dir/err" &
        pid=$!
        await '"kind":"config"' "$dir/$name/metrics.jsonl" $pid
        kill -TERM $pid
        wait $pid
        code=$?
        [ $code = 0 ] || [ $code = 143 ] ||
            note "$name: exit code $code: $(tail -n 1 "$dir/err")" # 143: it was not yet training
        for setting in $settings; do
            grep -qF "\"${setting%%=*}\":${setting#*=}," "$dir/$name/metrics.jsonl" || note "$name: not $setting"
        done
        preset=$(sed -n 's/.*"preset":"\([^"]*\)".*/\1/p' "$dir/$name/metrics.jsonl")
        "$train" info --preset "$preset" --batch_size 1 </dev/null >"$dir/$name/info" 2>/dev/null &
        await ": $(echo "$model" | tr , ' ') V=50257" "$dir/$name/info" $! # the rest of what info says takes a while
        kill $! 2>/dev/null
    done <<END
gpt2_124M L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0006 max_steps=19073 warmup_steps=715 \
    min_lr_frac=0.1 weight_decay=0.1 schedule="cosine" beta2=0.95 grad_clip=1.0 batch_ramp="" zero="1" resume="auto"
gpt2_350M L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.0003 max_steps=60000 warmup_steps=700 \
    min_lr_frac=0.0 weight_decay=0.1 batch_ramp=""
gpt2_774M L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00025 max_steps=286102 warmup_steps=700 \
    min_lr_frac=0.0 weight_decay=0.1 batch_ramp=""
gpt2_1558M L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.0006 max_steps=32000 warmup_steps=700 \
    min_lr_frac=0.1 weight_decay=0.1 batch_ramp=""
gpt3_125M L=12,H=12,C=768,T=2048 total_batch_size=524288 lr=0.0006 max_steps=495911 warmup_steps=715 \
    min_lr_frac=0.1 weight_decay=0.1 batch_ramp="32768:4000000000"
fast:124m L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0018 max_steps=12288 warmup_steps=256 \
    min_lr_frac=0.0 weight_decay=0.1 schedule="wsd_linear" decay_frac=0.16667 batch_ramp=""
fast:350m L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.00135 max_steps=37700 schedule="wsd"
fast:774m L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00108 max_steps=179700 schedule="wsd"
fast:1558m L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.000864 max_steps=20100 schedule="wsd"
muon:124m L=12,H=12,C=768,T=1024 total_batch_size=524288 lr=0.0036 matrix_lr="auto" matrix_decay=0.01 max_steps=8000 \
    optimizer="muon" init_out="zero" cautious_decay=true decay_embeddings=false momentum_cooldown="50:0.85" \
    warmup_steps=256 decay_frac=0.29 min_lr_frac=0.0
muon:350m L=24,H=16,C=1024,T=1024 total_batch_size=524288 lr=0.00312 matrix_decay=0.0056 max_steps=24500
muon:774m L=36,H=20,C=1280,T=1024 total_batch_size=524288 lr=0.00279 matrix_decay=0.0036 max_steps=117000
muon:1558m L=48,H=25,C=1600,T=1024 total_batch_size=1048576 lr=0.00249 matrix_decay=0.0023 max_steps=13100
END
}

# In a copy of scripts/, with an nvidia-smi that fails, later finds two GPUs, and a curl that finds every file.
run_scripts_say_what_is_missing() {
    corpus
    mkdir -p "$dir/scripts" "$dir/data" "$dir/bin"
    cp scripts/run.sh scripts/run_gpt2_124M.sh "$dir/scripts"
    script="env PATH=$dir/bin:$PATH sh $dir/scripts/run_gpt2_124M.sh"
    printf '#!/bin/sh\nexit 9\n' >"$dir/bin/nvidia-smi"
    chmod +x "$dir/bin/nvidia-smi"
    expect 1 'build it with: make' $script
    printf '#!/bin/sh\necho "$@"\n' >"$dir/train_gpt2cu"
    chmod +x "$dir/train_gpt2cu"
    expect 1 'sh data/fetch.sh fineweb-edu 99' $script
    expect 1 'sh data/fetch.sh fineweb100b 99' env DATA=fineweb100b $script
    : >"$dir/data/finewebedu_train_000001.bin"
    expect 1 'data/finewebedu_train_*.bin or data/finewebedu_val_000000.bin is missing' $script
    rm "$dir/data/finewebedu_train_000001.bin"
    cp data/fetch.sh data/http.sh data/sets.sh data/zip.sh "$dir/data"
    sed 's/ ~*[0-9]* [0-9a-f-]*$/ - -/; s/ ~*[0-9]* - \([a-z]\)/ - - \1/' data/sets.list >"$dir/data/sets.list"
    cat >"$dir/bin/curl" <<END
#!/bin/sh
while [ \$# -gt 1 ]; do
    case \$1 in
        --head) head=1 ;;
        --dump-header) echo 'HTTP/1.1 200 OK' >"\$2" ;;
        --output) output=\$2 ;;
    esac
    shift
done
[ -n "\${head:-}" ] || cp $root/corpus_val_000000.bin "\$output"
END
    chmod +x "$dir/bin/curl"
    for set in fineweb fineweb-edu fineweb100b fineweb-edu100b; do # fetch.sh writes the names that run.sh looks for
        expect 1 'fetch.sh' env DATA=$set $script
        must env PATH="$dir/bin:$PATH" sh "$dir/data/fetch.sh" $set 1
        expect 1 'no NVIDIA GPU here' env DATA=$set $script
    done
    expect 1 'no NVIDIA GPU here' $script
    printf '#!/bin/sh\necho "GPU 0: A"\necho "  MIG 1"\necho "GPU 1: A"\n' >"$dir/bin/nvidia-smi"
    expect 1 'start with: GPUS=2 sh' $script
    expect 0 '1 of 99 shards' env GPUS=2 $script --lr 1
    grep -q -- '--gpus 2 .*--preset gpt2:124m .*--lr 1$' "$dir/out" || note "not the command: $(cat "$dir/out")"
    expect 0 '--preset' env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 $script # a rank of a launcher checks nothing
}

# The emulated GPU trainer, started by a script for two steps, then for two more.
by_script="scripts/run_gpt2_124M.sh $gpu --total_batch_size 64 --batch_size 1 $quiet --save_every 2"
twice() { # FOLDER command...
    folder=$1
    shift
    for steps in 2 4; do must env TRAINER="$cuda" GPUS=2 "$@" $by_script $data --max_steps $steps --out "$folder"; done
    grep -q 'resumed after step 2' "$dir/err" || note "$folder: did not go on: $(tail -n 1 "$dir/err")"
    [ -d "$folder/step_00000004" ] || note "$folder: nothing was saved"
}

scripts_start_several_processes() {
    corpus
    twice "$dir/local" sh
    twice "$dir/node" env MASTER_ADDR=127.0.0.1 NODES=1 NODE=0 sh scripts/multi_node/node.sh
    echo 'localhost slots=2' >"$dir/hosts"
    twice "$dir/mpi" env HOSTFILE="$dir/hosts" sh scripts/multi_node/mpi.sh
    for way in node mpi; do close=1e-12; same "$dir/local" "$dir/$way"; done
    unset close
    expect 2 'HOSTFILE names one' env HOSTFILE="$dir/none" sh scripts/multi_node/mpi.sh scripts/run_gpt2_124M.sh
    expect 2 'NODE must be from 0' \
        env MASTER_ADDR=127.0.0.1 NODES=2 NODE=2 sh scripts/multi_node/node.sh scripts/run_gpt2_124M.sh
    expect 2 'MASTER_ADDR' sh scripts/multi_node/node.sh scripts/run_gpt2_124M.sh
}

# Writes stand-ins for Slurm's commands into $dir/bin. srun starts two tasks and stores their ids for scancel.
slurm_commands() { # no test
    mkdir -p "$dir/bin"
    cat >"$dir/bin/srun" <<'END'
#!/bin/sh
[ "$1 $2" = "--mpi=none --kill-on-bad-exit=1" ] || exit 9
shift 2
tasks=
for id in 0 1; do
    SLURM_PROCID=$id SLURM_LOCALID=$id SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 "$@" &
    tasks="$tasks $!"
done
echo "$tasks" >"$SLURM_TEST/tasks"
for task in $tasks; do wait "$task" || exit $?; done
END
    printf '#!/bin/sh\n[ "$*" = "--signal=TERM 77" ] && kill -TERM $(cat "$SLURM_TEST/tasks")\n' >"$dir/bin/scancel"
    printf '#!/bin/sh\ncase $1 in show) echo 127.0.0.1; echo other ;; *) echo "$*" >"$SLURM_TEST/$1" ;; esac\n' \
        >"$dir/bin/scontrol"
    chmod +x "$dir/bin/srun" "$dir/bin/scancel" "$dir/bin/scontrol"
}

a_slurm_job_saves_at_its_end_and_goes_on() {
    corpus
    slurm_commands
    slurm="env PATH=$dir/bin:$PATH SLURM_TEST=$dir SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=77 SLURM_JOB_NODELIST=n \
        SLURM_CPUS_PER_TASK=1 TRAINER=$cuda sh scripts/multi_node/slurm.sh $by_script $data --out $dir/run"
    begin $slurm --max_steps 100000
    await 'step .*5/' "$dir/out" $pid
    kill -USR1 $pid
    ends_well $pid
    [ "$(cat "$dir/requeue" 2>&1)" = "requeue 77" ] || note "not back into the queue"
    rm -f "$dir/requeue"
    last=$(ls "$dir/run" | sed -n 's/step_0*//p' | tail -n 1)
    must $slurm --max_steps $((last + 2))
    grep -q "resumed after step $last" "$dir/err" || note "did not go on after step $last: $(tail -n 1 "$dir/err")"
    [ ! -e "$dir/requeue" ] || note "a finished run was queued again"
}

command -v mpirun >/dev/null || { echo "skipped: no mpirun (openmpi-bin)"; exit 77; }
tensors="$release/compare_checkpoints"
[ -x "$cuda" ] || { echo "skipped: no $cuda; make emu builds it"; exit 77; }
run_tests "$0"
end_tests ranks
