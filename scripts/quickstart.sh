#!/bin/sh
# Installs what is missing, builds, makes the built-in corpus, trains a small GPT-2 that tells stories, and leaves a
# checkpoint and a report: 79 s on two cores from a bare system (AMD EPYC, Zen 5, 2026-11-23).
# usage: sh scripts/quickstart.sh [FOLDER]      FOLDER (default: quickstart) gets the run; it must not exist
set -eu
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;; esac
case $#:${1:-} in 0: | 1:[!-]*) ;; *) sed -n '4s/^# //p' "$0" >&2; exit 2 ;; esac
from=$PWD
CDPATH='' cd "$(dirname "$0")/.."
out=${1:-quickstart}
case $out in
/*) ;;
*) [ $# = 0 ] || [ "$from" = "$PWD" ] || out=$from/$out ;;
esac
case $out in
*[\ ,*?[]*) echo "error: $out: patterns of data name it: give a folder without spaces, commas and *?[" >&2; exit 1 ;;
esac
if [ -e "$out" ]; then
    echo "error: $out exists already: remove it, or give another folder: sh scripts/quickstart.sh FOLDER" >&2
    exit 1
fi

sh scripts/setup.sh
. scripts/progress.sh
mkdir -p build
log=build/quickstart.log
files=$(make -n train_gpt2 prepare | grep -c ' -c ' || true)
echo "1. building: $files files to compile (make's output is in $log)"
touch build/quickstart.begun
compiled() {
    done=$(find build/release -name '*.o' -newer build/quickstart.begun | wc -l)
    echo "$done of $files files are compiled; now $(sed -n 's/.* -o \([^ ]*\).*/\1/p' $log | tail -n 1)"
}
with_progress compiled $log make -j"$(nproc)" train_gpt2 prepare
echo "2. making the built-in corpus: short stories whose entropy is known exactly"
./prepare --stories 3000000 --val_size 20000 --out "$out/data/stories"
echo "3. training a small GPT-2 on them"
./train_gpt2 --model L=4,H=4,C=64,T=64 --train_data "$out/data/stories_train_*.bin" \
    --val_data "$out/data/stories_val_*.bin" --batch_size 8 --max_steps 800 --lr 4e-3 --warmup_steps 80 \
    --val_every 200 --sample_every 800 --prompt "Once upon a time," --sample_tokens 100 --save_every 400 --out "$out"
echo "4. a story by the trained model"
./train_gpt2 generate --out "$out" --prompt "Once upon a time," --sample_tokens 200 --temperature 0.8
cat <<END

The run is in $out/:
  report.html      the curves; open it in a browser
  metrics.jsonl    the same as numbers, one JSON object a line
  step_00000800/   the model, a Hugging Face folder: GPT2LMHeadModel.from_pretrained("$out/step_00000800")

Continue with (the second trains 800 steps more at the rate that the run ended with: a whole new schedule would first
raise the rate, and the loss):
  ./train_gpt2 generate --out $out --prompt "One day, a little fox"
  ./train_gpt2 --out $out --resume auto --max_steps 1600 --schedule constant --lr 4e-4
  ./train_gpt2 --help
END
