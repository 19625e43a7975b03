#!/usr/bin/env python3
"""Times PyTorch's attention and matmuls at the shapes of GPT-2 124M, beside `train_gpt2cu bench ops` and `bench plans`.

usage: torch_ops.py [--device cuda|cpu] [-B SEQUENCES] [-T TOKENS]

Attention is causal, in bf16, with 12 heads of 64, by flash attention and by cuDNN, each with deterministic algorithms
asked for and without. "same bits" says if two backwards agree: an implementation may repeat its bits unasked, or not
although asked. TFLOP/s count the lower half of the scores. The matmuls are those of linear layers. Times are medians of
20 runs after 3. Where PyTorch refuses a case, its reason stands in place of the time, and the exit code is 1.
"""
import argparse
import statistics
import sys
import time

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as e:
    sys.exit(f"error: {e}: PYTHON=... names a Python with PyTorch 2.5 or later")

HEADS, HEAD = 12, 64


def milliseconds(function, device):
    times = []
    for _ in range(23):
        start = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[3:])


def attention(backend, deterministic, device, B, T):
    """Returns (name, ms, FLOPs, remark) of forward and of backward."""
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.backends.cudnn.deterministic = deterministic
    q, k, v, dout = (torch.randn(B, HEADS, T, HEAD, device=device, dtype=torch.bfloat16) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    flops = 2 * B * HEADS * T * T * HEAD
    with sdpa_kernel(backend):
        run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out = run()
        backward = lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)
        same = all(torch.equal(a, b) for a, b in zip(backward(), backward()))
        return [("forward", milliseconds(run, device), flops, ""),
                ("backward", milliseconds(backward, device), 2.5 * flops, "same bits" if same else "other bits")]


def matmul(m, n, k, is_gradient, device):
    """Returns the same of (m, k) x (k, n); of a weights' gradient both operands are stored transposed."""
    shapes = ((k, m), (k, n)) if is_gradient else ((m, k), (n, k))
    a, b = (torch.randn(*shape, device=device, dtype=torch.bfloat16) for shape in shapes)
    run = (lambda: a.t() @ b) if is_gradient else (lambda: a @ b.t())
    return [(f"m {m} n {n} k {k}", milliseconds(run, device), 2 * m * n * k, "")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("-B", type=int, default=64)
    p.add_argument("-T", type=int, default=1024)
    a = p.parse_args()
    cases = []
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for deterministic in (False, True):
            name = f"{backend.lower()}{', deterministic' if deterministic else ''}"
            cases.append((name, attention, (getattr(SDPBackend, backend), deterministic, a.device, a.B, a.T)))
    rows, C = a.B * a.T, HEADS * HEAD
    for name, m, n, k in [("qkv", rows, 3 * C, C), ("attproj", rows, C, C), ("fc", rows, 4 * C, C),
                          ("fcproj", rows, C, 4 * C), ("classifier", rows, 50304, C),
                          ("fc's gradient", 4 * C, C, rows)]:
        cases.append((name, matmul, (m, n, k, name.endswith("gradient"), a.device)))
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
          f"bf16, B {a.B}, T {a.T}, {torch.cuda.get_device_name() if a.device == 'cuda' else a.device}")
    refused = 0
    for name, function, arguments in cases:
        try:
            for part, ms, flops, remark in function(*arguments):
                print(f"{name:32} {part:28} {ms:9.3f} ms {flops / ms / 1e9:7.1f} TFLOP/s {remark}", flush=True)
        except RuntimeError as e:
            refused = 1
            print(f"{name:32} refused: {str(e).splitlines()[0]}", flush=True)
        torch.use_deterministic_algorithms(False)
    return refused


if __name__ == "__main__":
    sys.exit(main())
