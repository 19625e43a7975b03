#!/bin/sh
# Prints which lines of llmc/cuda/ did not run under the emulator, as gcov counted them in emulated.sh and ranks.sh, which
# run before it. Fails below 95%, or if a line that did not run has no reason in the list below.
# usage: coverage.sh [FOLDER]      that of `make emu EMU=coverage`
folder=${1:-build/emu-coverage}
least=95
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# part of the line | why it does not run here
cat >"$work/reasons" <<'REASONS'
the GPU is out of memory|memory is asked for before it is allocated: only another program could take it in between
cannot be locked in place|host memory, likewise
built without code for it|the emulator has code for every GPU
begun, "beginning a graph"|no other capture is under way, so none is refused at its beginning
cuBLASLt failed|what is asked of it is right: anything else ends here
static inline void device_copy_|the compiler put its lines wherever it is called, and they ran there
this program was built without cuDNN|the emulator always has a stand-in for it
REASONS

[ -s "$folder/cuda_bf16.gcda" ] || { echo "nothing ran in $folder: sh scripts/test.sh coverage runs it all"; exit 1; }
# A line counts as run if it ran in any object and any instance of a template.
gcov --stdout --demangled-names "$folder"/cuda_*.gcda "$folder"/test_attention_*.gcda 2>/dev/null >"$work/lines"
awk -F: -v least="$least" -v reasons="$work/reasons" '
    BEGIN { while ((getline line < reasons) > 0) { n++; split(line, part, "|"); text[n] = part[1]; why[n] = part[2] } }
    $2 ~ /^ *0$/ { if ($3 == "Source") { file = $4; ours = file ~ /^llmc\/cuda\/[a-z_0-9]*[.]cuh$/ } next }
    !ours || NF < 3 { next }
    { count = $1; gsub(/[ *]/, "", count); key = file ":" $2 + 0; line = $0; sub(/^[^:]*:[^:]*:/, "", line) }
    count == "-" { next }
    { source[key] = line; if (count !~ /^[#=]/) ran[key] = 1 }
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
    }' "$work/lines"
