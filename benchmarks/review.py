"""How well rows to relabel and annotators are found where the truth is known; writes docs/results/review.md.

    python benchmarks/review.py --data-dir DIR        about ten minutes on a quiet core

PRODEN in its default configuration is trained on all rows but a fold, five times, for three divisions into
folds; the truth is used to score the rankings only.
"""

import argparse
import platform
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

import plench
from plench.data import as_dataset
from plench.data.answers import count_votes
from plench.estimator.inputs import hide_truth
from plench.estimator.review import (
    LEAST_ANSWERS,
    MISSING,
    find_doubts,
    rate_annotators,
    resolve,
    review_fit,
)
from plench.estimator.search import NETWORK, TrainingData

PAGE = Path(__file__).parents[1] / "docs" / "results" / "review.md"
DATASETS = ("LabelMe_Crowd", "Music_Crowd", "EmotionLines")
TOP = 50
SEEDS = (0, 1, 2)


def score(wrong: np.ndarray, evidence: np.ndarray) -> tuple[float, float]:
    """Return precision among the first rows and the area under the curve; ties are broken at random."""
    order = np.lexsort((np.random.RandomState(0).rand(len(wrong)), -evidence))
    return float(wrong[order[:TOP]].mean()), float(roc_auc_score(wrong, evidence))


def measure(
    name: str, data_dir: str, seeds: tuple[int, ...]
) -> tuple[list[list[str]], list[str], list[str] | None]:
    """Return the rows of the first table and those of the others; the last where answers have annotators."""
    whole = as_dataset(name, data_dir)
    data, truth = hide_truth(whole), whole.labels
    assert truth is not None
    assert data.answers is not None
    wrong = ~data.candidates[np.arange(data.n_examples), truth]
    votes = count_votes(data.answers)
    rankings: dict[str, list[tuple[float, float]]] = {
        "entropy of the answers": [score(wrong, stats.entropy(votes, axis=1))],
        "model trained on the rows": [],
        "out of fold": [],
    }
    listed: list[list[str]] = []
    skills, agreements = [], []
    for seed in seeds:
        model = plench.PartialLabelClassifier("PRODEN", random_state=seed).fit(data).model_
        own = resolve(model.predict_proba(data.features), data.candidates, data.label_names, data.answers)
        rankings["model trained on the rows"].append(score(wrong, own.outside))
        found = review_fit(TrainingData(data), model, np.arange(0), seed)
        rankings["out of fold"].append(score(wrong, found.outside))
        doubts = find_doubts(found)
        sure = [each.row for each in doubts if each.kind == "misses"]
        both = sure + [each.row for each in doubts if each.kind == "may_miss"]
        parts = (sure, both, both[:TOP])
        kinds = Counter(each.kind for each in doubts)
        listed.append(
            [f"{wrong[rows].sum()} of {len(rows)}" for rows in parts]
            + [str(kinds["tie"]), str(kinds["split"])]
        )
        ratings = [each for each in rate_annotators(found) if each.n_answers >= LEAST_ANSWERS]
        known = data.answers.annotator_names or [str(n) for n in range(data.answers.annotator.max() + 1)]
        right = data.answers.sets[np.arange(len(data.answers.item)), truth[data.answers.item]]
        true = [right[data.answers.annotator == known.index(each.annotator)].mean() for each in ratings]
        if len(ratings) > 5:
            skills.append(stats.spearmanr(true, [each.skill for each in ratings]).statistic)
            agreements.append(sum(each.flag != "" for each in ratings))
    rows = [
        [
            name if n == 0 else "",
            f"{data.n_examples:,}" if n == 0 else "",
            f"{wrong.sum():,}" if n == 0 else "",
            ranking,
            " / ".join(f"{value:.2f}" for value, _ in values),
            " / ".join(f"{value:.3f}" for _, value in values),
        ]
        for n, (ranking, values) in enumerate(rankings.items())
    ]
    shown = [name, *(" / ".join(column) for column in zip(*listed, strict=True))]
    if not skills:
        return rows, shown, None
    rated = [name, str(len(ratings)), " / ".join(f"{value:.2f}" for value in skills)]
    return rows, shown, [*rated, " / ".join(map(str, agreements))]


def render_table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", required=True, metavar="DIR")
    parser.add_argument("--datasets", nargs="+", default=DATASETS, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, metavar="N")
    options = parser.parse_args()
    sets: list[list[str]] = []
    doubts: list[list[str]] = []
    annotators: list[list[str]] = []
    for name in options.datasets:
        rows, listed, rated = measure(name, options.data_dir, tuple(options.seeds))
        sets += rows
        doubts.append(listed)
        annotators += [] if rated is None else [rated]
        print("\n".join(map(str, rows)), listed, rated, flush=True)
    header = ["dataset", "rows", "wrong sets", "ranked by", f"precision at {TOP}", "AUC"]
    kinds = ["probably miss", "probably or may miss", f"the first {TOP} of these", "ties", "splits"]
    text = f"""# What to relabel and whom to trust, measured

Written by `benchmarks/review.py` with plench {plench.__version__}, torch {torch.__version__},
{platform.machine()}. PRODEN with the network {NETWORK}; seeds: {len(options.seeds)}, their
figures separated by slashes. A set is wrong if it misses the true label. "Out of fold" ranks rows as
`plench fit` does: by the probability that the truth is outside the set, from models that were not trained on
the row and the answers of its annotators ([theory](../theory-probabilities.md#sets-that-miss-the-truth)).
"Model trained on the rows" is the same with the model itself. The true labels were used for these tables
only: no constant of the score was chosen with them. Figures of an earlier form of this
score on these data had been seen when it was chosen.

{render_table(header, sets)}

What `plench fit` lists: sets that probably miss the truth (probability above {MISSING}), sets that may miss
it (the prediction is outside the set), and how many of them do. The last columns are the numbers of the other
rows that are listed, which have a candidate as prediction.

{render_table(["dataset", *kinds], doubts)}

Annotators with at least {LEAST_ANSWERS} answers: Spearman's correlation of their skill (agreement with
out-of-fold predictions, corrected for chance) with their true accuracy, and how many are flagged.

{render_table(["dataset", "annotators", "correlation", "flagged"], annotators)}
"""
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
