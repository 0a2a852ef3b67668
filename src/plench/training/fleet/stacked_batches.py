"""Batches of a stack: each run's own examples in its own order, gathered by one operation for all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from plench.batch import Batch
from plench.training.batches import TrainingSet
from plench.training.fleet.stack import StackError
from plench.training.tabular_inputs import TableInputs, TabularInputs


class StackedBatches:
    """Hands out the next batch of every run; each run's place in its data moves on as if it were alone."""

    def __init__(self, sets: Sequence[TrainingSet]) -> None:
        check_sets(sets)
        first = sets[0]
        self.orders = [each.order for each in sets]
        self.views = first.views
        # Runs on one split share its rows.
        splits = {id(each.stored): each for each in sets}
        places = {key: place for place, key in enumerate(splits)}
        starts = [places[id(each.stored)] * len(first) for each in sets]
        device = first.candidates.device
        self.offsets = torch.tensor(starts, device=device)[:, None]
        self.inputs = join([as_tensor(each) for each in splits.values()])
        self.candidates = join([each.candidates for each in splits.values()])
        weights = [each.weights for each in splits.values() if each.weights is not None]
        self.weights = join(weights) if weights else None
        self.shape = (len(sets), first.order.batch_size)
        self.room = self.inputs.new_empty(self.shape[0] * self.shape[1], self.inputs.shape[1])

    def next(self) -> Batch:
        """Return the next batch: `index` (R, B), candidates (R, B, K), inputs (R, B, D) as every view."""
        index = torch.stack([order.next() for order in self.orders])
        flat = (index + self.offsets).flatten()
        torch.index_select(self.inputs, 0, flat, out=self.room)
        inputs = self.room.unflatten(0, self.shape)
        weights = None if self.weights is None else self.take(self.weights, flat)
        return Batch(
            index, self.take(self.candidates, flat), dict.fromkeys(self.views, inputs), None, weights
        )

    def take(self, rows: Tensor, flat: Tensor) -> Tensor:
        """Return rows of all runs (R, B, …)."""
        taken: Tensor = rows.index_select(0, flat).unflatten(0, self.shape)
        return taken


def check_sets(sets: Sequence[TrainingSet]) -> None:
    """Raise StackError for training sets whose batches cannot be gathered together."""
    for each in sets:
        if not isinstance(each.inputs, TabularInputs | TableInputs) or not isinstance(each.stored, Tensor):
            raise StackError("their inputs are not a table in memory")
        if each.second_order is not None:
            raise StackError("its steps take a second batch")
    if len({(len(each), each.order.batch_size, each.views, each.weights is None) for each in sets}) > 1:
        raise StackError("their training splits or batches differ in size")


def as_tensor(training_set: TrainingSet) -> Tensor:
    """Return the stored inputs of a set that has been checked."""
    assert isinstance(training_set.stored, Tensor)
    return training_set.stored


def join(parts: Sequence[Tensor]) -> Tensor:
    """Return parts as one tensor; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
