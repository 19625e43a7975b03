#!/usr/bin/env python3
"""Makes test/golden/law.tsv: the laws of loss of dev/forecast/results, fitted by SciPy. Written after Hoffmann et al.
2022, equation 10, and not after llmc/.

usage: law.py     in a virtual environment with scipy; from the repository's root
"""
import itertools
import numpy as np
from scipy.optimize import minimize

DELTA = 1e-3


def read(path):
    """Returns parameters without those of positions, tokens and losses of the runs in a table."""
    rows = []
    for line in open(path).readlines()[1:]:
        model, tokens, loss = line.split("\t")[:3]
        shape = {name: int(value) for name, value in (part.split("=") for part in model.split(","))}
        L, C, V = shape["L"], shape["C"], shape["V"]
        rows.append((L * (12 * C * C + 13 * C) + 2 * C + V * C, float(tokens), float(loss)))
    return np.array(rows).T


def fit(N, D, loss):
    """Returns E, A, alpha, B and beta by BFGS from a grid of starts. Sizes and lengths are those over their means."""
    n, d, y = np.log(N) - np.log(N).mean(), np.log(D) - np.log(D).mean(), np.log(loss)

    def objective(x):
        e, a, alpha, b, beta = x
        error = y - np.logaddexp(np.logaddexp(a - alpha * n, b - beta * d), e)
        size = np.abs(error)
        return 1e3 * np.where(size <= DELTA, size**2 / 2, DELTA * (size - DELTA / 2)).sum()

    best = None
    for alpha, beta, part, share in itertools.product((0.2, 0.5, 1), (0.2, 0.5, 1), (0.3, 0.8), (0.3, 0.7)):
        E = loss.min() * part
        rest = loss.mean() - E
        start = [np.log(E), np.log(rest * share), alpha, np.log(rest * (1 - share)), beta]
        for method in ("BFGS", "Nelder-Mead"):  # the second ends where the first stops at a kink
            tight = {"gtol": 1e-12} if method == "BFGS" else {"xatol": 1e-10, "fatol": 1e-16, "maxfev": 20000}
            found = minimize(objective, start, method=method, options=tight)
            start = found.x
        if best is None or found.fun < best.fun:
            best = found
    e, a, alpha, b, beta = best.x
    return np.exp(e), np.exp(a + alpha * np.log(N).mean()), alpha, np.exp(b + beta * np.log(D).mean()), beta


with open("test/golden/law.tsv", "w") as out:
    for corpus in ("stories", "text"):
        law = fit(*read(f"dev/forecast/results/{corpus}.tsv"))
        out.write("\t".join([corpus] + [f"{number:.8g}" for number in law]) + "\n")
