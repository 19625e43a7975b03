# Functions for the tests of several processes.
. "$(dirname "$0")/../lib.sh"
export OMP_NUM_THREADS=1
command -v mpirun >/dev/null || { echo "skipped: no mpirun (openmpi-bin)"; exit 77; }

tensors="$build/compare_checkpoints"
run="--model L=2,H=2,C=32,T=48,V=257 --tokenizer bytes --seq_len 32 --sample_tokens 12 --max_steps 20 --lr 1e-4"
often="--val_every 10 --val_tokens 1000 --sample_every 10 --save_every 10 --total_batch_size 512"

samples() { records "$1" | sed -n 's/.*"kind":"sample".*"text":\(.*\)}/\1/p'; }

# Two runs are the same: every loss and norm within 1e-5 ($close), relative; equal samples; parameters and moments of
# the last checkpoint within 1e-5 ($weights; any: not compared) of each tensor's norm, except the biases of keys, whose
# true gradient is zero.
same() { # FOLDER FOLDER
    near "$1" "$2" "${close:-1e-5}"
    [ "$(samples "$1")" = "$(samples "$2")" ] || note "other samples in $2"
    last=$(ls "$1" | grep step_ | tail -n 1)
    [ "${weights:-1e-5}" = any ] || "$tensors" "$1/$last" "$2/$last" "${weights:-1e-5}" >"$dir/out" 2>&1 ||
        note "$2: $(tail -n 1 "$dir/out")"
}

gpu="--model L=1,H=2,C=32,T=16,V=257 --tokenizer bytes --seq_len 16 --max_steps 8 --total_batch_size 128 --dtype fp32 \
    --val_every 4 --val_tokens 100 --sample_every 8 --sample_tokens 4 --save_every 8 --tune 0"

tiny="--model L=1,H=1,C=16,T=8,V=50 --batch_size 2 --seq_len 8"

# N processes time all collectives; results are right, and bandwidths fit times and bytes. $gpus: more options
timed_well() { # N COMMAND...
    n=$1
    shift
    must "$@" bench comm $tiny --out "$dir/comm" ${gpus:-}
    json="$dir/comm/comm.json"
    values_of name "$json" | sed 1d >"$dir/names" # the first is the model's
    for name in bytes ms algorithm_gb_s bus_gb_s ok; do
        values_of $name "$json" | paste -d ' ' "$dir/names" - >"$dir/both"
        mv "$dir/both" "$dir/names"
    done
    awk -v n="$n" 'function off(a, b) { return a / b > 1.000001 || a / b < 0.999999 }
        { moves = ($1 == "numbers" || $1 == "all-reduce" ? 2 : 1) * (n - 1) / n; seen[$1]++ }
        $2 % n || off($4, $2 / $3 / 1e6) || off($5, $4 * moves) || $6 != "true" { print }
        END { if (seen["numbers"] < 2 || seen["all-reduce"] < 6 || seen["reduce-scatter"] < 6 || seen["all-gather"] < 6)
                  print NR " rows" }' "$dir/names" >"$dir/wrong"
    [ ! -s "$dir/wrong" ] || note "$n: $(head -n 2 "$dir/wrong")"
    [ "$(grep -c 'all gradients.* ok$' "$dir/out")" = 3 ] || note "$n: no line for all gradients: $(cat "$dir/out")"
}

forever="--max_steps 100000000 --total_batch_size 256 $quiet --save_every 50"

none_left() { # FOLDER: all its processes end within a minute; those that do not are killed
    for i in $(seq 600); do
        [ -n "$(processes_of "$1")" ] || return 0
        sleep 0.1
    done
    note "still there: $(processes_of "$1")"
    kill -KILL $(processes_of "$1") 2>/dev/null
}
