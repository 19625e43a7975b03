#!/bin/sh
# GPT-2 774M on 150B tokens of FineWeb, as llm.c's script of this name: 286,102 steps of 524,288 tokens on 8 GPUs. The
# settings are those of --preset gpt2:774m.
# usage: [GPUS=8] sh scripts/run_gpt2_774M.sh [--option value ...]      the same command continues it after a stop
#
# data      sh data/fetch.sh fineweb100b 1030    (206 GB; the run repeats it one and a half times)
# memory    58 GiB on each of 8 GPUs with 32 sequences in a micro-batch; fewer where it does not fit (--batch_size auto)
# takes     llm.c: 1.7 s a step on 8 A100-80, 135 hours, $2,000 at $14 an hour (its script). This program:
#           dev/numbers.md, on one H100 and one H200.
# reaches   OpenAI's 774M: validation loss 3.0006, HellaSwag 43.2% (llm.c, dev/vislog.ipynb). No curve is published.
. "$(dirname "$0")/run.sh"
published_run fineweb100b 1030 --preset gpt2:774m --batch_size auto --out runs/gpt2_774M "$@"
