#!/usr/bin/env python3
"""Makes test/golden/gpt2/: a small GPT2LMHeadModel as transformers saves it, and what PyTorch computes with it.

usage: gpt2.py            in a virtual environment with torch, transformers and safetensors; from the repository's root
       gpt2.py --compare FOLDER    loads a checkpoint of this project with transformers and prints the loss of the
                                   recorded batch, to be compared with `train_gpt2 eval`; exits 1 if weights are missing

recorded.safetensors: x, y (B,T); logits, loss; grad.NAME of every tensor, of the mean loss; and of ten AdamW steps on the
same batch (lr 1e-3, betas 0.9 0.95, eps 1e-8, decay 0.1 of matrices only, clipped to norm 1): their losses and norms.
"""
import sys
import torch
import torch.nn.functional as F
from safetensors.torch import save_file, load_file
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = "test/golden/gpt2"
B, T = 3, 17


def loss_of(model, x, y):
    logits = model(x).logits
    return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def make():
    torch.manual_seed(1)
    # nothing divides anything: rows, heads, vocabulary and sequence all have tails
    config = GPT2Config(vocab_size=269, n_positions=19, n_layer=3, n_head=3, n_embd=36, bos_token_id=268, eos_token_id=268,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config).float()
    with torch.no_grad():  # biases and layernorms away from 0 and 1, so that their use is tested
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(0.1 * torch.randn_like(p))
            else:
                p.mul_(4)
    model.save_pretrained(FOLDER)
    tokens = torch.randint(0, 269, (B, T + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    logits, loss = loss_of(model, x, y)
    loss.backward()
    out = {"x": x.int(), "y": y.int(), "logits": logits.detach().clone(), "loss": loss.detach().reshape(1)}
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad.clone()

    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for _ in range(10):
        optimizer.zero_grad()
        _, loss = loss_of(model, x, y)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    out["losses"], out["norms"] = torch.tensor(losses), torch.tensor(norms)
    save_file(out, FOLDER + "/recorded.safetensors")
    print("losses", losses)


def compare(folder):
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    problems = [f"{k}: {v}" for k, v in info.items() if v]
    recorded = load_file(FOLDER + "/recorded.safetensors")
    logits, loss = loss_of(model.eval(), recorded["x"].long(), recorded["y"].long())
    print("loss %.7f, largest difference of logits to the recorded model's %.3g" % (loss, (logits - recorded["logits"]).abs().max()))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    compare(sys.argv[2]) if sys.argv[1:2] == ["--compare"] else make()
