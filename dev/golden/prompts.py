#!/usr/bin/env python3
"""Makes what tests of longer prompts need, and what PyTorch makes of it: test/golden/eval/model/, a random model of 256
positions; core/, tasks as CORE's; mmlu_dev.jsonl, examples; text.txt and text.jsonl. Its tokenizer is that of
test_sets.py, which must have run before.

usage: prompts.py       from the repository's root, in a virtual environment with torch, transformers, tiktoken

prompts.json has: "shots", sets with examples in front, as expected.json has them; "core", for each task the accuracy,
for each row [tokens, scored, loss] and for a few rows the ids of GPT-2's tokenizer; CORE; "texts", for each file and
stride [tokens, bytes, loss, perplexity, bits per byte]; "python", what random.Random gives. The rules are written here
once more: CORE's after descriptions of DCLM's and nanochat's.
"""
import json
import math
import os
import random
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
import test_sets
from test_sets import ENCODE, EOT, OUT, RULES, letters

T, TEXT_T = 256, 48
CORE = OUT + "core/"


def make_model():
    torch.manual_seed(4)
    config = GPT2Config(vocab_size=257, n_positions=T, n_layer=2, n_head=2, n_embd=16, bos_token_id=256,
                        eos_token_id=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.15 * torch.randn_like(p))
        for letter in b"abcdefghijklmnop ":  # which the model prefers
            model.transformer.wte.weight[test_sets.IDS[letter], 0] = 1
        model.transformer.ln_f.bias[0] = 4
    model.save_pretrained(OUT + "model")
    os.remove(OUT + "model/generation_config.json")
    return model


@torch.no_grad()
def losses_of(model, tokens):
    """Returns the loss of each token but the first, and whether it is the likeliest one."""
    tokens = torch.tensor(tokens)
    logits = model(tokens[None, :-1]).logits[0].double()
    return F.cross_entropy(logits, tokens[1:], reduction="none"), logits.argmax(-1) == tokens[1:]


# ----------------------------------------------------------------------------------------------------------------------
# examples in front of the sets of test_sets.py

def with_examples(name, rules, lines, others, shots):
    """Rows of each line: the first others with the same heading stand in front, each with its right ending."""
    for line in lines:
        title = test_sets.heading(line) if name == "mmlu" else ""
        same = [o for o in others if o is not line and (name != "mmlu" or test_sets.heading(o) == title)]
        front = title
        for other in same[:shots]:
            rows, label = RULES[name][rules](other)
            front += rows[label][0][len(title):] + rows[label][1] + "\n\n"
        rows, label = RULES[name][rules](line)
        yield [(front + context[len(title):], ending, text) for context, ending, text in rows], label


def shots_scores(model, name, rules, shots, examples=None):
    lines = [json.loads(line) for line in open(OUT + name + ".jsonl")]
    others = [json.loads(line) for line in open(OUT + examples)] if examples else lines
    test_sets.T = T
    prompts = list(with_examples(name, rules, lines, others, shots))
    RULES["shots"] = {rules: lambda i: prompts[i]}
    for kinds in (test_sets.BY_CHARACTER, test_sets.BY_SUM):
        kinds.discard(("shots", rules))
        kinds.update({("shots", rules)} if (name, rules) in kinds else set())
    (test_sets.GREEDY.add if name in test_sets.GREEDY else test_sets.GREEDY.discard)("shots")
    result = test_sets.scores(model, "shots", rules, range(len(lines)))
    result["rows"] = [[row["tokens"], row["scored"], row["loss"]] for row in result["rows"]]
    return result


# ----------------------------------------------------------------------------------------------------------------------
# CORE

def choice(i):
    start = letters(1, 3)  # common to the choices, which then begin behind it
    return {"query": letters(3, 20), "choices": [start + letters(1, 6) for _ in range(2 + i % 3)], "gold": i % 2}


def schema(i):
    return {"context_options": [letters(3, 12), letters(3, 12)], "continuation": letters(3, 8), "gold": i % 2}


def continuation(i):
    return {"context": " " * (i % 3) + letters(3, 18) + " " * (i % 2), "continuation": random.choice("abcé")}


