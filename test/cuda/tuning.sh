#!/bin/sh
# Tests what an emulated GPU times: kernels and algorithms that a run chooses and keeps, and `bench`.
. "$(dirname "$0")/lib.sh"
corpus

# A resumed run keeps the variants that were chosen by timing, if they exist here, even if others are faster now.
chosen_is() { # RUN VARIANTS [STEP]: this checkpoint, 4, names these. attention=: both passes have these kernels
    variants=$(echo "$2" | sed 's/^attention=\([a-z]*\)/attention_forward=\1 attention_backward=\1/')
    state="$1/step_$(printf %08d "${3:-4}")/state.json"
    grep -qF "\"$variants\"" "$state" || note "not $variants: $(grep attention_forward= "$state" 2>&1)"
}

the_fastest_kernels_are_chosen_and_kept() {
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
    expect 0 'attention_backward=cudnn, which an earlier start chose, does not exist here' \
        "$cuda" --out "$dir/lacking" --resume auto
    chosen_is "$dir/lacking" 'attention=flash gelu_forward=apart gelu_backward=apart'
}

# cuDNN may compute one pass of attention and this program the other.
passes_of_attention_are_chosen_apart() {
    run="$tiny $data --dtype bf16 --max_steps 4 --save_every 2"
    export EMU_CUDNN=1
    rest='gelu_forward=apart gelu_backward=apart'
    must env EMU_SLOW=flash_forward "$cuda" $run --out "$dir/forward"
    chosen_is "$dir/forward" "attention_forward=cudnn attention_backward=flash $rest"
    must env EMU_SLOW=flash_backward "$cuda" $run --out "$dir/backward"
    chosen_is "$dir/backward" "attention_forward=flash attention_backward=cudnn $rest"
    export EMU_CUDNN=0
}

# Two fresh starts choose the same, whatever a second timing would say.
a_fresh_start_takes_the_variants_of_an_earlier_one() {
    export XDG_CACHE_HOME="$dir/cache" EMU_CUDNN=1
    run="$tiny $data --dtype bf16 --max_steps 4 --save_every 4"
    must env EMU_SLOW=flash "$cuda" $run --tune 1 --out "$dir/first"
    must "$cuda" $run --tune 1 --out "$dir/second"
    chosen_is "$dir/second" 'attention=cudnn gelu_forward=apart gelu_backward=apart'
    same_files "$dir/first" "$dir/second" 4
    for other in "--seq_len 31" "--deterministic 0" "--dtype fp32" "--tune anew"; do # timed anew
        must "$cuda" $run --tune 1 $other --out "$dir/other"
        chosen_is "$dir/other" 'attention=flash gelu_forward=apart gelu_backward=apart'
        grep 'cuBLASLt no longer offers' "$dir/err" >"$dir/lost" && note "$other: $(head -n 1 "$dir/lost")"
        rm -r "$dir/other"
    done
    for attention in flash exact; do # their kernels differ, though both are flash to the backend
        must "$cuda" $run --tune 1 --attention $attention --max_steps 1 --save_every 0 --out "$dir/$attention"
    done
    count=$(find "$dir/cache" -type f -exec cat {} + | grep -c ',flash,')
    [ "$count" = 2 ] || note "$count lines of variants for --attention flash and exact"
    export XDG_CACHE_HOME="$root/cache" EMU_CUDNN=0
}

