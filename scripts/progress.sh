# Sourced by scripts whose commands take long and print much.

# with_progress STATE LOG COMMAND...: runs COMMAND with its output in the file LOG. Every five seconds it prints how
# long COMMAND has run, and the line that the function STATE prints. If COMMAND fails, it prints the end of LOG. Returns
# COMMAND's exit code.
with_progress() {
    state=$1 log=$2 begun=$(date +%s) code=0
    shift 2
    # The sleep is redirected: one that outlives the loop would hold the output open. The loop ends with this shell too.
    while sleep 5 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        echo "   $(($(date +%s) - begun)) s: $($state)"
    done &
    ticker=$!
    "$@" >"$log" 2>&1 || code=$?
    kill $ticker 2>/dev/null
    wait $ticker 2>/dev/null || true
    [ $code = 0 ] || tail -n 20 "$log" >&2
    return $code
}
