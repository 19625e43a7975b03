"""Makes test/golden/tokens: the same 300 token ids in every format of token files, and NumPy arrays that are refused.

    python dev/golden/token_files.py

Needs NumPy. Run it from the repository root. NumPy writes its own files; the headers of llm.c are written as its
tokenizing scripts do (dev/data/data_common.py).
"""

import os

import numpy

FOLDER = "test/golden/tokens"
IDS = numpy.array([50256] + [i * i * 37 % 50257 for i in range(1, 300)])


def path(name):
    return os.path.join(FOLDER, name)


def save_numpy(name, array, version):
    with open(path(name), "wb") as f:
        numpy.lib.format.write_array(f, array, version=version)


def save_header(name, header, ids, start=b""):
    ints = numpy.zeros(256, dtype="<i4")
    ints[: len(header)] = header
    with open(path(name), "wb") as f:
        f.write((start + ints.tobytes())[:1024] + ids.tobytes())


def main():
    os.makedirs(FOLDER, exist_ok=True)
    save_header("llmc.bin", [20240520, 1, len(IDS)], IDS.astype("<u2"))
    save_header("llama3.bin", [20240801, 7, len(IDS)], IDS.astype("<u4"))
    IDS.astype("<u2").tofile(path("nanogpt.bin"))
    for kind in ["<u2", "<u4", "<i4"]:
        for version in [(1, 0), (2, 0), (3, 0)]:
            save_numpy(f"{kind[1:]}_v{version[0]}.npy", IDS.astype(kind), version)
    for kind in [">u2", ">i4", "<f4", "<i8", "|u1"]:
        save_numpy(f"refused_{'big' if kind[0] == '>' else ''}{kind[1:]}.npy", IDS.astype(kind), (1, 0))
    save_numpy("refused_2d.npy", IDS.astype("<u2").reshape(3, 100), (1, 0))
    save_numpy("refused_fortran.npy", numpy.asfortranarray(IDS.astype("<u2").reshape(3, 100)), (1, 0))
    save_numpy("refused_scalar.npy", numpy.uint16(7), (1, 0))
    save_numpy("refused_record.npy", IDS.astype([("id", "<u2")]), (1, 0))


if __name__ == "__main__":
    main()
