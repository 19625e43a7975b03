#!/usr/bin/env python3
"""Times a training step of GPT-2 in this program and in PyTorch, in turn on the same machine, and gives their ratio.

Machines are shared and their clocks change, so contenders alternate (ours, PyTorch eager, PyTorch compiled, ours, ...),
each run a process of its own, and ratios are taken within a round. A run's time is the median of its steps after the
warm-up. Of PyTorch's two forms, the one with the better median over all rounds counts. The result is the median of the
rounds' ratios against that one. MFU is the same formula for all (gpt2_flops_per_token() in llmc/model/gpt2.c) over the
peak that our program prints: by data sheet on a GPU, measured on a CPU.

All train the same shape in the same precision on random tokens: forward, loss, backward, clipping to norm 1, AdamW,
50304 rows of vocabulary, no dropout, the same number of threads. PyTorch is Hugging Face's GPT2LMHeadModel with
PyTorch's fused attention (on a GPU flash attention in 16 bits), fused AdamW and, for bf16 and fp16, autocast, which
keeps weights in fp32, with a loss scaler for fp16. PyTorch alone has no training step in FP8: --dtype fp8 compares ours
with PyTorch's bf16, the record says so, and the MFU of both is relative to FP8's peak. A step ends when the device has
finished its work.

Also recorded: the time from starting a process to the end of its first step, with PyTorch's imports and compiling (its
cache of compiled kernels is not cleared: the first round may compile, later ones load); and the most memory of a
process: on a GPU the peak of PyTorch's allocator, and what our program allocates. The JSON file has every run's steps,
the command, the machine and the versions.

Examples:

  python3 dev/bench/peers.py --python VENV/bin/python                                         B 4, T 64: some minutes
  python3 dev/bench/peers.py --python VENV/bin/python -T 1024 --rounds 2 --warmup 1 --steps 2  10 to 20 s a step
  python3 dev/bench/peers.py --python VENV/bin/python --device cuda --dtype fp32 tf32 bf16 -B 16 -T 1024 --steps 20

With --llmc FOLDER, llm.c's CPU trainer takes its turn too; with --cpu avx2, PyTorch is limited to AVX2 as ours is.
Run it from the repository's root after `make`. VENV is a virtual environment with torch and transformers.
"""
import argparse
import fcntl
import itertools
import json
import os
import pathlib
import platform
import pty
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time

SIZES = {"d12": (12, 12, 768), "d24": (24, 16, 1024), "d36": (36, 20, 1280), "d48": (48, 25, 1600)}
VOCAB, ROWS = 50257, 50304


def size_of(model):
    """Returns (layers, heads, channels) of d12 or of L=6,H=6,C=384,T=256."""
    if model in SIZES:
        return SIZES[model]
    given = dict(re.findall(r"(\w+)=(\d+)", model))
    if not {"L", "H", "C"} <= given.keys() or given.get("V", str(VOCAB)) != str(VOCAB):
        sys.exit(f"error: --model {model}: give one of {', '.join(SIZES)}, or L=6,H=6,C=384,T=256, with GPT-2's tokens")
    return int(given["L"]), int(given["H"]), int(given["C"])


# ----------------------------------------------------------------------------------------------------------------------
# PyTorch's run: this file again, in the other Python


def pytorch_run(a):
    import torch
    import torch.nn.functional as F
    import transformers

    # transformers' own sdpa passes a mask when it is compiled by PyTorch before 2.14, which rules flash attention out
    def causal(module, q, k, v, attention_mask, **others):
        assert attention_mask is None
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("causal", causal)
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    torch.set_float32_matmul_precision("highest" if a.dtype == "fp32" else "high")
    layers, heads, channels = size_of(a.model)
    config = transformers.GPT2Config(vocab_size=ROWS, n_positions=max(1024, a.T), n_layer=layers, n_head=heads,
                                     n_embd=channels, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
                                     attn_implementation="causal")
    model = transformers.GPT2LMHeadModel(config).to(a.device)
    forward = torch.compile(model) if a.contender == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    scaler = torch.amp.GradScaler(a.device, enabled=a.dtype == "fp16")
    half = torch.float16 if a.dtype == "fp16" else torch.bfloat16
    tokens = torch.randint(0, VOCAB, (a.B, a.T + 1), device=a.device)
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    for _ in range(a.warmup + a.steps):
        start = time.perf_counter()
        with torch.autocast(a.device, half, enabled=a.dtype in ("bf16", "fp16")):
            logits = forward(x).logits
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)).float(), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        value = loss.item()
        if a.device == "cuda":
            torch.cuda.synchronize()
        print(f"step loss {value:.6f} | {1e3 * (time.perf_counter() - start):.2f} ms |", flush=True)
    on_gpu = a.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("facts " + json.dumps({
        "torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version(),
        "gpu": torch.cuda.get_device_name() if on_gpu else None, "peak_bytes": peak}))


