"""What a run keeps of its examples: a tensor, chosen rows of one, or rows of a file read when asked for."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Rows = np.ndarray | slice
EVERY_ROW = slice(None)
# A worker of a sweep maps every dataset, the small ones too, which are faster as a tensor.
LEAST_SHARED_BYTES = 2**28
CHUNK_BYTES = 2**25


class Stored(Protocol):
    """Examples in memory: a tensor has all of this, and so have `SelectedRows` and `MappedRows`."""

    @property
    def shape(self) -> Sequence[int]:
        """The shape (n, …)."""

    @property
    def device(self) -> torch.device:
        """Where the examples are."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor:
        """Return consecutive examples."""

    def index_select(self, dim: Any, index: Tensor, /) -> Tensor:
        """Return the examples `index`; `dim` is 0."""


class SelectedRows:
    """Rows of a tensor, fetched when asked for, so that the training split needs no copy of its own."""

    def __init__(self, tensor: Tensor, rows: Tensor) -> None:
        self.tensor = tensor
        self.rows = rows

    @property
    def shape(self) -> Sequence[int]:
        """The shape (n, …) of the selection."""
        return (len(self.rows), *self.tensor.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self.tensor.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.tensor.index_select(0, self.rows[rows])

    def index_select(self, dim: Any, index: Tensor, /) -> Tensor:
        """Return the examples `index` of the selection."""
        return self.tensor.index_select(dim, self.rows.index_select(0, index))


class MappedRows:
    """Rows of features that are mapped from a file, gathered and standardised when asked for.

    Numbers are those of features in memory, to the last bit.
    """

    def __init__(
        self,
        features: np.ndarray,
        rows: Rows,
        mean: np.ndarray,
        std: np.ndarray,
        device: torch.device,
    ) -> None:
        self.features = features
        self.rows = np.arange(len(features))[rows] if isinstance(rows, slice) else rows
        self.mean = mean
        self.std = std
        self.device = device

    @property
    def shape(self) -> Sequence[int]:
        """The shape (n, D) of the selection."""
        return (len(self.rows), self.features.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self._gather(self.rows[rows])

    def index_select(self, dim: Any, index: Tensor, /) -> Tensor:
        """Return the examples `index` of the selection."""
        return self._gather(self.rows[index.cpu().numpy()])

    def _gather(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(standardise(self.features[rows], self.mean, self.std)).to(self.device)


def is_mapped(features: np.ndarray) -> bool:
    """Say whether features are mapped from a file and are to stay there."""
    base: Any = features
    while base is not None:
        if isinstance(base, np.memmap):
            return True
        if isinstance(base, mmap.mmap):
            return stays_in_shared_file(features)
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return False


def stays_in_shared_file(features: np.ndarray) -> bool:
    """Say whether workers that map a dataset from one file leave its features there."""
    return features.nbytes >= LEAST_SHARED_BYTES


def standardise(features: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return (x − mean)/(std + 1e-6) as float32, computed in double precision."""
    scaled: np.ndarray = (features - mean) / (std + 1e-6)
    return scaled.astype(np.float32)


def measure_columns(features: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and population standard deviation of rows, gathered a part at a time.

    NumPy adds the rows of a matrix of two or more columns one after the other, so the parts are added
    likewise, each beginning with the sum so far. A single column it adds in pairs: that is gathered whole.
    """
    if features.shape[1] == 1:
        train = features[rows]
        return train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    index = np.arange(len(features))[rows] if isinstance(rows, slice) else rows
    size = max(1, CHUNK_BYTES // (8 * features.shape[1]))
    parts = [index[start : start + size] for start in range(0, len(index), size)]
    total: np.ndarray | None = None
    for part in parts:
        total = add_rows(total, features[part].astype(np.float64))
    assert total is not None
    mean = total / len(index)
    total = None
    for part in parts:
        apart = features[part] - mean
        total = add_rows(total, np.multiply(apart, apart, out=apart))
    assert total is not None
    return mean, np.sqrt(total / len(index))


def add_rows(total: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Return the sum so far with further rows added, one after the other."""
    if total is not None:
        rows[0] += total  # addition commutes: the sum so far, then the first row
    added: np.ndarray = rows.sum(0)
    return added
