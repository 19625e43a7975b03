#!/bin/sh
# Keeps a run going: starts its command, and starts it again from the newest checkpoint whenever it dies.
# usage: [RESTARTS=3] [PAUSE=30] sh scripts/supervise.sh ./train_gpt2cu --out runs/mine --option value ...
#        [RESTARTS=3] [PAUSE=30] sh scripts/supervise.sh sh scripts/run_gpt2_124M.sh --out runs/mine ...
#
# The command must name its folder (--out); --resume auto is added unless --resume is given. What happens is written to
# supervise.log in that folder. It ends when
#   - the run is complete, or was stopped by a signal and saved: exit code 0
#   - a start again cannot help: a wrong option (2), a loss that is not finite or, with --on_spike, jumps (4)
#   - RESTARTS starts in a row got no further than the same checkpoint: the last one's exit code
# The pause before a start doubles with each failure at the same checkpoint, from PAUSE seconds up to ten minutes: a
# machine or file system may need time to come back. SIGINT, SIGTERM and SIGHUP are passed on, and end it too.
set -u
RESTARTS=${RESTARTS:-3} PAUSE=${PAUSE:-30}
usage() { echo "error: $1; usage: $(sed -n '3s/^# usage: //p' "$0")" >&2; exit 2; }
[ $# -gt 0 ] || usage "no command to run"
for number in "RESTARTS=$RESTARTS" "PAUSE=$PAUSE"; do
    case ${number#*=} in '' | *[!0-9]*) usage "$number is no number" ;; esac
done

out='' resume='' is_out=
for argument; do
    [ -z "$is_out" ] || out=$argument
    is_out=
    case $argument in
    --out) is_out=1 ;;
    --out=*) out=${argument#--out=} ;;
    --resume | --resume=*) resume=1 ;;
    esac
done
[ -n "$out" ] || usage "the command has no --out FOLDER, by which to see how far it got"
[ -n "$resume" ] || set -- "$@" --resume auto

say() {
    echo "supervise: $*" >&2
    [ ! -d "$out" ] || echo "$(date '+%Y-%m-%d %H:%M:%S') $*" >>"$out/supervise.log"
}
# The step of the newest checkpoint; 0 if there is none.
newest() {
    step=0
    for folder in "$out"/step_*; do [ ! -d "$folder" ] || step=${folder##*/step_}; done
    echo "${step#"${step%%[!0]*}"}" | sed 's/^$/0/'
}

child='' stopped=
stop() { # SIGNAL
    stopped=$1
    [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null
}
for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # the signal is known now
    trap "stop $signal" $signal
done
# Waits for the child; a signal ends `wait`, but not the child.
wait_for() {
    while wait "$1"; status=$?; kill -0 "$1" 2>/dev/null; do :; done
}

failures=0 before=$(newest)
while :; do
    "$@" &
    child=$!
    wait_for $child
    child='' code=$status step=$(newest)
    [ -z "$stopped" ] || { say "stopped by SIG$stopped at step $step; exit code $code"; exit "$code"; }
    case $code in
    0) say "complete at step $step"; exit 0 ;;
    2) say "exit code 2: the command is wrong, see its message"; exit 2 ;;
    4) say "exit code 4 after step $step: the loss is not finite or jumps, and would again; see log.txt"; exit 4 ;;
    esac
    [ "$step" = "$before" ] || failures=0
    before=$step failures=$((failures + 1))
    if [ $failures -gt "$RESTARTS" ]; then
        say "exit code $code, $failures times at step $step: giving up; the command's own messages say why"
        exit "$code"
    fi
    pause=$PAUSE doubled=1
    while [ $doubled -lt $failures ] && [ "$pause" -lt 600 ]; do pause=$((pause * 2)) doubled=$((doubled + 1)); done
    health=$(sh "$(dirname "$0")/gpu_health.sh" 2>&1) || say "$health"
    say "exit code $code at step $step; start $failures of $RESTARTS from there in $pause s"
    sleep "$pause" &
    child=$!
    wait_for $child
    child=
    [ -z "$stopped" ] || { say "stopped by SIG$stopped"; exit "$code"; }
done
