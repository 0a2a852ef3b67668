"""The data of a run: candidates of the trial, split, scaling, tensors on the device, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.batch import Batch
from plench.data import Dataset, Split, draw_candidates, split_dataset
from plench.data.candidates import weigh_candidates
from plench.training.config import RunConfig
from plench.training.inputs import Inputs, Stored, fit_inputs
from plench.training.streams import Streams


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


class BatchStream:
    """Indices drawn without replacement, reshuffled every epoch, the short last batch dropped.

    If there are fewer examples than a batch, the batch is all of them. Work per step does not depend on the
    number of examples: the order is drawn and moved to the device once per epoch.
    """

    def __init__(self, n: int, batch_size: int, generator: torch.Generator, device: torch.device) -> None:
        self.n = n
        self.batch_size = min(batch_size, n)
        self.generator = generator
        self.device = device
        self.order = torch.empty(0, dtype=torch.int64, device=device)
        self.position = 0

    def next(self) -> Tensor:
        """Return the indices (B,) of the next batch."""
        if self.position + self.batch_size > len(self.order):
            self.order = torch.randperm(self.n, generator=self.generator).to(self.device)
            self.position = 0
        start = self.position
        self.position += self.batch_size
        return self.order[start : self.position]

    def state(self) -> dict[str, Any]:
        """Return order and position (the generator belongs to the run's streams)."""
        return {"order": self.order.cpu(), "position": self.position}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from `state()`."""
        self.order = state["order"].to(self.device)
        self.position = state["position"]


class TrainingSet:
    """The training split on the device, in batches with the views that an algorithm declares."""

    def __init__(
        self,
        inputs: Inputs,
        stored: Stored,
        candidates: Tensor,
        batch_size: int,
        views: Sequence[str],
        second_batch: bool,
        streams: Streams,
        weights: Tensor | None = None,
    ) -> None:
        device = stored.device
        self.inputs = inputs
        self.stored = stored
        self.candidates = candidates
        self.weights = weights
        self.views = tuple(views)
        self.view_generator = streams.generator("views", device)
        self.order = BatchStream(len(stored), batch_size, streams.generator("batches"), device)
        self.second_order: BatchStream | None = None
        if second_batch:
            generator = streams.generator("second batches")
            self.second_order = BatchStream(len(stored), batch_size, generator, device)

    def __len__(self) -> int:
        return len(self.stored)

    def next_batch(self) -> Batch:
        """Return the next batch."""
        second = None
        if self.second_order is not None:
            second = self._gather(self.second_order.next(), ("weak",))
        return self._gather(self.order.next(), self.views, second)

    def _gather(self, index: Tensor, views: Sequence[str], second: Batch | None = None) -> Batch:
        made = self.inputs.views(self.stored, index, views, self.view_generator)
        weights = None if self.weights is None else self.weights.index_select(0, index)
        return Batch(index, self.candidates.index_select(0, index), made, second, weights)

    def original(self, start: int, stop: int) -> Tensor:
        """Return the original view of the training rows start … stop−1."""
        return self.inputs.original(self.stored[start:stop])

    def state(self) -> dict[str, Any]:
        """Return the position in the data."""
        second = self.second_order.state() if self.second_order else None
        return {"order": self.order.state(), "second": second}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from `state()`."""
        self.order.load_state(state["order"])
        if self.second_order is not None:
            self.second_order.load_state(state["second"])
