"""Datasets to measure on: those known by name, and made-up ones of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plench.data import Dataset, DatasetCard, load_dataset
from plench.errors import UsageError

SYNTHETIC = "Synthetic_"


def find_data(name: str, data_dir: Path | None) -> Dataset:
    """Return a dataset by name; `Synthetic_N` has N examples of 50 features, 10 classes, 3 candidates."""
    if not name.startswith(SYNTHETIC):
        return load_dataset(name, data_dir)
    number = name.removeprefix(SYNTHETIC)
    if not number.isdecimal() or int(number) < 100:
        raise UsageError(f"{name!r}: a made-up dataset is {SYNTHETIC}N with N of at least 100")
    random = np.random.default_rng(0)
    labels = random.integers(10, size=int(number))
    classes = np.arange(10)
    candidates = (classes == labels[:, None]) | ((classes - labels[:, None]) % 10 <= 2)
    card = DatasetCard(name, "tabular", "none", "made up", "none", "none", default_steps=1000)
    return Dataset(random.normal(size=(int(number), 50)), candidates, labels, card)
