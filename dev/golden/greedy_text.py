#!/usr/bin/env python3
"""Compares greedy text of llama.cpp with that of train_gpt2, both from one exported file.

usage: greedy_text.py FILE.gguf [PROMPT...]     from the repository's root, after `make`

In a virtual environment with llama-cpp-python, which compiles llama.cpp (half an hour on a core):
    CMAKE_ARGS="-DGGML_NATIVE=OFF" pip install llama-cpp-python
The file: `./train_gpt2 export gguf --init run/step_00001000 --out model.gguf`. With fp32 the text should be the same;
other types round activations as well, so that it may differ after some tokens. Exits 1 if a text differs.
"""
import subprocess
import sys

from llama_cpp import Llama

TOKENS = 40
path, prompts = sys.argv[1], sys.argv[2:] or ["Once upon a time", "The old man", "Zoë said: \"don't!\"  1234\n\n"]
model = Llama(model_path=path, n_ctx=0, verbose=False, logits_all=False)
different = 0
for prompt in prompts:
    ids = subprocess.run(["./train_gpt2", "tokenize"], input=prompt.encode(), capture_output=True, check=True).stdout
    if [int(i) for i in ids.split()] != model.tokenize(prompt.encode(), add_bos=False):
        sys.exit(f"{prompt!r}: other tokens")
    theirs = model.create_completion(model.tokenize(prompt.encode(), add_bos=False), max_tokens=TOKENS, temperature=0,
                                     top_k=1, repeat_penalty=1.0)
    theirs = prompt + theirs["choices"][0]["text"]
    ours = subprocess.run(["./train_gpt2", "generate", "--init", path, "--prompt", prompt, "--temperature", "0",
                           "--sample_tokens", str(TOKENS)], capture_output=True, check=True).stdout.decode()
    ours = ours.removesuffix("\n").split("<|endoftext|>")[0]
    different += ours != theirs
    print("same" if ours == theirs else "DIFFERENT", repr(ours), "" if ours == theirs else repr(theirs))
sys.exit(different > 0)
