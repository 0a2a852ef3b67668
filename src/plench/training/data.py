"""The data of a run: candidates of the trial, split, features as network inputs, and batches with views.

What is kept in memory is a tensor on the device, or rows that are gathered when they are needed. There is one
class of inputs per kind of data.
"""

from __future__ import annotations

import logging
import mmap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Batch
from plench.data import Dataset, Split, choose_candidates, draw_candidates, split_dataset
from plench.data.candidates import weigh_candidates
from plench.data.dataset import check_features
from plench.data.encoding import TEXT_WIDTH, TableEncoder, TextCode
from plench.data.readers import list_image_files
from plench.data.tables import Table, is_frame, read_frame, read_table_file
from plench.data.views import SQUARE, VIEW_MAKERS, constant
from plench.errors import UsageError
from plench.settings import Settings, declared
from plench.text import short_repr
from plench.training.config import RunConfig
from plench.training.environment import Streams

Rows = np.ndarray | slice
EVERY_ROW = slice(None)
# A worker of a sweep maps every dataset, but small ones are faster as a tensor.
LEAST_SHARED_BYTES = 2**28
CHUNK_BYTES = 2**25
# The public benchmark's constants (R, G, B) for every view and split; not the usual ones of CIFAR-10.
BENCHMARK_MEAN = (0.4922, 0.4832, 0.4486)
BENCHMARK_STD = (0.2456, 0.2419, 0.2605)

logger = logging.getLogger("plench")


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


Stored = Tensor | GatheredRows


