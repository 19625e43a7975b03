#!/bin/sh
# What the scripts of published runs (run_gpt2_124M.sh and so on) share: they source this and call published_run. Shape,
# batch, learning rate and steps are the preset's (llmc/models.h); here is what a run needs beside them.
#
#   GPUS=8                   one process for each; fewer make the same run of more micro-batches
#   DATA=fineweb-edu         a data set of data/fetch.sh
#   TRAINER=./train_gpt2cu   another program; then no GPU is looked for. TRAINER=echo shows the command
#
# Options after a script's name go to the program and override the script's; paths in them begin at the root of the
# repository. All runs have --resume auto: the same command begins, goes on after whatever stopped it, and does nothing
# once all is done. Under mpirun, srun, torchrun or multi_node/* a script is one process of many; GPUS does not count.
set -eu
cd "$(dirname "$0")/.."

die() { echo "error: $*" >&2; exit 1; }

# given NAME ARGUMENT...: whether --NAME is among the arguments
given() {
    name=$1
    shift
    for argument; do
        case $argument in "--$name" | "--$name="*) return 0 ;; esac
    done
    return 1
}

# Whether a launcher has started this as one of several processes (llmc/comm/launch.h).
launched() { [ -n "${WORLD_SIZE:-}${OMPI_COMM_WORLD_SIZE:-}${PMI_SIZE:-}${SLURM_STEP_NUM_TASKS:-}" ]; }

check_program() { # PROGRAM
    command -v "$1" >/dev/null || die "$1 is not there: build it with: make (where nvcc is)"
}

check_data() { # NUMBER of shards that the run is made for
    found=0
    for file in "$data"_train_*.bin; do [ ! -f "$file" ] || found=$((found + 1)); done
    if [ $found = 0 ] || [ ! -f "${data}_val_000000.bin" ]; then
        die "no ${data}_train_*.bin with ${data}_val_000000.bin: fetch them with: sh data/fetch.sh $DATA $1" \
            "(0.2 GB each), or give --train_data and --val_data"
    fi
    [ $found -ge "$1" ] || echo "note: $found of $1 shards of $DATA are there: the run goes over them more often" >&2
}

check_gpus() {
    here=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
    [ "$here" -gt 0 ] || die "no NVIDIA GPU here: nvidia-smi -L lists none; is the driver loaded?"
    [ "$here" -ge "$GPUS" ] || die "GPUS=$GPUS, but $here here: start with: GPUS=$here sh $0"
}

# published_run DATA SHARDS OPTION...: checks what must be there and becomes the trainer
published_run() {
    DATA=${DATA:-$1} GPUS=${GPUS:-8} shards=$2 program=${TRAINER:-./train_gpt2cu}
    shift 2
    data=data/$(echo "$DATA" | tr -d -)
    if ! launched; then
        check_program "$program"
        given train_data "$@" || check_data "$shards"
        [ -n "${TRAINER:-}" ] || check_gpus
    fi
    # validation as in the published curves: the first 10 * 2^20 tokens
    exec "$program" --gpus "$GPUS" --zero 1 --resume auto --val_tokens 10485760 \
        --train_data "${data}_train_*.bin" --val_data "${data}_val_000000.bin" "$@"
}
