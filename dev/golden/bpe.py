#!/usr/bin/env python3
"""Writes test/golden/bpe: tokenizers as Hugging Face's `tokenizers` learns and saves them, which
test/tokenizer/test_bpe.c and test_tokenizer_files.c repeat.

usage: bpe.py test/golden/bpe

Needs a virtual environment with tokenizers. cases.json has texts, sizes and merges; specials.json is as that library
saves a tokenizer with three special tokens at the front and merges as pairs. ids.json has the ids of a text by it.
"""
import json
import os
import random
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenizer import CONTRACTIONS, EMOJI, LANGUAGES, NUMBERS, ODD, SPACES

EOT = "<|endoftext|>"
MOST_BYTES = 256  # max_token_length: tokens are shorter


def learn(texts, size, specials=()):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(specials),
        max_token_length=MOST_BYTES, show_progress=False))
    return t


def cases():
    rng = random.Random(1337)
    words = ["".join(rng.choice("abc") for _ in range(rng.randint(1, 9))) for _ in range(300)]
    world = "\n".join(line for group in (LANGUAGES, NUMBERS, EMOJI, CONTRACTIONS) for line in group.split("|"))
    runs = ["a" * n for n in range(1, 40)] + ["ab" * n + "a" for n in range(1, 20)] + ["-" * 700, "=" * 255, "é" * 300]
    yield "ties", [" ".join(f"{a}{b}" for a in "abcdefgh" for b in "hgfedcba")], 300
    yield "three letters", [" ".join(words)], 420
    yield "runs", runs, 480
    yield "the world", [world] + ["".join(ODD).replace("\0", "")] + [f"x{s}y" for s in SPACES], 1000
    yield "one text", ["low lower lowest new newer newest wide wider widest " * 7], 290


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    recorded = []
    for name, texts, size in cases():
        model = json.loads(learn(texts, size - 1).to_str())["model"]
        recorded.append({"name": name, "texts": texts, "size": size, "merges": [" ".join(m) for m in model["merges"]]})
    with open(f"{folder}/cases.json", "w", encoding="ascii") as f:
        json.dump({"tokenizers": tokenizers.__version__, "cases": recorded}, f, indent=0)
    texts = ["low lower lowest new newer newest wide wider widest, it's 1234 naïve " * 7]
    t = learn(texts, 300, ["<pad>", EOT, "<|é user|>"])
    t.save(f"{folder}/specials.json")
    with open(f"{folder}/merges.txt", "w", encoding="ascii") as f:  # of the small vocabulary of fuzz_tokenizer_json.c
        f.write("#version: 0.2\na b\nab c\nb c\na a\naa a\n")
    text = "lowest NEWEST it's 12 naïve x\n"
    with open(f"{folder}/ids.json", "w", encoding="ascii") as f:
        json.dump({"text": text, "ids": learn(texts, 300, ["<pad>", EOT, "<|é user|>"]).encode(text).ids}, f)


if __name__ == "__main__":
    main()
