#!/usr/bin/env python3
"""Predicts training on NVIDIA GPUs: tokens per second, hours and price, each as a range. Needs no GPU.

usage: python3 dev/bench/predict.py GPU [--gpus N] [--link GB/S] [--price DOLLARS] [--offload optimizer]
                                        [OPTION OF bench step...]
       python3 dev/bench/predict.py --published          against steps that others published; exit code 1: one is missed
       python3 dev/bench/predict.py --page               prints dev/bench/results/predicted.md

GPU is a name of llmc/cuda/gpus.h, "H100 SXM" for instance. --price is of one GPU for an hour. Unless they are given,
a step has 524,288 tokens (--total_batch_size) in micro-batches of 16 sequences, in bf16, or in fp16 on Turing.

    python3 dev/bench/predict.py h100 --gpus 8 --preset gpt2:124m
    python3 dev/bench/predict.py t4 --model d12 --seq_len 512 --total_batch_size 65536 --max_steps 1000

`./train_gpt2 bench step` lists the operations of the step, with their arithmetic and the bytes that they must move. An
operation takes the longer of two times: its FLOPs at a part of the data sheet's peak, and its bytes at a part of its
bandwidth. To each run a time to start it is added. The parts are assumed, once low and once high, so that the published
steps of llm.c lie between the two. It is not checked that the micro-batch fits: `./train_gpt2 info --batch_size B`.

Several GPUs share a step's tokens, and the update (--zero 1). Their gradients are reduced and their weights gathered
over a link of a given bus bandwidth. Backward hides no gradients, or as many as the backward of one micro-batch can,
but never those of the embeddings, the last to be final. Nothing hides the weights.

--offload optimizer adds the copies of masters and moments, both ways at once, over the 16 lanes of PCI Express that
each GPU has to itself. The update goes on beside them and hides its own time of theirs; backward hides nothing.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# The parts of the data sheet's figures that are reached: low, high; before Hopper, and from Hopper on. Large matmuls
# alone were measured at 0.87 of the peak on an A100, 0.80 on an H100, 0.78 on a B200 (S. Bekman, Machine Learning
# Engineering, "Maximum Achievable Matmul FLOPS"). Attention forward on an H100, with a causal mask, heads of 64 and
# T 1024, reaches 0.23 with FlashAttention-2, 0.27 with cuDNN, 0.29 with FlashAttention-3 (Shah et al. 2024). Ours is
# made as the first is. Backward, 5/7 of the arithmetic, reaches less; the low part allows for a deterministic one.
PARTS = {
    "matmul": ((0.60, 0.75), (0.46, 0.60)),
    "attention": ((0.28, 0.45), (0.15, 0.26)),
    "memory": ((0.65, 0.85), (0.65, 0.85)),
}
LIMITED = {"Tesla T4": 0.5}  # its 70 W let matmuls reach half of that part (forums.developer.nvidia.com/t/264462)
START_US = (4, 1)            # to start an operation: several kernels one by one, or from a graph
PCIE_GB_S = {3: 15.75, 4: 31.5, 5: 63}  # 16 lanes each way, by generation: 8, 16, 32 GT/s in a code of 128 of 130 bits
PCIE_PARTS = (0.6, 0.85)     # of it that large copies of pinned memory reach, both ways at once; assumed, not measured
LINK_GB_S = 200              # bus bandwidth between GPUs of one machine
PRICES = {"A100": 1.75, "H100": 3.5}  # dollars an hour, llm.c's: 14 and 28 for eight

# Steps that llm.c took on eight GPUs, by the heads of its scripts (run_gpt2_124M.sh, 350M, 774M, 1558M); on H100s 124M
# and 350M by its records in modded-nanogpt: 19,560 steps in 45.6 minutes, 60,000 in 5.8 hours.
PUBLISHED = [
    # GPU, model, sequences in a micro-batch, tokens, ms
    ("A100 SXM 80GB", "d12", 64, 524288, 300), ("H100 SXM", "d12", 64, 524288, 140),
    ("A100 SXM 80GB", "d24", 64, 524288, 820), ("H100 SXM", "d24", 64, 524288, 348),
    ("A100 SXM 80GB", "d36", 32, 524288, 1700), ("H100 SXM", "d48", 16, 1048576, 2750),
]


def plain(name):
    return re.sub("[^a-z0-9]", "", name.lower())


def read_gpus():
    """Returns the table of data sheets, llmc/cuda/gpus.h."""
    fields = ("name", "alias", "major", "fp32", "tf32", "half", "fp8", "memory")
    rows = re.findall(r'\{"([^"]+)", "([^"]+)", ' + ", ".join([r"([\d.]+)"] * 6) + r"\}",
                      (ROOT / "llmc/cuda/gpus.h").read_text())
    return [dict(zip(fields, row[:2] + tuple(map(float, row[2:])))) for row in rows]


def find_gpu(asked):
    """Returns the GPU of this name or alias, else the first whose alias contains it."""
    gpus = read_gpus()
    exact = [g for g in gpus if plain(asked) in (plain(g["name"]), plain(g["alias"]))]
    near = [g for g in gpus if plain(asked) and plain(asked) in plain(g["alias"])]
    if not exact + near:
        sys.exit("error: '%s' is not a GPU of llmc/cuda/gpus.h; give one of: %s"
                 % (asked, ", ".join(g["alias"] for g in gpus)))
    return (exact + near)[0]


def peak(gpu, dtype):
    """Returns the FLOP/s of a --dtype by data sheet."""
    if dtype == "fp8":
        sys.exit("error: --dtype fp8: no step is published to hold a prediction against; measure it: bench ladder")
    no_bf16 = dtype == "bf16" and gpu["major"] < 8
    tflops = 0 if no_bf16 else gpu[{"bf16": "half", "fp16": "half"}.get(dtype, dtype)]
    if not tflops:
        sys.exit("error: --dtype %s: the %s has no matmuls of that type" % (dtype, gpu["alias"]))
    return 1e12 * tflops


def record(program, gpu, options):
    """Returns the step that `bench step` lists with these options."""
    given = {o.split("=")[0].lstrip("-") for o in options if o.startswith("--")}
    defaults = {"dtype": "bf16" if gpu["major"] >= 8 else "fp16", "batch_size": "16"}
    if not given & {"preset", "total_batch_size"}:
        defaults["total_batch_size"] = "524288"
    for name in sorted(set(defaults) - given):
        options = options + ["--" + name, defaults[name]]
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run([program, "bench", "step", *options, "--out", folder], stdout=subprocess.DEVNULL).returncode:
            sys.exit(2)  # it said why
        return json.loads((Path(folder) / "step.json").read_text())


def part_of(name):
    """Returns the part of a step that an operation belongs to."""
    if name in ("norm_squared", "adamw_update", "muon_update"):
        return "update"
    for word, part in (("classifier", "classifier"), ("attention", "attention"), ("matmul", "linear layers")):
        if word in name:
            return part
    return "other"


def op_seconds(gpu, dtype, op, end):
    """Returns the seconds of all runs of an operation. end: 0 by the low parts, 1 by the high ones."""
    part = {kind: PARTS[kind][gpu["major"] >= 9][end] for kind in PARTS}
    seconds = (op["bytes_read"] + op["bytes_written"]) / (1e9 * gpu["memory"] * part["memory"])
    if part_of(op["name"]) not in ("other", "update") or op["name"] == "muon_update":  # it multiplies matrices
        reached = part["attention" if "attention" in op["name"] else "matmul"] * LIMITED.get(gpu["name"], 1)
        seconds = max(seconds, op["flops"] / (peak(gpu, dtype) * reached))
    return seconds + op["runs"] * 1e-6 * START_US[end]


def predict(gpu, step, gpus, link, end):
    """Returns the milliseconds of a step by parts, without what is hidden."""
    ms = {}
    for op in step["ops"]:
        part = part_of(op["name"])
        ms[part] = ms.get(part, 0) + 1e3 * op_seconds(gpu, step["options"]["dtype"], op, end) / gpus
    if gpus > 1:
        # each parameter's gradient, 4 bytes, is reduce-scattered, and its new value all-gathered
        gradients = 1e-6 * (gpus - 1) / gpus * 4 * step["model"]["parameters"] / link
        weights = gradients * step["element_bytes"] / 4
        micro_batches = step["options"]["total_batch_size"] / (step["model"]["B"] * step["model"]["T"]) / gpus
        backward = 2 / 3 * (sum(ms.values()) - ms["update"]) / max(1, micro_batches)
        model = step["model"]
        last = gradients * (model["V"] + model["T"]) * model["C"] / model["parameters"]
        ms["all-reduce"] = weights + last + max(0, gradients - last - backward * end)
    return ms


def span(form, low, high):
    return (form + " to " + form) % (low, high)


def cudnn_workspace(gpu, step, gpus):
    """Prints the time to write and read what cuDNN's deterministic backward stores on Hopper, before 9.25: the
    gradients of all scores, of which a causal mask may leave out half."""
    model, rows = step["model"], -(-step["model"]["T"] // 64) * 64
    gigabytes = 2e-9 * model["B"] * model["NH"] * rows * rows
    runs = sum(op["runs"] for op in step["ops"] if op["name"] == "attention_backward") / gpus
    low, high = (1e3 * runs * gigabytes * halves / (gpu["memory"] * part)
                 for halves, part in zip((1, 2), PARTS["memory"][1][::-1]))
    print("by cuDNN, deterministic: a workspace of %.1f GB, for %s ms of attention's"
          % (gigabytes, span("%.1f", low, high)))


def report(gpu, step, gpus, link, price):
    """Prints the prediction; returns the slow and the fast step in milliseconds."""
    dtype, tokens, steps = (step["options"][k] for k in ("dtype", "total_batch_size", "max_steps"))
    hopper, model = gpu["major"] >= 9, step["model"]
    slow, fast = (predict(gpu, step, gpus, link, end) for end in (0, 1))
    most, least = sum(slow.values()), sum(fast.values())
    mfu = [100 * step["mfu_flops"] / (1e-3 * ms * gpus * peak(gpu, dtype)) for ms in (most, least)]
    print("PREDICTED, not measured: %s, %s, %d tokens a step, on %d x %s" % (model["name"], dtype, tokens, gpus,
                                                                          gpu["name"]))
    print("assumed: of %.0f TFLOP/s, matmuls %s, attention %s; of %.0f GB/s %s; %s us to start an operation%s" % (
        peak(gpu, dtype) / 1e12, span("%.2f", *PARTS["matmul"][hopper]), span("%.2f", *PARTS["attention"][hopper]),
        gpu["memory"], span("%.2f", *PARTS["memory"][hopper]), span("%d", *START_US[::-1]),
        "; a link of %g GB/s, --zero 1" % link if gpus > 1 else ""))
    for part in fast:
        print("  %-14s %s ms" % (part, span("%8.1f", fast[part], slow[part])))
    print("step           %s ms, MFU %s%%" % (span("%8.1f", least, most), span("%.0f", *mfu)))
    print("tokens/s       %s" % span("%8.0f", 1e3 * tokens / most, 1e3 * tokens / least))
    if gpu["major"] == 9 and dtype not in ("fp32", "tf32"):
        cudnn_workspace(gpu, step, gpus)
    if steps > 0:
        hours = [steps * ms / 3.6e6 for ms in (least, most)]
        dollars = ["" if price is None else ", $" + span("%.0f", *(h * price * gpus for h in hours))
                   + " at $%g for a GPU's hour" % price]
        print("%d steps: %s hours%s" % (steps, span("%.1f", *hours), dollars[0]))
    return most, least


def state_bytes(step):
    """Returns the bytes of masters and moments. In fp32 the masters are weights; Muon's matrices have one moment."""
    model, n = step["model"], step["model"]["parameters"]
    matrices = 12 * model["L"] * model["C"] ** 2 if step["options"]["optimizer"] == "muon" else 0
    return 4 * (n * (2 + (step["element_bytes"] < 4)) - matrices)