def pytorch_dtype(dtype):
    return "bf16" if dtype == "fp8" else dtype


def pytorch_command(a, contender, dtype, B, T):
    return [a.python, __file__, "--contender", contender, "--device", a.device, "--dtype", pytorch_dtype(dtype),
            "--model", a.model, "-B", str(B), "-T", str(T), "--threads", str(a.threads), "--warmup", str(a.warmup),
            "--steps", str(a.steps)]


# ----------------------------------------------------------------------------------------------------------------------
# our run


def write_tokens(path, count):
    """Writes a shard of tokens without a pattern that a model could learn in a few steps."""
    tokens = [(i * 48271 + i // 7) % VOCAB for i in range(count)]
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))


def our_command(a, dtype, B, T, shard):
    program = [a.program] + (["--threads", str(a.threads), "--cpu", a.cpu] if a.device == "cpu" else [])
    return program + ["--dtype", dtype, "--model", a.model, "--recompute", a.recompute, "--batch_size", str(B),
                      "--seq_len", str(T), "--lr", "1e-4", "--schedule", "constant", "--max_steps",
                      str(a.warmup + a.steps), "--train_data", str(shard), "--val_data", "", "--out", "",
                      "--sample_every", "0", "--save_every", "0"]


# ----------------------------------------------------------------------------------------------------------------------
# llm.c's run


LLMC_COMMAND = ["./train_gpt2"]  # no options; it is ended when its steps are done
LLMC_SHAPE = ("cpu", "fp32", 4, 64)  # device, dtype, B, T: the only ones of llm.c's CPU trainer


# ----------------------------------------------------------------------------------------------------------------------
# running


def lines_of(command, env, errors, cwd, steps):
    """Runs a command; yields (seconds since the start, line) for each line as it comes, then (exit code, usage).

    Unless `steps` is None, ends the program after so many steps of llm.c's; its exit code is then 0.
    """
    ours, theirs = pty.openpty()  # a terminal, so that lines come at once; a wide one: narrow ones get shorter lines
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 250, 0, 0))
    start = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=errors, env=env, cwd=cwd)
    ended = False
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            break
        *lines, text = (text + piece).split(b"\n")
        for line in lines:
            line = line.decode(errors="replace").strip()
            yield time.monotonic() - start, line
            if steps is not None and LLMC_STEP.match(line):
                steps -= 1
                if steps == 0:
                    process.kill()
                    ended = True
    os.close(ours)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    yield 0 if ended else process.returncode, usage


OUR_STEP = re.compile(r"step .*?loss ([\d.]+|nan).*\| ([\d.]+) ms \|")  # PyTorch's too
LLMC_STEP = re.compile(r"step \d+: train loss ([\d.]+|nan) \(took ([\d.]+) ms\)")


