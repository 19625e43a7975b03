#!/usr/bin/env python3
"""Makes test/golden/eval/: small test sets in their published forms, and what PyTorch makes of them with the model in
test/golden/gpt2. tokenizer.bin has a token for each byte, but the space has that of byte 193: the model, which is
random and prefers few tokens, sometimes continues with it and a letter.

usage: test_sets.py     in a virtual environment with torch, transformers and tiktoken; from the repository's root

expected.json has, for each file and rules: the number of right items by the norm and by the sum of losses (LAMBADA: 0),
and for each row its tokens, how many of them are scored and the sum of their losses. tokens.json has the rows' tokens
of GPT-2's tokenizer. The rules are written here once more, after descriptions of the programs that they are named
after.
"""
import json
import random
import re
import struct
import tiktoken
import torch
import torch.nn.functional as F
from tiktoken_ext.openai_public import r50k_pat_str
from transformers import GPT2LMHeadModel

OUT = "test/golden/eval/"
T = 19
EOT = {"bytes": 256, "gpt2": 50256}
IDS = list(range(256))
IDS[32], IDS[193] = 193, 32


def gpt2_encoding():
    file = open("data/gpt2_tokenizer.bin", "rb").read()
    ranks, at = {}, 1024
    for i in range(50256):
        ranks[file[at + 1:at + 1 + file[at]]] = i
        at += 1 + file[at]
    return tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={})


GPT2 = gpt2_encoding()
ENCODE = {"bytes": lambda text: [IDS[byte] for byte in text.encode()], "gpt2": GPT2.encode_ordinary}
random.seed(3)


def letters(least, most):
    return "".join(random.choice("abcdefgh ijklmnopé") for _ in range(random.randint(least, most))).strip() or "x"


# ----------------------------------------------------------------------------------------------------------------------
# the sets

def hellaswag(i):
    special = {1: ("[header] Wax", "cut [step] it", "THEN Go  on"), 2: ("", "", "")}
    activity, a, b = special.get(i, (letters(2, 4), letters(1, 3), letters(1, 4)))
    endings = [letters(2, 8) for _ in range(4)]
    if i == 1:
        endings[2] = "a [title] b [x] c"
    if i == 3:  # a context that is cut
        a = letters(25, 30)
    label = random.randrange(4)
    return {"ind": i, "activity_label": activity, "ctx_a": a, "ctx_b": b, "ctx": (a + " " + b).strip(),
            "split": "val", "split_type": "indomain", "label": str(label) if i % 2 else label, "endings": endings,
            "source_id": "made up"}


def arc(i):
    texts = [letters(2, 6) for _ in range(3 + i % 2)]
    labels = "12345" if i % 3 == 0 else "ABCDE"
    key = labels[random.randrange(len(texts))]
    if i % 2:  # as datasets of Hugging Face have it
        return {"id": str(i), "question": letters(3, 9), "answerKey": key,
                "choices": {"text": texts, "label": list(labels[:len(texts)])}}
    choices = [{"text": t, "label": l} for t, l in zip(texts, labels)]
    return {"id": str(i), "question": {"stem": letters(3, 9), "choices": choices}, "answerKey": key}


