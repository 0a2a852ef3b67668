"""An algorithm of your own, in a notebook.

A class that a notebook defines is trained, checked and compared as it is: no file to write, nothing to
register. The cells of this script are those of a notebook (Jupyter, VS Code and Spyder run them one by one).

    python examples/own_algorithm.py [FOLDER]
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from torch import Tensor

import plench
from plench.algorithms import Batch, LossAlgorithm, register
from plench.hparams import Choice, Hyperparameter

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own_algorithm")


# %%
# The idea: targets are the model's own probabilities over the candidates, at a temperature. A low one
# trusts the largest candidate, a high one gives each the same weight.
@register(
    "Tempered",
    views=("weak",),
    hyperparameters=(
        Hyperparameter("temperature", 1.0, "of the targets", Choice(0.3, 1.0, 3.0), at_least=0.01),
    ),
)
class Tempered(LossAlgorithm):
    """Targets are the model's probabilities over the candidates, at a temperature."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy with the targets."""
        inside = logits.detach().masked_fill(~batch.candidates, float("-inf"))
        targets = (inside / self.hparams["temperature"]).softmax(-1)
        return -(targets * logits.log_softmax(-1)).sum(-1).mean()


# %%
# Does it keep the contract: exact resumption, no use of true labels, nothing that loops over examples? In a
# notebook `plench.check(Tempered)` alone shows the whole report; here is its last line.
print(str(plench.check(Tempered)).splitlines()[-1])

# %%
# Train it on digits whose wrong labels are candidates seven times in ten, at six temperatures and on three
# splits, and train PRODEN for comparison.
runs = [("PRODEN", {})] + [(Tempered, {"temperature": each}) for each in (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)]
for algorithm, hparams in runs:
    for trial in range(3):
        plench.train(
            *(algorithm, "Digits_FPS", folder),
            hparams=hparams,
            trial_seed=trial,
            steps=300,
            fps_rate=0.7,
            progress=False,
        )

# %%
# The source of the class is stored with its runs, and its hash is part of the name.
last = plench.results(folder).frame("records").query("step == 299")
print(last.groupby("algorithm").size().rename("runs").to_string())
proden = last[last["algorithm"] == "PRODEN"]["test_acc"]
own = last[last["algorithm"] != "PRODEN"]
own = own.assign(temperature=own["hparams"].map(json.loads).str["temperature"])
means = 100 * own.groupby("temperature")["test_acc"].mean()
print(means.round(1).to_string())
print(f"PRODEN: {100 * proden.mean():.1f}")

# %%
# Picture: test accuracy by temperature, from 0.1 to 100 on a logarithmic axis. The mean of the three splits
# has a sharp peak at 1, where it meets the line of PRODEN; it is lowest at 0.1, and flat from 3 on.
fig, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.semilogx(own["temperature"], 100 * own["test_acc"], "o", color="#9aa7b4", label="Tempered, three splits")
axes.semilogx(means, "-", lw=2, color="#1f4e79", label="their mean")
axes.axhline(100 * proden.mean(), ls="--", color="#c44e28", label="mean of PRODEN")
axes.set(xlabel="temperature", ylabel="test accuracy in %", title="How soft should the targets be?")
axes.set(xticks=means.index, xticklabels=[f"{each:g}" for each in means.index])
axes.minorticks_off()
axes.legend()
fig.savefig(folder / "own_algorithm.png", dpi=100)
