#!/usr/bin/env python3
"""Parquet files by pyarrow, for the tests of llmc/prepare/parquet.c.

    parquet.py                    writes test/golden/parquet/: small files of every kind, and rows.jsonl, the rows that
                                  each of them has, also as .gz and .zst
    parquet.py check ./prepare    compares larger random files with what ./prepare makes of them, document by document;
                                  writes to a temporary folder

Needs pyarrow (recorded with 26.0.1).
"""
import itertools, json, os, pathlib, random, subprocess, sys, tempfile
import pyarrow as pa
import pyarrow.parquet as pq

CODECS = ["none", "snappy", "gzip", "zstd"]
ENCODINGS = {"plain": None, "dictionary": True, "delta": "DELTA_BYTE_ARRAY"}  # the last one is refused


def write(path, rows, codec, encoding, version="1.0", nullable=True, kind=pa.string(), **options):
    """Writes rows as column `text`, between columns that a reader must pass over."""
    n = len(rows)
    rows = rows if nullable else [r or "" for r in rows]
    schema = pa.schema([pa.field("id", pa.int64()),
                        pa.field("meta", pa.struct([("a", pa.list_(pa.int32())), ("b", kind)])),
                        pa.field("text", kind, nullable=nullable), pa.field("url", kind)])
    value = (lambda r: r if r is None or kind != pa.binary() else r.encode())
    table = pa.table([pa.array(range(n), pa.int64()),
                      pa.array([{"a": [i] * (i % 3), "b": value("b")} for i in range(n)], schema.field(1).type),
                      pa.array([value(r) for r in rows], kind),
                      pa.array([value(f"u{i}") for i in range(n)], kind)], schema)
    column = {"use_dictionary": ["text"] if encoding == "dictionary" else False}
    if isinstance(ENCODINGS[encoding], str):
        column["column_encoding"] = {"text": ENCODINGS[encoding]}
    pq.write_table(table, path, compression=codec, data_page_version=version, **column, **options)
    return rows


def golden_rows():
    """Rows with nulls in runs and alone, shared prefixes, empty strings, repeats, and a long row."""
    rows = [None, "", "one", "two two", None, None, None, "one", "one hundred", "one hundred and one", "ünïcödé 漢字 🙂",
            "line\nbreak\n", "", None, "x" * 300]
    rows += [f"row {i % 7} of many" for i in range(60)] + [None] * 20 + [f"number {i}" for i in range(40)]
    return rows


def make():
    folder = pathlib.Path(__file__).resolve().parents[2] / "test" / "golden" / "parquet"
    folder.mkdir(parents=True, exist_ok=True)
    rows = golden_rows()
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": r}, ensure_ascii=False) + "\n" for r in rows))
    text = (folder / "rows.jsonl").read_bytes()
    for name, codec in [("gz", "gzip"), ("zst", "zstd")]:  # two compressed files, one behind the other
        parts = [pa.compress(part, codec, asbytes=True) for part in [text[:1000], text[1000:]]]
        (folder / f"rows.jsonl.{name}").write_bytes(b"".join(parts))
    small = {"row_group_size": 50, "data_page_size": 200, "write_batch_size": 10, "store_schema": False,
             "write_statistics": ["text"]}
    for codec in CODECS:  # every codec with both versions of pages
        for version in ["1.0", "2.0"]:
            write(folder / f"{codec}_v{version[0]}.parquet", rows, codec, "dictionary", version, **small)
    for version in ["1.0", "2.0"]:
        write(folder / f"plain_v{version[0]}.parquet", rows, "none", "plain", version, **small)
    write(folder / "delta.parquet", rows, "none", "delta", "2.0", **small)
    # the dictionary grows too large after some batches: the chunk goes on with PLAIN pages
    write(folder / "mixed.parquet", rows, "snappy", "dictionary", **{**small, "row_group_size": 1000},
          dictionary_pagesize_limit=300)
    write(folder / "required.parquet", rows, "zstd", "dictionary", nullable=False, **small)
    write(folder / "checksums.parquet", rows, "none", "plain", write_page_checksum=True, **small)
    write(folder / "binary.parquet", rows, "gzip", "plain", kind=pa.binary(), **small)
    write(folder / "large_string.parquet", rows, "zstd", "plain", kind=pa.large_string(), **small)
    write(folder / "empty.parquet", [], "none", "plain", **small)
    write(folder / "brotli.parquet", rows, "brotli", "plain", **small)


def random_rows(r):
    n = r.choice([0, 1, 7, 1000, 5000])
    nulls = r.choice([0, 0.01, 0.5, 0.99])
    words = ["%x" % r.getrandbits(r.choice([8, 32, 64])) for _ in range(50)]
    longest = r.choice([1, 30, 3000])
    rows = []
    for _ in range(n):
        if r.random() < nulls:
            rows.append(None)
        elif rows and r.random() < 0.2:
            rows.append((rows[r.randrange(len(rows))] or "")[: r.randrange(40)] + r.choice(words))
        else:
            rows.append(" ".join(r.choice(words) for _ in range(r.randrange(longest + 1))) if longest < 3000 or
                        r.random() < 0.01 else r.choice(words))
    return rows


def documents(prefix):
    """The documents in the shards of a prefix, made with --tokenizer bytes."""
    tokens = []
    for path in sorted(pathlib.Path(prefix).parent.glob(pathlib.Path(prefix).name + "_train_*.bin")):
        data = path.read_bytes()[1024:]
        tokens += list(memoryview(data).cast("H"))
    texts, now = [], None
    for t in tokens:
        if t == 256:
            now = bytearray()
            texts.append(now)
        else:
            now.append(t)
    return [bytes(t).decode() for t in texts]


def check(program):
    r = random.Random(1)
    types = [pa.string(), pa.binary(), pa.large_string()]
    kinds = list(itertools.product(CODECS, ["plain", "dictionary"], ["1.0", "2.0"], [True, False], types))
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "x.parquet"), os.path.join(folder, "x")
        for count, (codec, encoding, version, nullable, kind) in enumerate(kinds):
            options = {"row_group_size": r.choice([10, 1000, 1 << 20]),
                       "data_page_size": r.choice([100, 10000, 1 << 20]),
                       "write_batch_size": r.choice([1, 100, 1024]),
                       "dictionary_pagesize_limit": r.choice([500, 1 << 20]),
                       "write_page_checksum": r.random() < 0.5, "write_page_index": r.random() < 0.5,
                       "store_schema": r.random() < 0.5}
            rows = write(path, random_rows(r), codec, encoding, version, nullable, kind, **options)
            expected = [t for t in rows if t]
            done = subprocess.run([program, "--force", "--tokenizer", "bytes", "--val_size", "0", "--out", out, path],
                                  capture_output=True, text=True)
            if done.returncode != 0 and not (expected == [] and "is empty" in done.stderr):
                sys.exit(f"{codec} {encoding} {version} {nullable} {kind} {options}: {done.stderr}")
            if expected and documents(out) != expected:
                sys.exit(f"{codec} {encoding} {version} {nullable} {kind} {options}: other documents")
    print(f"{len(kinds)} files: all documents are the same")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["check"] else make()