TASKS = [  # label, kind, shots, delimiter, file, baseline
    ("choices_zeroshot", "multiple_choice", 0, None, "a/choices.jsonl", 25),
    ("choices", "multiple_choice", 3, "\nAnswer: ", "a/choices.jsonl", 40.3),
    ("long", "multiple_choice", 10, None, "a/long.jsonl", 50),
    ("pronouns", "schema", 2, None, "b/schema.jsonl", 50),
    ("last_word", "language_modeling", 0, " =", "b/words.jsonl", 0),
    ("answers", "language_modeling", 4, "\nAnswer:", "b/answers.jsonl", 0),
]


def prompts_of(kind, item, examples, delimiter):
    def rendered(line, option):
        if kind == "multiple_choice":
            return line["query"] + delimiter + line["choices"][option]
        if kind == "schema":
            return line["context_options"][option] + delimiter + line["continuation"]
        return line["context"].strip() + delimiter + line["continuation"]
    front = "".join(rendered(e, e.get("gold")) + "\n\n" for e in examples)
    if kind == "language_modeling":
        return [(front + item["context"].strip() + delimiter).strip(), front + rendered(item, None)]
    return [front + rendered(item, i) for i in range(len(item.get("choices") or item["context_options"]))]


def rows_of(kind, prompts, tokenizer):
    rows = [[EOT[tokenizer]] + ENCODE[tokenizer](p) for p in prompts]
    if kind == "language_modeling":
        return [(rows[1], len(rows[1]) - len(rows[0]))]
    shortest, common = min(map(len, rows)), 0
    at = (lambda row, i: row[i]) if kind == "multiple_choice" else (lambda row, i: row[-1 - i])
    while common < shortest - 1 and len({at(row, common) for row in rows}) == 1:
        common += 1
    return [(row, len(row) - common if kind == "multiple_choice" else common) for row in rows]


def task_items(lines, kind, shots, delimiter, limit):
    random.Random(1337).shuffle(lines)
    lines = lines[:limit] if limit else lines
    for i, item in enumerate(lines):
        others = [k for k in range(len(lines)) if k != i]
        examples = [lines[k] for k in random.Random(1234 + i).sample(others, min(shots, len(others)))] if shots else []
        yield item, prompts_of(kind, item, examples, delimiter)


def score_task(model, task, limit):
    label, kind, shots, delimiter, file, _ = task
    lines = [json.loads(line) for line in open(CORE + "eval_data/" + file)]
    right, rows, ids = [], [], []
    for item, prompts in task_items(lines, kind, shots, delimiter or " ", limit):
        means, greedy = [], []
        for tokens, scored in rows_of(kind, prompts, "bytes"):
            losses, likeliest = losses_of(model, tokens[-T:])
            rows.append([len(tokens[-T:]), scored, losses[-scored:].sum().item()])
            means.append(losses[-scored:].mean().item())
            greedy.append(bool(likeliest[-scored:].all()))
        right.append(greedy[0] if kind == "language_modeling" else means.index(min(means)) == item["gold"])
        ids += [list(row) for row in rows_of(kind, prompts, "gpt2")] if len(ids) < 4 else []
    return {"correct": sum(right), "total": len(right), "rows": rows, "gpt2": ids}


def greedy_words(model, lines, shots, delimiter):
    """Gives every other item the continuation that the model would give, if that is a letter."""
    for _ in range(2):
        for at, (item, prompts) in enumerate(task_items(list(lines), "language_modeling", shots, delimiter, 0)):
            tokens, scored = rows_of("language_modeling", prompts, "bytes")[0]
            best = test_sets.IDS.index(model(torch.tensor([tokens[-T:][:-scored]])).logits[0, -1, :256].argmax())
            if at % 2 and best < 128 and chr(best).isalpha():
                item["continuation"] = chr(best)


@torch.no_grad()
def make_core(model):
    os.makedirs(CORE + "a", exist_ok=True)
    os.makedirs(CORE + "b", exist_ok=True)
    files = {"a/choices.jsonl": [choice(i) for i in range(26)],
             "a/long.jsonl": [{"query": letters(12, 20), "choices": ["ab", "abc", "ab"][:2 + i % 2], "gold": i % 2}
                              for i in range(12)],
             "b/schema.jsonl": [schema(i) for i in range(9)],
             "b/words.jsonl": [continuation(i) for i in range(10)], "b/answers.jsonl": [continuation(i) for i in
range(14)]}
    greedy_words(model, files["b/words.jsonl"], 0, " =")
    greedy_words(model, files["b/answers.jsonl"], 4, "\nAnswer:")
    for name, lines in files.items():
        with open(CORE + name, "w") as f:
            f.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def score_core(model, limit):
    tasks = {task[0]: score_task(model, task, limit) for task in TASKS}
    centered = [(tasks[t[0]]["correct"] / tasks[t[0]]["total"] - t[5] / 100) / (1 - t[5] / 100) for t in TASKS]
    return {"tasks": tasks, "core": sum(centered) / len(centered)}


