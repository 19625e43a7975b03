#!/usr/bin/env python3
"""Makes test/golden/gpt2/greedy.json: what PyTorch's model of test/golden/gpt2 (gpt2.py) finds likeliest behind prompts
of several lengths: ids, their log-probabilities, and the three likeliest ids at each place.

usage: greedy.py          in a virtual environment with torch and transformers; from the repository's root
"""
import json
import torch
from transformers import GPT2LMHeadModel

FOLDER = "test/golden/gpt2"
PROMPTS, TOKENS, BEST = ["a", "abc", "\n\n", "the fox"], 11, 3

model = GPT2LMHeadModel.from_pretrained(FOLDER).eval()
texts = []
for prompt in PROMPTS:
    ids, text = list(prompt.encode()), {"prompt": prompt, "tokens": []}
    for _ in range(TOKENS):
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)
        best = logprobs.topk(BEST)
        ids.append(best.indices[0].item())
        text["tokens"].append({"id": ids[-1], "best": best.indices.tolist(),
                               "logprobs": [round(x, 6) for x in best.values.tolist()]})
    texts.append(text)
with open(FOLDER + "/greedy.json", "w") as f:
    f.write("[" + ",\n ".join(json.dumps(t, separators=(",", ":")) for t in texts) + "]\n")
