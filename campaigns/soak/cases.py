"""The runs that are disturbed: every algorithm, all of its phases within a few updates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.golden.cases import (
    ALGORITHMS,
    ANSWERED,
    FITTED,
    IMAGE_LR,
    IMAGES,
    OF_ANSWERS,
    ON_SCHEDULE,
    TABULAR,
)

STEPS = 16
IMAGE_SHARE = 0.1  # of the runs of networks
ALL = (*ALGORITHMS, *FITTED)
DATA = {"tabular": TABULAR, "images": IMAGES, "answered": ANSWERED}


@dataclass(frozen=True)
class Case:
    """One run, by the words of the command that carries it out."""

    name: str
    algorithm: str
    words: tuple[str, ...]


def choose_case(random: Random, algorithm: str) -> Case:
    """Return a run of an algorithm."""
    seed = random.randrange(2)
    if algorithm in FITTED:
        data = "answered" if algorithm in OF_ANSWERS else "tabular"
        return make_case(algorithm, data, FITTED[algorithm], None, seed)
    hparams = {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {})}
    if random.random() < IMAGE_SHARE:
        return make_case(algorithm, "images", {**hparams, "model": "CNN", "lr": IMAGE_LR}, STEPS, seed)
    return make_case(algorithm, "tabular", hparams, STEPS, seed)


def make_case(algorithm: str, data: str, hparams: dict[str, Any], steps: int | None, seed: int) -> Case:
    """Return a run; the golden runs of the same hyperparameters show that it enters every phase."""
    words = (
        *("train", "-a", algorithm, "-d", str(DATA[data]), "--hparams", json.dumps(hparams)),
        *(("--steps", str(steps), "--checkpoint_freq", "3") if steps else ()),
        *("--seed", str(seed), "--device", "cpu", "--threads", "1"),
    )
    return Case(f"{data}-{algorithm}-{seed}", algorithm, words)
