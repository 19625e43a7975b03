#!/usr/bin/env python3
"""Compares ./prepare with pyarrow and tiktoken on the same cores, alternating, and writes the record as JSON.

usage: prepare.py [--source FILE] [--megabytes 30] [--rounds 5] [--cores N] [--json FILE]

The source is a Parquet file with a column `text`, or a text, whose documents end at three line ends. Without one, the
sources and documentation of Python's packages are taken, each file a document. A text becomes a Parquet file in a
temporary folder (zstd, or gzip if ./prepare was built without libzstd; row groups of 1024). At most so many megabytes.

    encoding     a text on one thread, seconds of processor time: ./prepare --threads 1, with reading, checksum and
                 writing, against tiktoken's encode_ordinary() alone
    scaling      the same text, cut into documents, on 1, 2, 4, ... cores, seconds of wall time: ./prepare --threads N
                 against encode_ordinary_batch(num_threads=N) alone
    end to end   Parquet to token shards on 1, 2, 4, ... cores, seconds of wall time: ./prepare against N processes,
                 each of which reads row groups by pyarrow, encodes them by tiktoken and writes uint16

Each figure is the median over the rounds of the ratio of two neighbouring runs. Both must give the same tokens. Threads
are bound to the first N of the cores that this process may use. Needs pyarrow, tiktoken and numpy; tiktoken gets its
ranks from data/gpt2_tokenizer.bin. The load before the measurement is recorded: a ratio holds on an idle machine.
"""
import argparse, datetime, json, multiprocessing, os, pathlib, platform, resource, statistics, struct, subprocess, sys
import sysconfig, tempfile, time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREPARE = ROOT / "prepare"
RECORD = ROOT / "dev/bench/results/cpu/prepare.json"
EOT, HEADER, ROW_GROUP = 50256, 1024, 1024


def gpt2():
    data, at, ranks = (ROOT / "data/gpt2_tokenizer.bin").read_bytes(), HEADER, {}
    for token in range(struct.unpack_from("<4I", data)[2]):
        n = data[at]
        if token != EOT:
            ranks[data[at + 1:at + 1 + n]] = token
        at += 1 + n
    return tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": EOT})


ENCODING = gpt2()


def documents_of(source, limit):
    """Yields documents of at most `limit` bytes together."""
    def all_documents():
        if source is None:
            folder = pathlib.Path(sysconfig.get_paths()["purelib"])
            for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".txt", ".rst", ".md")):
                yield path.read_text(encoding="utf-8", errors="replace")
        elif source.endswith(".parquet"):
            for batch in pq.ParquetFile(source).iter_batches(batch_size=ROW_GROUP, columns=["text"]):
                yield from batch.column(0).to_pylist()
        else:
            yield from pathlib.Path(source).read_text(encoding="utf-8", errors="replace").split("\n\n\n")
    total = 0
    for text in all_documents():
        size = len(text.encode()) if text else 0
        if total + size > limit:
            return
        if size:
            total += size
            yield text


def make_parquet(documents, path):
    table = pa.table({"text": documents})
    for codec in ("zstd", "gzip"):
        pq.write_table(table, path, compression=codec, row_group_size=ROW_GROUP, use_dictionary=False)
        tried = subprocess.run([PREPARE, "--force", "--val_size", "1", "--out", path + ".tried", path],
                               capture_output=True, text=True)
        if tried.returncode == 0:
            return codec
    sys.exit(tried.stderr)


def with_prepare(source, out, threads):
    subprocess.run([PREPARE, "--force", "--threads", str(threads), "--val_size", "0", "--shard_size", "2147483647",
                    "--out", out, source], check=True, capture_output=True)


def bytes_of(texts):
    return b"".join(np.array([EOT] + ids, dtype=np.uint16).tobytes()
                    for ids in (ENCODING.encode_ordinary(t) for t in texts if t))


def work(job):
    """Encodes every so-manieth row group of a Parquet file into files of their own."""
    parquet, out, first, step = job
    file = pq.ParquetFile(parquet)
    for group in range(first, file.num_row_groups, step):
        with open(f"{out}.{group:06d}", "wb") as f:
            f.write(bytes_of(file.read_row_group(group, columns=["text"]).column(0).to_pylist()))


