#!/bin/sh
# Starts this machine's processes of a run on several machines, one process for each GPU, with torchrun's variables. The
# processes meet by a file in --out: neither MPI nor Slurm is needed.
# usage: MASTER_ADDR=node1 NODES=2 NODE=0 [GPUS=8] sh scripts/multi_node/node.sh scripts/run_gpt2_124M.sh [--option ...]
#
# Call it on each machine: NODE=0 on the one that MASTER_ADDR names (as the others reach it), NODE=1 on the next and so
# on; ssh.sh does that. All must see the same folder --out. The processes connect to a free port of the first machine
# (llmc/comm/rendezvous.h), and NCCL takes free ports of all. Ctrl-C or SIGTERM on any machine saves and ends the run on
# all.
set -u
. "$(dirname "$0")/../wait_for.sh"
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
usage() { echo "error: $1; usage: $(sed -n '4s/^# usage: //p' "$0")" >&2; exit 2; }
[ $# -gt 0 ] || usage "no script to run"
[ -n "${MASTER_ADDR:-}" ] || usage "MASTER_ADDR, the first machine, is not set"
GPUS=${GPUS:-8}
for number in "${NODE:-x}" "${NODES:-x}" "$GPUS"; do
    case $number in *[!0-9]* | 0?*) usage "NODE, NODES and GPUS must be whole numbers" ;; esac
done
[ "$NODE" -lt "$NODES" ] || usage "NODE must be from 0 to NODES - 1"
[ "$GPUS" -gt 0 ] || usage "GPUS must be at least 1"

threads=$(($(nproc) / GPUS))
export MASTER_ADDR WORLD_SIZE=$((NODES * GPUS)) GPUS
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}"

ranks='' stopped=''
# shellcheck disable=SC2086 # splits ranks into words
end_all() { kill -TERM $ranks 2>/dev/null; }
trap 'stopped=1; end_all' INT TERM HUP
for i in $(seq 0 $((GPUS - 1))); do
    [ -z "$stopped" ] || break
    RANK=$((NODE * GPUS + i)) LOCAL_RANK=$i sh "$@" </dev/null &
    ranks="$ranks $!"
done
# A rank that started just when the signal came has not got it. The others take two signals within a second for one.
[ -z "$stopped" ] || { sleep 0.5; end_all; }
# shellcheck disable=SC2086 # splits ranks into words
wait_for_all $ranks
exit "$status"
