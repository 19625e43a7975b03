#!/bin/sh
# Compares the predictions of `bench scale` with measured steps: 1, 2 and 4 processes of one thread on this machine,
# predicted and trained in turn, with and without ZeRO-1. Processes beyond the cores share them. So each prediction uses
# parts of a step, and a link, that were measured with the same number of processes at work. Models have the vocabulary
# of bytes, V=257: without GPT-2's large embeddings a small model computes as larger ones do.
# usage: sh dev/bench/scale.sh [--rounds N] [--steps N] [--json FILE] [OPTIONS OF BOTH COMMANDS]
set -u
cd "$(dirname "$0")/../.."
rounds=9 steps=5
tokenizer=bytes
. dev/bench/common.sh
[ $# -gt 0 ] || set -- --model L=6,H=6,C=384,T=64,V=257 --batch_size 2 --seq_len 64 --total_batch_size 512

# predicted PROCESSES KEY: ms of a step in scale.json
predicted() {
    sed -n '/"predictions"/,/"inputs"/p' "$folder/scale/scale.json" |
        awk -v n="\"gpus\": $1," -v key="\"$2\":" 'index($0, n) { here = 1 } here && index($0, key) { found = 1 }
            found && /"ms":/ { gsub(/[^0-9.e-]/, "", $2); print $2; exit }'
}

link=''
for round in $(seq "$rounds"); do
    for n in 1 2 4; do
        ranks="mpirun -np $n --bind-to none ./train_gpt2"
        [ $n != 1 ] || link='--link 1GB/s:1us' # none is used
        $ranks bench scale --threads 1 --max_steps "$steps" $link "$@" --out "$folder/scale" \
            >/dev/null 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
        link=''
        for key in plain overlap zero zero_overlap; do predicted $n $key >>"$folder/$n.$key"; done
        for zero in 0 1; do
            [ $n$zero != 11 ] || continue
            step_ms $ranks --threads 1 --max_steps $((steps + 1)) --zero $zero "$@" >"$folder/steps" || exit 1
            median <"$folder/steps" >>"$folder/$n.measured$zero"
        done
    done
done

# ratio N KEY MEASURED: the median over rounds of predicted over measured
ratio() { paste -d ' ' "$folder/$1.$2" "$folder/$1.$3" | awk '{ print $1 / $2 }' | median; }

for n in 1 2 4; do
    for zero in 0 1; do
        [ $n$zero != 11 ] || continue
        plain=plain overlap=overlap
        [ $zero = 0 ] || { plain=zero overlap=zero_overlap; }
        echo "$n $zero $(median <"$folder/$n.measured$zero") $(median <"$folder/$n.$plain")" \
            "$(median <"$folder/$n.$overlap") $(ratio $n $plain measured$zero) $(ratio $n $overlap measured$zero)"
    done
done >"$folder/table"
echo "processes ZeRO-1 measured ms | predicted ms: no overlap   overlap |" \
    "predicted / measured, by rounds: no overlap  overlap"
awk '{ printf "%9d %6d %11.1f | %24.1f %9.1f | %42.3f %8.3f\n", $1, $2, $3, $4, $5, $6, $7 }' "$folder/table"
[ -z "$json" ] || {
    cat <<END
{
  "kind": "scale_check",
  "command": "sh dev/bench/scale.sh --rounds $rounds --steps $steps $*",
  "date": "$(date -u +%FT%TZ)",
  "device": "$processor",
  "cores": $(nproc),
  "threads": 1,
  "rounds": $rounds,
  "load_now": $(cut -d ' ' -f 1 /proc/loadavg),
  "runs": [
END
    awk '{ printf "%s    {\"processes\": %d, \"zero\": %d, \"measured_ms\": %.2f, \"predicted_ms\": %.2f, ",
        (NR > 1 ? ",\n" : ""), $1, $2, $3, $4
        printf "\"predicted_overlap_ms\": %.2f, \"ratio\": %.4f, \"ratio_overlap\": %.4f}", $5, $6, $7 }
        END { print "" }' "$folder/table"
    printf '  ]\n}\n'
} >"$json"
