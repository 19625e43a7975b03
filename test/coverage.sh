#!/bin/sh
# Which lines of llmc/cuda/ ran under the emulator, as gcov counts them: fails below 95%, or where a line that did not run
# has no reason in the list below. usage: coverage.sh [FOLDER]      that of `make emu EMU=coverage`
folder=${1:-build/emu-coverage}
least=95
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# part of the line | why it does not run here
cat >"$work/reasons" <<'REASONS'
REASONS

find "$folder" -name '*.gcda' -delete
sh test/emulated.sh "$folder" agree stochastic text driver memory fails >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for object in "$folder"/cuda_fp32 "$folder"/cuda_bf16; do
    mkdir -p "$work/$(basename "$object")"
    (cd "$work/$(basename "$object")" && gcov -p -m "$OLDPWD/$object.gcda" >/dev/null 2>&1)
done

# A line counts as run if it ran in any object and any instance of a template.
cat "$work"/cuda_*/*llmc#cuda#*.gcov 2>/dev/null | awk -F: -v least="$least" -v reasons="$work/reasons" '
    BEGIN { while ((getline line < reasons) > 0) { n++; split(line, part, "|"); text[n] = part[1]; why[n] = part[2] } }
    $2 + 0 == 0 { if ($3 == "Source") { file = $4; sub(/.*llmc/, "llmc", file) } next }
    { gsub(/[ *]/, "", $1); number = $2 + 0; key = file ":" number }
    $1 == "-" { next }
    { line = $0; sub(/^[^:]*:[^:]*:/, "", line); source[key] = line; if ($1 !~ /^[#=]/) ran[key] = 1; else if (!(key in ran)) ran[key] += 0 }
    END {
        for (key in source) { total++; if (ran[key]) { covered++; continue }
            reason = ""
            for (i = 1; i <= n; i++) if (index(source[key], text[i])) reason = why[i]
            printf "did not run: %s: %s   (%s)\n", key, source[key], reason ? reason : "NO REASON GIVEN"
            if (!reason) bad++
        }
        if (!total) { print "no line of llmc/cuda was found"; exit 1 }
        printf "coverage: %d of %d lines of llmc/cuda ran: %.1f%%\n", covered, total, 100 * covered / total
        exit bad > 0 || 100 * covered < least * total
    }'
