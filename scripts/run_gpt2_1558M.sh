#!/bin/sh
# GPT-2 1558M on 34B tokens of FineWeb-Edu, as llm.c's script of this name: 32,000 steps of 1,048,576 tokens on 8 GPUs
# of 80 GB. The settings are those of --preset gpt2:1558m.
# usage: [GPUS=8] sh scripts/run_gpt2_1558M.sh [--option value ...]     the same command continues it after a stop
#
# data      sh data/fetch.sh fineweb-edu100b 336 (67 GB)
# memory    55 GiB on each of 8 GPUs, 70 on a single one: --zero 1 shards masters and moments. Cards of 40 GB:
#           --batch_size 8 (34 GiB); of 24 GB: --batch_size 4 --recompute all (14 GiB).
# takes     llm.c: 2.7 s a step on 8 H100, 24 hours, $672 at $28 an hour (its script). This program,
#           on one H100 and one H200: dev/numbers.md.
# reaches   OpenAI's 1558M: HellaSwag 48.9%, which llm.c passed after about 25,000 steps (its discussion 677).
#           A checkpoint is 19 GB, and three are kept.
#
# llm.c's run had spikes in its loss; --skip_z 7:7 skips updates with such losses or norms, but then each
# step waits for its norm.
. "$(dirname "$0")/run.sh"
published_run fineweb-edu100b 336 --preset gpt2:1558m --batch_size 16 --out runs/gpt2_1558M "$@"
