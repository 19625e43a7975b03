#!/usr/bin/env python3
"""Makes test/golden/gpt2/inspect.json: what transformers computes inside the model of test/golden/gpt2 (gpt2.py), in
double precision: losses, the likeliest tokens, the logit lens, norms of the residual stream, attention, losses without
each head, attention and MLP, and the nearest tokens of the embedding. Arrays have the shapes of llmc/inspect/inspect.h.

usage: inside.py          in a virtual environment with torch and transformers; from the repository's root
"""
import json
import torch
from transformers import GPT2LMHeadModel

FOLDER = "test/golden/gpt2"
TEXT, BEST = "the fox, the", 5

model = GPT2LMHeadModel.from_pretrained(FOLDER, attn_implementation="eager").double().eval()
NH, C = model.config.n_head, model.config.n_embd
ids = torch.tensor([list(TEXT.encode())])


def losses():
    logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return (-logprobs.gather(1, ids[0, 1:, None]))[:, 0]


def losses_without(module, hook):
    handle = hook(module)
    result = losses()
    handle.remove()
    return result


def head_off(h):
    """Zeroes a head's share of the input of the output projection."""
    def zero(_, args):
        x = args[0].clone()
        x[..., h * C // NH:(h + 1) * C // NH] = 0
        return (x,)
    return lambda module: module.register_forward_pre_hook(zero)


def off(module):
    return module.register_forward_hook(lambda _, args, output: torch.zeros_like(output))


def best(values):
    top = values.topk(BEST)
    return {"ids": top.indices.tolist(), "values": numbers(top.values)}


def numbers(x):
    return [float("%.9g" % v) for v in x.flatten().tolist()]


with torch.no_grad():
    out = model(ids, output_hidden_states=True, output_attentions=True)
    stream = [h[0] for h in out.hidden_states]  # the last one is behind ln_f: take it before
    before = []
    handle = model.transformer.ln_f.register_forward_pre_hook(lambda _, args: before.append(args[0][0]))
    model(ids)
    handle.remove()
    stream[-1] = before[0]
    lens = [model.lm_head(model.transformer.ln_f(h)).log_softmax(-1).max(-1) for h in stream]
    without = []
    for block in model.transformer.h:
        without += [losses_without(block.attn.c_proj, head_off(h)) for h in range(NH)]
        without += [losses_without(block.attn.c_proj, off), losses_without(block.mlp.c_proj, off)]
    wte = torch.nn.functional.normalize(model.transformer.wte.weight, dim=1)
    cosines = wte[ids[0]] @ wte.T
    cosines[range(len(TEXT)), ids[0]] = -2  # itself last
    facts = {"text": TEXT, "losses": numbers(losses()), "without": numbers(torch.stack(without)),
             "next": best(out.logits[0].log_softmax(-1)),
             "lens": {"ids": [i for x in lens for i in x.indices.tolist()],
                      "values": [v for x in lens for v in numbers(x.values)]},
             "norms": numbers(torch.stack(stream).norm(dim=-1)), "attention": numbers(torch.stack(out.attentions)),
             "nearest": best(cosines)}
with open(FOLDER + "/inspect.json", "w") as f:
    lines = ['"%s": %s' % (k, json.dumps(v, separators=(",", ":"))) for k, v in facts.items()]
    f.write("{" + ",\n ".join(lines) + "}\n")
