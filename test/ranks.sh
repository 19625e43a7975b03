#!/bin/sh
# Several processes train as one does: the CPU trainer under mpirun, and the GPU trainer, emulated, with NCCL's stand-in
# (test/emulator/include/nccl.h), under mpirun and started by itself.
# usage: ranks.sh build/release [build/emu [WORD...]]     only the tests whose names contain a word
release=${1:?usage: ranks.sh build/release [build/emu [WORD...]]}
cuda="${2:-build/emu}/train_gpt2cu"
[ $# -ge 2 ] && shift
shift
chosen=$*
train="$release/train_gpt2" prepare=build/release/prepare
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 EMU_GUARD=0 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

run="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --seq_len 32 --sample_tokens 12 --max_steps 20"
often="--val_every 10 --val_tokens 1000 --sample_every 10 --save_every 10 --total_batch_size 512"
ranks() { n=$1; shift; timeout 120 mpirun -np "$n" "$@"; } # a test that hangs has failed

# numbers FOLDER: the losses and norms of a run with all their digits, its validations, its samples
numbers() {
    sed -n 's/.*"kind":"train","step":\([0-9]*\),.*"loss":\([^,]*\),"norm":\([^,]*\),.*/train \1 \2 \3/p; s/.*"kind":"val","step":\([0-9]*\),.*"loss":\([^,}]*\).*/val \1 \2 \2/p' "$1/metrics.jsonl"
}
samples() { sed -n 's/.*"kind":"sample".*"text":\(.*\)}/\1/p' "$1/metrics.jsonl"; }

# same FOLDER FOLDER: two runs within 1e-5 in every loss and norm, their samples and the parameters and moments of their
# last checkpoint within 1e-5 of each tensor's norm, relative (but for the biases of keys, whose true gradient is zero)
same() {
    numbers "$1" >"$dir/a"
    numbers "$2" >"$dir/b"
    [ -s "$dir/a" ] || note "no metrics in $1"
    paste -d ' ' "$dir/a" "$dir/b" | awk '{ for (i = 3; i <= 4; i++) { d = $i / $(i + 4) - 1; if (d < 0) { d = -d }; if (d > 1e-5) bad = 1 }
        if ($1 != $5 || $2 != $6) bad = 1 } END { exit bad }' || note "not the same run: $2: $(paste -d ' ' "$dir/a" "$dir/b" | head -n 3)"
    [ "$(samples "$1")" = "$(samples "$2")" ] || note "other samples in $2"
    last=$(basename "$(ls -d "$1"/step_* | tail -n 1)")
    [ "${weights:-1e-5}" = any ] || "$tensors" "$1/$last" "$2/$last" "${weights:-1e-5}" >"$dir/out" 2>&1 || note "$2: $(tail -n 1 "$dir/out")"
}
