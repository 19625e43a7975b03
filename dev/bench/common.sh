# Shared by the scripts here. Parses their options, whose defaults they set before, and leaves the trainer's in $@.
# Makes a corpus to train on, in the tokens of $tokenizer. Defines median and step_ms.
command -v mpirun >/dev/null || { echo "error: no mpirun: install openmpi-bin and libopenmpi-dev" >&2; exit 1; }
json=''
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --json) json=$2 ;;
    *) break ;;
    esac
    shift 2
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 # a process that waits leaves its core to others
make -s train_gpt2 prepare >/dev/null || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP # dash that dies of a signal runs no EXIT trap
tokenizer=${tokenizer:-gpt2}
./prepare --stories 400000 --tokenizer "$tokenizer" --out "$folder/stories" >/dev/null 2>&1 ||
    { echo "error: cannot make a corpus" >&2; exit 1; }
quiet="--tokenizer $tokenizer --train_data $folder/stories_train_*.bin --val_every 0 --sample_every 0 --save_every 0"
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)

median() {
    sort -n | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}

# step_ms COMMAND...: milliseconds of each of its steps but the first
step_ms() {
    rm -rf "$folder/run"
    "$@" --out "$folder/run" $quiet >/dev/null 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
    sed -n 's/.*"kind":"train".*"ms":\([^,]*\),.*/\1/p' "$folder/run/metrics.jsonl" | sed 1d
}
set -f # the programs expand the patterns
