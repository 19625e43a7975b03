#!/bin/sh
# Trains by a preset that reaches the loss of a published run with fewer tokens: fast:124m, 350m, 774m, 1558m by AdamW,
# muon:124m, 350m, 774m, 1558m by Muon. llmc/options/models.c has their settings and sources, dev/learning.md the ideas.
# usage: [GPUS=8] sh scripts/run_preset.sh PRESET [--option value ...]  the same command continues it after a stop
#
# data      the script names the command if shards are missing: 65 shards of FineWeb, 13 GB, for fast:124m; 47 for
#           muon:124m
# memory    as the run_gpt2_*.sh of the same size
# takes     predicted, not measured: fast:124m 52 to 68 minutes on 8 A100-80, 22 to 31 on 8 H100; muon:124m 38 to 50,
#           17 to 23. dev/bench/results/predicted.md has hours and dollars of every preset.
# reaches   fast:124m: 3.2753 on FineWeb (modded-nanogpt's run of 2024-06-05, a GPT-2 without biases and gains).
#           muon:124m: predicted, 3.28. The larger ones: predicted, the loss of the run_gpt2_*.sh of the same size.
#
# The nearest curves that are published step by step are modded-nanogpt's, with rotary positions. Batch, rate and
# schedule are those of the presets, but the runs are shorter: until the rate falls, compare step by step.
#
#   AdamW (record 2, 2024-06-06): 9,536 steps, the rate falls over the last 2,000
#   step      1024  2048  3072  4096  5120  6144  7168  8192  9216  9536
#   val loss 3.905 3.684 3.578 3.523 3.490 3.471 3.446 3.386 3.295 3.276
#
#   Muon (record 4, 2024-10-11): 6,200 steps, the rate falls over the last 1,800
#   step       750  1750  2750  3750  4750  5750  6200
#   val loss 3.845 3.592 3.497 3.443 3.384 3.302 3.2785
#
# A shorter or longer run: --max_steps N. The fall of the learning rate is a part of the run, so it moves with the end.
. "$(dirname "$0")/run.sh"
preset=${1:-}
[ $# = 0 ] || shift
case $preset in # data set and number of its shards, of 100M tokens each
fast:124m) set -- fineweb 65 --batch_size auto "$@" ;;
fast:350m) set -- fineweb100b 198 --batch_size auto "$@" ;;
fast:774m) set -- fineweb100b 943 --batch_size auto "$@" ;;
fast:1558m) set -- fineweb-edu100b 211 --batch_size 16 "$@" ;;
muon:124m) set -- fineweb 47 --batch_size auto "$@" ;;
muon:350m) set -- fineweb100b 158 --batch_size auto "$@" ;;
muon:774m) set -- fineweb100b 813 --batch_size auto "$@" ;;
muon:1558m) set -- fineweb-edu100b 192 --batch_size 16 "$@" ;;
*) die "'$preset' is not a preset of this script: give fast: or muon: with 124m, 350m, 774m or 1558m" ;;
esac
data_set=$1 shards=$2
shift 2
published_run "$data_set" "$shards" --preset "$preset" --out "runs/$(echo "$preset" | tr : _)" "$@"
