"""Is one method better than another?

Ten splits of one dataset share most of their training examples, so their differences are not independent. The
usual t-test takes them as if they were, and finds too much. The corrected test allows for it.

    python examples/two_methods.py [FOLDER]
"""

import contextlib
import io
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import plench
from plench.cli import main

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "two_methods")

# %%
# Two methods on the same ten splits of handwritten digits. The pair was picked among several because the
# two tests disagree on it: it shows what the correction does, not how often that matters.
plench.sweep(
    ["PRODEN", "CAVL"],
    "Digits_FPS",
    folder,
    n_hparams=1,
    n_trials=10,
    steps=200,
    checkpoint_freq=100,
    fps_rate=0.5,
    progress=False,
)

# %%
# The difference on each split, in points, of the checkpoints that the covering rate chooses.
results = plench.results(folder)
chosen = results.frame("chosen").query("criterion == 'CR'")
accuracy = 100 * chosen.pivot(index="trial_seed", columns="algorithm", values="test_accuracy")
difference = accuracy["PRODEN"] - accuracy["CAVL"]
n, mean, spread = len(difference), difference.mean(), difference.std()
print(f"PRODEN less CAVL: {mean:.2f} points on average over {n} splits")

# %%
# Independent splits would have a mean with variance s²/n. Nadeau and Bengio (2003) put 1/n + n_test/n_train
# in place of 1/n, since every training example is in nearly every split.
split = results.runs[0].info["dataset"]
factors = {"usual": 1 / n, "corrected": 1 / n + split["n_test"] / split["n_train"]}
intervals = {}
for name, factor in factors.items():
    error = spread * np.sqrt(factor)
    p_value = 2 * stats.t.sf(abs(mean) / error, n - 1)
    intervals[name] = mean + error * stats.t.ppf([0.025, 0.975], n - 1)
    print(f"{name} t-test: {intervals[name][0]:.2f} to {intervals[name][1]:.2f}, p = {p_value:.3f}")

# %%
# `plench results stats` has the corrected test for each pair of methods, and tests over datasets where
# there are several. Of its tables the line about this pair:
with contextlib.redirect_stdout(io.StringIO()) as printed:
    main(["results", "stats", str(folder), "--criteria", "CR"])
print(*[line for line in printed.getvalue().splitlines() if "(p " in line])

# %%
# Picture: ten differences on an axis, most of them above zero, one far beyond the others. Below, two
# intervals around their mean: the usual one ends just short of zero, the corrected one contains it.
fig, axes = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
axes.plot(difference, np.full(n, 2), "o", color="#8a97a5", alpha=0.8)
for place, (name, colour) in enumerate([("corrected", "#1f4e79"), ("usual", "#c44e28")]):
    axes.plot(intervals[name], [place, place], color=colour, lw=5, solid_capstyle="butt")
    axes.plot(mean, place, "o", color="white", mec=colour, mew=2, ms=8)
axes.axvline(0, color="black", lw=1, ls=":")
axes.set(yticks=[0, 1, 2], yticklabels=["95 % interval,\ncorrected", "95 % interval,\nusual", "ten splits"])
axes.set(ylim=(-0.6, 2.6), xlabel="test accuracy of PRODEN less that of CAVL, in points")
axes.set_title("Is PRODEN better than CAVL on these data?")
fig.savefig(folder / "two_methods.png", dpi=100)
