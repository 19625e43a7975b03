#!/bin/sh
# Starts a run on several machines that can be reached by ssh without a password: calls node.sh on each. The repository,
# the program and the data must be at the same path on all; --out must be one folder that all share.
# usage: HOSTS="node1 node2" [GPUS=8] sh scripts/multi_node/ssh.sh scripts/run_gpt2_124M.sh [--option value ...]
#
# All processes connect to the first host, by its name in HOSTS, without USER@. Ctrl-C saves and ends the run; so does a
# lost ssh connection: start this script under tmux, or on the first host. SSH="ssh -p 2222" sets the command to reach
# hosts.
set -u
. "$(dirname "$0")/../wait_for.sh"
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
if [ $# = 0 ] || [ -z "${HOSTS:-}" ]; then sed -n '4s/^# //p' "$0" >&2; exit 2; fi

quote() { printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
arguments=
for argument; do arguments="$arguments$(quote "$argument")"; done
settings=
nccl=$(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\)=.*/\1/p')
for variable in GPUS DATA TRAINER OMP_NUM_THREADS CUDA_VISIBLE_DEVICES CUDA_HOME VIRTUAL_ENV LD_LIBRARY_PATH $nccl; do
    eval "value=\${$variable-}"
    # shellcheck disable=SC2154 # eval assigns it
    [ -z "$value" ] || settings="$settings $variable=$(quote "$value")"
done
# shellcheck disable=SC2086 # splits HOSTS into words
set -- $HOSTS
CDPATH='' cd "$(dirname "$0")/../.." || exit 1

# Runs on each host. When the connection ends, standard input closes; node.sh then gets SIGTERM: it saves and ends.
# shellcheck disable=SC2016 # the host expands the variables
remote='exec 3<&0
    sh scripts/multi_node/node.sh "$@" & node=$!
    { cat <&3; kill -TERM $node; } >/dev/null 2>&1 & watch=$!
    wait $node; code=$?
    kill $watch 2>/dev/null
    exit $code'

folder=$(mktemp -d)
mkfifo "$folder/open"
exec 4<>"$folder/open" # closing it ends 3, the standard input of all hosts
exec 3<"$folder/open"
rm -r "$folder"
end_all() { exec 4>&-; }
trap end_all INT TERM HUP
connections=
node=0
for host; do
    place="MASTER_ADDR=$(quote "${1##*@}") NODES=$# NODE=$node"
    ${SSH:-ssh} "$host" "cd $(quote "$PWD") && $place $settings sh -c $(quote "$remote") - $arguments" \
        <&3 3<&- 4>&- &
    connections="$connections $!"
    node=$((node + 1))
done
# shellcheck disable=SC2086 # several words
wait_for_all $connections
exit "$status"
