#!/usr/bin/env python3
"""Compares ./prepare with pyarrow and tiktoken on the same cores, alternating.

usage: prepare.py FILE VOCAB.BPE ENCODER.JSON [ROUNDS]

FILE is a Parquet file with a column `text`, or a text, of which one is made in a temporary folder (zstd, row groups of
1024; documents end at three line ends). Prints the ratios of two comparisons, the median of ROUNDS (5):

    end to end   Parquet to token shards on all cores, seconds of wall time: ./prepare against reading by pyarrow,
                 encode_ordinary_batch() by tiktoken with a thread for each core, and writing uint16
    encoding     a text on one thread, seconds of processor time: ./prepare --threads 1, reading, checksum and writing
                 included, against encode_ordinary() alone

Both must give the same tokens. Needs a virtual environment with pyarrow, tiktoken and numpy, and OpenAI's two
vocabulary files (see data/make_tokenizer.c).
"""
import os, pathlib, resource, statistics, subprocess, sys, tempfile, time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import r50k_pat_str

PREPARE = pathlib.Path(__file__).resolve().parents[2] / "prepare"
EOT = 50256


def gpt2(vocab, encoder):
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=vocab, encoder_json_file=encoder)
    return tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": EOT})


def make_parquet(text, path):
    documents = [d for d in pathlib.Path(text).read_text(encoding="utf-8", errors="replace").split("\n\n\n") if d]
    pq.write_table(pa.table({"text": documents}), path, compression="zstd", row_group_size=1024, use_dictionary=False)


def with_tiktoken(encoding, parquet, out, threads):
    """Writes the tokens of all documents, an end-of-text before each."""
    with open(out, "wb") as f:
        for batch in pq.ParquetFile(parquet).iter_batches(batch_size=1024, columns=["text"]):
            texts = [t for t in batch.column(0).to_pylist() if t]
            for ids in encoding.encode_ordinary_batch(texts, num_threads=threads):
                f.write(np.array([EOT] + ids, dtype=np.uint16).tobytes())


def with_prepare(source, out, threads):
    subprocess.run([PREPARE, "--force", "--threads", str(threads), "--val_size", "0", "--shard_size", "2147483647",
                    "--out", out, source], check=True, capture_output=True)


def seconds(what, who=None):
    """Wall time, or the processor time of this process or of its children."""
    now = (lambda: sum(resource.getrusage(who)[:2])) if who is not None else time.perf_counter
    start = now()
    what()
    return now() - start


def report(name, ours, theirs, megabytes):
    a, b = statistics.median(ours), statistics.median(theirs)
    ratios = sorted(y / x for x, y in zip(ours, theirs))
    print(f"{name:12} {megabytes:.1f} MB of text: {megabytes / a:.1f} MB/s against {megabytes / b:.1f}: "
          f"{statistics.median(ratios):.1f} times (single rounds {ratios[0]:.1f} to {ratios[-1]:.1f})")


def main():
    source, encoding = sys.argv[1], gpt2(sys.argv[2], sys.argv[3])
    rounds, cores = int(sys.argv[4]) if sys.argv[4:] else 5, len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        parquet, ours, theirs, text = (os.path.join(folder, n) for n in ["x.parquet", "ours", "theirs", "x.txt"])
        if source.endswith(".parquet"):
            parquet = source
        else:
            make_parquet(source, parquet)
        texts = [t for t in pq.read_table(parquet, columns=["text"]).column(0).to_pylist() if t]
        megabytes = sum(len(t.encode()) for t in texts) / 1e6
        walls, cpus = ([], []), ([], [])
        for _ in range(rounds):
            walls[0].append(seconds(lambda: with_prepare(parquet, ours, cores)))
            walls[1].append(seconds(lambda: with_tiktoken(encoding, parquet, theirs, cores)))
        if open(ours + "_train_000001.bin", "rb").read()[1024:] != open(theirs, "rb").read():
            sys.exit("the tokens differ")
        report("end to end", *walls, megabytes)
        one = "\n".join(texts)[:20_000_000]
        pathlib.Path(text).write_text(one, encoding="utf-8")
        for _ in range(rounds):
            cpus[0].append(seconds(lambda: with_prepare(text, ours, 1), resource.RUSAGE_CHILDREN))
            cpus[1].append(seconds(lambda: encoding.encode_ordinary(one), resource.RUSAGE_SELF))
        report("encoding", *cpus, len(one.encode()) / 1e6)


if __name__ == "__main__":
    main()
