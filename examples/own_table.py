"""A table with candidate labels.

A CSV file with features of several kinds, gaps, and a column of the labels that were considered possible.
A model learns from it and predicts new rows.

    python examples/own_table.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own_table")
folder.mkdir(exist_ok=True)

# %%
# The table has one row per animal. `candidates` names the true animal and one other.
random = np.random.default_rng(0)
animals = ["cat", "dog", "rabbit"]
rows = ["weight,colour,tame,candidates"]
for number in range(400):
    label = random.integers(3)
    weight = "" if number % 20 == 0 else f"{(4, 20, 2)[label] * random.uniform(0.7, 1.3):.2f}"
    colour = random.choice(["black", "brown", "white"])
    tame = random.random() < (0.7, 0.9, 0.4)[label]
    other = (label + random.integers(1, 3)) % 3
    rows.append(f"{weight},{colour},{tame},{animals[label]}|{animals[other]}")
(folder / "animals.csv").write_text("\n".join(rows))
print("\n".join(rows[:4]))

# %%
# On the command line: `plench train -a PRODEN -d animals.csv`.
outcome = plench.train("PRODEN", folder / "animals.csv", folder / "runs", steps=300, progress=False)

# %%
# New rows may have their columns in any order; other columns are ignored. On the command line:
# `plench predict FOLDER new.csv`.
(folder / "new.csv").write_text("tame,name,weight,colour\ntrue,Rex,22,brown\nfalse,Hazel,,white\n")
model = plench.load(outcome.folder)
for name, label, probs in zip(
    ["Rex", "Hazel"], model.predict(folder / "new.csv"), model.predict_proba(folder / "new.csv"), strict=True
):
    print(f"{name}: {label} ({probs.max():.0%})")

# %%
# Picture: the probability of cat, dog and rabbit by weight. Rabbit is the most probable for the lightest, cat
# between, dog for the heaviest; where two curves cross, both are about equally probable.
weights = np.geomspace(1, 30, 100)
probs = model.predict_proba({"weight": weights, "colour": ["brown"] * 100, "tame": [True] * 100})
fig, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for column, style in enumerate(["-", "--", ":"]):
    axes.plot(weights, probs[:, column], style, lw=2, label=model.classes[column])
axes.set(xscale="log", xticks=[1, 2, 4, 8, 16, 30], xticklabels=[1, 2, 4, 8, 16, 30])
axes.set(xlabel="weight in kg", ylabel="probability", title="What a tame brown animal of this weight is")
axes.minorticks_off()
axes.legend()
fig.savefig(folder / "own_table.png", dpi=110)