def report_offload(gpu, step, gpus, link):
    """Prints what --offload optimizer adds to a step, for each generation of PCI Express."""
    gigabytes = 1e-9 * state_bytes(step) / gpus
    steps = [sum(predict(gpu, step, gpus, link, end).values()) for end in (1, 0)]  # the fast one first
    updates = [1e3 / gpus * sum(op_seconds(gpu, step["options"]["dtype"], op, end) for op in step["ops"]
                                if op["name"] in ("adamw_update", "muon_update")) for end in (1, 0)]
    print("--offload optimizer: %.1f GB each way in a step, at %s of the link" % (gigabytes, span("%.2f", *PCIE_PARTS)))
    for generation, rate in PCIE_GB_S.items():
        copies = [1e3 * gigabytes / (rate * part) for part in PCIE_PARTS[::-1]]
        hidden = [min(pair) for pair in zip(copies, updates)]
        with_copies = [ms + copy - part for ms, copy, part in zip(steps, copies, hidden)]
        print("  PCIe %d: copies %s ms, of which the update hides %s; step %s ms" % (
            generation, span("%.0f", *copies), span("%.0f", *hidden), span("%.0f", *with_copies)))


def price_of(gpu):
    return next((price for name, price in PRICES.items() if gpu["alias"].startswith(name)), None)


