"""Prediction sets with a promise.

Where one label would be a guess, a model can name several: sets that contain the true label with a
probability of your choice. Candidate sets are enough to calibrate them; a hundred true labels make them much
smaller.

    python examples/prediction_sets.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "prediction_sets")
folder.mkdir(exist_ok=True)

# %%
# Blurred digits. Each set has the true digit, and every other digit with probability 0.1.
random = np.random.default_rng(0)
digits, truth = load_digits(return_X_y=True)
blurred = digits + random.normal(0, 4, digits.shape)
X, X_new, y, y_new = train_test_split(blurred, truth, test_size=0.4, random_state=0)
S = (random.random((len(y), 10)) < 0.1) | (np.arange(10) == y[:, None])

# %%
# `reserve` keeps a fifth of the rows out of training, on which the sets are calibrated. Their promise holds
# if every candidate set contains the true label, as here.
model = plench.PartialLabelClassifier("PRODEN", steps=500, reserve=0.2, random_state=0).fit(X, S)
print(f"accuracy on new rows: {model.score(X_new, y_new):.1%}")
asked = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
by_sets = [model.predict_set(X_new, coverage, promise="truth_if_complete") for coverage in asked]

# %%
# A hundred true labels of rows that were not trained on, drawn at random, promise the same without an
# assumption. The promise is an average over such draws: one draw of a hundred may be several points off.
# Fifty draws are made here; each is measured on the other new rows.
by_labels = np.empty((50, len(asked), 2))
for draw in range(50):
    shuffled = random.permutation(len(y_new))
    labelled, others = shuffled[:100], shuffled[100:]
    model.calibrate(X_new[labelled], y=y_new[labelled])
    for number, coverage in enumerate(asked):
        sets = model.predict_set(X_new[others], coverage, promise="truth")
        by_labels[draw, number] = sets[np.arange(len(others)), y_new[others]].mean(), sets.sum(1).mean()
for row in others[:4]:
    names = np.flatnonzero(model.predict_set(X_new[[row]], 0.95)[0])
    print(f"true digit {y_new[row]}, set for 95 %: {', '.join(map(str, names))}")

# %%
# What was asked for, what was found, and the mean number of classes in a set.
shares = [sets[np.arange(len(y_new)), y_new].mean() for sets in by_sets]
sizes = [sets.sum(1).mean() for sets in by_sets]
mean, spread = by_labels.mean(0), by_labels.std(0)
print("asked  candidate sets  100 true labels (50 draws)")
for n, coverage in enumerate(asked):
    found = f"{shares[n]:.1%} ({sizes[n]:.1f})"
    print(f"{coverage:.0%}    {found:14}  {mean[n, 0]:.1%} ± {spread[n, 0]:.1%} ({mean[n, 1]:.1f})")

# %%
# Picture: two panels by the coverage that was asked for. Left, the share of sets with the true digit:
# nearly all if calibrated on candidate sets; if calibrated on true labels it follows the diagonal, with
# bars for the spread of single draws. Right, the mean number of classes in a set: by candidate sets it
# grows to nearly all ten, by true labels it stays close to one.
fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
left.plot(asked, asked, "k:", label="asked for")
left.plot(asked, shares, "o-", label="by candidate sets")
left.errorbar(asked, mean[:, 0], spread[:, 0], fmt="s--", capsize=3, label="by 100 true labels")
left.set(xlabel="coverage asked for", ylabel="sets with the true digit", title="Is the promise kept?")
left.legend()
right.plot(asked, sizes, "o-", label="by candidate sets")
right.errorbar(asked, mean[:, 1], spread[:, 1], fmt="s--", capsize=3, label="by 100 true labels")
right.set(xlabel="coverage asked for", ylabel="classes per set", title="What does it cost?", ylim=(0, 10))
fig.savefig(folder / "prediction_sets.png", dpi=100)
