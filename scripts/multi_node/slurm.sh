#!/bin/sh
# Starts a run on several machines by Slurm, without MPI: a task for each GPU; the tasks meet by a file in --out. Before
# its time limit the job saves and requeues itself, and continues when it is started again.
# usage: sbatch [--nodes N ...] scripts/multi_node/slurm.sh scripts/run_gpt2_124M.sh [--option value ...]
#
# Submit it from the root of the repository, on a file system that all machines share. MPI=pmix (sbatch
# --export=ALL,MPI=pmix) starts the tasks by MPI instead, if the program was built with it; `srun --mpi=list` lists the
# alternatives.
#SBATCH --job-name=gpt2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.out
set -u
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
cd "${SLURM_SUBMIT_DIR:?this is a batch script: sbatch $0}" || exit 1
[ $# -gt 0 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
. scripts/wait_for.sh

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-4}}"
# since Slurm 22.05 srun takes no --cpus-per-task from sbatch, and would bind each task to a single core
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-4}"

# Five minutes before the end all tasks are told to save and end, which they do with exit code 0.
out_of_time=
trap 'out_of_time=1; scancel --signal=TERM "$SLURM_JOB_ID"' USR1 # reaches the tasks, not this script

# Each task sees all GPUs of its machine and takes that of its local rank.
if [ -n "${MPI:-}" ]; then
    srun --mpi="$MPI" --kill-on-bad-exit=1 sh "$@" &
else
    # shellcheck disable=SC2016 # the variables are each task's
    srun --mpi=none --kill-on-bad-exit=1 sh -c \
        'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID exec sh "$@"' - "$@" &
fi
srun=$!
wait_for $srun
if [ -n "$out_of_time" ] && [ "$status" = 0 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