def run(command, a, name):
    """Runs a contender; returns its result (step times, first step, memory, loss) and the facts that it printed."""
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    if a.cpu == "avx2":
        env.update(ATEN_CPU_CAPABILITY="avx2", DNNL_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")
    steps, losses, first, facts = [], [], None, {}
    with tempfile.TemporaryFile("w+") as errors:
        is_llmc = name == "llm.c"
        *lines, (code, usage) = lines_of(command, env, errors, a.llmc if is_llmc else None,
                                         a.warmup + a.steps if is_llmc else None)
        errors.seek(0)
        message = errors.read()
    for seconds, line in lines:
        step = (LLMC_STEP if is_llmc else OUR_STEP).match(line)
        if step and len(steps) < a.warmup + a.steps:
            first = first or seconds
            losses.append(float(step.group(1)))
            steps.append(float(step.group(2)))
        elif line.startswith("facts "):
            facts.update(json.loads(line[6:]))
    if code or len(steps) != a.warmup + a.steps:
        sys.exit(f"{' '.join(command)}: exit code {code}, {len(steps)} steps\n{message}")
    on_gpu = a.device == "cuda"
    peak = facts.pop("peak_bytes", None if on_gpu else usage.ru_maxrss * 1024)
    said = re.search(r"a peak of ([\d.e+]+) TFLOP/s; ([\d.]+) MiB", message)  # by our program
    if said:
        facts["peak_tflops"] = float(said.group(1))
        peak = peak or float(said.group(2)) * 2**20
    return {"ms": steps[a.warmup:], "first_step_s": round(first, 2), "peak_mib": peak and round(peak / 2**20, 1),
            "loss": losses[-1]}, facts


def flops_per_token(model, T):
    """Returns what gpt2_flops_per_token() does: 6 for each parameter, padding included, and 6 L C T."""
    layers, _, channels = size_of(model)
    parameters = layers * (12 * channels**2 + 13 * channels) + 2 * channels + (ROWS + max(1024, T)) * channels
    return 6 * parameters + 6 * layers * channels * T


def compare(a, dtype, B, T, shard):
    """Alternates the contenders at one shape and precision; returns the record and the facts that they printed."""
    names = ["ours"] + a.pytorch + (["llm.c"] if a.llmc else [])
    runs, facts, peak_flops = {name: [] for name in names}, {}, float("nan")
    for number in range(a.rounds):
        for name in runs:
            if name == "ours":
                command = our_command(a, dtype, B, T, shard)
            else:
                command = LLMC_COMMAND if name == "llm.c" else pytorch_command(a, name, dtype, B, T)
            result, said = run(command, a, name)
            if "peak_tflops" in said:
                peak_flops = 1e12 * said.pop("peak_tflops")
            facts.update(said)
            runs[name].append(result)
            peak = f", {result['peak_mib']:.0f} MiB" if result["peak_mib"] else ""
            ms = statistics.median(result["ms"])
            print(f"{dtype} B {B} T {T} round {number + 1}: {name:8} {ms:9.1f} ms a step, first done after "
                  f"{result['first_step_s']:.1f} s{peak}, loss {result['loss']:.3f}", flush=True)
    medians = {name: [statistics.median(r["ms"]) for r in results] for name, results in runs.items()}
    better = min(a.pytorch, key=lambda name: statistics.median(medians[name]))
    ratios = [theirs / ours for ours, theirs in zip(medians["ours"], medians[better])]
    llmc_ratios = [theirs / ours for ours, theirs in zip(medians["ours"], medians.get("llm.c", []))]
    tok_s = {name: round(B * T / statistics.median(ms) * 1e3, 1) for name, ms in medians.items()}
    record = {"dtype": dtype, "pytorch_dtype": pytorch_dtype(dtype), "B": B, "T": T, "better": better,
              "ratio": round(statistics.median(ratios), 3), "ratios": [round(r, 3) for r in ratios],
              "llmc_ratios": [round(r, 3) for r in llmc_ratios],
              "tok_s": tok_s, "peak_tflops": round(peak_flops / 1e12, 4),
              "mfu": {name: round(flops_per_token(a.model, T) * v / peak_flops, 4) for name, v in tok_s.items()},
              "peak_mib": {name: max((r["peak_mib"] or 0) for r in results) or None for name, results in runs.items()},
              "first_step_s": {name: min(r["first_step_s"] for r in results) for name, results in runs.items()},
              "runs": runs}
    return record, facts


def print_table(records):
    print("\n{:5} {:>4} {:>5}  {:9} {:>9} {:>6} {:>13} {:>15}  {}".format(
        "dtype", "B", "T", "", "tok/s", "MFU", "peak MiB", "first step s", "ratio"))
    for r in records:
        for name in r["runs"]:
            ratio = ""
            if name == "ours":
                ratio = f"{r['ratio']:.2f} ({min(r['ratios']):.2f} to {max(r['ratios']):.2f}) against {r['better']}"
                ratio += f" in {r['pytorch_dtype']}" if r["pytorch_dtype"] != r["dtype"] else ""
            print("{:5} {:4} {:5}  {:9} {:9.1f} {:5.1f}% {:>13} {:15.1f}  {}".format(
                r["dtype"], r["B"], r["T"], name, r["tok_s"][name], 100 * r["mfu"][name], r["peak_mib"][name] or "",
                r["first_step_s"][name], ratio))
    print_markdown(records)


def ratio_text(ratios):
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "one round"
    return f"{statistics.median(ratios):.2f} ({spread})"


def print_markdown(records):
    """Prints the rows of README's table."""
    has_llmc = any("llm.c" in r["runs"] for r in records)
    print("\n| | ours, tok/s | PyTorch, tok/s | ratio | ours, MiB | PyTorch, MiB |"
          + (" llm.c, tok/s | ratio |" if has_llmc else ""))
    print("|---|---|---|---|---|---|" + ("---|---|" if has_llmc else ""))
    mib = lambda value: f"{value:,.0f}" if value else ""
    for r in records:
        row = [f"{r['dtype']}, {r['B']} x {r['T']} tokens", f"{r['tok_s']['ours']:,.0f}",
               f"{r['tok_s'][r['better']]:,.0f}", ratio_text(r["ratios"]), mib(r["peak_mib"]["ours"]),
               mib(r["peak_mib"][r["better"]])]
        if has_llmc:
            row += [f"{r['tok_s']['llm.c']:,.0f}", ratio_text(r["llmc_ratios"])]
        print("| " + " | ".join(row) + " |")


# ----------------------------------------------------------------------------------------------------------------------
# the record


def version_of(program):
    """Returns the first line of its --version, which names the commit."""
    result = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return result.stdout.partition("\n")[0]


def machine(facts, load):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processor": cpu.group(1) if cpu else platform.processor(), "processors": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1),
            "system": platform.platform(), "gpu": facts.pop("gpu", None), "load_before": load}