# The deterministic backward of Hopper needs B NH T T 2 bytes, here 2 MiB. The plan has them with --attention cudnn, and
# not for the other backward, which does not repeat its bits.
cudnns_backward_is_deterministic_unless_allowed() {
    export EMU_CUDNN=1 EMU_CC=90
    run="$tiny $data --model L=1,H=4,C=32,T=256,V=257 --seq_len 256 --batch_size 4 --total_batch_size 1024 \
        --dtype bf16 --attention cudnn --max_steps 2 --save_every 2"
    planned() { sed -n 's/.* \([0-9.]*\) MiB of memory$/\1/p' "$dir/err"; }
    must "$cuda" $run --out "$dir/first"
    most=$(planned)
    must env EMU_ORDER=2 "$cuda" $run --out "$dir/second"
    same_files "$dir/first" "$dir/second" 2
    must "$cuda" $run --deterministic 0 --out "$dir/third"
    awk -v most="$most" -v less="$(planned)" 'BEGIN { d = most - less - 2; exit !(d > -0.1 && d < 0.1) }' ||
        note "$most MiB planned, $(planned) without the workspace"
    chosen_is "$dir/third" \
        'attention_forward=cudnn attention_backward=cudnn_nondeterministic gelu_forward=fused gelu_backward=fused' 2
    must env EMU_ORDER=2 "$cuda" $run --deterministic 0 --out "$dir/fourth"
    cmp -s "$dir/third/step_00000002/model.safetensors" "$dir/fourth/step_00000002/model.safetensors" &&
        note "the stand-in adds in one order"
    expect 2 'not supported on Blackwell; give --attention flash or --deterministic 0' \
        env EMU_CC=100 "$cuda" $run --out ""
    expect 2 'no deterministic backward for compute capability 12.0; give --attention flash or --deterministic 0' \
        env EMU_CC=120 "$cuda" $run --out ""
    for gpu in 100 120; do
        expect 2 "capability ${gpu%0}.0 needs cuDNN 9.18.1 or later" \
            env EMU_CC=$gpu EMU_CUDNN_VERSION=91600 "$cuda" $run --out ""
    done
    expect 2 'known for errors in attention' env EMU_CUDNN_VERSION=91001 "$cuda" $run --out ""
    expect 2 'compares bits' "$cuda" $run --deterministic 0 --replay 1 --out ""
    EMU_MEMORY=$(awk -v most="$most" 'BEGIN { printf "%d", (most - 1 + 144 + 256) * 1048576 * 64 / 63 }') # 1 MiB short
    export EMU_MEMORY
    expect 1 'not enough memory on the GPU' "$cuda" $run --out ""
    must "$cuda" $run --deterministic 0 --max_steps 1 --save_every 0 --out ""
    # where the plan just fits, kernels that are loaded after it take the margin, not the workspace
    EMU_MEMORY=$(awk -v most="$most" 'BEGIN { printf "%d", (most + 1 + 144 + 256 + 512) * 1048576 * 64 / 63 }')
    must env EMU_CHARGES=1 "$cuda" $run --fused 0 --tune anew --max_steps 1 --save_every 0 --out ""
    unset EMU_CC EMU_MEMORY
    export EMU_CUDNN=0
}

# Tilings of flash attention, which heads of 64 channels have several of. A name without a number slows all of them
# equally.
tilings_of_attention_are_chosen_and_kept() {
    run="$small $data --model L=1,H=1,C=64,T=40,V=257 --batch_size 2 --seq_len 40 --val_every 0 --max_steps 4 \
        --save_every 2 --dtype bf16 --tune 0"
    rest='attention=flash gelu_forward=apart gelu_backward=apart'
    must env EMU_SLOW=flash "$cuda" $run --out "$dir/equal"
    chosen_is "$dir/equal" "$rest flash_forward=4x32x32 flash_keys=4x32x16 flash_queries=4x32x16"
    first='[with Type = __nv_bfloat16; int HD = 64; int VARIANT = 0; bool DOCUMENTS = false'
    for kernel in forward backward_keys backward_queries; do
        must env EMU_SLOW="flash_${kernel}_kernel $first" "$cuda" $run --out "$dir/$kernel"
    done
    chosen_is "$dir/forward" "$rest flash_forward=4x32x64 flash_keys=4x32x16 flash_queries=4x32x16"
    chosen_is "$dir/backward_keys" "$rest flash_forward=4x32x32 flash_keys=4x32x32 flash_queries=4x32x16"
    chosen_is "$dir/backward_queries" "$rest flash_forward=4x32x32 flash_keys=4x32x16 flash_queries=4x32x32"
    go_on "$cuda" "$dir/forward" 2 "$dir/again" # with equally fast tilings
    chosen_is "$dir/again" "$rest flash_forward=4x32x64 flash_keys=4x32x16 flash_queries=4x32x16"
    same_files "$dir/forward" "$dir/again" 4
    # with documents 4x32x64 does not exist, so only 8x16x32 is left beside 4x32x32
    masked='[with Type = __nv_bfloat16; int HD = 64; int VARIANT = 0; bool DOCUMENTS = true'
    must env EMU_SLOW="flash_forward_kernel $masked" "$cuda" $run --document_mask --out "$dir/masked"
    kept="$rest flash_forward=8x16x32 flash_keys=4x32x16 flash_queries=4x32x16"
    chosen_is "$dir/masked" "$kept"
    go_on "$cuda" "$dir/masked" 2 "$dir/masked_again"
    chosen_is "$dir/masked_again" "$kept"
}

# The algorithms of matmuls are part of the run too. Those of the emulated library differ in their last bits.
the_fastest_algorithms_are_chosen_and_kept() {
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
    go_on "$cuda" "$dir/tuned" 2 "$dir/again" --tune anew # of the checkpoint, though the first is as fast now
    same_files "$dir/tuned" "$dir/again" 4
    must "$cuda" $run --tune 1 --out "$dir/cached"
    same_files "$dir/tuned" "$dir/cached" 4
    sed -i 's/ [^ ]*$/ 1.2.3/' "$(find "$dir/cache" -type f)" # what the library does not know
    expect 0 'no longer offers the algorithm' "$cuda" $run --tune 1 --out "$dir/unknown"
    same_files "$dir/equal" "$dir/unknown" 4
    export XDG_CACHE_HOME="$root/cache"
}

