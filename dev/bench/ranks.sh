#!/bin/sh
# Times two processes of one thread against one process of two threads: the same training step, in turn, and the ratio
# of their times (above 1: the two processes are faster). GPT-2 124M with 64 tokens in a sequence and 32,768 in a step,
# unless options of the trainer say otherwise. Takes minutes on two cores, which nothing else should use meanwhile.
# usage: sh dev/bench/ranks.sh [--rounds N] [--steps N] [--json FILE] [OPTIONS OF THE TRAINER]
set -u
CDPATH='' cd "$(dirname "$0")/../.."
rounds=3 steps=2
. dev/bench/common.sh

run="./train_gpt2 --model gpt2 --seq_len 64 --batch_size 4 --total_batch_size 32768 --max_steps $((steps + 1))"
for round in $(seq "$rounds"); do
    step_ms mpirun -np 2 --bind-to none $run --threads 1 "$@" >"$folder/two" || exit 1
    step_ms $run --threads 2 "$@" >"$folder/one" || exit 1
    cat "$folder/two" >>"$folder/all_two"
    cat "$folder/one" >>"$folder/all_one"
    two=$(median <"$folder/two") one=$(median <"$folder/one")
    awk -v two="$two" -v one="$one" 'BEGIN { print one / two }' >>"$folder/ratios"
    echo "round $round: 2 processes x 1 thread $two ms, 1 process x 2 threads $one ms," \
        "ratio $(tail -n 1 "$folder/ratios")"
done
two=$(median <"$folder/all_two") one=$(median <"$folder/all_one") ratio=$(median <"$folder/ratios")
echo "median: $two ms, $one ms, ratio $ratio"
[ -z "$json" ] || cat >"$json" <<END
{
  "kind": "ranks",
  "command": "sh dev/bench/ranks.sh --rounds $rounds --steps $steps $*",
  "date": "$(date -u +%FT%TZ)",
  "device": "$processor",
  "trainer": "$run $*",
  "rounds": $rounds,
  "two_processes_ms": $two,
  "two_threads_ms": $one,
  "ratio": $ratio,
  "ratios": [$(paste -sd , "$folder/ratios")]
}
END
