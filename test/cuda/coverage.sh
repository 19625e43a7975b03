#!/bin/sh
# Prints the lines of llmc/cuda/ that did not run in the groups of scripts/test.sh that count them. The counts are
# gcov's. Fails if less than $least percent ran, or if a line that did not run has no reason in the list below.
# usage: sh test/cuda/coverage.sh [FOLDER]      the folder of `make emu EMU=coverage`
folder=${1:-build/emu-coverage}
least=95 # chosen, not measured
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 143' INT TERM HUP

# part of the line | why it does not run here
cat >"$work/reasons" <<'REASONS'
the GPU is out of memory|free memory is checked first: only another program could take it in between
cannot be locked in place|the same for host memory
built without code for it|the emulator has code for every GPU
begun, "beginning a graph"|a capture fails to begin only while another one runs
fatal("%s", err.text)|the emulator has no libraries to open
cuBLASLt failed|it fails only for wrong arguments
ncclUnhandledCudaError|a collective that fails ends the program, which then writes no counts
the network failed (|likewise
NCCL failed|likewise
return format("%s. " CHECKPOINTS_ARE_WHOLE|likewise
a workspace of %.0f MiB is needed|a plan fits where it is made: only one that was made with more free memory may not
attention in tiles: queries, keys and values|such activations take 8 GiB
this program was built without cuDNN|the emulator always has a stand-in for it
CACHED ? cache :|rows of more than 12,288 channels, which do not fit in shared memory
const dim3 threads(WARP_SIZE, WARPS_IN_BLOCK)|likewise
layernorm_forward_kernel<WIDTH, RESIDUAL, false>|likewise
REASONS

[ -s "$folder/cuda_bf16.gcda" ] || { echo "nothing ran in $folder: sh scripts/test.sh coverage runs it all"; exit 1; }
# A line counts as run if it ran in at least one object and one instance of its template.
gcov --stdout --demangled-names "$folder"/cuda_*.gcda 2>/dev/null >"$work/lines"
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
