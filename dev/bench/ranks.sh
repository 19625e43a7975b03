#!/bin/sh
# Times two processes of one thread against one process of two threads: the same training step, in turn, and the ratio
# of their times (above 1: the two processes are faster). GPT-2 124M with 64 tokens in a sequence and 32,768 in a step,
# unless options of the trainer say otherwise. Takes minutes on two cores, which nothing else should use meanwhile.
# usage: sh dev/bench/ranks.sh [--rounds N] [--steps N] [--json FILE] [OPTIONS OF THE TRAINER]
set -uf # -f: the programs expand the patterns
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
command -v mpirun >/dev/null || { echo "error: no mpirun: install openmpi-bin and libopenmpi-dev" >&2; exit 1; }
rounds=3 steps=2 json=''
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=${2:?$1 needs a value} ;;
    --steps) steps=${2:?$1 needs a value} ;;
    --json) json=${2:?$1 needs a value} ;;
    *) break ;;
    esac
    shift 2
done
case $json in '' | /*) ;; *) json=$PWD/$json ;; esac
[ -z "$json" ] || [ -w "$(dirname "$json")" ] || { echo "error: cannot write $json" >&2; exit 1; }
CDPATH='' cd "$(dirname "$0")/../.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 4, 5
export OMPI_MCA_mpi_yield_when_idle=1 # a process that waits leaves its core to others
make -s train_gpt2 prepare >/dev/null || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP # dash that dies of a signal runs no EXIT trap
./prepare --stories 400000 --out "$folder/stories" >/dev/null 2>&1 ||
    { echo "error: cannot make a corpus" >&2; exit 1; }

median() {
    sort -n | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}

# step_ms COMMAND...: milliseconds of each of its steps but the first
step_ms() {
    rm -rf "$folder/run"
    "$@" --out "$folder/run" --train_data "$folder/stories_train_*.bin" --val_every 0 --sample_every 0 --save_every 0 \
        >/dev/null 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
    sed -n 's/.*"kind":"train".*"ms":\([^,]*\),.*/\1/p' "$folder/run/metrics.jsonl" | sed 1d
}

run="./train_gpt2 --model gpt2 --seq_len 64 --batch_size 4 --total_batch_size 32768 --max_steps $((steps + 1))"
for round in $(seq "$rounds"); do
    step_ms mpirun -np 2 --bind-to none $run --threads 1 "$@" >"$folder/two" || exit 1
    step_ms $run --threads 2 "$@" >"$folder/one" || exit 1
    [ -s "$folder/one" ] && [ -s "$folder/two" ] || { echo "error: no step was measured" >&2; exit 1; }
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
  "device": "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)",
  "trainer": "$run $*",
  "rounds": $rounds,
  "two_processes_ms": $two,
  "two_threads_ms": $one,
  "ratio": $ratio,
  "ratios": [$(paste -sd , "$folder/ratios")]
}
END
