#!/bin/sh
# The common part of the scripts of whole runs (run_gpt2_124M.sh, run_preset.sh and so on), which source this and call
# published_run. Shape, batch, learning rate and steps are the preset's (llmc/options/models.c).
#
#   GPUS=8                   starts one process per GPU; with fewer GPUS each does more micro-batches of the same run
#   DATA=fineweb-edu         a data set of data/fetch.sh
#   TRAINER=./train_gpt2cu   the program; if set, GPUs are not counted. TRAINER=echo prints the command
#
# Options after a script's name go to the program and override the script's; paths in them begin at the root of the
# repository. All runs have --resume auto: the same command begins the run, continues it after a stop, and does nothing
# once it is complete. Under mpirun, torchrun, multi_node/* or an srun of several tasks each script is one process, and
# GPUS is ignored.
set -eu
case $* in
-h | --help)
    sed -n '2,/^\. /s/^# \{0,1\}//p' "$0"
    sed -n '5,7s/^# \{0,1\}//p' "$(dirname "$0")/run.sh"
    exit ;;
esac
CDPATH='' cd "$(dirname "$0")/.."

die() { echo "error: $*" >&2; exit 1; }

# given NAME ARGUMENT...: succeeds if --NAME is among the arguments
given() {
    name=$1
    shift
    for argument; do
        case $argument in "--$name" | "--$name="*) return 0 ;; esac
    done
    return 1
}

# Succeeds if a launcher has started this as one of several processes (llmc/comm/launch.h). In a shell that srun opened
# for one task, it is none of several.
launched() {
    [ -n "${WORLD_SIZE:-}${OMPI_COMM_WORLD_SIZE:-}${PMI_SIZE:-}" ] || [ "${SLURM_STEP_NUM_TASKS:-1}" != 1 ]
}

check_program() { # PROGRAM
    command -v "$1" >/dev/null || die "$1 does not exist: build it with: make (on a machine that has nvcc)"
}

check_data() { # NUMBER of shards that the run was designed for
    found=0
    for file in "$data"_train_*.bin; do [ ! -f "$file" ] || found=$((found + 1)); done
    if [ $found = 0 ] || [ ! -f "${data}_val_000000.bin" ]; then
        die "${data}_train_*.bin or ${data}_val_000000.bin is missing: fetch the shards with:" \
            "sh data/fetch.sh $DATA $1 (0.2 GB each), or give --train_data and --val_data"
    fi
    [ $found -ge "$1" ] || echo "note: only $found of $1 shards of $DATA are here: the run repeats them more often" >&2
}

check_gpus() {
    here=$(timeout -k 1 60 nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
    [ "$here" -gt 0 ] || die "no NVIDIA GPU here: nvidia-smi -L lists none; is the driver loaded?"
    sh scripts/gpu_health.sh || echo "note: look at these GPUs before a long run (scripts/gpu_health.sh)" >&2
    [ "$here" -ge "$GPUS" ] && return
    divides=1 # the steps of all these runs, powers of two
    while [ $((2 * divides)) -le "$here" ]; do divides=$((2 * divides)); done
    die "GPUS=$GPUS, but this machine has $here: put GPUS=$divides before the same command"
}

# published_run DATA SHARDS OPTION...: checks that program, data and GPUs exist, and execs the trainer
published_run() {
    DATA=${DATA:-$1} GPUS=${GPUS:-8} shards=$2 program=${TRAINER:-./train_gpt2cu}
    shift 2
    case $GPUS in '' | *[!0-9]* | 0*) die "GPUS=$GPUS is not a number of GPUs" ;; esac
    data=data/$(echo "$DATA" | tr -d -)
    if ! launched; then
        check_program "$program"
        [ "$program" = echo ] || given train_data "$@" || check_data "$shards"
        [ -n "${TRAINER:-}" ] || check_gpus
    fi
    # validation as in the published curves: the first 10 * 2^20 tokens
    exec "$program" --gpus "$GPUS" --zero 1 --resume auto --replay 1000 --val_tokens 10485760 \
        --train_data "${data}_train_*.bin" --val_data "${data}_val_000000.bin" "$@"
}
