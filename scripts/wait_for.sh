# Sourced by scripts that start processes, pass signals on to them, and end with their exit codes.

# Waits for a child of this shell and sets `status` to its exit code. A signal ends `wait`, but not the child, which may
# end while the shell runs its trap: a second `wait` gives the child's own code then, and 127 if that was given before.
wait_for() { # PID
    while wait "$1"; status=$?; kill -0 "$1" 2>/dev/null; do :; done
    [ $status -gt 128 ] || return 0
    own=0
    wait "$1" 2>/dev/null || own=$?
    [ $own = 127 ] || status=$own
}

# Waits for several children, of which each waits for the others, and sets `status` to the exit code of the first that
# failed, or 0. Calls end_all five seconds after that: the others would wait for minutes for one that never began.
wait_for_all() { # PID...
    first=0 seconds=0
    while [ $# -gt 0 ]; do
        for child; do
            shift
            if kill -0 "$child" 2>/dev/null; then set -- "$@" "$child"; continue; fi
            wait_for "$child"
            [ $first != 0 ] || first=$status
        done
        [ $# = 0 ] || sleep 1
        [ $first = 0 ] || seconds=$((seconds + 1))
        [ $seconds != 5 ] || end_all
    done
    status=$first
}
