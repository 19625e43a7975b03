#!/usr/bin/env python3
"""Collects the runs of study.sh into small tables, and draws the page of the study from these tables.

  page.py collect RUNS RESULTS     RUNS/*/{command,loss,seconds,metrics.jsonl} -> RESULTS/runs.tsv, curves.tsv
  page.py draw RESULTS PAGE        RESULTS/*.tsv -> RESULTS/*.svg and PAGE, Markdown that shows them

Tokens to equal loss: a recipe was trained on several lengths, the schedule fitted to each, since a loss counts at the
end of its schedule. Between two lengths the loss is taken as linear in the logarithm of the tokens. For each seed, the
ratio is the full length over the tokens at which the better recipe has the loss that the other one reached at the full
length. Beyond the lengths that were trained, the ratio is given as a bound.
"""
import html
import json
import math
import os
import pathlib
import statistics
import sys
import textwrap

CURVE_POINTS = 40  # of a curve: means over equal parts of a run
NAMES = {"published": "published settings", "adamw": "AdamW, tuned", "muon": "Muon, tuned"}
CORPORA = {"text": "Text of this machine", "stories": "Built-in corpus"}
PARTS = {
    "without_muon": "Muon (AdamW with all other parts)",
    "without_momentum_warmup": "momentum warm-up",
    "without_cautious_decay": "cautious decay",
    "without_wsd": "wsd to zero (cosine to 10%)",
    "without_zero_init": "zero init of output projections",
    "with_document_mask": "document mask (added)",
}


# ----------------------------------------------------------------------------------------------------------------------
# collecting


def option(command, name):
    words = command.split()
    at = [i for i, word in enumerate(words) if word == "--" + name]
    return words[at[-1] + 1]  # later options override earlier ones


def collect(runs, results):
    rows, curves = [], []
    for folder in sorted(p.parent for p in runs.glob("*/loss")):
        name, command = folder.name, (folder / "command").read_text().strip()
        if name.startswith("clock-") or not (folder / "loss").read_text().strip():
            continue  # no result, or not finished
        steps, batch = int(option(command, "max_steps")), int(option(command, "total_batch_size"))
        own = command.split("--save_every 0 ")[1]
        rows.append((name, steps, steps * batch, (folder / "loss").read_text().strip(),
                     (folder / "seconds").read_text().strip(), own))
        if name.rsplit("-", 2)[1:2] != ["1"]:
            continue  # curves of full length only
        records = [json.loads(line) for line in open(folder / "metrics.jsonl")]
        losses = [r["loss"] for r in records if r["kind"] == "train"]
        ends = [round(steps * (i + 1) / CURVE_POINTS) for i in range(CURVE_POINTS)]
        for begin, end in zip([0] + ends, ends):
            if end > begin:
                curves.append((name, (begin + end) / 2 * batch, f"{statistics.mean(losses[begin:end]):.4f}"))
    with open(results / "runs.tsv", "w") as f:
        print("run\tsteps\ttokens\tval_loss\tprocessor_s\toptions", file=f)
        for row in rows:
            print(*row, sep="\t", file=f)
    with open(results / "curves.tsv", "w") as f:
        print("run\ttokens\ttrain_loss", file=f)
        for row in curves:
            print(*row, sep="\t", file=f)


# ----------------------------------------------------------------------------------------------------------------------
# the numbers


def read_table(path):
    lines = [line.rstrip("\n").split("\t") for line in open(path)]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


