"""Fitted methods without a run: built on given features, updated round by round."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.classical.parts.answers import Answers
from plench.algorithms.fitted import FittedAlgorithm


class GivenInputs:
    """Training inputs as they are given, in float64."""

    def __init__(self, features: np.ndarray) -> None:
        self.features = torch.from_numpy(np.asarray(features, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.features)

    def original(self, start: int, stop: int) -> Tensor:
        return self.features[start:stop]


def build(
    cls: type[FittedAlgorithm],
    features: np.ndarray,
    candidates: np.ndarray,
    seed: int = 0,
    answers: Answers | None = None,
    **hparams: Any,
) -> Any:
    """Build a fitted method with defaults for the hyperparameters that are not given."""
    own = {parameter.name: parameter.default for parameter in cls.card.hyperparameters}
    assert set(hparams) <= set(own)
    algorithm = cls(np.shape(features), np.asarray(candidates), {**own, **hparams})
    algorithm.seed = seed
    algorithm.attach_inputs(GivenInputs(features))
    if answers is not None:
        algorithm.attach_answers(answers)
    return algorithm


def rounds(algorithm: FittedAlgorithm) -> Iterator[float]:
    """Prepare, then make the rounds; yield the loss of each."""
    algorithm.update()
    for _ in range(algorithm.rounds):
        yield float(algorithm.update()["loss"])


def fit(algorithm: FittedAlgorithm) -> FittedAlgorithm:
    """Make all rounds."""
    assert np.isfinite(list(rounds(algorithm))).all()
    return algorithm


def predict(algorithm: FittedAlgorithm, features: np.ndarray) -> np.ndarray:
    """Return logits as an array."""
    return algorithm.predict(torch.from_numpy(np.asarray(features, dtype=np.float64))).numpy()
