"""Fifty labels settle it.

How accurate is a model that never saw a true label? Candidate sets give estimates, each under an assumption
that may be wrong. Fifty rows that a person labels give an interval that needs none.

    python examples/audit.py [FOLDER]
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

import plench
from plench.cli import main

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "audit")
folder.mkdir(exist_ok=True)
os.chdir(folder)


def run(command: str) -> None:
    """Run a command of plench as a shell would."""
    print(f"$ {command}")
    assert main(shlex.split(command)[1:]) == 0


# %%
# Shells of four species, of which two and two look alike. For seven shells in ten the annotators name both
# species of such a pair. A model that confuses just these agrees with the sets even where it is wrong.
random = np.random.default_rng(0)
species = np.array(["cowrie", "cone", "whelk", "triton"])
similar = np.array([1, 0, 3, 2])
centres = np.array([[2.0, 1.6], [2.8, 1.2], [7.0, 3.2], [8.0, 2.6]])  # length and width in cm


def find_shells(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true species and the measurements of n shells."""
    truth = random.integers(4, size=n)
    return truth, centres[truth] + random.normal(0, 0.7, (n, 2))


truth, shells = find_shells(1000)
rows = ["length,width,candidates"]
for label, (length, width) in zip(truth, shells, strict=True):
    named = [label, similar[label]] if random.random() < 0.7 else [label]
    rows.append(f"{length:.2f},{width:.2f},{'|'.join(species[named])}")
Path("shells.csv").write_text("\n".join(rows))

# %%
# Fit a model; its report is left out here. A fifth of the rows is reserved: the model is not trained on
# them. The audit draws fifty of these at random.
with contextlib.redirect_stdout(io.StringIO()):
    run("plench fit shells.csv -o model.plench -a PRODEN --steps 300")
run("plench audit model.plench shells.csv -n 50 -o audit.csv")

# %%
# A person fills in the column `label`; here it is the true species of the row. The table does not show what
# the model predicts.
table = pd.read_csv("audit.csv")
table["label"] = species[truth[table["id"] - 1]]
table.to_csv("audit.csv", index=False)
run("plench audit model.plench --labels audit.csv")

# %%
# Twenty thousand more shells show the accuracy that fifty labels were to estimate.
model = plench.PartialLabelClassifier.load("model.plench")
audited = model.estimate_accuracy(table[["length", "width"]], table["label"])
truth, shells = find_shells(20_000)
accuracy = model.score({"length": shells[:, 0], "width": shells[:, 1]}, species[truth])
print(f"accuracy on 20,000 new shells: {accuracy:.3f}")

# %%
# Picture: four intervals for the accuracy of one model, and the accuracy on new shells, a vertical line. If
# sets are complete: a very wide range. If distractors are uniform: narrow, but to the right of the line. If
# they are confusable: wide, and to the left of it. From fifty labels: with the line in its middle.
found = model.quality_
rows = {
    "sets are complete\n(a range)": found.certain,
    "distractors are uniform\n(assumed)": found.uniform,
    "distractors are confusable\n(assumed)": found.confusable,
    "50 labelled rows\n(nothing assumed)": audited,
}
fig, axes = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
for place, each in enumerate(rows.values()):
    colour = "#1f4e79" if each is audited else "#8a97a5"
    axes.plot([each.low, each.high], [place, place], color=colour, lw=5, solid_capstyle="butt")
    if each is not found.certain:
        axes.plot(each.value, place, "o", color="white", mec=colour, mew=2, ms=8)
axes.axvline(accuracy, color="#c44e28", ls="--")
axes.text(accuracy - 0.005, -0.75, "20,000 new shells ", color="#c44e28", ha="right", va="center")
axes.set(yticks=range(4), yticklabels=rows, ylim=(3.6, -1.1), xlim=(None, 1), xlabel="accuracy")
axes.set_title("The accuracy of one model, by what is assumed")
fig.savefig("audit.png", dpi=110)