def with_python(parquet, out, processes):
    """Writes one file for each row group, which together are the tokens of all documents in order."""
    jobs = [(parquet, out, i, processes) for i in range(processes)]
    if processes == 1:
        return work(jobs[0])
    with multiprocessing.Pool(processes) as pool:
        pool.map(work, jobs, chunksize=1)


def seconds(what, who=None):
    """Wall time, or the processor time of this process or of its children."""
    now = (lambda: sum(resource.getrusage(who)[:2])) if who is not None else time.perf_counter
    start = now()
    what()
    return now() - start


def compare(name, cores, rounds, megabytes, ours, theirs):
    """Runs both in turn, bound to so many cores; returns the record."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        pairs = [(ours(), theirs()) for _ in range(rounds)]
    finally:
        os.sched_setaffinity(0, allowed)
    ratios = sorted(b / a for a, b in pairs)
    speeds = [megabytes / statistics.median(times) for times in zip(*pairs)]
    print(f"{name:12} {cores:3} core{'s' if cores > 1 else ' '} {megabytes:.1f} MB of text: {speeds[0]:.1f} MB/s "
          f"against {speeds[1]:.1f}: {statistics.median(ratios):.1f} times (single rounds {ratios[0]:.1f} to "
          f"{ratios[-1]:.1f})", flush=True)
    return {"name": name, "cores": cores, "megabytes": round(megabytes, 1), "prepare_mb_s": round(speeds[0], 2),
            "python_mb_s": round(speeds[1], 2), "ratio": round(statistics.median(ratios), 2),
            "ratios": [round(r, 2) for r in ratios]}


def check_same(ours, theirs, what):
    tokens = pathlib.Path(ours + "_train_000001.bin").read_bytes()[HEADER:]
    if tokens != theirs:
        sys.exit(f"{what}: the tokens differ")


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def measure(args, folder):
    parquet, ours, theirs, text = (os.path.join(folder, n) for n in ["x.parquet", "ours", "theirs", "x.txt"])
    documents = list(documents_of(args.source, args.megabytes * 1_000_000))
    if not documents:
        sys.exit("the source has no text")
    codec = make_parquet(documents, parquet)
    size = sum(len(t.encode()) for t in documents) / 1e6
    counts = sorted({min(2 ** i, args.cores) for i in range(args.cores.bit_length() + 1)})
    rows = []
    one = "\n".join(documents)[:20_000_000]
    pathlib.Path(text).write_text(one, encoding="utf-8", newline="")
    rows.append(compare("encoding", 1, args.rounds, len(one.encode()) / 1e6,
                        lambda: seconds(lambda: with_prepare(text, ours, 1), resource.RUSAGE_CHILDREN),
                        lambda: seconds(lambda: ENCODING.encode_ordinary(one), resource.RUSAGE_SELF)))
    check_same(ours, bytes_of([one]), "encoding")
    lines = os.path.join(folder, "x.jsonl")
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in documents)
    for n in counts:
        rows.append(compare("scaling", n, args.rounds, size,
                            lambda: seconds(lambda: with_prepare(lines, ours, n)),
                            lambda: seconds(lambda: ENCODING.encode_ordinary_batch(documents, num_threads=n))))
    for n in counts:
        rows.append(compare("end to end", n, args.rounds, size, lambda: seconds(lambda: with_prepare(parquet, ours, n)),
                            lambda: seconds(lambda: with_python(parquet, theirs, n))))
    groups = sorted(pathlib.Path(folder).glob("theirs.*"))
    check_same(ours, b"".join(g.read_bytes() for g in groups), "end to end")
    return rows, codec


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source")
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", default=str(RECORD), help="'': none")
    args = parser.parse_args()
    if not PREPARE.exists():
        sys.exit(f"{PREPARE} is missing: make prepare")
    if not 1 <= args.cores <= len(os.sched_getaffinity(0)):
        sys.exit(f"--cores {args.cores}: this process may use {len(os.sched_getaffinity(0))}")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows, codec = measure(args, folder)
    if args.json:
        record = {"kind": "prepare", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                  "command": " ".join(["dev/bench/prepare.py"] + sys.argv[1:]), "processor": processor(),
                  "load_before": load, "rounds": args.rounds, "parquet_codec": codec,
                  "versions": {"tiktoken": tiktoken.__version__, "pyarrow": pa.__version__,
                               "python": platform.python_version()}, "rows": rows}
        path = pathlib.Path(args.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(path)
        print(path)


if __name__ == "__main__":
    main()
