"""Algorithms that keep their state in odd ways: sound ones, and ones that cannot be resumed."""

import copy
import itertools
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms import LossAlgorithm, register
from plench.batch import Batch
from tests.contract.breaches import Sound

# Updates after which the odd thing happens: between the cuts of the check.
LATER = 4


class Counting(Sound):
    """Counts its updates, and changes in an odd way after some of them."""

    def setup(self, candidates: Tensor) -> None:
        self.done = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.done += 1
        if self.done == LATER:
            self.change()
        return super().loss(logits, batch)

    def change(self) -> None:
        """Happens once."""


class Phase(Enum):
    """What the algorithm is doing."""

    WARM_UP = "warm-up"
    MAIN = "main"


SOUND: dict[str, type[LossAlgorithm]] = {}


def passes(cls: type[LossAlgorithm]) -> type[LossAlgorithm]:
    """Register a class that the checks must let pass."""
    register(cls.__name__)(cls)
    SOUND[cls.__name__] = cls
    return cls


@passes
class EnumPhase(Counting):
    """Keeps its phase as a member of an enum, and compares it by identity."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.phase = Phase.WARM_UP

    def change(self) -> None:
        self.phase = Phase.MAIN

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) * (2.0 if self.phase is Phase.MAIN else 1.0)


@passes
class NumpyNumbers(Counting):
    """Keeps numbers of numpy, whose type decides how they are rounded."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.scale, self.coarse, self.steps = np.float64(1), np.float32(1), np.int64(0)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.scale = self.scale * np.float64(0.9)
        self.coarse = self.coarse * np.float32(0.9)
        self.steps += 1
        return super().loss(logits, batch) * float(self.scale + self.coarse + self.steps / np.int64(7))


@passes
class LateAlias(Counting):
    """Gives a buffer a second name in the middle of training, and changes it by that name."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.register_buffer("weight", torch.ones(()))
        self.register_buffer("spare", torch.ones(()))
        self.current = self.spare

    def change(self) -> None:
        self.current = self.weight
        self.body = self.network

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = super().loss(logits, batch)
        if self.done > LATER:
            assert self.body is self.network
        self.current.mul_(0.8)
        return loss * self.weight


@passes
class QuietDropout(Counting):
    """Puts its dropout to evaluation mode in the middle of training."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.dropout = nn.Dropout(0.5)

    def change(self) -> None:
        self.dropout.eval()

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(self.dropout(logits), batch)


@passes
class NumpyLosses(Counting):
    """Logs numbers of numpy, some of them not in every update."""

    def update(self, minibatches: Batch) -> Mapping[str, Any]:
        loss = super().update(minibatches)["loss"].numpy()
        logged = {"loss": np.float32(loss), "twice": np.float64(2 * loss), "array": loss.copy()}
        return {**logged, "count": np.int64(self.done)} if self.done % 2 else logged


UNSOUND: dict[str, type[LossAlgorithm]] = {}


def fails(cls: type[LossAlgorithm]) -> type[LossAlgorithm]:
    """Register a class that the check of resuming must refuse."""
    register(cls.__name__)(cls)
    UNSOUND[cls.__name__] = cls
    return cls


@fails
class LazyTeacher(Counting):
    """Makes a part of itself in the middle of training."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.teacher: nn.Module | None = None

    def change(self) -> None:
        self.teacher = copy.deepcopy(self.network)


@fails
class CountsOutside(Counting):
    """Keeps its schedule in an iterator, which nobody can save."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.numbers = itertools.count(1)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / next(self.numbers)


class Labelled(Tensor):
    """A tensor of its author's own type."""


@fails
class OwnTensors(Counting):
    """Keeps a tensor of its own type, which a safe reader refuses."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.marks = torch.zeros(3).as_subclass(Labelled)


LOGGED: dict[str, Any] = {
    "nothing": None,
    "a number": 0.5,
    "no loss": {"accuracy": 1.0},
    "a word": {"loss": "low"},
    "several numbers": {"loss": torch.zeros(()), "per_class": torch.zeros(3)},
    "a list": {"loss": 1.0, "history": [1.0, 2.0]},
}


def logging_of(logged: Any) -> type[LossAlgorithm]:
    """Return a class whose updates return this."""

    @register("Logging")
    class Logging(Sound):
        def update(self, minibatches: Batch) -> Any:
            super().update(minibatches)
            return logged

    return Logging
