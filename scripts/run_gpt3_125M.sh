#!/bin/sh
# GPT-3 125M with the paper's settings on FineWeb: 260B tokens, contexts of 2048, a batch that grows from 32,768 to
# 524,288 tokens over the first 4B. The settings are those of --preset gpt3:125m.
# usage: [GPUS=8] sh scripts/run_gpt3_125M.sh [--option value ...]      the same command continues it after a stop
#
# data      sh data/fetch.sh fineweb100b 1030    (206 GB; the run repeats it two and a half times)
# batch     8 sequences in a micro-batch, so that the small batches of the beginning reach all GPUs soon: 16 sequences
#           occupy 2 of 8 GPUs, 64 all. After 4B tokens (see `tokens` in metrics.jsonl) a start with --batch_size 32 may
#           be faster; it continues the same run.
# takes     llm.c's script assumes 150 ms a step on 8 A100-80 for 300B tokens without the ramp: 24 hours, $336 at $14
#           an hour. Expect at least twice that: its 124M run took 300 ms with contexts of 1024. This program: not
#           measured yet.
# reaches   GPT-3's 125M: HellaSwag 33.7% (Brown et al. 2020). No validation loss is published for this data.
. "$(dirname "$0")/run.sh"
published_run fineweb100b 1030 --preset gpt3:125m --batch_size 8 --out runs/gpt3_125M "$@"
