"""Read the study with pandas.

Every record of every run of the study is in one Parquet file. A few lines of pandas ask it a question of your
own; here: what do twenty configurations gain over the default one, if no true label helps to choose?

    python examples/read_study.py [FOLDER] [STUDY.parquet]
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "read_study")
folder.mkdir(exist_ok=True)
default = Path(__file__).parents[1] / "results" / "study.parquet"
path = sys.argv[2] if len(sys.argv) > 2 else default

# %%
# A row per record; docs/results-file.md describes the columns, of which `experiment` is JSON. What follows
# is about the methods that have all twenty configurations on Lost, trained for 10,000 updates of the
# network MLP.
identity = ["folder", "dataset", "algorithm", "trial_seed", "hparams_seed", "experiment"]
records = pd.read_parquet(path, columns=[*identity, "step", "val_covering_rate", "test_acc"])
print(f"{len(records):,} records of {records['folder'].nunique():,} runs")
records = records[(records["dataset"] == "Lost") & (records["step"] > 0)]
settings = records["experiment"].map(json.loads)
records = records[settings.map(lambda each: (each["model"], each["steps"]) == ("MLP", 10_000))]
records = records[records.groupby("algorithm")["hparams_seed"].transform("nunique") == 20]

# %%
# On each split the covering rate chooses among the checkpoints of the default configuration, and of all
# twenty. Of equals the earlier checkpoint counts, then the lower number of a configuration, as in `plench
# collect`.
records = records.sort_values(["hparams_seed", "step"])


def choose(rows: pd.DataFrame) -> pd.Series:
    """Return the mean test accuracy, in %, of what the covering rate chooses on each split."""
    chosen = rows.loc[rows.groupby(["algorithm", "trial_seed"])["val_covering_rate"].idxmax()]
    return 100 * chosen.groupby("algorithm")["test_acc"].mean()


table = pd.DataFrame({"default": choose(records[records["hparams_seed"] == 0]), "of twenty": choose(records)})
table["gain"] = table["of twenty"] - table["default"]
table = table.sort_values("of twenty")
print(table[::-1].round(1).to_string())
print(f"median gain: {table['gain'].median():.1f} points; {(table['gain'] <= 0).sum()} methods gain nothing")

# %%
# Picture: the methods from best to worst, each with its test accuracy on Lost: a ring for the default
# configuration, a dot for the one that is chosen of twenty. Most lines between the two are short; a few
# methods gain a lot.
fig, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
axes.hlines(table.index, table["default"], table["of twenty"], color="#9aa7b4", lw=2)
axes.plot(table["default"], table.index, "o", color="white", mec="#c44e28", mew=1.5, label="default")
axes.plot(table["of twenty"], table.index, "o", color="#1f4e79", label="chosen of twenty, no true labels")
axes.set(xlabel="test accuracy in %", title="What a search gains on Lost")
axes.grid(axis="x", alpha=0.3)
axes.tick_params(axis="y", labelsize=8)
axes.margins(y=0.02)
fig.legend(loc="outside lower center", ncols=2, frameon=False)
fig.savefig(folder / "read_study.png", dpi=90)