# ----------------------------------------------------------------------------------------------------------------------
# texts

def rolling(tokens):
    """lm-evaluation-harness' windows: (input, targets) of each."""
    n, done = len(tokens), min(TEXT_T, len(tokens))
    windows = [([EOT["bytes"]] + tokens[:done - 1], tokens[:done])]
    while done < n:
        count = min(n - done, TEXT_T)
        end = done + count
        windows.append((tokens[end - TEXT_T - 1:end - 1], tokens[done:end]))
        done = end
    return windows


def score_text(model, documents, stride):
    loss = count = size = 0
    for document in documents:
        tokens = ENCODE["bytes"](document)
        if stride is None:
            for inputs, targets in rolling(tokens):
                loss += losses_of(model, inputs + [targets[-1]])[0][-len(targets):].sum().item()
                count += len(targets)
            size += len(tokens)
            continue
        last = 0
        for begin in range(0, len(tokens), stride):  # the loop of Hugging Face's page
            end = min(begin + TEXT_T, len(tokens))
            inputs = torch.tensor([tokens[begin:end]])
            labels = inputs.clone()
            labels[:, :-(end - last)] = -100
            valid = (labels[:, 1:] != -100).sum().item()
            if valid:
                loss += model(inputs, labels=labels).loss.double().item() * valid
            count, size, last = count + valid, size + valid, end
            if end == len(tokens):
                break
    return [count, size, loss, math.exp(loss / count), loss / math.log(2) / size]


@torch.no_grad()
def make_texts(model):
    long = "\n".join(letters(20, 60) for _ in range(16)) + "\n"
    documents = ["a", letters(30, 40)]
    documents += ["".join(random.choices("abc d", k=k - 1)) + "x" for k in (48, 49, 50, 97, 150)]
    open(OUT + "text.txt", "w").write(long)
    with open(OUT + "text.jsonl", "w") as f:
        f.write("".join(json.dumps({"text": d}) + "\n" for d in documents[:3] + [""] + documents[3:]))
    return {"%s %s" % (name, stride or "none"): score_text(model, lines, stride)
            for name, lines in (("text.txt", [long]), ("text.jsonl", documents)) for stride in (None, 48, 20, 1)}


def main():
    random.seed(5)
    model = make_model()
    with open(OUT + "mmlu_dev.jsonl", "w") as f:
        for subject in ("anatomy", None, "abstract_algebra"):
            for i in range(3):
                line = {**({"subject": subject} if subject else {}), "question": letters(2, 5), "answer": "ABCD"[i],
                        "choices": [letters(1, 2) for _ in range(4)]}
                f.write(json.dumps(line, ensure_ascii=False) + "\n")
    make_core(model)
    out = {"shots": {"mmlu dev 2": shots_scores(model, "mmlu", "", 2, "mmlu_dev.jsonl"),
                     "choices 3": shots_scores(model, "choices", "", 3),
                     "hellaswag llm.c 1": shots_scores(model, "hellaswag", "llm.c", 1),
                     "hellaswag lm-eval 2": shots_scores(model, "hellaswag", "lm-eval", 2),
                     "winogrande 10": shots_scores(model, "winogrande", "", 10),
                     "boolq 2": shots_scores(model, "boolq", "", 2),
                     "lambada 3": shots_scores(model, "lambada", "", 3)},
           "core": score_core(model, 0), "core of 6": score_core(model, 6), "texts": make_texts(model),
           "python": {"%d %d %d" % (seed, n, k): random.Random(seed).sample(range(n), k)
                      for seed, n, k in ((1234, 12, 10), (1235, 39, 3), (5000, 86, 10), (5001, 85, 10), (1, 22, 5),
                                         (2, 22, 5), (11275, 10041, 10))}}
    order = list(range(700))
    random.Random(1337).shuffle(order)
    out["python"]["shuffle"] = order
    with open(OUT + "prompts.json", "w") as f:
        json.dump(out, f)
    for key in ("shots", "core", "core of 6"):
        for name, score in out[key].get("tasks", out[key]).items():
            print(key, name, score["correct"], len(score["rows"]))
    print(out["core"]["core"], out["core of 6"]["core"], out["texts"])


main()
