#!/usr/bin/env python3
"""Times a GPT-2 training step of this program and of PyTorch, in turn, on the same machine, and prints their ratio.

Machines are shared and their clocks change, so the two alternate (ours, PyTorch, ours, ...) and the ratio is taken pair by
pair; the median pair is the figure to quote. Each run is a process of its own: two warm-up steps, then --steps timed ones,
of which the median counts. Both train the same model in the same precision on random tokens: forward, loss, backward,
clipping to norm 1, AdamW. PyTorch's bf16 is autocast, with weights in fp32, as in the lecture.

usage: peers.py [--device cpu|cuda] [--dtype fp32|tf32|bf16] [--model d12] [-B 4] [-T 64] [--threads 2] [--rounds 5]
                [--steps 5] [--compile] [--json FILE]
needs a virtual environment with torch and transformers; run it from the repository's root, after `make`.
"""
import argparse
import json
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SIZES = {"d12": (12, 12, 768), "d24": (24, 16, 1024), "d36": (36, 20, 1280), "d48": (48, 25, 1600)}
WARMUP = 2


def pytorch_step(a):
    import torch
    import torch.nn.functional as F
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    torch.set_float32_matmul_precision("highest" if a.dtype == "fp32" else "high")
    layers, heads, channels = SIZES[a.model]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50304, n_positions=1024, n_layer=layers, n_head=heads, n_embd=channels,
                                       resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="sdpa")).to(a.device)
    forward = torch.compile(model) if a.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 50257, (a.B, a.T + 1), device=a.device)
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    ms = []
    for i in range(WARMUP + a.steps):
        start = time.perf_counter()
        with torch.autocast(a.device, torch.bfloat16, enabled=a.dtype == "bf16"):
            logits = forward(x).logits
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)).float(), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # waits for the device
        ms.append(1e3 * (time.perf_counter() - start))
    machine = torch.cuda.get_device_name() if a.device == "cuda" else ""
    print(json.dumps({"ms": ms[WARMUP:], "version": torch.__version__, "machine": machine}))


def run(command):
    """The standard output of a command that must succeed."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr}")
    return result.stdout


def ours(a, shard):
    device = ["./train_gpt2", "--threads", str(a.threads)] if a.device == "cpu" else ["./train_gpt2cu"]
    out = run(device + ["--dtype", a.dtype, "--model", a.model, "--batch_size", str(a.B), "--seq_len", str(a.T), "--max_steps", str(WARMUP + a.steps),
                        "--train_data", shard, "--val_data", "", "--out", "", "--sample_every", "0", "--save_every", "0"])
    return [float(ms) for ms in re.findall(r"\| ([\d.]+) ms \|", out)][WARMUP:]


def pytorch(a):
    flags = ["--compile"] if a.compile else []
    out = run([sys.executable, __file__, "--pytorch", "--device", a.device, "--dtype", a.dtype, "--model", a.model, "-B", str(a.B), "-T", str(a.T), "--threads",
               str(a.threads), "--steps", str(a.steps)] + flags)
    answer = json.loads(out.splitlines()[-1])
    return answer


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", default="fp32", choices=["fp32", "tf32", "bf16"])
    p.add_argument("--model", default="d12", choices=sorted(SIZES))
    p.add_argument("-B", type=int, default=4)
    p.add_argument("-T", type=int, default=64)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--pytorch", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.pytorch:
        return pytorch_step(a)
    rounds, version = [], ""
    with tempfile.TemporaryDirectory() as folder:
        shard = folder + "/random.bin"
        count = a.B * a.T * (WARMUP + a.steps) + 1
        tokens = [(i * 48271 + i // 7) % 50257 for i in range(count)]
        pathlib.Path(shard).write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))
        for i in range(a.rounds):
            mine = statistics.median(ours(a, shard))
            answer = pytorch(a)
            theirs, version, gpu = statistics.median(answer["ms"]), answer["version"], answer["machine"]
            rounds.append({"ours_ms": round(mine, 1), "pytorch_ms": round(theirs, 1), "ratio": round(theirs / mine, 3)})
            print(f"round {i + 1}: ours {mine:.0f} ms, PyTorch {theirs:.0f} ms, ours is {theirs / mine:.2f}x as fast", flush=True)
    ratio = statistics.median(r["ratio"] for r in rounds)
    tokens_per_step = a.B * a.T
    print(f"median of {a.rounds} pairs: {ratio:.2f}x; ours {tokens_per_step / min(r['ours_ms'] for r in rounds) * 1e3:.0f} tok/s at best, "
          f"PyTorch {version} {tokens_per_step / min(r['pytorch_ms'] for r in rounds) * 1e3:.0f} tok/s")
    if a.json:
        cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        pathlib.Path(a.json).write_text(json.dumps({
            "date": time.strftime("%Y-%m-%d"), "machine": gpu or (cpu.group(1) if cpu else "unknown"), "threads": a.threads,
            "command": " ".join(["dev/bench/peers.py"] + sys.argv[1:]), "model": a.model, "B": a.B, "T": a.T, "dtype": a.dtype,
            "compile": a.compile, "torch": version, "median_ratio": ratio, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
