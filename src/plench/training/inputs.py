"""From features to network inputs and views: what is kept in memory, and one class per kind of data."""

from __future__ import annotations

import logging
import mmap
import warnings
from collections.abc import Callable, Mapping, Sequence
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
# A worker of a sweep maps every dataset, but small ones are faster as a tensor.
LEAST_SHARED_BYTES = 2**28
CHUNK_BYTES = 2**25
# The public benchmark's constants (R, G, B) for every view and split; not the usual ones of CIFAR-10.
BENCHMARK_MEAN = (0.4922, 0.4832, 0.4486)
BENCHMARK_STD = (0.2456, 0.2419, 0.2605)

logger = logging.getLogger("plench")


class Stored(Protocol):
    """Examples in memory: a tensor or `GatheredRows`."""

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


class GatheredRows:
    """Rows that are gathered when they are needed: of a shared tensor, or of features mapped from a file."""

    def __init__(
        self, gather: Callable[[Tensor], Tensor], rows: Tensor, shape: Sequence[int], device: torch.device
    ) -> None:
        self.gather = gather
        self.rows = rows
        self.shape = (len(rows), *shape)
        self.device = device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self.gather(self.rows[rows])

    def index_select(self, dim: Any, index: Tensor, /) -> Tensor:
        """Return the examples `index` of the selection."""
        return self.gather(self.rows.index_select(0, index.to(self.rows.device)))


def is_mapped(features: np.ndarray) -> bool:
    """Return True if features are mapped from a file and should stay there."""
    base: Any = features
    while base is not None:
        if isinstance(base, np.memmap):
            return True
        if isinstance(base, mmap.mmap):
            return stays_in_shared_file(features)
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return False


def stays_in_shared_file(features: np.ndarray) -> bool:
    """Return True if workers that map a dataset from one file leave its features there."""
    return features.nbytes >= LEAST_SHARED_BYTES


