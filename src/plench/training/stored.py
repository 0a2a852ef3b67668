"""What a run keeps of its examples in memory: a tensor, or chosen rows of one that is not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Rows = np.ndarray | slice
EVERY_ROW = slice(None)


class Stored(Protocol):
    """Examples in memory: a tensor has all of this, and so have `SelectedRows`."""

    @property
    def shape(self) -> Sequence[int]:
        """The shape (n, …)."""

    @property
    def device(self) -> torch.device:
        """Where the examples are."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor:
        """Return a run of examples."""

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
