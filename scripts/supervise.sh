#!/bin/sh
# Keeps a run going: starts its command, and starts it again from the newest checkpoint whenever it dies.
# usage: [RESTARTS=3] [PAUSE=30] [REWINDS=20] sh scripts/supervise.sh ./train_gpt2cu --out runs/mine --option value ...
#        [RESTARTS=3] [PAUSE=30] [REWINDS=20] sh scripts/supervise.sh sh scripts/run_gpt2_124M.sh --out runs/mine ...
#
# The command must name its folder (--out, or llm.c's -o); --resume auto (-y 1) is added unless --resume is given. What
# happens is written to supervise.log in that folder. It ends when
#   - the run is complete, or was stopped by a signal and saved: exit code 0
#   - a start again cannot help: a wrong option (2), a loss that is not finite (4), a command that cannot be run (126,
#     127), an error (1) before the run's first step
#   - RESTARTS starts in a row got no further than the same checkpoint: the last one's exit code
#   - another run writes to the folder when this begins: 1
# With --on_spike stop a run that ends with 4 names the data to leave out: it is started again without them, from before
# them, REWINDS times at most.
# The pause before a start doubles with each failure at the same checkpoint, from PAUSE seconds up to ten minutes: a
# machine or file system may need time to come back. SIGINT, SIGQUIT, SIGTERM and SIGHUP are passed on, the first two as
# SIGTERM, and end it too. The command has a session of its own: Ctrl-Z stops this script alone.
set -u
. "$(dirname "$0")/wait_for.sh"
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
RESTARTS=${RESTARTS:-3} PAUSE=${PAUSE:-30} REWINDS=${REWINDS:-20}
usage() { echo "error: $1; usage: $(sed -n '3s/^# usage: //p' "$0")" >&2; exit 2; }
[ $# -gt 0 ] || usage "no command to run"
for number in "RESTARTS=$RESTARTS" "PAUSE=$PAUSE" "REWINDS=$REWINDS"; do
    case ${number#*=} in '' | *[!0-9]* | 0?* | ??????????*) usage "$number is not a number below 1000000000" ;; esac
done

out='' letter_out='' again='--resume auto' name=
for argument; do
    case $name in
    --out) out=$argument ;;
    -o) letter_out=$argument ;;
    esac
    name=$argument
    case $argument in
    --out=*) out=${argument#--out=} ;;
    --resume | --resume=*) again='' ;;
    esac
done
if [ -z "$out" ] && [ -n "$letter_out" ]; then out=$letter_out again='-y 1'; fi
[ -n "$out" ] || usage "the command has no --out FOLDER, by which to see how far it got"

say() {
    echo "supervise: $*" >&2
    [ ! -d "$out" ] || echo "$(date '+%Y-%m-%d %H:%M:%S') $*" >>"$out/supervise.log"
}
# The step of the newest checkpoint; 0 if there is none.
newest() {
    newest_step=0
    for folder in "$out"/step_????????*; do
        step=${folder##*/step_}
        case $step in *[!0-9]* | ??????????*) continue ;; esac
        step=${step#"${step%%[!0]*}"} # without zeros, which would make it octal
        [ ! -d "$folder" ] || [ "${step:-0}" -le "$newest_step" ] || newest_step=$step
    done
    echo "$newest_step"
}
has_trained() { [ "$(newest)" != 0 ] || grep -qs '"kind":"train"' "$out/metrics.jsonl"; }
# The windows that the run, which has just ended, names to be left out.
bad_windows() {
    tail -n 1 "$out/log.txt" | sed -n 's/^ended after step .*: --resume auto --skip_windows \([0-9,-]*\)$/\1/p'
}

# The run locks this file for as long as it lives (llmc/train/start.c). Later it may be this script's own run that has
# not ended yet.
locked=0
[ ! -e "$out/.lock" ] || flock -s -n -E 75 "$out/.lock" true 2>/dev/null || locked=$?
if [ $locked = 75 ]; then
    echo "error: another run is writing to $out: stop it first, or give another --out" >&2
    exit 1
fi

trap '' PIPE # a message that nobody reads (`| tee log` after a Ctrl-C) must not end it
child='' stopped='' unsent=
# stop SIGNAL: passes it on. A program that a shell starts with & ignores SIGINT and SIGQUIT until it says otherwise.
stop() {
    stopped=$1 sent=$1
    case $sent in INT | QUIT) sent=TERM ;; esac
    if [ -n "$child" ]; then kill -s "$sent" "$child" 2>/dev/null; else unsent=$sent; fi
}
for signal in INT QUIT TERM HUP; do
    # shellcheck disable=SC2064 # the signal is known now
    trap "stop $signal" $signal
done

failures=0 rewinds=0 skip='' before=$(newest)
while :; do
    # In a session of its own it gets no Ctrl-C from the terminal beside the SIGTERM from here: mpirun takes a second
    # signal as an order to kill.
    # shellcheck disable=SC2086 # several words, or none
    setsid "$@" $again ${skip:+--skip_windows $skip} &
    child=$!
    [ -z "$unsent" ] || kill -s "$unsent" "$child" 2>/dev/null # it came just before
    wait_for "$child"
    child='' code=$status step=$(newest)
    [ -z "$stopped" ] || { say "stopped by SIG$stopped at step $step; exit code $code"; exit "$code"; }
    case $code in
    0) say "ended at step $step, exit code 0"; exit 0 ;;
    2) say "exit code 2: the command is wrong, see its message"; exit 2 ;;
    126 | 127) say "exit code $code: the command cannot be run"; exit "$code" ;;
    1) has_trained || { say "exit code 1 before the first step: the command's message says why"; exit 1; } ;;
    4)
        skip=$(bad_windows)
        if [ -z "$skip" ] || [ "$rewinds" -ge "$REWINDS" ]; then
            say "exit code 4 after step $step: the loss is not finite or jumps, and would again; see log.txt"
            exit 4
        fi
        rewinds=$((rewinds + 1)) again='--resume auto' before=$step failures=0
        say "exit code 4: goes back and leaves out windows $skip (rewind $rewinds of $REWINDS)"
        continue
        ;;
    esac
    if [ "$step" != "$before" ]; then
        failures=0 again=${again:---resume auto} # --resume FOLDER was the beginning
    fi
    before=$step failures=$((failures + 1))
    if [ "$failures" -gt "$RESTARTS" ]; then
        [ -d "$out" ] || say "there is no $out here: start this in the folder where --out begins"
        say "exit code $code, $failures times at step $step: giving up; the command's own messages say why"
        exit "$code"
    fi
    pause=$PAUSE doubled=1
    while [ $doubled -lt $failures ] && [ "$pause" -lt 600 ]; do pause=$((pause * 2)) doubled=$((doubled + 1)); done
    health=$(sh "$(dirname "$0")/gpu_health.sh" 2>&1) || say "$health"
    say "exit code $code at step $step; start $failures of $RESTARTS from there in $pause s"
    # A signal ends the pause within a second: it waits for this shell's command, here sleep.
    while [ "$pause" -gt 0 ] && [ -z "$stopped" ]; do
        sleep 1
        pause=$((pause - 1))
    done
    [ -z "$stopped" ] || { say "stopped by SIG$stopped"; exit "$code"; }
done
