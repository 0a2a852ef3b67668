"""A spreadsheet of your own: features of several kinds, gaps, and a column of candidate labels.

python examples/own_table.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own_table")
folder.mkdir(exist_ok=True)

# The table: one row an animal. In `candidates` the labels that were considered possible.
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

# plench train -a PRODEN -d animals.csv
outcome = plench.train("PRODEN", folder / "animals.csv", folder / "runs", steps=300, progress=False)

# plench predict FOLDER new.csv: columns in any order, others are ignored.
(folder / "new.csv").write_text("tame,name,weight,colour\ntrue,Rex,22,brown\nfalse,Hazel,,white\n")
model = plench.load(outcome.folder)
for name, label, probs in zip(
    ["Rex", "Hazel"], model.predict(folder / "new.csv"), model.predict_proba(folder / "new.csv"), strict=True
):
    print(f"{name}: {label} ({probs.max():.0%})")
