"""A sweep with Ray.

Runs become tasks of a Ray cluster. Without an address plench starts a small Ray on this machine, as here; for
a cluster only the address is added.

    pip install '.[ray]'
    python examples/ray_sweep.py [FOLDER]
"""

import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import plench
from plench.cli import main

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "ray_sweep")


def run(command: str) -> None:
    """Run a command of plench as a shell would."""
    print(f"$ {command}", flush=True)
    assert main(shlex.split(command)[1:]) == 0


# %%
# Three methods, eight configurations of each, one split; two tasks at a time. For a cluster write
# `--ray-address HOST:PORT` in place of `--workers 2`. Without `--quiet` there is a line per run.
runs = "--algorithms PRODEN LWS EXP --datasets Digits_FPS --fps-rate 0.7 --n-hparams 8 --n-trials 1"
settings = "--steps 200 --checkpoint-freq 50 --skip-model-save"
ray = "--command-launcher ray --workers 2 --quiet"
run(f"plench sweep launch {runs} {settings} {ray} --output-dir {folder}")

# %%
# Are the numbers those of a run without Ray? Two runs, drawn at random, are repeated here.
run(f"plench results verify {folder} --sample 2")

# %%
# The covering rate of validation examples chooses a checkpoint of each run, and a run of each method.
results = plench.results(folder)
records = results.frame("records").query("step > 0")
best = records.loc[records.groupby("folder")["val_covering_rate"].idxmax()]
chosen = results.frame("chosen").query("criterion == 'CR'").set_index("algorithm")
print(f"{len(best)} runs; chosen by the covering rate:")
print(chosen[["hparams_seed", "step", "criterion_value", "test_accuracy"]].round(3).to_string())

# %%
# Picture: a point for the best checkpoint of each run, by its covering rate and its test accuracy. The
# higher the one, the higher the other. A ring marks the run that is chosen for each method: one of its
# points furthest to the right.
fig, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for (name, points), marker in zip(best.groupby("algorithm"), "osv", strict=True):
    axes.plot(100 * points["val_covering_rate"], 100 * points["test_acc"], marker, alpha=0.7, label=name)
x, y = 100 * chosen["criterion_value"], 100 * chosen["test_accuracy"]
axes.plot(x, y, "ko", ms=13, mfc="none", label="chosen without true labels")
axes.set(xlabel="covering rate of validation examples in %", ylabel="test accuracy in %")
axes.set_title("What the sweep found: a point per run")
axes.grid(alpha=0.3)
axes.legend()
fig.savefig(folder / "ray_sweep.png", dpi=100)
