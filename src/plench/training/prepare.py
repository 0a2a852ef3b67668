"""Makes a dataset ready for a run: candidates of the trial, split, scaling, tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from plench.data import Dataset, Split, draw_candidates, split_dataset
from plench.data.weights import weigh_candidates
from plench.training.config import RunConfig
from plench.training.inputs import Inputs, fit_inputs
from plench.training.stored import Stored


@dataclass(frozen=True)
class EvaluationSet:
    """Examples to evaluate on: stored inputs on the device, candidates and true labels for the criteria.

    `thirds` (K,) are those of the classes by training count (`Split.thirds`), on test where there are any.
    """

    stored: Stored
    candidates: np.ndarray | None
    labels: np.ndarray | None
    thirds: np.ndarray | None = None


@dataclass(frozen=True)
class PreparedData:
    """A dataset as one trial sees it. True labels are in the two evaluation sets only."""

    inputs: Inputs
    train: Stored
    train_candidates: np.ndarray
    validation: EvaluationSet
    test: EvaluationSet
    train_noise_rate: float | None
    train_answers: Any = None
    train_weights: np.ndarray | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape (N, …) of the training features."""
        return tuple(self.train.shape)


def preparation_key(dataset: Dataset, config: RunConfig) -> tuple[object, ...]:
    """Return what prepared data depend on: runs of equal keys can share them."""
    return (
        dataset.fingerprint,
        config.candidates,
        config.candidate_weights,
        config.trial_seed,
        config.holdout_fraction,
        config.tabular_test_fraction,
        config.imbalance,
        config.device,
    )


def prepare_data(dataset: Dataset, config: RunConfig, device: torch.device) -> PreparedData:
    """Draw the trial's candidates, split by the trial seed, and scale on the training split."""
    dataset = draw_candidates(dataset, config.candidates, config.trial_seed)
    weights = weigh_candidates(dataset, config.candidate_weights, config.candidates)
    split = split_dataset(
        dataset,
        config.trial_seed,
        test_fraction=config.tabular_test_fraction,
        holdout_fraction=config.holdout_fraction,
        imbalance=config.imbalance,
    )
    return prepare_split(dataset, split, device, weights)


def prepare_split(
    dataset: Dataset, split: Split, device: torch.device, weights: np.ndarray | None = None
) -> PreparedData:
    """Scale on the training part of a split, and put all parts on the device; `weights` are candidates'."""
    inputs = fit_inputs(dataset, split.train)

    def evaluation_set(index: np.ndarray) -> EvaluationSet:
        labels = None if dataset.labels is None else dataset.labels[index]
        stored = inputs.store(dataset.features, device, index)
        return EvaluationSet(stored, dataset.candidates[index], labels)

    if split.test is None:
        assert dataset.test is not None
        test = EvaluationSet(inputs.store(dataset.test.features, device), None, dataset.test.labels)
    else:
        test = evaluation_set(split.test)
    train_candidates = dataset.candidates[split.train]
    answers = dataset.answers
    noise_rate = None
    if dataset.labels is not None:
        labels = dataset.labels[split.train]
        noise_rate = float(1 - train_candidates[np.arange(len(labels)), labels].mean())
    return PreparedData(
        inputs=inputs,
        train=inputs.store(dataset.features, device, split.train),
        train_candidates=train_candidates,
        validation=evaluation_set(split.validation),
        test=replace(test, thirds=split.thirds),
        train_noise_rate=noise_rate,
        train_answers=None if answers is None else answers.take_items(split.train),
        train_weights=None if weights is None else weights[split.train],
    )
