"""Batches by indexing: a shuffled order of the training examples, kept on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plench.batch import Batch
from plench.training.inputs import Inputs
from plench.training.stored import Stored
from plench.training.streams import Streams


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
        """Continue from `state()`."""
        self.order = state["order"].to(self.device)
        self.position = state["position"]


class TrainingSet:
    """The training split on the device, handing out batches with the views an algorithm declares."""

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
        """Continue from `state()`."""
        self.order.load_state(state["order"])
        if self.second_order is not None:
            self.second_order.load_state(state["second"])
