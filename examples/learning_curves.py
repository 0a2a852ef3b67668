"""Learning curves, and when to stop.

Where candidate sets often miss the truth, a network learns first what is right and then what is wrong. The
covering rate of validation examples shows when to stop, without a true label.

    python examples/learning_curves.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import plench

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "learning_curves")
methods = {"PRODEN": "#1f4e79", "EXP": "#c44e28"}

# %%
# Handwritten digits; three sets in ten lack the true digit. Each method is trained on three splits, and
# evaluated every 25 updates. On the command line: `plench sweep launch --algorithms PRODEN EXP --datasets
# Digits_FPS --n-hparams 1 --n-trials 3 --steps 500 --checkpoint-freq 25 --drop-true-rate 0.3
# --holdout-fraction 0.3`.
plench.sweep(
    list(methods),
    "Digits_FPS",
    folder,
    n_hparams=1,
    n_trials=3,
    steps=500,
    checkpoint_freq=25,
    drop_true_rate=0.3,
    holdout_fraction=0.3,
    progress=False,
)

# %%
# `records` has a row per evaluation, `chosen` the checkpoint of each split that a criterion chooses. The
# covering rate (CR) of the validation examples uses their candidate sets only.
results = plench.results(folder)
records, chosen = results.frame("records"), results.frame("chosen")
chosen = chosen[chosen["criterion"] == "CR"]
for name in methods:
    runs = records[records["algorithm"] == name].groupby("trial_seed")["test_acc"]
    found = chosen[chosen["algorithm"] == name]["test_accuracy"].mean()
    print(f"{name}: test accuracy {found:.1%} chosen by CR, {runs.max().mean():.1%} at best,", end=" ")
    print(f"{runs.last().mean():.1%} at the end")

# %%
# Picture: two panels by update, with three lines for each of two methods. Left, test accuracy: it rises
# steeply, then falls, for PRODEN far more than for EXP. Right, the covering rate: it has its peaks at about
# the same updates. A dot marks the highest covering rate of each line, and on the left the same update,
# near the top.
fig, panels = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
for name, colour in methods.items():
    runs = records[(records["algorithm"] == name) & (records["step"] > 0)]
    steps = chosen[chosen["algorithm"] == name]["step"]
    for (_, run), step in zip(runs.groupby("trial_seed"), steps, strict=True):
        for axes, key in zip(panels, ["test_acc", "val_covering_rate"], strict=True):
            axes.plot(run["step"], 100 * run[key], color=colour, lw=1)
            axes.plot(step, 100 * run.set_index("step")[key][step], "o", color=colour)
    panels[0].plot([], [], color=colour, label=f"{name}, three splits")
panels[0].plot([], [], "ko", label="highest covering rate")
panels[0].set(xlabel="updates", ylabel="test accuracy in %", title="What nobody sees")
panels[1].set(xlabel="updates", ylabel="covering rate in %", title="What validation sets show")
panels[0].legend(loc="lower left", fontsize=9)
fig.savefig(folder / "learning_curves.png", dpi=100)
