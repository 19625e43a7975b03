#!/bin/sh
# GPT-2 350M on 31B tokens of FineWeb, as llm.c's script of this name: 60,000 steps of 524,288 tokens on 8 GPUs. The
# settings are those of --preset gpt2:350m.
# usage: [GPUS=8] sh scripts/run_gpt2_350M.sh [--option value ...]      the same command continues it after a stop
#
# data      sh data/fetch.sh fineweb100b 320     (64 GB)
# memory    62 GiB a GPU with 64 sequences in a micro-batch; fewer where that does not fit (--batch_size auto)
# takes     llm.c: 820 ms a step on 8 A100-80, 13.7 hours, $200 at $14 an hour (its script). This program:
#           dev/numbers.md, on one H100 and one H200.
# reaches   OpenAI's 355M: validation loss 3.0831, HellaSwag 37.5% (llm.c, dev/vislog.ipynb). llm.c's curve
#           (modded-nanogpt, records/011825_GPT2Medium/main.log):
#
#   step        0   250   500  1000  2500  5000 10000 20000 30000 40000 50000 60000
#   val loss 10.983 6.310 5.589 4.373 3.674 3.419 3.246 3.113 3.039 2.981 2.941 2.928
. "$(dirname "$0")/run.sh"
published_run fineweb100b 320 --preset gpt2:350m --batch_size auto --out runs/gpt2_350M "$@"
