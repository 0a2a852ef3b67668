"""Network inputs of tabular data: a matrix, or the columns of a table, standardised by the training split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from plench.data.dataset import check_features
from plench.data.encoding import TableEncoder
from plench.data.raw_table import RawTable, read_frame, shorten
from plench.data.table import Table
from plench.data.table_files import read_table_file
from plench.errors import UsageError
from plench.training.stored import (
    EVERY_ROW,
    MappedRows,
    Rows,
    Stored,
    is_mapped,
    measure_columns,
    standardise,
)

logger = logging.getLogger("plench")


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
            return cls(*measure_columns(features, rows))
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
        """Rebuild from `state()`; raise ValueError unless it is two rows of as many real numbers."""
        mean, std = state["mean"].numpy(), state["std"].numpy()
        if mean.ndim != 1 or mean.shape != std.shape or {mean.dtype.kind, std.dtype.kind} != {"f"}:
            raise ValueError("mean and standard deviation of its inputs are not two rows of as many numbers")
        return cls(mean, std)


class TableInputs:
    """A table's columns as one matrix (`plench.data.encoding`), standardised like other tabular data."""

    kind: ClassVar[str] = "table"

    def __init__(self, encoder: TableEncoder, scaling: TabularInputs) -> None:
        self.encoder = encoder
        self.scaling = scaling

    @classmethod
    def fit(cls, features: Table, rows: Rows = EVERY_ROW) -> Self:
        """Learn categories, fill values, mean and standard deviation of the training split."""
        train = features[rows]
        encoder = TableEncoder.fit(train)
        return cls(encoder, TabularInputs.fit(encoder.encode(train)[0]))

    def accept(self, features: Any) -> Table:
        """Return what a user gives to predict on as the model's columns: a table, a frame or a file."""
        if isinstance(features, Table):
            return features
        if isinstance(features, str | Path):
            features = read_table_file(features)
        if not isinstance(features, RawTable | Mapping) and not hasattr(features, "columns"):
            names = ", ".join(code.name for code in self.encoder.codes[:10])
            raise UsageError(
                f"the model was trained on a table with the columns {names} …: give it a frame, a mapping of "
                f"names to columns or a file, not {type(features).__name__}"
            )
        table = self.encoder.read(read_frame(features, "X"))
        for name, count in self.encoder.encode(table)[1].items():
            logger.warning(
                "column %s: %d of %d rows have a category that the training split lacks; it counts as none",
                shorten(name),
                count,
                len(table),
            )
        return table

    def store(self, features: Table, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the standardised inputs."""
        inputs, _ = self.encoder.encode(features[rows])
        return self.scaling.store(inputs, device)

    def original(self, stored: Tensor) -> Tensor:
        """Return the rows as they are."""
        return stored

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return one tensor under every name: tables have no augmentation."""
        return self.scaling.views(stored, index, names, generator)

    def state(self) -> dict[str, Any]:
        """Return the encoding, mean and standard deviation."""
        return {"columns": self.encoder.state(), **self.scaling.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(TableEncoder.from_state(state["columns"]), TabularInputs.from_state(state))