def step_ms(gpu, step, gpus):
    """Returns the milliseconds of a step, the fast and the slow."""
    return [sum(predict(gpu, step, gpus, LINK_GB_S, end).values()) for end in (1, 0)]


def published(program):
    """Prints llm.c's steps beside the predicted ones; returns how many are outside of the range."""
    missed = 0
    print("%-14s %-6s %13s %20s" % ("8 GPUs", "model", "published, ms", "predicted, ms"))
    for name, model, B, tokens, ms in PUBLISHED:
        gpu = find_gpu(name)
        step = record(program, gpu, ["--model", model, "--batch_size", str(B), "--total_batch_size", str(tokens),
                                     "--residual", "bf16"])
        fast, slow = step_ms(gpu, step, 8)
        inside = fast <= ms <= slow
        missed += not inside
        print("%-14s %-6s %13.0f %20s%s" % (name, model, ms, span("%.0f", fast, slow), "" if inside else "  MISSED"))
    return missed


def page(program):
    """Prints the page of predictions."""
    gpus = [find_gpu(name) for name in ("A100 SXM 80GB", "H100 SXM", "H200 SXM", "B200")]
    print("# Predictions\n\nNot measurements. `python3 dev/bench/predict.py --page` prints this page; the head of\n"
          "[predict.py](../predict.py) has the method, its command line any other case.\n\n"
          "Tokens per second on one GPU, in thousands, in bf16, steps of 524,288 tokens:\n")
    print("| | " + " | ".join(gpu["alias"] for gpu in gpus) + " |\n|" + "---|" * (len(gpus) + 1))
    for model, B, more in (("d12", 64, []), ("d12", 64, ["--residual", "bf16"]), ("d24", 32, []), ("d36", 16, []),
                           ("d48", 16, [])):
        step = record(program, gpus[0], ["--model", model, "--batch_size", str(B)] + more)
        speeds = [span("%.0f", *(step["options"]["total_batch_size"] / ms for ms in step_ms(gpu, step, 1)[::-1]))
                  for gpu in gpus]
        print("| %s | " % " ".join(["`" + model + "`"] + ["`%s`" % " ".join(more)] * bool(more))
              + " | ".join(speeds) + " |")
    print("\nAn estimate by hand, kernel by kernel, of `d12` with our attention: A100 200 to 222, H100 450 to 510,\n"
          "H200 490 to 550; on an H100 with cuDNN's, deterministic, 455 to 520. 600 there would need\n"
          "`--residual bf16`, `--attention cudnn --deterministic 0`, and faster matmuls of K = 768 together.\n\n"
          "Measured in steps of 131,072 tokens, `d12`, `d24`, `d36`, `d48`: [one H100](gpu/h100.txt) 560, 202, 95.7,\n"
          "50.1; [one H200](gpu/h200.txt) 578, 210, 101, 52.5. Predicted for these steps: H100 426 to 584,\n"
          "152 to 208, 72 to 99, 38 to 51; H200 441 to 606, 157 to 216, 75 to 102, 39 to 52.4.")
    print("\nHours and dollars of the presets on eight GPUs, at $14 and $28 an hour; a growing batch takes longer.\n"
          "124M in micro-batches of 64 sequences:\n")
    print("| | steps | 8 x A100: hours | $ | 8 x H100: hours | $ |\n|---|---|---|---|---|---|")
    for preset in ["%s:%s" % (family, size) for size in ("124m", "350m", "774m", "1558m")
                   for family in ("gpt2", "fast", "muon")]:
        step = record(program, gpus[0], ["--preset", preset] + ["--batch_size", "64"] * preset.endswith("124m"))
        steps, cells = step["options"]["max_steps"], []
        for gpu in gpus[:2]:
            hours = [steps * ms / 3.6e6 for ms in step_ms(gpu, step, 8)]
            cells += [span("%.1f", *hours), span("%.0f", *(h * 8 * price_of(gpu) for h in hours))]
        print("| `%s` | %d | " % (preset, steps) + " | ".join(cells) + " |")
    print("\nllm.c's steps on eight GPUs, which the range was made to hold (`--published`):\n\n```")
    published(program)
    print("```")


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--link", type=float, default=LINK_GB_S)
    parser.add_argument("--price", type=float)
    parser.add_argument("--offload", choices=["none", "optimizer"], default="none")
    parser.add_argument("--program", default=str(ROOT / "train_gpt2"))
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--help", action="help")
    parser.add_argument("gpu", nargs="?")
    args, options = parser.parse_known_args()
    if args.published:
        sys.exit(1 if published(args.program) else 0)
    if args.page:
        page(args.program)
        sys.exit(0)
    if not args.gpu:
        sys.exit(__doc__)
    if args.gpus < 1 or args.link <= 0:
        parser.error("give --gpus of at least 1, and a --link of more than 0 GB/s")
    gpu = find_gpu(args.gpu)
    step = record(args.program, gpu, options)
    report(gpu, step, args.gpus, args.link, price_of(gpu) if args.price is None else args.price)
    if args.offload == "optimizer":
        report_offload(gpu, step, args.gpus, args.link)


main()
