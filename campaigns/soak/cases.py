"""The runs that are disturbed: every algorithm, all of its phases within a few updates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from tests.golden.cases import ALGORITHMS, IMAGE_LR, IMAGES, ON_SCHEDULE, TABULAR

STEPS = 16
CLASSICAL_STEPS = 4
IMAGE_SHARE = 0.1  # of the runs of networks


@dataclass(frozen=True)
class Case:
    """One run, by the words of the command that carries it out."""

    name: str
    algorithm: str
    words: tuple[str, ...]


@cache
def list_classical() -> tuple[str, ...]:
    """Return the classical methods that need no answers of annotators."""
    from plench.sweeps.suites import own_algorithms

    return own_algorithms(lambda card: card.family == "classical" and not card.answers)


def choose_case(random: Random) -> Case:
    """Return a run of any algorithm."""
    algorithm = random.choice((*ALGORITHMS, *list_classical()))
    seed = random.randrange(2)
    if algorithm not in ALGORITHMS:
        return make_case(algorithm, "tabular", {}, CLASSICAL_STEPS, seed)
    hparams = {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {})}
    if random.random() < IMAGE_SHARE:
        return make_case(algorithm, "images", {**hparams, "model": "CNN", "lr": IMAGE_LR}, STEPS, seed)
    return make_case(algorithm, "tabular", hparams, STEPS, seed)


def make_case(algorithm: str, data: str, hparams: dict[str, Any], steps: int, seed: int) -> Case:
    """Return a run; the golden runs of the same hyperparameters show that it enters every phase."""
    words = (
        *("train", "-a", algorithm, "-d", str(TABULAR if data == "tabular" else IMAGES)),
        *("--hparams", json.dumps(hparams), "--steps", str(steps), "--checkpoint_freq", "3"),
        *("--seed", str(seed), "--device", "cpu", "--threads", "1"),
    )
    return Case(f"{data}-{algorithm}-{seed}", algorithm, words)
