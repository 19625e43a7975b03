#!/bin/sh
# Runs the test programs and each command of the programs with a tool that watches every memory access:
#   build/thread     ThreadSanitizer reports data races. The build is clang's: libomp loads archer, which tells the
#                    sanitizer which thread waits for which. gcc's libgomp does not: each parallel loop is a race.
#   build/memcheck   valgrind reports reads of uninitialized memory, wrong addresses and, of the commands, lost memory.
#                    The sanitizers of config=sanitize see no uninitialized memory. It knows no AVX-512.
# What each does not report is in thread.txt and memcheck.txt, with the reasons.
# sh test/watched.sh build/thread|build/memcheck [WORD...]
. "$(dirname "$0")/lib.sh"
# set, so that the program does not start itself again (llmc/base/threads.h)
export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive

# Left out of both: long tests of bits, speeds and sizes, which take the same paths as others.
programs="test_backends=-bits,-fast_kernels,-many_blocks test_attention=-bits
    test_attention_forms=several,of_31,cpus_and_documents test_gpt2=-adamw,-initial,-ten_muon
    test_score=-scores_are_those test_tokenizer=-linear
    test_prepare=-killed,-are_shuffled,-resume_within"
matmul=-sums_of_small cpu=-speeds,-available
# Its ranks start themselves outside valgrind, and have one thread: test_connect has the others.
without=test_local
case $build in
*memcheck)
    watch="valgrind -q --error-exitcode=99 --num-callers=20 --suppressions=test/memcheck.txt"
    at_ends="--leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite"
    # valgrind computes denormals, keeps limits of descriptors to itself, and shows less of the processor than Linux
    programs="$programs test_checkpoint=-cannot_be_listed,-to_be_resumed,-damaged_options
        test_dataloader=-few_descriptors"
    matmul="$matmul,-denormals" cpu="$cpu,-linux_sees" ;;
*)
    watch='' at_ends=''
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=test/thread.txt" ;;
esac
train="$watch $at_ends $build/train_gpt2"

# as must of lib.sh, but prints all of a report
watched() { "$@" >"$dir/out" 2>"$dir/err" || { note "failed: $*"; cat "$dir/err"; }; }

test_programs() {
    export watch
    others=$(ls "$build" | grep -x 'test_[a-z_0-9]*' | grep -vxF "$without")
    sh test/run.sh "$build" $programs test_matmul=$matmul test_cpu=$cpu $others || note "see above"
}

text_is_prepared() {
    for options in "--tokenizer bytes" "--tokenizer gpt2 --shuffle 1 --seed 1"; do
        watched $watch $at_ends "$prepare" $options --threads 3 --val_size 500 --force --out "$dir/x" \
            README.md dev/formats.md
    done
    watched $watch $at_ends "$prepare" --train_tokenizer 300 --out "$dir/tokenizer" README.md
    watched $train tokenize --tokenizer "$dir/tokenizer" <README.md
}

a_run_is_trained_resumed_and_used() {
    corpus
    run="$small $data --val_every 2 --val_tokens 128 --save_every 2 --sample_every 3 --sample_tokens 8
        --tensorboard 1 --replay 3"
    watched $train $run --max_steps 4 --out "$dir/run"
    watched $train --resume auto --out "$dir/run" --max_steps 6
    watched $train $run --max_steps 3 --optimizer muon --dtype bf16 --recompute all --document_mask 1 \
        --on_spike stop --out "$dir/muon"
    watched $train generate --out "$dir/run" --prompt The --sample_tokens 8 --samples 3 --logprobs 2
    watched $train generate --out "$dir/run" --prompt The --sample_tokens 8 --dtype bf16
    watched $train eval --out "$dir/run" --val_tokens 256
    core_folder "$dir/core"
    watched $train eval --out "$dir/run" --eval_rules limit:11 \
        --eval_data "test/golden/eval/hellaswag.jsonl,$dir/core"
    watched $train eval --out "$dir/run" --text test/golden/eval/text.txt
    watched $train info "$dir/run"
    watched $train report "$dir/run"
    for form in hf llmc gguf; do watched $train export $form --init "$dir/run/step_00000006" --out "$dir/$form"; done
    watched $train generate --init "$dir/gguf" --tokenizer bytes --prompt The --sample_tokens 4
}

# with the bar, in the terminal that script(1) makes
a_run_in_a_terminal_is_trained() {
    command -v script >/dev/null || { skip="no script"; return; }
    corpus
    run="$small $data --max_steps 5 --val_every 2 --out $dir/run"
    watched script -qefc "stty cols 100 rows 40; $train $run" "$dir/typescript"
    grep -q '| step 5/5 |' "$dir/typescript" || note "no bar"
}

operations_are_checked_and_timed() {
    shape="--model L=1,H=2,C=32,T=40,V=133 --batch_size 2 --seq_len 37"
    for dtype in fp32 bf16 fp16; do watched $train check $shape --dtype $dtype --max_steps 1; done
    watched $train bench ops matmul attention $shape --out "$dir/ops"
    watched $train info --model L=2,H=2,C=32,T=48,V=257
}

# without a search for lost memory: MPI's plugins lose some
ranks_are_trained() {
    command -v mpirun >/dev/null || { skip="no mpirun"; return; }
    corpus
    both="watched timeout 600 mpirun -np 2 $watch $build/train_gpt2"
    for zero in 0 1; do
        $both $small $data --max_steps 4 --total_batch_size 256 --zero $zero --val_every 2 --save_every 2 \
            --replay 2 --tensorboard 1 --out "$dir/$zero"
    done
    $both --resume auto --out "$dir/1" --max_steps 6
    $both eval --out "$dir/1" --val_tokens 256
}

run_tests
