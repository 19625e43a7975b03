#!/usr/bin/env python3
"""Makes test/golden/muon/*.safetensors: ten steps with Muon and AdamW on the model and the batch of test/golden/gpt2,
in PyTorch. Written after https://kellerjordan.github.io/posts/muon (Jordan et al. 2024) and Loshchilov & Hutter 2019,
and not after llmc/.

usage: muon.py     in a virtual environment with torch, transformers and safetensors; from the repository's root

plain.safetensors has the defaults of --optimizer muon at --lr 1e-3, cautious.safetensors other rates, decays, momenta,
clipping of AdamW's part, and cautious decay of both. Recorded for each: losses, norms before clipping, and the last
weights of h.2, ln_f and wpe, as Hugging Face has them.
"""
import math
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel

STEPS = 10
RUNS = {
    "plain": dict(embedding_lr=1e-3, matrix_lr=0.02, vector_lr=1e-3, embedding_decay=0.1, matrix_decay=0.01, clip=None,
                  warmup=(300, 0.85), cooldown=None, cautious=False),
    "cautious": dict(embedding_lr=2e-3, matrix_lr=0.03, vector_lr=5e-4, embedding_decay=0.2, matrix_decay=0.05,
                     clip=0.7, warmup=(4, 0.8), cooldown=(3, 0.9), cautious=True),
}


def newton_schulz(update):
    """Moves the singular values of a matrix near 1."""
    x = update / (update.norm() + 1e-7)
    wide = x if x.shape[0] <= x.shape[1] else x.T
    for _ in range(5):
        gram = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * gram + 2.0315 * gram @ gram) @ wide
    return wide if x.shape[0] <= x.shape[1] else wide.T


def decayed(weight, update, decay, cautious):
    return decay * weight * (update * weight >= 0) if cautious else decay * weight


def momentum_at(step, warmup, cooldown):
    momentum = 0.95
    if step < warmup[0]:
        momentum = warmup[1] + (momentum - warmup[1]) * step / warmup[0]
    left = STEPS - 1 - step
    if cooldown and left < cooldown[0]:
        momentum = cooldown[1] + (momentum - cooldown[1]) * left / cooldown[0]
    return momentum


def is_matrix(name):
    return name.startswith("transformer.h.") and (".attn.c_" in name or ".mlp.c_" in name) and name.endswith("weight")


def adamw_step(p, grad, state, step, lr, decay, cautious):
    m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
    m.mul_(0.9).add_(0.1 * grad)
    v.mul_(0.95).add_(0.05 * grad * grad)
    update = m / (1 - 0.9 ** (step + 1)) / ((v / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8)
    p.sub_(lr * (update + decayed(p, update, decay, cautious)))


def muon_step(p, grad, state, momentum, lr, decay, cautious):
    """p and grad are of a Conv1D, (in, out); Muon's matrices are (out, in), and c_attn is those of q, k and v."""
    m = state.setdefault("m", torch.zeros_like(p))
    m.mul_(momentum).add_((1 - momentum) * grad)
    nesterov = (1 - momentum) * grad + momentum * m
    parts = 3 if p.shape[1] == 3 * p.shape[0] else 1
    updates = []
    for part in nesterov.T.chunk(parts, dim=0):
        updates.append(math.sqrt(max(1, part.shape[0] / part.shape[1])) * newton_schulz(part))
    update = torch.cat(updates).T
    p.sub_(lr * (update + decayed(p, update, decay, cautious)))


def run(name, batch):
    r = RUNS[name]
    model = GPT2LMHeadModel.from_pretrained("test/golden/gpt2").float()
    states, losses, norms, out = {}, [], [], {}
    for step in range(STEPS):
        model.zero_grad()
        logits = model(batch["x"].long()).logits
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), batch["y"].long().view(-1))
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters())).item()
        factor = min(1.0, r["clip"] / norm) if r["clip"] else 1.0
        momentum = momentum_at(step, r["warmup"], r["cooldown"])
        with torch.no_grad():
            for key, p in model.named_parameters():
                state = states.setdefault(key, {})
                if is_matrix(key):
                    muon_step(p, p.grad, state, momentum, r["matrix_lr"], r["matrix_decay"], r["cautious"])
                else:
                    group = "vector" if p.dim() == 1 else "embedding"
                    decay = r["embedding_decay"] if p.dim() == 2 else 0
                    adamw_step(p, factor * p.grad, state, step, r[group + "_lr"], decay, r["cautious"])
        losses.append(loss.item())
        norms.append(norm)
    out["losses"], out["norms"] = torch.tensor(losses), torch.tensor(norms)
    for key, p in model.named_parameters():
        if any(part in key for part in (".h.2.", ".ln_f.", ".wpe.")):
            out[key.removeprefix("transformer.")] = p.detach().clone()
    save_file(out, f"test/golden/muon/{name}.safetensors")
    print(name, losses)


if __name__ == "__main__":
    for which in RUNS:
        run(which, load_file("test/golden/gpt2/recorded.safetensors"))