class TabularInputs:
    """Features standardised by the training split, (x − mean)/(std + 1e-6). All views are one tensor."""

    kind = "tabular"

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        self.mean = mean
        self.std = std

    @classmethod
    def fit(cls, features: Any, rows: Rows = EVERY_ROW) -> Self:
        """Take mean and population standard deviation of the training split, in double precision."""
        if is_mapped(features):
            return cls(*measure_columns(features, rows))
        train = features[rows]
        return cls(train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64))

    def accept(self, features: Any) -> Any:
        """Return what a user wants to predict on as features. Raises an error of ours if it does not fit."""
        return check_features(features, self.kind, "X")

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
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
        """Return the network inputs of stored examples: the rows as they are."""
        return stored

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`: one tensor, as tabular data has no augmentation."""
        return dict.fromkeys(names, stored.index_select(0, index))

    def state(self) -> dict[str, Any]:
        """Return what a saved model needs to make inputs again."""
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
        """Learn categories, fill values, mean and standard deviation of the training split.

        Components of a text share the largest of their deviations: scaled one by one, those that hardly vary
        in the training split would make new words the largest inputs.
        """
        train = features[rows]
        encoder = TableEncoder.fit(train)
        made = super().fit(encoder.encode(train)[0])
        made.encoder = encoder
        start = 0
        for code in encoder.codes:
            if isinstance(code, TextCode):
                components = slice(start, start + TEXT_WIDTH)
                made.std[components] = made.std[components].max()
            start += code.width
        return made

    def accept(self, features: Any) -> Table:
        """Return a table, a frame or a file as the model's columns."""
        if isinstance(features, Table):
            return Table(tuple(map(self.encoder.embed, features.columns)))
        if isinstance(features, str | Path):
            if Path(features).is_dir():
                return self.encoder.read_images(list_image_files(Path(features)))
            features = read_table_file(features)
        if isinstance(features, np.ndarray) and features.ndim == 4:
            return self.encoder.read_images(check_features(features, "image", "X"))
        if not is_frame(features):
            names = ", ".join(code.name for code in self.encoder.codes[:10])
            raise UsageError(
                f"the model was trained on a table with the columns {names} …: give it a frame, a mapping of "
                f"names to columns or a file, not {type(features).__name__}"
            )
        table = self.encoder.read(read_frame(features, "X"))
        unknown = self.encoder.encode(table)[1]
        if unknown:
            logger.warning(
                "of %d rows some have a category that the training split lacks, which counts as none: %s",
                len(table),
                ", ".join(f"{count} in column {short_repr(name)}" for name, count in unknown.items()),
            )
        return table

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the standardised inputs."""
        return super().store(self.encoder.encode(features[rows])[0], device)

    def state(self) -> dict[str, Any]:
        """Return the encoding, mean and standard deviation."""
        columns = [
            {key: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for key, v in column.items()}
            for column in self.encoder.state()
        ]
        return {"columns": columns, **super().state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        made = super().from_state(state)
        made.encoder = TableEncoder.from_state(
            [
                {key: v.numpy() if isinstance(v, Tensor) else v for key, v in column.items()}
                for column in state["columns"]
            ]
        )
        return made


class ImageInputs:
    """Images (C, H, W) scaled to 0…1 and normalised per channel, in channels-last memory.

    Colour images use the benchmark's constants. Images with another number of channels use mean and standard
    deviation of their training split.
    """

    kind = "image"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = tuple(mean), tuple(std)
        self.warned = False

    @classmethod
    def fit(cls, features: Any, rows: Rows = EVERY_ROW) -> Self:
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
        """Return what a user wants to predict on as images. Raises an error of ours if it does not fit."""
        return check_features(features, self.kind, "X")

    def store(self, features: Any, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
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
        """Return what a saved model needs to make inputs again."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(state["mean"], state["std"])


Inputs = TabularInputs | ImageInputs


def inputs_for(kind: str) -> type[TabularInputs] | type[ImageInputs]:
    """Return the class of inputs for a kind of data: tabular, table or image."""
    kinds = {cls.kind: cls for cls in (TabularInputs, ImageInputs, TableInputs)}
    return kinds[kind]


@dataclass(frozen=True)
class EvaluationSet:
    """Examples to evaluate on: stored inputs on the device, candidates and true labels for the criteria.

    `thirds` (K,) are those of the classes by training count (`Split.thirds`), on test where there are any.
    """

    stored: Stored
    candidates: np.ndarray | None
    labels: np.ndarray | None
    thirds: np.ndarray | None = None


@dataclass(frozen=True)
class PreparedData:
    """A dataset as one trial sees it. True labels are in the two evaluation sets only."""

    inputs: Inputs
    train: Stored
    train_candidates: np.ndarray
    validation: EvaluationSet
    test: EvaluationSet
    train_noise_rate: float | None
    train_answers: Any = None
    train_weights: np.ndarray | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape (N, …) of the training features."""
        return tuple(self.train.shape)


def preparation_key(dataset: Dataset, config: RunConfig) -> tuple[object, ...]:
    """Return what prepared data depend on: runs of equal keys can share them."""
    used = (getattr(config, name) for name, setting in declared().items() if setting.affects_data)
    return (dataset.fingerprint, *used)


def draw_trial(
    dataset: Dataset, settings: Settings, trial_seed: int
) -> tuple[Dataset, Split, np.ndarray | None]:
    """Return a trial's candidate sets, split and weights (N, K) of candidates, if there are any.

    The one place where settings act on data before they are scaled.
    """
    candidates = choose_candidates(dataset.card.candidates, settings)
    dataset = draw_candidates(dataset, candidates, trial_seed)
    weights = weigh_candidates(dataset, settings.candidate_weights, candidates)
    split = split_dataset(
        dataset,
        trial_seed,
        test_fraction=settings.tabular_test_fraction,
        holdout_fraction=settings.holdout_fraction,
        imbalance=settings.imbalance,
    )
    return dataset, split, weights


def prepare_data(dataset: Dataset, config: RunConfig, device: torch.device) -> PreparedData:
    """Draw the trial's candidates, split by the trial seed, and scale on the training split."""
    dataset, split, weights = draw_trial(dataset, config, config.trial_seed)
    return prepare_split(dataset, split, device, weights)


def prepare_split(
    dataset: Dataset, split: Split, device: torch.device, weights: np.ndarray | None = None
) -> PreparedData:
    """Scale on the training part of a split, and put all parts on the device; `weights` are candidates'."""
    kind = TableInputs.kind if isinstance(dataset.features, Table) else dataset.card.kind
    inputs = inputs_for(kind).fit(dataset.features, split.train)

    def evaluation_set(index: np.ndarray) -> EvaluationSet:
        labels = None if dataset.labels is None else dataset.labels[index]
        stored = inputs.store(dataset.features, device, index)
        return EvaluationSet(stored, dataset.candidates[index], labels)

    if split.test is None:
        assert dataset.test is not None
        test = EvaluationSet(inputs.store(dataset.test.features, device), None, dataset.test.labels)
    else:
        test = evaluation_set(split.test)
    train_candidates, answers = dataset.candidates[split.train], dataset.answers
    noise_rate = None
    if dataset.labels is not None:
        labels = dataset.labels[split.train]
        noise_rate = float(1 - train_candidates[np.arange(len(labels)), labels].mean())
    return PreparedData(
        inputs=inputs,
        train=inputs.store(dataset.features, device, split.train),
        train_candidates=train_candidates,
        validation=evaluation_set(split.validation),
        test=replace(test, thirds=split.thirds),
        train_noise_rate=noise_rate,
        train_answers=None if answers is None else answers.take_items(split.train),
        train_weights=None if weights is None else weights[split.train],
    )


class BatchStream:
    """Indices drawn without replacement, reshuffled every epoch, the short last batch dropped.

    If there are fewer examples than a batch, the batch is all of them. Work per step does not depend on the
    number of examples: the order is drawn and moved to the device once per epoch.
    """

    def __init__(self, n: int, batch_size: int, generator: torch.Generator, device: torch.device) -> None:
        self.n = n
        self.batch_size = min(batch_size, n)
        self.generator = generator
        self.device = device
        self.order = torch.empty(0, dtype=torch.int64, device=device)
        self.position = 0

    def next(self) -> Tensor:
        """Return the indices (B,) of the next batch."""
        if self.position + self.batch_size > len(self.order):
            self.order = torch.randperm(self.n, generator=self.generator).to(self.device)
            self.position = 0
        start = self.position
        self.position += self.batch_size
        return self.order[start : self.position]

    def state(self) -> dict[str, Any]:
        """Return order and position (the generator belongs to the run's streams)."""
        return {"order": self.order.cpu(), "position": self.position}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from `state()`."""
        self.order = state["order"].to(self.device)
        self.position = state["position"]


class TrainingSet:
    """The training split on the device, in batches with the views that an algorithm declares."""

    def __init__(
        self,
        inputs: Inputs,
        stored: Stored,
        candidates: Tensor,
        batch_size: int,
        views: Sequence[str],
        second_batch: bool,
        streams: Streams,
        weights: Tensor | None = None,
    ) -> None:
        device = stored.device
        self.inputs = inputs
        self.stored = stored
        self.candidates = candidates
        self.weights = weights
        self.views = tuple(views)
        self.view_generator = streams.generator("views", device)
        self.order = BatchStream(len(stored), batch_size, streams.generator("batches"), device)
        self.second_order: BatchStream | None = None
        if second_batch:
            generator = streams.generator("second batches")
            self.second_order = BatchStream(len(stored), batch_size, generator, device)

    def __len__(self) -> int:
        return len(self.stored)

    def next_batch(self) -> Batch:
        """Return the next batch."""
        second = None
        if self.second_order is not None:
            second = self._gather(self.second_order.next(), ("weak",))
        return self._gather(self.order.next(), self.views, second)

    def _gather(self, index: Tensor, views: Sequence[str], second: Batch | None = None) -> Batch:
        made = self.inputs.views(self.stored, index, views, self.view_generator)
        weights = None if self.weights is None else self.weights.index_select(0, index)
        return Batch(index, self.candidates.index_select(0, index), made, second, weights)

    def original(self, start: int, stop: int) -> Tensor:
        """Return the original view of the training rows start … stop−1."""
        return self.inputs.original(self.stored[start:stop])

    def state(self) -> dict[str, Any]:
        """Return the position in the data."""
        second = self.second_order.state() if self.second_order else None
        return {"order": self.order.state(), "second": second}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from `state()`."""
        self.order.load_state(state["order"])
        if self.second_order is not None:
            self.second_order.load_state(state["second"])
