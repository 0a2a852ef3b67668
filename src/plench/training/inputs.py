"""From features to network inputs and views: what is kept in memory, and one class per kind of data."""

from __future__ import annotations

import logging
import mmap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from plench.data.dataset import Dataset, check_features
from plench.data.encoding import TableEncoder
from plench.data.tables import Table, is_frame, read_frame, read_table_file
from plench.data.views import SQUARE, VIEW_MAKERS, constant
from plench.errors import UsageError
from plench.text import short_repr

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
        if not is_frame(features):
            names = ", ".join(code.name for code in self.encoder.codes[:10])
            raise UsageError(
                f"the model was trained on a table with the columns {names} …: give it a frame, a mapping of "
                f"names to columns or a file, not {type(features).__name__}"
            )
        table = self.encoder.read(read_frame(features, "X"))
        for name, count in self.encoder.encode(table)[1].items():
            logger.warning(
                "column %s: %d of %d rows have a category that the training split lacks; it counts as none",
                short_repr(name),
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


# The public benchmark's constants (R, G, B) for every view and split; not the usual ones of CIFAR-10.
BENCHMARK_MEAN = (0.4922, 0.4832, 0.4486)
BENCHMARK_STD = (0.2456, 0.2419, 0.2605)


class ImageInputs:
    """Images (C, H, W) scaled to 0…1 and normalised per channel, in channels-last memory.

    Colour images use the benchmark's constants. Images with another number of channels use mean and standard
    deviation of their training split.
    """

    kind: ClassVar[str] = "image"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.warned = False

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Take the benchmark's constants for colour images, else those of the training split."""
        channels = features.shape[1]
        if channels == len(BENCHMARK_MEAN):
            return cls(BENCHMARK_MEAN, BENCHMARK_STD)
        levels = np.arange(256) / 255
        means, stds = [], []
        for channel in range(channels):
            count = np.bincount(features[rows, channel].ravel(), minlength=256)
            mean = float(count @ levels / count.sum())
            means.append(mean)
            stds.append(float(count @ (levels - mean) ** 2 / count.sum()) ** 0.5 + 1e-6)
        return cls(means, stds)

    def accept(self, features: Any) -> Any:
        """Return images (n, C, H, W) of uint8."""
        return check_features(features, self.kind, "X")

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the images as uint8 (n, C, H, W). On the CPU they stay where they are, without a copy."""
        if features.ndim != 4 or features.shape[1] != len(self.mean) or features.dtype != np.uint8:
            raise UsageError(
                f"images of shape {features.shape} and type {features.dtype} do not fit: "
                f"expected uint8 of shape (n, {len(self.mean)}, height, width)"
            )
        if device.type != "cpu":
            return torch.from_numpy(features[rows]).to(device)
        with warnings.catch_warnings():
            # A dataset's arrays are read-only, and nothing here writes to them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            images = torch.from_numpy(np.ascontiguousarray(features))
        return images if isinstance(rows, slice) else SelectedRows(images, torch.from_numpy(rows))

    def original(self, stored: Tensor) -> Tensor:
        """Return the images as they are, normalised."""
        return self.normalise(stored.float())

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`, each image with random numbers of its own."""
        images = stored.index_select(0, index)
        if "distill" in names and not self.warned:
            self.warn_if_cutout_covers_image(*images.shape[2:])
        return {name: self.normalise(VIEW_MAKERS[name](images, generator)) for name in names}

    def warn_if_cutout_covers_image(self, height: int, width: int) -> None:
        """Warn, once, of images so small that the cutout of the distill view covers them."""
        self.warned = True
        if max(height, width) <= SQUARE // 2:
            logger.warning(
                "images of %d×%d pixels are all black in the distill view: its cutout of %d covers them",
                height,
                width,
                SQUARE,
            )

    def normalise(self, images: Tensor) -> Tensor:
        """Scale values 0…255 to 0…1 and normalise them; the result is channels-last. Works in place."""
        mean, std = (constant(values, images.device).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def state(self) -> dict[str, Any]:
        """Return the constants."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(state["mean"], state["std"])


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
