#!/usr/bin/env python3
"""Writes what NVIDIA's own model says about GPT-2's matmuls: dev/bench/results/predicted/matmuls.csv.

usage: pip download nvidia-matmul-heuristics==0.1.0.27 && unzip nvidia_matmul_heuristics-*.whl -d FOLDER
       python3 dev/bench/matmuls.py FOLDER

For development alone: a test holds llmc/bench/matmul_model.c against this table. The programs need neither Python nor
this package. Needs no GPU.

A row is a product of GPT-2 124M (64 x 1024 tokens) or 1558M (16 x 1024), or the fastest published matmul of a GPU
("best"): rows x cols of the output, the depth of the sum, the time in microseconds, the tile and the splits of the
depth that the model picks. It assumes the highest clock, the data sheet's bandwidth, 10 microseconds for each launch,
and that a matmul reads its output before it writes it.
"""
import os
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
sys.path.insert(0, sys.argv[1])
from nvMatmulHeuristics import (NvMatmulHeuristicsFlags as Flags, NvMatmulHeuristicsInterfaceEx as Interface,
                                NvMatmulHeuristicsMatmulLayout as Layout, NvMatmulHeuristicsNvidiaGpu as Gpu,
                                NvMatmulHeuristicsTarget as Target)

OUT = os.path.join(os.path.dirname(__file__), "results/predicted/matmuls.csv")
GPUS = {"A100": (Gpu.A100_SXM_80GB, Target.CUTLASS), "H100": (Gpu.H100_SXM, Target.CUTLASS3),
        "H200": (Gpu.H200_SXM, Target.CUTLASS3), "B200": (Gpu.B200, Target.CUTLASS3)}
MODELS = {"124m": (768, 64), "1558m": (1600, 16)}  # channels, sequences
VOCABULARY, T = 50304, 1024
# Types of factors and output: forward, gradient of the input, gradient of the weight. T: bf16, S: fp32, F: tf32,
# Q: E4M3, R: E5M2.
TYPES = {"bf16": ("TST", "TST", "TSS"), "tf32": ("SFS", "SFS", "SFS"), "fp8": ("QQTST", "RQTST", "RQSSS")}
LAYOUTS = (Layout.TN_COL_MAJOR, Layout.NN_COL_MAJOR, Layout.NT_COL_MAJOR)  # as cuBLASLt sees row-major matrices
BEST = {("A100", "bf16"): (1024, 10240, 5120), ("H100", "bf16"): (2048, 2048, 13312),
        ("B200", "bf16"): (1792, 16128, 3072), ("H100", "fp8"): (1024, 9216, 14336),
        ("H200", "fp8"): (1280, 4096, 12032), ("B200", "fp8"): (15360, 4096, 3072)}


def products(channels, sequences, chunk):
    """Yields the products of a model: a name, which of TYPES, and rows, cols, depth. Equal ones come once."""
    tokens = sequences * T
    for name, i, o in (("qkv", 1, 3), ("attproj", 1, 1), ("fc", 1, 4)):
        inp, out = i * channels, o * channels
        yield name + " forward", 0, tokens, out, inp
        yield name + " input", 1, tokens, inp, out
        yield name + " weight", 2, out, inp, tokens
    yield "classifier forward", 0, chunk, VOCABULARY, channels
    yield "classifier input", 1, chunk, channels, VOCABULARY
    yield "classifier weight", 2, VOCABULARY, channels, chunk


def row(interface, gpu, dtype, model, name, kind, rows, cols, depth):
    # In column-major order the output is its transpose: cols x rows.
    layout = LAYOUTS[0] if dtype == "fp8" else LAYOUTS[kind]
    problem = interface.makeNvMatmulHeuristicsProblem(cols, rows, depth, layout)
    best = min(interface.get(problem, 8, precision=TYPES[dtype][kind]), key=lambda x: x["runtime"])
    kernel = best["kernel"]
    return (gpu, dtype, model, name, rows, cols, depth, "%.1f" % (1e6 * best["runtime"]), kernel.cta_tile_n,
            kernel.cta_tile_m, kernel.split_k)


def main():
    lines = ["gpu,dtype,model,product,rows,cols,depth,us,tile_rows,tile_cols,splits"]
    for gpu, (number, target) in GPUS.items():
        interface = Interface(backend=target, flags=Flags.PERF_MODEL_BASED_AUTO_TUNING, gpu=number)
        for dtype in TYPES:
            if (gpu, dtype) == ("A100", "fp8"):
                continue
            for model, (channels, sequences) in MODELS.items():
                for p in products(channels, sequences, 4096 if dtype == "tf32" else 8192):
                    if dtype == "fp8" and p[0].startswith("classifier"):
                        continue  # it stays in bf16
                    lines.append(",".join(map(str, row(interface, gpu, dtype, model, *p))))
            if (gpu, dtype) in BEST:
                lines.append(",".join(map(str, row(interface, gpu, dtype, "best", "fastest", 0, *BEST[gpu, dtype]))))
    with open(OUT, "w") as file:
        file.write("\n".join(lines) + "\n")
    print("%s: %d rows" % (OUT, len(lines) - 1))


main()
