"""Network inputs of tabular data: numbers standardised by the training split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from plench.data.dataset import check_features
from plench.errors import UsageError
from plench.training.mapped import MappedRows, is_mapped, measure, standardise
from plench.training.stored import EVERY_ROW, Rows, Stored


class TabularInputs:
    """Features standardised by the training split: (x − mean)/(std + 1e-6). All views are one tensor."""

    kind: ClassVar[str] = "tabular"

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        self.mean = mean
        self.std = std

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Take mean and population standard deviation of the training split, in double precision."""
        if is_mapped(features):
            return cls(*measure(features, rows))
        train = features[rows]
        return cls(train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64))

    def accept(self, features: Any) -> Any:
        """Return an array (n, D) of finite numbers."""
        return check_features(features, self.kind, "X")

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the standardised features; what is mapped from a file stays there."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise UsageError(
                f"features of shape {features.shape} do not fit: expected (n, {len(self.mean)}) numbers"
            )
        if is_mapped(features):
            return MappedRows(features, rows, self.mean, self.std, device)
        return torch.from_numpy(standardise(features[rows], self.mean, self.std)).to(device)

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