# The memory of operands in FP8 grows within the first step, so what the first matmuls read is freed before they are
# timed.
matmuls_in_fp8_are_timed() {
    for fused in 0 1; do
        must env EMU_CC=90 "$cuda" $tiny $data --dtype fp8 --fused $fused --tune anew --max_steps 2 --save_every 0 \
            --out ""
    done
}

# A single micro-batch of a step sets gradients, more add to them too, for which nothing is in the cache yet.
matmuls_are_timed_as_they_run() {
    export EMU_SLOW=cublaslt_0_adds XDG_CACHE_HOME="$dir/cache"
    for batch in 128:0 256:1; do # tokens of a step: another algorithm than the first is chosen for some
        run="$tiny $data --dtype bf16 --batch_size 4 --total_batch_size ${batch%:*} --max_steps 1 --save_every 1"
        must "$cuda" $run --tune 1 --out "$dir/timed"
        must "$cuda" $run --tune 0 --out "$dir/first"
        cmp -s "$dir/timed/step_00000001/model.safetensors" "$dir/first/step_00000001/model.safetensors"
        [ $? = "${batch#*:}" ] || note "${batch%:*} tokens a step: not the algorithms that are the fastest"
        rm -r "$dir/timed" "$dir/first"
    done
    unset EMU_SLOW
    export XDG_CACHE_HOME="$root/cache"
}

# Sets of 1 to 26 items have matmuls of their own, in all more than the table of plans has room for.
scoring_many_sets_changes_no_algorithm_of_training() {
    sets=
    for items in $(seq 26); do
        seq "$items" | sed 's/.*/{"text": "a b"}/' >"$dir/lambada_$items.jsonl"
        sets="${sets:+$sets,}$dir/lambada_$items.jsonl"
    done
    run="$tiny $data --model L=1,H=2,C=32,T=32,V=257 --dtype bf16 --batch_size 26 --seq_len 8 --max_steps 2 \
        --save_every 2 --tune anew --graph 0"
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --out "$dir/alone"
    must env EMU_SLOW=cublaslt_0 "$cuda" $run --eval_data "$sets" --eval_rules every:2 --out "$dir/scored"
    same_files "$dir/alone" "$dir/scored" 2
}

matmuls_are_listed_with_their_algorithms() {
    must env EMU_SLOW=cublaslt_0 "$cuda" bench plans --model L=1,H=2,C=32,T=32,V=64 --batch_size 1 --out "$dir/plans"
    awk '/ x / { fused = / \+ / } fused { next } /^   0\*/ { bad = 1 } /^   1\*/ { n++ } END { exit bad || !n }' \
        "$dir/out" || note "not the second algorithm: $(cat "$dir/out")"
    grep -q '"chosen": true' "$dir/plans/plans.json" || note "plans.json names no choice"
    expect 2 'run train_gpt2cu' "$train" bench plans --out ""
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
                of["first_matmul_backward"] = 4
                of["first_matmul_gelu_backward"] = 4 + unfused
                of["attention_backward"] = 2
                of["encoder_backward"] = 3
                of["layernorm_backward"] = 2
                of["first_classifier_backward"] = 4
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

# Then nothing opens cuBLASLt, which a matmul of the peak's measurement must not call either.
plain_kernels_are_timed_without_cublaslt() {
    must "$cuda" bench ops loss_add --kernels plain --model L=1,H=2,C=32,T=16,V=50 --batch_size 1 --out ""
}

operations_are_timed_with_the_choices_of_training() {
    ops="bench ops loss_add --dtype bf16 --model L=1,H=2,C=32,T=16,V=50 --batch_size 1 --tune 1 --out $dir"
    export XDG_CACHE_HOME="$dir/cache"
    must env EMU_CUDNN=1 EMU_SLOW=flash "$cuda" $ops --tune 0
    grep -q '^ops: .* attention_forward=cudnn .* kernels' "$dir/out" &&
        grep -q '"attention_forward=cudnn attention_backward=cudnn ' "$dir/ops.json" ||
        note "attention was not chosen: $(cat "$dir/out")"
    grep -q "^matmuls: the first algorithm .* --tune 0" "$dir/out" || note "--tune 0: $(cat "$dir/out")"
    [ ! -d "$dir/cache" ] || note "--tune 0 tunes"
    must "$cuda" $ops
    grep -q '^matmuls: the fastest algorithm' "$dir/out" || note "not the fastest: $(cat "$dir/out")"
    [ "$(find "$dir/cache" -type f -exec cat {} + | wc -l)" -gt 10 ] || note "no matmul of training was tuned"
    export XDG_CACHE_HOME="$root/cache"
}

run_tests
