#!/bin/sh
# Starts a run on several machines by Open MPI's mpirun. Call it on one of them. The program must be built with MPI and
# be, with the data, at the same path on all machines; so must --out, which rank 0 writes and all read to resume.
# usage: [HOSTFILE=hosts] sh scripts/multi_node/mpi.sh scripts/run_gpt2_124M.sh [--option value ...]
#
# HOSTFILE has a line for each machine with its number of GPUs, the machine of rank 0 first:
#
#   node1 slots=8
#   node2 slots=8
#
# MPI starts the processes and tells each its rank. NCCL's variables (NCCL_*) are passed on, CUDA_VISIBLE_DEVICES, and
# those that say where libraries are. GPUs communicate by NCCL, CPU processes by MPI: for these add --map-by and
# --bind-to here (dev/machines.md). Ctrl-C, SIGTERM and SIGHUP save and end the run; a second signal ends it at once.
# mpirun has a session of its own: Ctrl-Z stops this script alone.
set -eu
. "$(dirname "$0")/../wait_for.sh"
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
hostfile=${HOSTFILE:-hosts}
[ $# -gt 0 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
command -v mpirun >/dev/null || { echo "error: no mpirun: install openmpi-bin and libopenmpi-dev" >&2; exit 1; }
if [ ! -f "$hostfile" ]; then
    echo "error: $hostfile: no such file; HOSTFILE names one, with lines such as 'node1 slots=8'" >&2
    exit 2
fi

pass_on=
nccl=$(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\)=.*/\1/p')
for variable in TRAINER DATA OMP_NUM_THREADS CUDA_VISIBLE_DEVICES CUDA_HOME VIRTUAL_ENV LD_LIBRARY_PATH $nccl; do
    if env | grep -q "^$variable="; then pass_on="$pass_on -x $variable"; fi
done
[ "$(id -u)" != 0 ] || pass_on="$pass_on --allow-run-as-root" # as in containers that are rented

# After a signal that ends mpirun, it kills what has not ended within two seconds; a checkpoint takes longer. SIGUSR2 is
# passed on and stops the run (llmc/train/requests.h), but not before the processes run: a file says that one of this
# machine does. In a session of its own mpirun gets no Ctrl-C from the terminal.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpirun='' stopped=''
stop() {
    stopped=TERM
    [ ! -e "$folder/runs" ] || stopped=USR2
    [ -z "$mpirun" ] || kill -s "$stopped" "$mpirun" 2>/dev/null || :
}
trap stop INT QUIT TERM HUP
# A process that waits for its GPU needs no core of its own, and its loader thread must not be bound to the same one.
# shellcheck disable=SC2016,SC2086 # each process expands the variables; splits pass_on into words
setsid mpirun --hostfile "$hostfile" --bind-to none $pass_on \
    sh -c '[ ! -d "$0" ] || : >"$0/runs"; exec sh "$@"' "$folder" "$@" &
mpirun=$!
[ -z "$stopped" ] || kill -s "$stopped" "$mpirun" 2>/dev/null || :
wait_for "$mpirun"
exit "$status"