def check_contenders(a):
    """Ends with the reason if one of them cannot run here, before minutes are spent on the other."""
    if not os.access(a.program, os.X_OK):
        name = os.path.basename(a.program)
        sys.exit(f"error: no {a.program} here: run `make {name}` in the repository's root, and this script there")
    if a.llmc and not os.access(os.path.join(a.llmc, "train_gpt2"), os.X_OK):
        sys.exit(f"error: no train_gpt2 in {a.llmc}: run `make train_gpt2` there")
    if a.llmc and any((a.device, *shape) != LLMC_SHAPE for shape in itertools.product(a.dtype, a.B, a.T)):
        sys.exit("error: --llmc: llm.c's CPU trainer takes B 4 and T 64 in fp32 alone")
    if a.json and not os.access(os.path.dirname(a.json) or ".", os.W_OK):
        sys.exit(f"error: cannot write {a.json}")
    test = ("import sys, torch, transformers; "
            "sys.exit(3 if sys.argv[1] == 'cuda' and not torch.cuda.is_available() else 0)")
    result = subprocess.run([a.python, "-c", test, a.device], capture_output=True, text=True)
    if result.returncode == 3:
        sys.exit(f"error: PyTorch in {a.python} finds no GPU: is there one (nvidia-smi), and is this a build of "
                 "PyTorch for CUDA?")
    if result.returncode:
        sys.exit(f"error: {a.python} has no torch and transformers that can be imported; --python names another\n"
                 f"{result.stderr.strip()}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", default=sys.executable, help="a Python with torch and transformers (default: this one)")
    p.add_argument("--pytorch", nargs="+", default=["eager", "compiled"], choices=["eager", "compiled"],
                   help="PyTorch's forms to run")
    p.add_argument("--program", help="ours (default: ./train_gpt2, for a GPU ./train_gpt2cu)")
    p.add_argument("--llmc", metavar="FOLDER", help="llm.c, built, with its starter pack: its trainer takes part")
    p.add_argument("--cpu", default="auto", help="instructions of our kernels; avx2 limits PyTorch's likewise")
    p.add_argument("--recompute", default="none", choices=["none", "gelu", "all"], help="our activations that backward "
                   "computes again")
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--dtype", nargs="+", default=["fp32", "bf16"], choices=["fp32", "tf32", "bf16", "fp16", "fp8"])
    p.add_argument("--model", default="d12", help="d12 to d48, or L=6,H=6,C=384,T=256")
    p.add_argument("-B", type=int, nargs="+", default=[4])
    p.add_argument("-T", type=int, nargs="+", default=[64])
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each contender (default: all)")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--warmup", type=int, default=2, help="steps that do not count")
    p.add_argument("--steps", type=int, default=5, help="steps that count")
    p.add_argument("--json", metavar="FILE", help="write the record there")
    p.add_argument("--contender", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.contender:
        a.dtype, a.B, a.T = a.dtype[0], a.B[0], a.T[0]
        return pytorch_run(a)
    a.program = a.program or ("./train_gpt2" if a.device == "cpu" else "./train_gpt2cu")
    if min(a.rounds, a.warmup, a.steps) < 1:
        p.error("--rounds, --warmup and --steps must be at least 1")
    for dtype in ("tf32", "fp8"):
        if a.device == "cpu" and dtype in a.dtype:
            p.error(f"--dtype {dtype} is a GPU's: give --device cuda")
    check_contenders(a)
    records, facts, load = [], {}, round(os.getloadavg()[0], 2)  # what others did in the last minute
    with tempfile.TemporaryDirectory() as folder:
        shard = pathlib.Path(folder) / "random.bin"
        for dtype, B, T in itertools.product(a.dtype, a.B, a.T):
            write_tokens(shard, B * T * (a.warmup + a.steps) + 1)
            record, said = compare(a, dtype, B, T, shard)
            records.append(record)
            facts.update(said)
    print_table(records)
    if a.json:
        options = [part for word in sys.argv[1:] for part in (word.split("=", 1) if word[:2] == "--" else [word])]
        for path in ("--python", "--program", "--llmc", "--json"):  # leaves out paths of this machine
            at = options.index(path) if path in options else len(options)
            options = options[:at] + options[at + 2:]
        record = {"kind": "peers", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                  "command": " ".join(["dev/bench/peers.py"] + options), "machine": machine(facts, load),
                  "threads": a.threads, "model": a.model, "warmup": a.warmup, "steps": a.steps,
                  "versions": dict(facts, gpt2_c=version_of(a.program)),
                  "results": records}
        pathlib.Path(a.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
