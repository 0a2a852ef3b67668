"""What to relabel.

Some candidate sets miss the truth. plench ranks the rows by evidence from models that were not trained on
them, so that a person who checks a few finds most of the mistakes.

    python examples/relabel.py [FOLDER]
"""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from plench.cli import main

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "relabel")
folder.mkdir(exist_ok=True)
os.chdir(folder)


def run(command: str) -> None:
    """Run a command of plench as a shell would."""
    print(f"$ {command}")
    assert main(shlex.split(command)[1:]) == 0


# %%
# Handwritten digits. Each wrong digit is a candidate with probability 0.1. With probability 0.05 a set has
# lost the right digit and has another in its place.
random = np.random.default_rng(0)
digits, truth = load_digits(return_X_y=True)
rows = np.arange(len(truth))
sets = random.random((len(truth), 10)) < 0.1
sets[rows, truth] = True
lost = random.random(len(truth)) < 0.05
wrong = (truth + random.integers(1, 10, len(truth))) % 10
sets[lost, truth[lost]] = False
sets[lost, wrong[lost]] = True
np.savez("digits.npz", features=digits, candidates=sets)

# %%
# `fit` trains the model and five more, each without a fifth of the rows; its report is left out here.
# `resolve` writes the rows to check, the most urgent first, each with a reason.
with contextlib.redirect_stdout(io.StringIO()):
    run("plench fit digits.npz -o model.plench -a PRODEN --steps 500")
run("plench resolve model.plench digits.npz -o resolved.csv --relabel relabel.csv")
table = pd.read_csv("relabel.csv")
print(*table["reason"][:5], sep="\n")

# %%
# The truth is known here, so the ranking can be judged.
listed = table["row"].to_numpy() - 1
found = np.cumsum(~sets[listed, truth[listed]])
n_lost = np.sum(~sets[rows, truth])
print(f"{n_lost} of {len(truth):,} sets miss the truth")
for n in (20, n_lost, len(listed)):
    by_chance = n * n_lost / len(truth)
    print(f"the first {n} rows on the list: {found[n - 1]} of them, {by_chance:.1f} in random order")

# %%
# Picture: left, mistakes found by rows checked. In the order of the list nearly every row that is checked is
# a mistake until nearly all are found; in random order hardly any is. Right, the first six images on the
# list, with the candidates of each as a question.
fig = plt.figure(figsize=(7.4, 3.3), layout="constrained")
left, right = fig.subfigures(1, 2, width_ratios=[1.25, 1])
axes = left.subplots()
axes.plot(range(1, len(listed) + 1), found, lw=2, color="#1f4e79", label="in the order of the list")
axes.plot([0, len(listed)], [0, by_chance], "--", color="#c44e28", label="in random order")
axes.axhline(n_lost, color="grey", lw=1, ls=":", label="all mistakes")
axes.set(xlabel="rows checked", ylabel="mistakes found", title="Sets that miss the truth")
axes.legend(loc="center right")
for row, axes in zip(listed, right.subplots(2, 3).flat, strict=False):
    axes.imshow(digits[row].reshape(8, 8), cmap="gray_r")
    axes.set_title(f"{' or '.join(map(str, np.flatnonzero(sets[row])))}?", fontsize=10)
    axes.axis("off")
right.suptitle("The first on the list", fontsize=12)
fig.savefig("relabel.png", dpi=100)
