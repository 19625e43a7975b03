#!/bin/sh
# Checks the order of llmc/: a file includes only files of its own room, or of rooms that stand before it in this list,
# and no file includes itself by way of others. A .c file includes its own header first, which so is compiled alone.
# usage: sh test/rooms.sh [FOLDER]    (llmc by default)
set -eu
cd "${1:-"$(dirname "$0")/../llmc"}"
rooms="base comm options tokenizer model files cpu cuda data log prepare eval inspect train check bench commands"

# Prints "ROOM/FILE ROOM/FILE", without their endings, for each include between two files of llmc/.
includes() {
    grep -H '^ *# *include "' */* | awk -F '[:"]' '{
        from = $1; to = $3 # .../x.h: of the same room, ../room/x.h: of another
        if (to ~ /\.\.\/\.\./) next # of data/
        if (!sub(/^\.\.\//, "", to)) to = substr(from, 1, index(from, "/")) to
        sub(/\..*/, "", from); sub(/\..*/, "", to)
        print from, to
    }' | sort -u
}
passed=0 failed=0
check() { # NAME ERRORS
    if [ -z "$2" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); printf 'FAILED  %s\n%s\n' "$1" "$2"; fi
}
includes >"${TMPDIR:-/tmp}/includes.$$"
trap 'rm -f "${TMPDIR:-/tmp}/includes.$$"' EXIT
trap 'exit 143' INT TERM HUP
check only_rooms_at_the_top "$(find . -maxdepth 1 -type f; ls | grep -vxF "$(echo "$rooms" | tr ' ' '\n')" || true)"
check no_include_runs_up "$(awk -v rooms="$rooms" '
    BEGIN { n = split(rooms, name, " "); for (i = 1; i <= n; i++) floor[name[i]] = i }
    { split($1, a, "/"); split($2, b, "/"); if (floor[b[1]] > floor[a[1]]) print $1 " includes " $2 }
' "${TMPDIR:-/tmp}/includes.$$")"
check no_circle_of_files "$(awk '$1 != $2' "${TMPDIR:-/tmp}/includes.$$" | tsort 2>&1 >/dev/null || true)"
check own_headers_come_first "$(for c in */*.c; do
    [ ! -f "${c%.c}.h" ] || grep -m 1 '^#include' "$c" | grep -qF "\"$(basename "${c%.c}").h\"" || echo "$c"
done)"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
