"""From stored features to network inputs and views, one class per kind of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from plench.errors import UsageError
from plench.training.image_inputs import ImageInputs
from plench.training.stored import EVERY_ROW, Rows, Stored


class Inputs(Protocol):
    """How features of one kind are kept on the device and become network inputs."""

    kind: ClassVar[str]

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Learn what is needed from the rows of the training split only."""

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
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


class TabularInputs:
    """Features standardised by the training split: (x − mean)/(std + 1e-6). All views are one tensor."""

    kind: ClassVar[str] = "tabular"

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        self.mean = mean
        self.std = std

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Take mean and population standard deviation of the training split, in double precision."""
        train = features[rows]
        return cls(train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64))

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Tensor:
        """Return the standardised features."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise UsageError(
                f"features of shape {features.shape} do not fit: expected (n, {len(self.mean)}) numbers"
            )
        scaled = (features[rows] - self.mean) / (self.std + 1e-6)
        return torch.from_numpy(scaled.astype(np.float32)).to(device)

    def original(self, stored: Tensor) -> Tensor:
        """Return the rows as they are."""
        return stored

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return one tensor under every name: tabular data has no augmentation."""
        return dict.fromkeys(names, stored.index_select(0, index))

    def state(self) -> dict[str, Any]:
        """Return mean and standard deviation."""
        return {"mean": torch.from_numpy(self.mean), "std": torch.from_numpy(self.std)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(state["mean"].numpy(), state["std"].numpy())


def inputs_for(kind: str) -> type[Inputs]:
    """Return the inputs class for a kind of data."""
    kinds: dict[str, type[Inputs]] = {cls.kind: cls for cls in (TabularInputs, ImageInputs)}
    if kind not in kinds:
        raise UsageError(f"unknown kind of data {kind!r}: known are {', '.join(kinds)}")
    return kinds[kind]
