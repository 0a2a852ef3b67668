"""A dataset of your own with a name, a card and a loader; a table needs none of this (own_table.py).

plench train -a PRODEN -d own_dataset.py:RINGS
"""

import sys
from pathlib import Path

import numpy as np

import plench
from plench.data import Dataset, DatasetCard
from plench.data.sources.base import Source

CARD = DatasetCard(
    name="Rings",
    kind="tabular",
    task="three rings of points; neighbouring rings are confused",
    source="drawn at random",
    terms="none",
    citation="none",
    default_steps=500,
)


def load(data_dir: Path | None) -> Dataset:
    """Return the data; `data_dir` is what the user gave as --data-dir."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 600)
    angle, radius = random.uniform(0, 2 * np.pi, 600), labels + random.normal(1, 0.15, 600)
    features = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    near = np.abs(labels[:, None] - np.arange(3)) <= 1
    candidates = near & (random.random((600, 3)) < 0.5) | (labels[:, None] == np.arange(3))
    return Dataset(features, candidates, labels, CARD)


RINGS = Source(CARD, load)

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs"
    outcome = plench.train("PRODEN", RINGS, folder)
    print(outcome.status, outcome.folder.name)
    print("a point of the inner ring:", plench.load(outcome.folder).predict(np.float32([[1.0, 0.0]]))[0])
