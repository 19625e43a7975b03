#!/bin/sh
# GPT-2 124M on 10B tokens of FineWeb-Edu, as in the lecture "Let's reproduce GPT-2": 19,073 steps of 524,288 tokens on
# 8 GPUs. The settings are those of --preset gpt2:124m.
# usage: [GPUS=8] sh scripts/run_gpt2_124M.sh [--option value ...]      the same command continues it after a stop
#
# data      sh data/fetch.sh fineweb-edu 99      (GPT-2's tokens, 20 GB; nothing to prepare)
# memory    25.1 GiB a GPU with 64 sequences in a micro-batch; fewer where that does not fit (--batch_size auto)
# takes     llm.c: 300 ms a step on 8 A100-80, 94 min, $20 at $14 an hour (its scripts/run_gpt2_124M.sh); 140 ms on 8
#           H100, 46 min (modded-nanogpt, 2024-10-13_llmc). This program: dev/numbers.md, on one H100, H200.
# reaches   a validation loss below 3.2924, that of OpenAI's 124M on FineWeb-Edu (build-nanogpt, play.ipynb).
#           HellaSwag: OpenAI's 29.5%, llm.c's after 10B tokens 29.9 to 31.4%, GPT-3's 33.7%.
#
# The curve that is published step by step is llm.c's, on FineWeb proper, with another warm-up and end of the schedule
# (modded-nanogpt, records/track_1_short/2024-10-13_llmc). To compare with it:
#
#   sh data/fetch.sh fineweb 103
#   DATA=fineweb sh scripts/run_gpt2_124M.sh --max_steps 19560 --warmup_steps 700 --min_lr_frac 0 --out runs/fineweb
#
#   step        0    250    500   1000   2500   5000   7500  10000  12500  15000  17500  19560
#   val loss 11.009  6.171  5.374  4.317  3.765  3.554  3.457  3.392  3.341  3.300  3.277  3.2722
#
# From run to run the last figure varies by 0.0013 (standard deviation).
. "$(dirname "$0")/run.sh"
published_run fineweb-edu 99 --preset gpt2:124m --batch_size auto --out runs/gpt2_124M "$@"
