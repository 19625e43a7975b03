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