def mmlu(i):
    texts, key = [letters(1, 5) for _ in range(4)], random.randrange(4)
    if i % 2:  # with letters, and without a subject
        return {"question": " " + letters(3, 9) + " ", **dict(zip("ABCD", texts)), "answer": "ABCD"[key]}
    return {"question": letters(3, 9), "subject": ("abstract_algebra", "anatomy")[i // 2 % 2], "choices": texts,
            "answer": key}


def commonsenseqa(i):
    texts, key = [letters(1, 5) for _ in range(5)], "ABCDE"[random.randrange(5)]
    if i % 2:
        return {"id": str(i), "question": letters(3, 9), "question_concept": "x", "answerKey": key,
                "choices": {"label": list("ABCDE"), "text": texts}}
    return {"id": str(i), "answerKey": key,
            "question": {"question_concept": "x", "stem": letters(3, 9),
                         "choices": [{"label": l, "text": t} for l, t in zip("ABCDE", texts)]}}


SETS = {
    "hellaswag": hellaswag,
    "piqa": lambda i: {"goal": letters(2, 6), "sol1": letters(2, 9), "sol2": letters(2, 9), "label": i % 2},
    "arc": arc,
    "winogrande": lambda i: {"qID": str(i), "sentence": letters(2, 5) + " _ " + letters(2, 6) + ".",
                             "option1": letters(1, 3), "option2": letters(2, 5), "answer": str(1 + i % 2)},
    "lambada": lambda i: {"text": letters(2, 8) + random.choice([" a ", " f "]) + random.choice(["a", "bé", "cd"])},
    "choices": lambda i: {"query": {4: "", 5: " "}.get(i, letters(3, 9) + "\nAnswer:"), "gold": i % 2,
                          "choices": [letters(2, 7) for _ in range(2 + i % 3)]},
    "schema": lambda i: {"context_options": [letters(3, 9), letters(3, 9)], "continuation": letters(2, 7),
                         "gold": i % 2},
    "continuation": lambda i: {"context": letters(3, 9) + " " * (i % 2), "continuation": random.choice("abcé")},
    "mmlu": mmlu,
    "boolq": lambda i: {"question": letters(3, 6), "passage": letters(5, 12),
                        **({"label": i % 3 // 2} if i % 2 else {"answer": i % 4 == 0})},
    "openbookqa": lambda i: {"id": str(i), "question_stem": letters(3, 8), "answerKey": "ABCD"[i % 4],
                             "choices": {"text": [letters(2, 6) for _ in range(4)], "label": list("ABCD")}},
    "commonsenseqa": commonsenseqa,
}


# ----------------------------------------------------------------------------------------------------------------------
# rules: each makes of a line the rows (context, ending, text whose characters count) and the label

def clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def hellaswag_llmc(d):
    return [(d["ctx"], " " + e, "") for e in d["endings"]], int(d["label"])


def hellaswag_harness(d):
    context = clean(d["activity_label"] + ": " + d["ctx_a"] + " " + d["ctx_b"].capitalize())
    return [(context, " " + clean(e), clean(e)) for e in d["endings"]], int(d["label"])


def piqa(d):
    return [("Question: " + d["goal"] + "\nAnswer:", " " + s, s) for s in (d["sol1"], d["sol2"])], d["label"]


def question_of(d):
    if isinstance(d["question"], str):
        question, texts, labels = d["question"], d["choices"]["text"], d["choices"]["label"]
    else:
        question = d["question"]["stem"]
        texts, labels = ([c[k] for c in d["question"]["choices"]] for k in ("text", "label"))
    return question, texts, labels.index(d["answerKey"])


def arc_harness(d):
    question, texts, label = question_of(d)
    return [("Question: " + question + "\nAnswer:", " " + t, t) for t in texts], label


def lettered(question, texts, label):
    lines = [question.strip()] + ["%s. %s" % pair for pair in zip("ABCDE", texts)] + ["Answer:"]
    return [("\n".join(lines), " " + letter, letter) for letter in "ABCDE"[:len(texts)]], label


def commonsenseqa_harness(d):
    question, texts, label = question_of(d)
    return lettered("Question: " + question, texts, label)


def heading(d):
    if "subject" not in d:
        return ""
    return "The following are multiple choice questions (with answers) about %s.\n\n" % d["subject"].replace("_", " ")


def mmlu_harness(d):
    texts = d["choices"] if "choices" in d else [d[letter] for letter in "ABCD"]
    answer = d["answer"] if isinstance(d["answer"], int) else "ABCD".index(d["answer"])
    rows, label = lettered(d["question"], texts, answer)
    return [(heading(d) + context, ending, text) for context, ending, text in rows], label


def boolq(d):
    context = d["passage"] + "\nQuestion: " + d["question"] + "?\nAnswer:"
    return [(context, " " + word, word) for word in ("no", "yes")], int(d["answer"] if "answer" in d else d["label"])


def openbookqa(d):
    texts, label = d["choices"]["text"], d["choices"]["label"].index(d["answerKey"])
    return [(d["question_stem"], " " + t, t) for t in texts], label


def winogrande(d):
    at = d["sentence"].index("_")
    rest = d["sentence"][at + 1:].strip()
    return [(d["sentence"][:at] + d[o], " " + rest, rest) for o in ("option1", "option2")], int(d["answer"]) - 1


def lambada(d):
    words = d["text"].split(" ")
    return [(" ".join(words[:-1]), " " + words[-1], words[-1])], 0


RULES = {
    "hellaswag": {"llm.c": hellaswag_llmc, "lm-eval": hellaswag_harness},
    "piqa": {"": piqa}, "arc": {"": arc_harness}, "winogrande": {"": winogrande}, "lambada": {"": lambada},
    "choices": {"": lambda d: ([(d["query"], " " + c, c) for c in d["choices"]], d["gold"])},
    "schema": {"": lambda d: ([(c, " " + d["continuation"], "") for c in d["context_options"]], d["gold"])},
    "continuation": {"": lambda d: ([(d["context"].rstrip(), " " + d["continuation"], "")], 0)},
    "mmlu": {"": mmlu_harness}, "boolq": {"": boolq}, "openbookqa": {"": openbookqa},
    "commonsenseqa": {"": commonsenseqa_harness},
}
BY_CHARACTER = {("hellaswag", "lm-eval"), ("piqa", ""), ("arc", ""), ("openbookqa", "")}
BY_SUM = {("winogrande", ""), ("mmlu", ""), ("boolq", ""), ("commonsenseqa", "")}
GREEDY = {"lambada", "continuation"}


def tokens_of(context, ending, apart, tokenizer):
    encode = ENCODE[tokenizer]
    if apart:
        context, ending = encode(context), encode(ending)
    else:
        stripped = context.rstrip()
        context, ending = stripped, context[len(stripped):] + ending
        whole = encode(context + ending)
        context = encode(context)
        ending = whole[len(context):]
        context = whole[:len(context)]
    return (context or [EOT[tokenizer]]) + ending, len(ending)


# ----------------------------------------------------------------------------------------------------------------------
# scores

@torch.no_grad()
def row_score(model, tokens, scored):
    tokens = torch.tensor(tokens[-(T + 1):])
    logits = model(tokens[None, :-1]).logits[0, -scored:].double()
    targets = tokens[-scored:]
    loss = F.cross_entropy(logits, targets, reduction="sum").item()
    return loss, bool((logits.argmax(-1) == targets).all())


@torch.no_grad()
def predicted(model):
    """Contexts that the model continues with a space and a letter, and this letter; and such that it does so only
    behind a space that it does not foresee."""
    both, last = [], []
    texts = ["".join(random.choices("cdefghijklmn", k=14)) for _ in range(2000)]
    ids = torch.tensor([ENCODE["bytes"](text) for text in texts])
    space = torch.full((len(ids), 1), IDS[32])
    first, second = (model(x).logits[:, -1].argmax(-1).tolist() for x in (ids, torch.cat([ids, space], 1)))
    for text, a, b in zip(texts, first, second):
        if b in (IDS[ord(c)] for c in "abcdefghijklmnopqrstuvwxyz"):
            (both if a == IDS[32] else last).append((text, chr(IDS.index(b))))
    return both, last


def scores(model, name, rules, lines):
    by_norm = by_sum = 0
    out = []
    for line in lines:
        rows, label = RULES[name][rules](line)
        norms, sums, greedy = [], [], []
        for context, ending, text in rows:
            tokens, scored = tokens_of(context, ending, rules == "llm.c", "bytes")
            loss, is_greedy = row_score(model, tokens, scored)
            by = len(text) if (name, rules) in BY_CHARACTER else 1 if (name, rules) in BY_SUM else scored
            norms.append(loss / by)
            sums.append(loss)
            greedy.append(is_greedy)
            out.append({"tokens": len(tokens[-(T + 1):]), "scored": scored, "loss": loss})
        by_norm += greedy[0] if name in GREEDY else min(range(len(rows)), key=norms.__getitem__) == label
        by_sum += 0 if name in GREEDY else min(range(len(rows)), key=sums.__getitem__) == label
    return {"correct": by_norm, "correct_by_sum": by_sum, "rows": out}


def write_bin(path, lines):
    items, longest = b"", 0
    for i, line in enumerate(lines):
        rows, label = hellaswag_llmc(line)
        context = tokens_of(rows[0][0], "", True, "bytes")[0]
        body = [i, label, len(rows), len(context)] + context
        for _, ending, _ in rows:
            body += [len(ENCODE["bytes"](ending))] + ENCODE["bytes"](ending)
        size = 2 * (len(body) + 2)
        longest = max(longest, size)
        items += struct.pack("<%dH" % (len(body) + 2), 65535, size, *body)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240522, 1, len(lines), longest, *[0] * 252) + items)


def write_tokenizer(path):
    with open(path, "wb") as f:
        f.write(struct.pack("<256I", 20240328, 2, 257, 256, *[0] * 252))
        for i in range(256):
            f.write(bytes([1, IDS.index(i)]))
        f.write(bytes([3]) + b"EOT")


def main():
    write_tokenizer(OUT + "tokenizer.bin")
    model = GPT2LMHeadModel.from_pretrained("test/golden/gpt2").eval()
    expected, tokens = {}, {}
    for name, make in SETS.items():
        lines = [make(i) for i in range(11)]
        if name in GREEDY:
            both, last = predicted(model)
            for i, (context, ending) in zip(range(0, 11), [pair for pairs in zip(both, last) for pair in pairs]):
                lines[i] = {"text": context + " " + ending} if name == "lambada" else \
                    {"context": context, "continuation": ending}
        with open(OUT + name + ".jsonl", "w") as f:
            f.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        for rules in RULES[name]:
            key = name + (" " + rules if rules else "")
            expected[key] = scores(model, name, rules, lines)
            rows = [row for line in lines for row in RULES[name][rules](line)[0]]
            tokens[key] = [tokens_of(c, e, rules == "llm.c", "gpt2") for c, e, _ in rows]
    write_bin(OUT + "hellaswag.bin", [json.loads(line) for line in open(OUT + "hellaswag.jsonl")])
    with open(OUT + "expected.json", "w") as f:
        json.dump(expected, f, indent=1)
    with open(OUT + "tokens.json", "w") as f:
        json.dump(tokens, f)
    for key, score in expected.items():
        print(key, score["correct"], score["correct_by_sum"], len(score["rows"]))


if __name__ == "__main__":
    main()
