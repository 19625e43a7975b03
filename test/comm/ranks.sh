#!/bin/sh
# Tests that several processes train as one does: the CPU trainer under mpirun.
. "$(dirname "$0")/lib.sh"
corpus

one() { [ -d "$root/one" ] || "$train" $run $often $data --batch_size 4 --out "$root/one" >/dev/null 2>&1; }

cpu_ranks_train_as_one_process_does() {
    one
    for split in 0:2:2 0:4:4 1:2:8 1:4:1; do # zero:processes:batch_size; a process has 1 or 4 micro-batches a step
        zero=${split%%:*} n=${split#*:}
        must ranks "${n%:*}" "$train" $run $often $data --batch_size "${n#*:}" --zero "$zero" --out "$dir/$split"
        same "$root/one" "$dir/$split"
    done
}

# Shards of 20 channels end in padding, whose gradients are not part of the norm. No save, which overwrites gradients.
padding_of_shards_has_no_gradient() {
    odd="--model L=2,H=2,C=20,T=48,V=257 --tokenizer bytes --seq_len 32 --total_batch_size 384 --batch_size 2 \
        --lr 1e-3 --max_steps 5 --save_every 0 $quiet"
    must "$train" $odd $data --out "$dir/one"
    must ranks 3 "$train" $odd $data --zero 1 --out "$dir/three"
    near "$dir/one" "$dir/three" 1e-5
}

ranks_keep_documents_apart_as_one_process_does() {
    documents="$run $often $data --seq_len 48 --total_batch_size 384 --document_mask --batch_size 4"
    must "$train" $documents --out "$dir/one"
    must ranks 2 "$train" $documents --zero 1 --out "$dir/two"
    same "$dir/one" "$dir/two"
}

cpu_ranks_train_so_in_bf16_and_with_recomputation() {
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

# Rank 0 waits for rank 1 when the signal comes.
a_request_to_save_ends_no_rank_that_connects() {
    command="exec $train $small $data $quiet --max_steps 2 --save_every 0 --batch_size 2 --out $dir/run"
    begin unlike "echo \$\$ >$dir/pid; $command" "until [ -e $dir/now ]; do sleep 0.1; done; $command"
    await . "$dir/pid" $pid && rank=$(cat "$dir/pid") &&
        await '^SigCgt:.*[2367abef]..$' "/proc/$rank/status" "$rank" && kill -USR1 "$rank"
    : >"$dir/now"
    ends 0 $pid
}

# A step of a ramp may have fewer rows than there are processes. Sequences grow meanwhile.
a_batch_ramp_may_leave_ranks_without_rows() {
    ramp="$run --max_steps 8 --total_batch_size 256 --batch_ramp 32:1200 --seq_ramp 8:1600 $quiet --save_every 100"
    must "$train" $ramp $data --batch_size 4 --out "$dir/one"
    for zero in 0 1; do
        must ranks 4 "$train" $ramp $data --batch_size 1 --zero $zero --out "$dir/four$zero"
        [ $zero = 1 ] || mfu_is_of_all_ranks 4 "$dir/four0" # with shards, P has more padding
        same "$dir/one" "$dir/four$zero"
    done
}

# The MFU is 6 P + 6 L C T operations a token, P with padding, over the time and the peak, which has four digits.
mfu_is_of_all_ranks() { # RANKS FOLDER
    peak=$(sed -n 's/.* a peak of \([0-9.]*\) TFLOP.*/\1/p' "$dir/err")
    awk -v all="$1" -v peak="$peak" '
        function value(name) { return match($0, "\"" name "\":[^,]*") ? substr($0, RSTART + length(name) + 3) + 0 : 0 }
        / sequences of / { length_from[$2 + 0] = $5 }
        /"kind":"train"/ {
            if (value("step") in length_from) { T = length_from[value("step")]; lengths++ }
            flops = value("mfu") * value("ms") / 1e3 * peak * 1e12 * all / (value("tokens") - tokens)
            share = flops / (6 * 39808 + 6 * 2 * 32 * T)
            wrong += share > 1.004 || share < 0.996 # T 8 in place of 16: 0.988
            tokens = value("tokens")
        }
        END { exit wrong > 0 || lengths < 3 }' "$2/log.txt" "$2/metrics.jsonl" || note "$2: peak $peak, another MFU"
}

ranks_compare_their_times() {
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
    ramp="$run --max_steps 8 --total_batch_size 256 --batch_ramp 32:1200 $quiet --save_every 100 --batch_size 1"
    for replay in 0 3; do must ranks 4 "$train" $ramp $data --replay $replay --out "$dir/$replay"; done
    last=$(ls "$dir/0" | grep step_ | tail -n 1) # small batches make more than --max_steps
    same_checkpoint "$dir/0/$last" "$dir/3/$last"
}

# Each matrix of Muon has one rank as its owner with --zero 1. Runs go on with other ranks and the other --zero.
muon_on_ranks_trains_as_one_process_does() {
    # With seed 1337 one gradient of a position vanishes, and AdamW divides its rounding by itself: 1e-5 of wpe. With
    # seeds 1 to 4 the largest difference of any tensor is 3e-6.
    muon="$run --seed 1 --optimizer muon --max_steps 10 --total_batch_size 512 --save_every 5 --keep 0 $quiet"
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

# A layer's gradients, and the largest matrices, are more than the 2^22 elements that are added up at once. A sum that
# stops there shows in the norm, and weights in the validation: checkpoints of this size would take longest.
large_ranges_are_added_up_in_pieces() {
    large="$run $data --model L=1,H=6,C=1032,T=8,V=257 --seq_len 8 --total_batch_size 32 --batch_size 2 --max_steps 1 \
        --val_every 1 --val_tokens 64 --sample_every 0 --save_every 0"
    for way in adamw:0 muon:1; do # optimizer:zero
        must "$train" $large --optimizer ${way%:*} --out "$dir/one-$way"
        must ranks 2 "$train" $large --optimizer ${way%:*} --zero ${way#*:} --out "$dir/two-$way"
        near "$dir/one-$way" "$dir/two-$way" 1e-5
    done
}

# Counts MPI's collectives. A layer's gradients are one all-reduce, in the last of four micro-batches. "numbers" are the
# losses of each step and validation.
gradients_are_added_up_once_a_step() {
    for zero in 0 1 "1 --optimizer muon"; do
        must ranks 2 env LD_PRELOAD="$build/count_collectives.so" "$train" $run $data --total_batch_size 256 \
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

# A run goes on with another number of ranks, another micro-batch and the other --zero.
a_run_goes_on_with_other_ranks() {
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
    core_folder "$dir/core"
    for n in 1 2; do
        ranks $n "$train" eval --init test/golden/eval/model --tokenizer test/golden/eval/tokenizer.bin --eval_data \
            "$dir/core" --text test/golden/eval/text.txt >"$dir/$n" 2>"$dir/err" ||
            note "$n ranks: $(tail -n 1 "$dir/err")"
    done
    cmp -s "$dir/1" "$dir/2" || note "2 ranks: $(cat "$dir/2"), not $(cat "$dir/1")"
    grep -q '^CORE: ' "$dir/1" || note "no CORE"
}

stopping_one_rank_saves_and_stops_all() {
    # mpirun counts, neither --gpus nor what another launcher has left
    begin env RANK=0 WORLD_SIZE=1 mpirun -np 2 "$train" $run $data --max_steps 100000000 --total_batch_size 256 $quiet \
        --gpus 8 --out "$dir/run"
    await 'step .*/' "$dir/out" $pid
    grep -q '^2 processes by MPI' "$dir/err" || note "not two processes: $(cat "$dir/err")"
    signal_rank TERM "$dir/run" 1
    ends 0 $pid
    ls "$dir/run" | grep -q step_ || note "nothing was saved"
    grep -q 'continue with.*--resume auto$' "$dir/err" || note "$(grep 'continue with' "$dir/err")"
}

sums_are_timed_and_looked_at() {
    for n in 2 3; do timed_well $n ranks $n "$train"; done
    expect 3 'a sum is wrong' \
        ranks 2 env LD_PRELOAD="$build/count_collectives.so" SPOIL_SUMS=1 "$train" bench comm $tiny --out ""
    grep -q '^all-reduce .*WRONG$' "$dir/out" || note "the wrong line does not say so: $(cat "$dir/out")"
    grep -q '^all-gather .*WRONG$' "$dir/out" && note "another line says so too"
    expect 2 'start several, by mpirun' "$train" bench comm $tiny --out ""
    expect 2 'is for one process' ranks 2 "$train" bench ladder $tiny --out ""
}

a_stopped_or_killed_rank_ends_the_run() {
    for signal in STOP KILL; do
        begin ranks 4 "$train" $run $data $forever --batch_size 1 --timeout 5 --out "$dir/$signal"
        await 'saved step' "$dir/err" $pid
        signal_rank $signal "$dir/$signal" 2
        finish $pid
        code=$?
        [ $code != 0 ] || note "$signal: exit code 0"
        [ $signal = KILL ] || grep -q 'rank 2.* on .*step' "$dir/err" ||
            note "$signal: rank, host and step not named: $(grep -v '^-' "$dir/err" | tail -n 3)"
        none_left "$dir/$signal"
    done
}

# A run of four ranks, one of them killed, goes on with two ranks and the losses of a run that never stopped.
a_run_whose_rank_was_killed_goes_on_with_two() {
    common="$run $data --total_batch_size 256 --max_steps 60 --save_every 10 --val_every 30 --val_tokens 500 \
        --sample_every 0"
    must "$train" $common --batch_size 4 --out "$dir/one"
    ranks 4 env LD_PRELOAD="$build/count_collectives.so" KILL_AT=150 "$train" $common --batch_size 1 \
        --out "$dir/run" >"$dir/out" 2>"$dir/err" && note "exit code 0: no rank was killed"
    none_left "$dir/run"
    ls "$dir/run" >"$dir/kept"
    { grep -q step_ "$dir/kept" && ! grep -q step_00000060 "$dir/kept"; } || note "checkpoints: $(cat "$dir/kept")"
    must ranks 2 "$train" --resume auto --batch_size 2 --out "$dir/run"
    weights=1e-4
    same "$dir/one" "$dir/run"
    unset weights
}

# A loss that is not finite ends all ranks; all ranks skip the same updates.
jumps_are_seen_by_all_ranks() {
    common="$run $data --total_batch_size 256 --batch_size 4 $quiet --save_every 0"
    for zero in 0 1; do
        expect 4 'Lower --lr' ranks 2 "$train" $common --zero $zero --lr 1e3 --grad_clip 0 --max_steps 200 \
            --out "$dir/wild$zero"
        must ranks 2 "$train" $common --zero $zero --skip_z 0:0.1 --max_steps 160 --out "$dir/skip$zero"
        grep -q '"kind":"skip"' "$dir/skip$zero/metrics.jsonl" || note "zero $zero: no update was skipped"
    done
    must "$train" $common --skip_z 0:0.1 --max_steps 160 --out "$dir/skip"
    want=$(grep -c '"kind":"skip"' "$dir/skip/metrics.jsonl")
    [ "$(grep -c '"kind":"skip"' "$dir/skip1/metrics.jsonl")" = "$want" ] || note "not $want updates skipped"
}

# The first steps of the ramp have one window of one token, on rank 0: the loss scale makes its gradient overflow, while
# that of the other ranks is zero. The update is skipped on all ranks, or their weights would differ at the save.
an_overflow_on_one_rank_skips_the_update_of_all() {
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
# It is noticed when the weights are compared next: every --replay steps, before a validation, or before a checkpoint,
# which is not written.
# (With ZeRO it happens in the last step before: the next step's all-gather would set the weight right again.)
a_flipped_bit_is_noticed_and_named() {
    common="$run $data --total_batch_size 256 --batch_size 4 $quiet --max_steps 8 --grad_clip 0"
    # zero:collective:replay:save_every:val_every:tensor
    for case in 0:9:2:0:0:ln_f.weight 0:9:100:0:4:ln_f.weight 1:35:100:8:0:h.1.ln_1.weight; do
        set -- $(echo $case | tr : ' ')
        expect 5 'the weights of rank 1 on ' ranks 2 env LD_PRELOAD="$build/count_collectives.so" FLIP_BIT=$2 \
            "$train" $common --zero $1 --replay $3 --save_every $4 --val_every $5 --out "$dir/$case"
        grep -q "are not those of rank 0 on .*, first in $6:" "$dir/err" || note "$case: $(cat "$dir/err")"
        ! ls "$dir/$case" | grep -q step_ || note "$case: wrong weights were saved"
    done
}

ranks_that_differ_are_named() {
    common="$run $data --total_batch_size 256 --batch_size 2 $quiet --out $dir/run"
    expect 2 'on ' unlike "exec $train $common --lr 1e-3" "exec $train $common --lr 2e-3"
    grep -q -- '--lr is 0.002, for rank 0 it is 0.001' "$dir/err" || note "not named: $(cat "$dir/err")"
    expect 2 '--lr is 0.0003, for rank 0 it is 0.1' unlike "exec $train $common --lr 0.1" \
        "exec $train $common --lr 3e-4"
    cp "$train" "$dir/other"
    cp "$build/libgpt2_mpi.so" "$dir"
    echo other >>"$dir/other"
    expect 1 'another version of this program' unlike "exec $train $common" "exec $dir/other $common"
    mkdir "$dir/a" "$dir/b"
    cp "$root/corpus_train_000001.bin" "$dir/a"
    cp "$root/corpus_train_000001.bin" "$dir/b"
    printf '\001\000' | dd of="$dir/b/corpus_train_000001.bin" bs=1 seek=1030 conv=notrunc 2>/dev/null
    common="$common --train_data corpus_train_*.bin"
    in_a_and_b() { unlike "cd $dir/a && exec $*" "cd $dir/b && exec $*"; }
    expect 1 'the data is not that of rank 0' in_a_and_b "$PWD/$train" $common
    must "$train" $run $data $quiet --max_steps 2 --save_every 1 --batch_size 4 --out "$dir/saved"
    cp -r "$dir/saved/step_00000001" "$dir/a/start"
    again="$PWD/$train $run $data $quiet --batch_size 4 --resume start --out $dir/again"
    expect 1 'all ranks must see the same files' in_a_and_b $again
    cp -r "$dir/saved/step_00000002" "$dir/b/start"
    expect 1 'the checkpoint is not that of rank 0' in_a_and_b $again
    echo '{"text": "a b"}' >"$dir/a/set"
    echo '{"text": "a c"}' >"$dir/b/set"
    common="eval --init $PWD/test/golden/gpt2 --tokenizer bytes --eval_data set"
    expect 1 '--eval_data: on ' in_a_and_b "$PWD/$train" $common
}

bad_ranks_are_refused() {
    expect 2 'not a multiple of batch_size * seq_len * processes' \
        ranks 3 "$train" $run $data --total_batch_size 256 --batch_size 1 --out "$dir/run"
    grep -q 'or start 1, 2, 4 processes' "$dir/err" || note "no numbers of processes that fit: $(cat "$dir/err")"
    expect 2 'or start 1, 2, 4 processes' \
        ranks 3 "$train" $run $data --total_batch_size 512 --batch_size auto --out "$dir/run"
    expect 2 'only train, eval and bench run in several' ranks 2 "$train" generate --out "$root/one"
    expect 1 'start them with mpirun -np 2' "$train" $run $data --gpus 2 --out "$dir/run"
    expect 1 'srun started 2 processes, but MPI counts 1' \
        env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$train" $run $data --out "$dir/run"
    expect 2 'WORLD_SIZE' env RANK=0 "$train" $run $data --out "$dir/run"
    [ ! -e "$dir/run/log.txt" ] || note "a log was begun"
}

run_tests
