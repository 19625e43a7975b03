"""Makes test/golden/mixed.safetensors with the safetensors library, and checks files that
llmc/files/safetensors.c wrote.

    python dev/golden/tensor_files.py                 writes test/golden/mixed.safetensors and empty.safetensors
    python dev/golden/tensor_files.py --check FILE    FILE must hold the same tensors as mixed.safetensors

(A script called safetensors.py would hide the library from its neighbours.)
Needs a virtual environment with torch and safetensors. Run it from the repository root.

test_safetensors copies mixed.safetensors through our reader and writer and compares the result with
test/golden/ours.safetensors byte by byte. When the writer is changed on purpose: delete ours.safetensors, run the test,
which makes it afresh, and put it through --check.
"""

import argparse

import torch
from safetensors import safe_open
from safetensors.torch import save_file

METADATA = {"format": "pt", "note": 'quotes ", a backslash \\, a tab \t and ünïcödé'}


def tensors():
    edge = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan")]
    return {
        "wte.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4) / 8,
        "half": torch.tensor(edge + [65504.0, 2.0**-14, 2.0**-24, -1023 * 2.0**-24, 1 / 3]).half(),
        "brain": torch.tensor(edge + [3.0e38, 1.0e-40, 1 / 3]).bfloat16(),
        "double": torch.tensor(edge + [1e300, 1e-300, 1 / 3], dtype=torch.float64),
        "scalar": torch.tensor(42.5),
        "empty": torch.zeros(4, 0, 2),
        "größe/重み": torch.tensor([[-7], [8]], dtype=torch.int64),
        "mask": torch.tensor([True, False, True]),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "eight": torch.arange(2, dtype=torch.int16).reshape(1, 1, 1, 2, 1, 1, 1, 1),
    }


def check(path):
    with safe_open(path, "pt") as f:
        expected = tensors()
        assert f.metadata() == {"format": "pt"}, f.metadata()
        assert set(f.keys()) == set(expected), f.keys()
        for name, want in expected.items():
            got = f.get_tensor(name)
            assert got.dtype == want.dtype and got.shape == want.shape, (name, got)
            assert torch.equal(got.flatten().view(torch.uint8), want.flatten().view(torch.uint8)), (name, got)
    print(f"{path}: as expected")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", metavar="FILE")
    path = parser.parse_args().check
    if path:
        check(path)
    else:
        save_file(tensors(), "test/golden/mixed.safetensors", METADATA)
        save_file({}, "test/golden/empty.safetensors")


if __name__ == "__main__":
    main()
