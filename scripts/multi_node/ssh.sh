#!/bin/sh
# A run on several machines that can be reached by ssh without a password: starts node.sh on each. The repository, the
# program and the data lie at the same path on all.
# usage: HOSTS="node1 node2" [GPUS=8] sh scripts/multi_node/ssh.sh scripts/run_gpt2_124M.sh [--option value ...]
#
# The first host is the meeting place, under the name given here. Ctrl-C, or the end of this script's connections, saves
# and ends the run. To be started under tmux, or on the first host. SSH="ssh -p 2222" is another way to reach hosts.
set -u
if [ $# = 0 ] || [ -z "${HOSTS:-}" ]; then sed -n '4s/^# //p' "$0" >&2; exit 2; fi

quote() { printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
arguments=
for argument; do arguments="$arguments$(quote "$argument")"; done
settings=
for variable in GPUS DATA TRAINER MASTER_PORT OMP_NUM_THREADS $(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\)=.*/\1/p'); do
    eval "value=\${$variable-}"
    # shellcheck disable=SC2154 # eval assigns it
    [ -z "$value" ] || settings="$settings $variable=$(quote "$value")"
done
# shellcheck disable=SC2086 # words
set -- $HOSTS

# On the other side: the end of the connection closes the input, and then node.sh is told to save and end.
# shellcheck disable=SC2016 # variables of the other side
remote='exec 3<&0
    sh scripts/multi_node/node.sh "$@" & node=$!
    { cat <&3; kill -TERM $node; } >/dev/null 2>&1 & watch=$!
    wait $node; code=$?
    kill $watch 2>/dev/null
    exit $code'

folder=$(mktemp -d)
mkfifo "$folder/open"
trap 'rm -rf "$folder"' EXIT
exec 4<>"$folder/open" # the hosts' input is open as long as this is
trap 'exec 4>&-' INT TERM HUP
connections=
node=0
for host; do
    place="MASTER_ADDR=$(quote "$1") NODES=$# NODE=$node"
    ${SSH:-ssh} "$host" "cd $(quote "$PWD") && $place $settings sh -c $(quote "$remote") - $arguments" \
        <"$folder/open" 4>&- &
    connections="$connections $!"
    node=$((node + 1))
done
code=0
for connection in $connections; do
    while wait "$connection"; status=$?; kill -0 "$connection" 2>/dev/null; do :; done
    [ $code != 0 ] || code=$status
done
exit $code
