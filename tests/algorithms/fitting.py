"""Fitted methods without a run: built on given features, updated round by round."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from plench.algorithms.fitted import FittedAlgorithm
from plench.data.answers import Answers
from tests.probe import GivenInputs


def answer_by_labels(item: Any, annotator: Any, label: Any, n_items: int, n_classes: int) -> Answers:
    """Return answers of one class each."""
    sets = np.asarray(label)[:, None] == np.arange(n_classes)
    return Answers(np.asarray(item), np.asarray(annotator), sets, n_items)


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
    algorithm.attach_inputs(GivenInputs(torch.from_numpy(np.asarray(features, dtype=np.float64))))
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