def measure_columns(features: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and population standard deviation of rows, gathered a part at a time.

    NumPy adds the rows of a matrix of two or more columns one after the other, so the parts are added
    likewise, each starting with the sum so far. It adds a single column in pairs, so that is gathered whole.
    """
    if features.shape[1] == 1:
        train = features[rows]
        return train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    index = np.arange(len(features))[rows] if isinstance(rows, slice) else rows
    size = max(1, CHUNK_BYTES // (8 * features.shape[1]))
    parts = [index[start : start + size] for start in range(0, len(index), size)]

    def average(transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        total = np.zeros(features.shape[1])
        for number, part in enumerate(parts):
            values = transform(features[part])
            if number:
                values[0] += total  # addition commutes: the sum so far, then the first row
            total = values.sum(0)
        return total / len(index)

    mean = average(lambda values: values.astype(np.float64))
    return mean, np.sqrt(average(lambda values: np.square(values - mean)))


class Inputs:
    """How features of one kind are kept on the device and become network inputs."""

    kind: ClassVar[str]

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean = mean
        self.std = std

    @classmethod
    def fit(cls, features: Any, rows: Rows = EVERY_ROW) -> Self:
        """Learn what is needed from the rows of the training split only."""
        raise NotImplementedError

    def accept(self, features: Any) -> Any:
        """Return what a user wants to predict on as features. Raises an error of ours if it does not fit."""
        return check_features(features, self.kind, "X")

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return what is kept in memory for these rows, on the device."""
        raise NotImplementedError

    def original(self, stored: Tensor) -> Tensor:
        """Return the network inputs of stored examples, without randomness."""
        raise NotImplementedError

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return what a saved model needs to make inputs again."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(state["mean"], state["std"])


class TabularInputs(Inputs):
    """Features standardised by the training split, (x − mean)/(std + 1e-6). All views are one tensor."""

    kind = "tabular"

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Take mean and population standard deviation of the training split, in double precision."""
        if is_mapped(features):
            return cls(*measure_columns(features, rows))
        train = features[rows]
        return cls(train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64))

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the standardised features; what is mapped from a file stays there."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise UsageError(
                f"features of shape {features.shape} do not fit: expected (n, {len(self.mean)}) numbers"
            )

        def standardise(chosen: Rows) -> Tensor:
            scaled = (features[chosen] - self.mean) / (self.std + 1e-6)
            return torch.from_numpy(scaled.astype(np.float32)).to(device)

        if is_mapped(features):
            index = torch.from_numpy(np.arange(len(features))[rows])
            return GatheredRows(lambda part: standardise(part.numpy()), index, features.shape[1:], device)
        return standardise(rows)

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


class TableInputs(TabularInputs):
    """A table's columns as one matrix (`plench.data.encoding`), standardised like other tabular data."""

    kind = "table"
    encoder: TableEncoder

    @classmethod
    def fit(cls, features: Any, rows: Rows = EVERY_ROW) -> Self:
        """Learn categories, fill values, mean and standard deviation of the training split."""
        train = features[rows]
        encoder = TableEncoder.fit(train)
        made = super().fit(encoder.encode(train)[0])
        made.encoder = encoder
        return made

    def accept(self, features: Any) -> Table:
        """Return a table, a frame or a file as the model's columns."""
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

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the standardised inputs."""
        return super().store(self.encoder.encode(features[rows])[0], device)

    def state(self) -> dict[str, Any]:
        """Return the encoding, mean and standard deviation."""
        return {"columns": self.encoder.state(), **super().state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        made = super().from_state(state)
        made.encoder = TableEncoder.from_state(state["columns"])
        return made


class ImageInputs(Inputs):
    """Images (C, H, W) scaled to 0…1 and normalised per channel, in channels-last memory.

    Colour images use the benchmark's constants. Images with another number of channels use mean and standard
    deviation of their training split.
    """

    kind = "image"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(tuple(mean), tuple(std))
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
        if isinstance(rows, slice):
            return images
        return GatheredRows(
            lambda index: images.index_select(0, index), torch.from_numpy(rows), images.shape[1:], device
        )

    def original(self, stored: Tensor) -> Tensor:
        """Return the images as they are, normalised."""
        return self.normalise(stored.float())

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`, each image with random numbers of its own."""
        images = stored.index_select(0, index)
        if "distill" in names and not self.warned:
            self.warned = True
            height, width = images.shape[2:]
            if max(height, width) <= SQUARE // 2:
                logger.warning(
                    "images of %d×%d pixels are all black in the distill view: its cutout of %d covers them",
                    height,
                    width,
                    SQUARE,
                )
        return {name: self.normalise(VIEW_MAKERS[name](images, generator)) for name in names}

    def normalise(self, images: Tensor) -> Tensor:
        """Scale values 0…255 to 0…1 and normalise them; the result is channels-last. Works in place."""
        mean, std = (constant(values, images.device).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def state(self) -> dict[str, Any]:
        """Return the constants."""
        return {"mean": list(self.mean), "std": list(self.std)}


def inputs_for(kind: str) -> type[Inputs]:
    """Return the inputs class for a kind of data."""
    kinds: dict[str, type[Inputs]] = {cls.kind: cls for cls in (TabularInputs, ImageInputs, TableInputs)}
    if kind not in kinds:
        raise UsageError(f"unknown kind of data {kind!r}; expected one of {', '.join(kinds)}")
    return kinds[kind]


def fit_inputs(dataset: Dataset, rows: Rows) -> Inputs:
    """Learn from the rows of the training split how a dataset's features become inputs."""
    kind = TableInputs.kind if isinstance(dataset.features, Table) else dataset.card.kind
    return inputs_for(kind).fit(dataset.features, rows)


def restore_inputs(kind: str, state: Mapping[str, Any]) -> Inputs:
    """Rebuild the inputs of a saved model from its data's kind and `Inputs.state()`."""
    return inputs_for(TableInputs.kind if "columns" in state else kind).from_state(state)
