"""A loss that is written for one run, mapped over the runs of a stack by torch.

It is for a method that says no more than its loss, as a third party's often does: state, passes and the
order of a step are the base class's, so that nothing but the loss has to know of runs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, LossAlgorithm
from plench.batch import Batch
from plench.training.fleet.stack import StackedRuns, StackError, list_changed

# What a method whose loss is mapped leaves to the base class.
LEFT = (
    "update",
    "passes",
    "descend",
    "revise",
    "more_to_log",
    "rows",
    "write_rows",
    "predict",
    "build_networks",
    "build_optimizers",
    "runs_due",
    "attach_inputs",
)


def find_obstacle(cls: type[Algorithm]) -> str | None:
    """Say why the loss of a class cannot be mapped over runs; None if it can be tried."""
    if not issubclass(cls, LossAlgorithm):
        return "it is no LossAlgorithm, so that only it knows the order of its step"
    own = [name for name in LEFT if getattr(cls, name) is not getattr(LossAlgorithm, name)]
    if own:
        return f"beside its loss it has its own {', '.join(own)}"
    return None


def read_generators() -> tuple[object, ...]:
    """Return the positions of the global generators of Python and numpy; torch's is refused by vmap."""
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 - the global one is meant
    return random.getstate(), state["key"].tobytes(), state["pos"]


class MappedRuns(StackedRuns):
    """A stack whose loss is written for one run and mapped over all of them by `vmap`."""

    takes_tensors: ClassVar[bool] = False

    def rows(self, name: str, index: Tensor) -> Tensor:
        """Return rows of the state of the run that is being mapped."""
        return Algorithm.rows(self, name, index)

    def write_rows(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Refuse: a loss that changes state cannot be mapped."""
        raise StackError("its loss writes state")

    def losses(self, outputs: Tensor, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the losses (R,) of all runs."""
        size = len(self.members)
        many = {name: value for name, value in self.hparams.items() if isinstance(value, Tensor)}
        state = {name: value for name, value in self._buffers.items() if value is not None}
        views = batch._views
        inputs = next(iter(views.values()))
        weights = 0 if batch.weights is not None else None
        before = read_generators()
        held = dict(vars(self))

        def of_one(
            logits: Tensor,
            index: Tensor,
            candidates: Tensor,
            own_inputs: Tensor,
            own_weights: Tensor | None,
            own_hparams: dict[str, Tensor],
            own_state: dict[str, Tensor],
        ) -> dict[str, Tensor]:
            given = Batch(index, candidates, dict.fromkeys(views, own_inputs), None, own_weights)
            return self.lose(logits, given, own_hparams, own_state)

        losses = torch.func.vmap(of_one, in_dims=(0, 0, 0, 0, weights, 0, 0))(
            outputs, batch.index, batch.candidates, inputs, batch.weights, many, state
        )
        if before != read_generators():
            raise StackError("its loss draws random numbers")
        if list_changed(held, vars(self)):
            raise StackError("its loss changes attributes")
        return {name: value.expand(size) if value.dim() == 0 else value for name, value in losses.items()}

    def lose(
        self, logits: Tensor, batch: Batch, hparams: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the losses of one run, with its hyperparameters and state in their places.

        The network is out of reach meanwhile: a loss that looks at weights would see those of all runs.
        """
        outside, buffers, modules = self.hparams, dict(self._buffers), dict(self._modules)
        given = {**outside, **hparams}
        self.hparams = dict(given)
        self._buffers.update(state)
        self._modules.clear()
        try:
            losses = super().losses(logits, batch)
            if self._modules or self._parameters or list_changed(state, self._buffers):
                raise StackError("its loss replaces or adds state")
            if list_changed(given, self.hparams):
                raise StackError("its loss changes hyperparameters")
            return {name: torch.as_tensor(value) for name, value in losses.items()}
        finally:
            self.hparams = outside
            self._buffers.clear()
            self._buffers.update(buffers)
            self._modules.clear()
            self._modules.update(modules)
