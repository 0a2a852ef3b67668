"""From stored features to network inputs and views, one class per kind of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from plench.data.dataset import Dataset
from plench.data.table import Table
from plench.errors import UsageError
from plench.training.image_inputs import ImageInputs
from plench.training.stored import EVERY_ROW, Rows, Stored
from plench.training.tabular_inputs import TableInputs, TabularInputs


class Inputs(Protocol):
    """How features of one kind are kept on the device and become network inputs."""

    kind: ClassVar[str]

    @classmethod
    def fit(cls, features: Any, rows: Rows = EVERY_ROW) -> Self:
        """Learn what is needed from the rows of the training split only."""

    def accept(self, features: Any) -> Any:
        """Return what a user gives to predict on as features; raise an error of ours if it is none."""

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return what is kept in memory for these rows, on the device."""

    def original(self, stored: Tensor) -> Tensor:
        """Return the network inputs of stored examples, with no randomness."""

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`."""

    def state(self) -> dict[str, Any]:
        """Return what a saved model needs to make inputs again."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""


def inputs_for(kind: str) -> type[Inputs]:
    """Return the inputs class for a kind of data."""
    kinds: dict[str, type[Inputs]] = {cls.kind: cls for cls in (TabularInputs, ImageInputs, TableInputs)}
    if kind not in kinds:
        raise UsageError(f"unknown kind of data {kind!r}: known are {', '.join(kinds)}")
    return kinds[kind]


def fit_inputs(dataset: Dataset, rows: Rows) -> Inputs:
    """Learn from the rows of the training split how a dataset's features become inputs."""
    kind = TableInputs.kind if isinstance(dataset.features, Table) else dataset.card.kind
    return inputs_for(kind).fit(dataset.features, rows)


def restore_inputs(kind: str, state: Mapping[str, Any]) -> Inputs:
    """Rebuild the inputs of a saved model from its data's kind and `Inputs.state()`."""
    return inputs_for(TableInputs.kind if "columns" in state else kind).from_state(state)