class Study:
    """finals[corpus][recipe][seed] = {tokens: loss}
    trials[corpus][optimizer] = [(rate, decay, schedule, factor, loss)]"""

    def __init__(self, results):
        self.facts = {}
        for line in open(results / "study.tsv"):
            key, value = line.rstrip("\n").split("\t")
            self.facts.setdefault(key, []).append(value)
        self.step_ms = {line.split()[0]: float(line.split()[1]) for line in self.facts.get("step_ms", [])}
        self.best = {tuple(line.split()[:2]): tuple(line.split()[2:]) for line in self.facts.get("best", [])}
        self.batch, self.floor = int(self.facts["batch"][0]), float(self.facts["floor"][0])
        self.finals, self.trials, self.curves = {}, {}, {}
        rows = read_table(results / "runs.tsv")
        self.processor_s = sum(float(row["processor_s"]) for row in rows)
        self.run_count = len(rows)
        for row in rows:
            corpus, recipe, rest = row["run"].split("-", 2)
            loss = float(row["val_loss"])
            if rest.startswith("trial-"):
                settings = rest[len("trial-"):].rsplit("-", 3)  # a rate may have a minus sign
                self.trials.setdefault(corpus, {}).setdefault(recipe, []).append((*settings, loss))
            else:
                seed = rest.split("-")[1]
                of_recipe = self.finals.setdefault(corpus, {}).setdefault(recipe, {})
                of_recipe.setdefault(seed, {})[int(row["tokens"])] = loss
        for row in read_table(results / "curves.tsv"):
            corpus, recipe, rest = row["run"].split("-", 2)
            of_recipe = self.curves.setdefault(corpus, {}).setdefault(recipe, {})
            of_recipe.setdefault(rest.split("-")[1], []).append((float(row["tokens"]), float(row["train_loss"])))
        self.finals, self.trials, self.curves = (
            {corpus: part[corpus] for corpus in CORPORA if corpus in part}
            for part in (self.finals, self.trials, self.curves))
        self.full = self.batch * int(self.facts["steps"][0])

    def losses(self, corpus, recipe, tokens):
        """The final losses of a recipe's seeds, in order."""
        seeds = self.finals.get(corpus, {}).get(recipe, {})
        return [seeds[s][tokens] for s in sorted(seeds) if tokens in seeds[s]]

    def ratios(self, corpus, better, other, tokens):
        """For each seed (ratio, bound), for the other's loss after so many tokens: bound is '' , '>' or '<'."""
        found = []
        seeds = self.finals[corpus]
        for seed in sorted(seeds.get(better, {})):
            if tokens not in seeds.get(other, {}).get(seed, {}):
                continue
            points = [p for p in sorted(seeds[better][seed].items()) if p[0] <= tokens]
            found.append(self.ratio(points, seeds[other][seed][tokens]))
        return found

    def ratio(self, points, target):
        tokens = points[-1][0]
        if points[0][1] <= target:
            return tokens / points[0][0], ">"
        for (t0, l0), (t1, l1) in zip(points, points[1:]):
            if l1 <= target:
                return tokens / math.exp(math.log(t0) + (l0 - target) / (l0 - l1) * math.log(t1 / t0)), ""
        return 1, "<"


def mean_sd(values):
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else float("nan")


def ratio_text(ratios):
    """The mean and the range, or the weakest bound if the lengths do not reach some seed's loss."""
    values = sorted(r for r, _ in ratios)
    bounds = sorted({b for _, b in ratios if b})
    if bounds:
        return f"{bounds[0]}{values[0] if bounds[0] == '>' else values[-1]:.2f}"
    spread = f" ({values[0]:.2f} to {values[-1]:.2f})" if values[1:] else " (one seed)"
    return f"{statistics.mean(values):.2f}{spread}"


def times_text(logarithm):
    return f"{math.exp(logarithm):.2f}" if logarithm < math.log(10) else "more than 10"


# ----------------------------------------------------------------------------------------------------------------------
# pictures


def ticks(low, high, count=5):
    step = 10 ** math.floor(math.log10((high - low) / count))
    step = next(step * m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, int(high / step + 1e-9) + 1)]


STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #22262b } .title { font-size: 14px; font-weight: 600 }
  .paper { fill: #ffffff } .soft { fill: #5b6169 } .grid { stroke: #e3e6ea } .axis { stroke: #7a7f87 }
  .level { stroke: #22262b; stroke-dasharray: 2 3 }
  .published { color: #7a7f87 } .adamw { color: #2f6db3 } .muon { color: #c8442f }
  .line { fill: none; stroke: currentColor; stroke-width: 2 } .key { stroke: currentColor; stroke-width: 3 }
  .band { fill: currentColor; fill-opacity: .18 } .dot { fill: currentColor; fill-opacity: .75 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf2 } .paper { fill: #10151d } .soft { fill: #a3b0c2 } .grid { stroke: #262f3d }
    .axis { stroke: #64748b } .level { stroke: #a3b0c2 }
    .published { color: #98a2b3 } .adamw { color: #6aa5ff } .muon { color: #ff8a6a }
  }
</style>"""


class Picture:
    """A chart in SVG, in the colours of a light or of a dark page."""

    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 310, 56, 12, 50, 42

    def __init__(self, title, x_label, y_label, x_range, y_range, x_ticks=None, log_x=False):
        self.log_x, self.x_range, self.y_range = log_x, x_range, y_range
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH} {self.HEIGHT}" width="{self.WIDTH}"'
            f' height="{self.HEIGHT}">',
            STYLE,
            f'<rect class="paper" width="{self.WIDTH}" height="{self.HEIGHT}"/>',
            f'<text class="title" x="{self.LEFT}" y="18">{html.escape(title)}</text>',
        ]
        bottom, right = self.HEIGHT - self.BOTTOM, self.WIDTH - self.RIGHT
        y_step = ticks(*y_range)
        digits = max(0, -math.floor(math.log10(y_step[1] - y_step[0]) + 1e-9)) if len(y_step) > 1 else 2
        for y in y_step:
            at = self.y(y)
            self.parts.append(f'<path class="grid" d="M{self.LEFT} {at:.1f}H{right}"/>')
            self.text(self.LEFT - 6, at + 4, f"{y:.{digits}f}", "end")
        for x, label in x_ticks or [(x, f"{x:g}") for x in ticks(*x_range)]:
            self.parts.append(f'<path class="axis" d="M{self.x(x):.1f} {bottom}v4"/>')
            self.text(self.x(x), bottom + 17, label, "middle")
        self.parts.append(f'<path class="axis" d="M{self.LEFT} {bottom}H{right}"/>')
        self.text((self.LEFT + right) / 2, self.HEIGHT - 8, x_label, "middle", "soft")
        middle = (self.TOP + bottom) / 2
        self.parts.append(f'<text class="soft" transform="translate(14 {middle:.0f}) rotate(-90)"'
                          f' text-anchor="middle">{html.escape(y_label)}</text>')

    def x(self, v):
        low, high = self.x_range
        part = math.log(v / low) / math.log(high / low) if self.log_x else (v - low) / (high - low)
        return self.LEFT + part * (self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, v):
        low, high = self.y_range
        return self.TOP + (high - min(v, high)) / (high - low) * (self.HEIGHT - self.TOP - self.BOTTOM)

    def text(self, x, y, words, anchor="start", shade="ink"):
        self.parts.append(f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
                          f'{html.escape(words)}</text>')

    def line(self, points, recipe):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline class="line {recipe}" points="{path}"/>')

    def band(self, low, high, recipe):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in low + high[::-1])
        self.parts.append(f'<polygon class="band {recipe}" points="{path}"/>')

    def dot(self, x, y, recipe):
        self.parts.append(f'<circle class="dot {recipe}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.2"/>')

    def level(self, y, words):
        at = self.y(y)
        self.parts.append(f'<path class="level" d="M{self.LEFT} {at:.1f}H{self.WIDTH - self.RIGHT}"/>')
        self.text(self.LEFT + 6, at - 4, words, shade="soft")

    def legend(self, recipes):
        for i, recipe in enumerate(recipes):
            x = self.LEFT + 140 * i
            self.parts.append(f'<path class="key {recipe}" d="M{x} 33h16"/>')
            self.text(x + 21, 37, NAMES[recipe])

    def write(self, path):
        path.write_text("\n".join(self.parts + ["</svg>"]) + "\n")


def shown_recipes(table):
    return [recipe for recipe in NAMES if table.get(recipe)]


def draw_curves(study, corpus, path, by_time):
    """Training loss, the mean of the seeds over their range, against tokens or the time that these take."""
    curves = study.curves[corpus]
    recipes = [r for r in shown_recipes(curves) if not by_time or clock_of(r) in study.step_ms]
    if not recipes:
        return False

    def unit(recipe):  # of the x axis, for a token
        return study.step_ms[clock_of(recipe)] / 1000 / study.batch if by_time else 1e-6

    lines = {}
    for recipe in recipes:
        seeds = list(curves[recipe].values())
        columns = [[s[i][1] for s in seeds] for i in range(min(len(s) for s in seeds))]
        lines[recipe] = [(seeds[0][i][0] * unit(recipe), min(c), statistics.mean(c), max(c))
                         for i, c in enumerate(columns)]
    low = min(p[1] for line in lines.values() for p in line)
    high = max(line[len(line) // 8][3] for line in lines.values())  # the first eighth would squeeze the rest
    if corpus == "stories":
        low = study.floor
    end = max(study.full * unit(r) for r in recipes)
    picture = Picture(f"{CORPORA[corpus]}: training loss", "processor seconds" if by_time else "million tokens",
                      "nats a token", (0, end * 1.01), (low - 0.05 * (high - low), high))
    if corpus == "stories":
        picture.level(study.floor, f"floor {study.floor:.3f}")
    for recipe, line in lines.items():
        line = [p for p in line if p[2] <= high]
        picture.band([(p[0], p[1]) for p in line], [(p[0], p[3]) for p in line], recipe)
        picture.line([(p[0], p[2]) for p in line], recipe)
    picture.legend(recipes)
    picture.write(path)
    return True


def clock_of(recipe):
    return "muon" if recipe == "muon" else "adamw"


def draw_equal_loss(study, corpus, path):
    """Final validation losses of the lengths that were trained, a dot for each seed."""
    finals = study.finals[corpus]
    recipes = shown_recipes(finals)
    points = {r: sorted((t, l) for s in finals[r].values() for t, l in s.items()) for r in recipes}
    tokens = sorted({t for p in points.values() for t, _ in p})
    losses = [l for p in points.values() for _, l in p]
    margin = 0.06 * (max(losses) - min(losses))
    picture = Picture(f"{CORPORA[corpus]}: final loss by length", "million tokens of a run",
                      "validation loss, nats a token", (tokens[0] * 0.93, tokens[-1] * 1.07),
                      (min(losses) - margin, max(losses) + margin), [(t, f"{t / 1e6:.2f}") for t in tokens], True)
    for recipe in recipes:
        lengths = sorted({t for t, _ in points[recipe]})
        picture.line([(t, statistics.mean(study.losses(corpus, recipe, t))) for t in lengths], recipe)
        for t, loss in points[recipe]:
            picture.dot(t, loss, recipe)
    picture.legend(recipes)
    picture.write(path)


def draw_search(study, corpus, path):
    """Losses of the trials over the rate, each optimizer's relative to its first rate."""
    trials = study.trials[corpus]
    points = {r: [(float(t[0]), t[-1]) for t in trials[r]] for r in trials}
    relative = {r: [(rate / min(p[0] for p in points[r]), loss) for rate, loss in points[r]] for r in points}
    losses = [l for p in relative.values() for _, l in p]
    margin = 0.06 * (max(losses) - min(losses))
    rates = sorted({x for p in relative.values() for x, _ in p})
    picture = Picture(f"{CORPORA[corpus]}: the search", "rate, relative to the least of the search",
                      "validation loss, nats a token", (0.85, rates[-1] * 1.15),
                      (min(losses) - margin, max(losses) + margin), [(x, f"{x:g}") for x in rates], True)
    for recipe in [r for r in NAMES if r in relative]:
        first = {}
        for t, (x, loss) in zip(trials[recipe], relative[recipe]):
            picture.dot(x, loss, recipe)
            if t[1:4] == ("0.1", "wsd", "1"):
                first[x] = loss
        picture.line(sorted(first.items()), recipe)
    picture.legend([r for r in NAMES if r in relative])
    picture.write(path)


# ----------------------------------------------------------------------------------------------------------------------
# the page


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def loss_text(losses):
    if not losses:
        return "not run"
    mean, sd = mean_sd(losses)
    return f"{mean:.4f} ± {sd:.4f}" if losses[1:] else f"{mean:.4f}"


def page_equal_loss(study):
    rows = []
    for corpus in study.finals:
        for better, other in (("adamw", "published"), ("muon", "adamw"), ("muon", "published")):
            ratios = study.ratios(corpus, better, other, study.full) if better in study.finals[corpus] else []
            if ratios:
                rows.append((CORPORA[corpus], NAMES[better], NAMES[other],
                             loss_text(study.losses(corpus, better, study.full)),
                             loss_text(study.losses(corpus, other, study.full)), ratio_text(ratios)))
    yield from table(("corpus", "recipe", "against", "its loss", "the other's loss", "times fewer tokens"), rows)


def page_lengths(study):
    """Muon's gain over AdamW at each length that both were trained on, where there are more than the three finals."""
    rows = []
    for corpus in study.finals:
        seeds = study.finals[corpus].get("adamw", {}).values()
        lengths = sorted({tokens for seed in seeds for tokens in seed})
        for tokens in lengths[1:] if len(lengths) > 3 else []:
            rows.append((CORPORA[corpus], f"{tokens / 1e6:.2f}", loss_text(study.losses(corpus, "adamw", tokens)),
                         loss_text(study.losses(corpus, "muon", tokens)),
                         ratio_text(study.ratios(corpus, "muon", "adamw", tokens))))
    if rows:
        yield from ("At other lengths, the schedules fitted to each: how many times fewer tokens Muon needs for AdamW's"
                    " loss.", "")
        yield from table(("corpus", "million tokens", NAMES["adamw"], NAMES["muon"], "times fewer tokens"), rows)


def page_ablation(study):
    """What each part brings at the length of the ablation: losses, and tokens by the slope of Muon's own lengths."""
    rows = []
    for corpus in study.finals:
        finals = study.finals[corpus]
        lengths = sorted({t for r in PARTS for s in finals.get(r, {}).values() for t in s})
        if not lengths or "muon" not in finals:
            continue
        tokens = lengths[0]
        base = finals["muon"]
        seeds = [s for s in sorted(base) if tokens in base[s]]
        slopes = [(base[s][tokens] - base[s][self_full]) / math.log(self_full / tokens)
                  for s in seeds for self_full in [study.full] if study.full in base[s]]
        slope = statistics.mean(slopes)
        rows.append((CORPORA[corpus], "(all parts)", loss_text([base[s][tokens] for s in seeds]), "", ""))
        for recipe, words in PARTS.items():
            if recipe not in finals:
                continue
            differences = [finals[recipe][s][tokens] - base[s][tokens] for s in seeds if s in finals[recipe]]
            mean, sd = mean_sd(differences)
            rows.append((CORPORA[corpus], words, loss_text([v[tokens] for v in finals[recipe].values()]),
                         f"{mean:+.4f} ± {sd:.4f}", times_text(mean / slope)))
    yield from table(("corpus", "left out", "loss", "difference, by seed", "tokens it is worth"), rows)


def page_search(study):
    for corpus in study.trials:
        rows = []
        for optimizer, trials in study.trials[corpus].items():
            best = study.best.get((corpus, optimizer))
            for trial in sorted(trials, key=lambda t: t[-1]):
                mark = "**" if trial[:4] == best else ""
                rows.append((NAMES[optimizer].split(",")[0], *trial[:4], f"{mark}{trial[-1]:.4f}{mark}"))
        yield f"{CORPORA[corpus]}:"
        yield ""
        yield from table(("optimizer", "rate", "decay", "schedule", "factor", "validation loss"), rows)


def draw(results, page):
    study = Study(results)
    folder = results.relative_to(page.parent)
    pictures = []
    for corpus in study.finals:
        for name, ok in ((f"{corpus}_tokens.svg", draw_curves(study, corpus, results / f"{corpus}_tokens.svg", False)),
                         (f"{corpus}_time.svg", draw_curves(study, corpus, results / f"{corpus}_time.svg", True))):
            if ok:
                pictures.append(f"![{CORPORA[corpus]}]({folder}/{name})")
    equal, search = [], []
    for corpus in study.finals:
        draw_equal_loss(study, corpus, results / f"{corpus}_lengths.svg")
        equal.append(f"![{CORPORA[corpus]}]({folder}/{corpus}_lengths.svg)")
    for corpus in study.trials:
        draw_search(study, corpus, results / f"{corpus}_search.svg")
        search.append(f"![{CORPORA[corpus]}]({folder}/{corpus}_search.svg)")
    facts = {key: values[0] for key, values in study.facts.items()}
    here = os.path.relpath(pathlib.Path(__file__).parent, page.parent)
    lines = [
        "# The study's figures",
        "",
        f"Made by [page.py]({here}/page.py) from [{folder}]({folder}); [README.md]({here}/README.md) has the method and"
        " the findings.",
        "",
        *table(("", ""), [
            ("command", f"`{facts['command']}`"), ("date", facts["date"]), ("processor", facts["processor"]),
            ("program", facts["program"]), ("model", f"{facts['model']}, bf16, one thread"),
            ("full length", f"{study.full:,} tokens in {facts['steps']} steps of {study.batch:,}"),
            ("runs", f"{study.run_count}, {study.processor_s / 60:.0f} minutes of processor time"),
            *[("processor time of a step", f"{ms:.1f} ms, {NAMES[o]}") for o, ms in study.step_ms.items()],
            ("floor of the built-in corpus", f"{study.floor:.4f} nats a token"),
            *[("text", source) for source in study.facts.get("source", [])]]),
        "## Tokens to equal loss",
        "",
        "Final validation losses at the full length, mean ± standard deviation over the seeds; then how many times fewer"
        " tokens the recipe needs for the other's loss: mean (range over the seeds).",
        "",
        *page_equal_loss(study),
        *page_lengths(study),
        *equal, "",
        "## Curves",
        "",
        "Runs of full length: the mean over the seeds, the band is their range. Time is the processor time of a step on"
        " one thread, measured apart, times the steps, because other work shared the machine.",
        "",
        *pictures, "",
    ]
    ablation = list(page_ablation(study))
    if len(ablation) > 3:
        lines += ["## Ablation", "",
                  "Each part of Muon's recipe left out, or added. A positive difference: the recipe is worse without the"
                  " part (with it, if it is added). Tokens: how many times more the recipe then needs, by the slope of"
                  " its losses over the logarithm of tokens.", "", *ablation]
    lines += ["## Search", "", *page_search(study), *search, ""]
    folded = textwrap.TextWrapper(120, break_on_hyphens=False, break_long_words=False)
    page.write_text("\n".join(line if line[:1] in "|!#" else folded.fill(line) for line in lines))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("collect", "draw"):
        sys.exit(__doc__)
    (collect if sys.argv[1] == "collect" else draw)(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
