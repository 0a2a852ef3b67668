"""A criterion of your own for choosing checkpoints and configurations, without true labels.

plench train -a PRODEN -d Digits_FPS --more-criteria own_criterion.py:MARGIN
plench collect runs --criteria own_criterion.py:MARGIN CR
"""

import sys

import numpy as np

import plench
from plench.criteria import Criterion


def margin(logits, candidates, labels):
    """Return the mean gap between the best candidate and the best other class (validation split)."""
    logits, candidates = np.asarray(logits), np.asarray(candidates, bool)
    inside = np.where(candidates, logits, -np.inf).max(1)
    outside = np.where(candidates, -np.inf, logits).max(1)
    partial = np.isfinite(outside)  # a full set has no other class
    return float((inside - outside)[partial].mean()) if partial.any() else None


MARGIN = Criterion(
    name="MARGIN",
    title="Margin",
    meaning="mean gap between the best candidate and the best other class",
    record_key="val_margin",
    measure=margin,
    needs_labels=False,
    position=50,
)

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs"
    outcome = plench.train(
        "PRODEN", "Digits_FPS", folder, steps=300, checkpoint_freq=100, more_criteria=MARGIN
    )
    for row in plench.results(folder).cells():
        if row["criterion"].startswith("MARGIN"):
            print(f"{row['criterion']} chooses {100 * row['mean_test_accuracy']:.1f} % on {row['dataset']}")
