#!/bin/sh
# A run on several machines by Open MPI's mpirun, to be called on one of them. The program must be built with MPI, and
# lie, with the data, at the same path on all; so must --out, which the first machine writes and all read to resume.
# usage: [HOSTFILE=hosts] sh scripts/multi_node/mpi.sh scripts/run_gpt2_124M.sh [--option value ...]
#
# HOSTFILE has a line for each machine and its number of GPUs, the first machine first:
#
#   node1 slots=8
#   node2 slots=8
#
# MPI starts the processes and tells each its rank. GPUs talk by NCCL, whose variables (NCCL_*) go along; CPU processes
# talk by MPI: for these add --map-by and --bind-to here (dev/machines.md).
set -eu
hostfile=${HOSTFILE:-hosts}
[ $# -gt 0 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
if [ ! -f "$hostfile" ]; then
    echo "error: no file $hostfile: HOSTFILE names one, with lines such as 'node1 slots=8'" >&2
    exit 2
fi

pass_on=
for variable in TRAINER DATA OMP_NUM_THREADS $(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\)=.*/\1/p'); do
    if env | grep -q "^$variable="; then pass_on="$pass_on -x $variable"; fi
done
# a process that waits for its GPU needs no core of its own, and its loader thread must not be bound to the same one
# shellcheck disable=SC2086 # words
exec mpirun --hostfile "$hostfile" --bind-to none $pass_on sh "$@"
