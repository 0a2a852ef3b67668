"""Images in IDX files: MNIST, Fashion-MNIST and Kuzushiji-MNIST, with generated candidates."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, read_file
from plench.data.sources.base import Source
from plench.errors import DataError

PARTS = {"train": "train", "test": "t10k"}
UNSIGNED_BYTE = 8
MAX_RANK = 3  # of images
N_CLASSES = 10


def read_idx(content: bytes, name: str) -> np.ndarray:
    """Return the uint8 array of an IDX file: two zero bytes, type, rank, sides (big-endian), values."""
    if len(content) < 4 or content[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise DataError(f"{name} is not an IDX file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise DataError(f"{name} is truncated")
    shape = struct.unpack(f">{rank}I", content[4:start])
    if rank > MAX_RANK or math.prod(shape) != len(content) - start:
        raise DataError(
            f"{name} is truncated or damaged: {len(content) - start:,} bytes for an array of shape {shape}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_idx(
    card: DatasetCard,
    folders: tuple[str, ...],
    obtain: str,
    class_names: tuple[str, ...] | None,
    data_dir: Path | None,
) -> Dataset:
    """Load the four files of a folder; until candidates are drawn, each set is the label alone."""
    folder = find_entry(card.name, folders, data_dir, obtain)
    if (folder / "raw").is_dir():  # where torchvision puts them
        folder = folder / "raw"
    arrays: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for part, prefix in PARTS.items():
        images, labels = (
            read_part(folder, f"{prefix}-{what}", card.name)
            for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{card.name}: {folder} has {part} images of shape {images.shape}, labels of {labels.shape}"
            )
        arrays[part] = (images[:, None], labels.astype(np.int64))
    features, labels = arrays["train"]
    candidates = labels[:, None] == np.arange(N_CLASSES)
    if (labels >= N_CLASSES).any():
        raise DataError(f"{card.name}: {folder} has the label {labels.max()}; expected 0…{N_CLASSES - 1}")
    card = replace(card, class_names=class_names)
    return Dataset(features, candidates, labels, card, TestSet(*arrays["test"]))


def read_part(folder: Path, stem: str, name: str) -> np.ndarray:
    """Read one of the four files, packed or not."""
    for path in (folder / stem, folder / f"{stem}.gz", folder / stem.replace("-idx", ".idx")):
        if path.is_file():
            return read_idx(read_file(path, name), f"{name}: {path}")
    raise DataError(f"{name}: {folder} has neither {stem} nor {stem}.gz")


def make_source(
    name: str,
    folders: tuple[str, ...],
    task: str,
    origin: str,
    terms: str,
    citation: str,
    class_names: tuple[str, ...] | None = None,
) -> Source:
    """Return the source of a dataset of four IDX files in its own folder."""
    obtain = f"get the four .gz files from {origin} into a folder {folders[0]}"
    card = DatasetCard(
        name=name,
        kind="image",
        task=task,
        source=origin,
        terms=terms,
        citation=citation,
        default_steps=60_000,
        sizes=Sizes(60_000, 28 * 28, N_CLASSES),
        candidates=CandidateSpec("fps"),
    )
    return Source(card, partial(load_idx, card, folders, obtain, class_names), obtain=obtain, own_test=True)


MNIST = make_source(
    "MNIST",
    ("MNIST",),
    "handwritten digit classification",
    "yann.lecun.com/exdb/mnist",
    "CC BY-SA 3.0",
    "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner. Gradient-based learning applied to document recognition. "
    "Proceedings of the IEEE 86(11), 1998.",
)
FASHION_MNIST = make_source(
    "FashionMNIST",
    ("FashionMNIST", "dataset-fashion-mnist"),
    "classification of clothing",
    "github.com/zalandoresearch/fashion-mnist (or Debian's package dataset-fashion-mnist)",
    "MIT",
    "H. Xiao, K. Rasul, R. Vollgraf. Fashion-MNIST: a novel image dataset for benchmarking machine learning "
    "algorithms. arXiv:1708.07747, 2017.",
    ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
KMNIST = make_source(
    "KMNIST",
    ("KMNIST", "Kuzushiji-MNIST", "Kuzushiji"),
    "Kuzushiji-MNIST: classification of cursive Japanese characters",
    "codh.rois.ac.jp/kmnist",
    "CC BY-SA 4.0",
    "T. Clanuwat, M. Bober-Irizar, A. Kitamoto, A. Lamb, K. Yamamoto, D. Ha. Deep learning for classical "
    "Japanese literature. arXiv:1812.01718, 2018.",
    ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
)
