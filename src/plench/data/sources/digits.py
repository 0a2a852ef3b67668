"""Small images with generated candidates: scikit-learn's digits, and MNIST and its kin in IDX files.

The digits are built in, as 64 numbers or as images of 1×8×8 pixels.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, read_file
from plench.data.sources.base import Source
from plench.errors import DataError
from plench.settings import PartialLabelType

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


def make_source(
    name: str,
    folders: tuple[str, ...],
    task: str,
    origin: str,
    terms: str,
    citation: str,
    class_names: tuple[str, ...] | None = None,
) -> Source:
    """Return the source of a dataset of four IDX files in its own folder.

    Until candidates are drawn, a candidate set is the label alone.
    """
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

    def load(data_dir: Path | None) -> Dataset:
        folder = find_entry(name, folders, data_dir, obtain)
        if (folder / "raw").is_dir():  # where torchvision puts them
            folder = folder / "raw"
        images, labels = read_part(folder, "train", name)
        test = TestSet(*read_part(folder, "t10k", name))
        candidates = labels[:, None] == np.arange(N_CLASSES)
        return Dataset(images, candidates, labels, replace(card, class_names=class_names), test)

    return Source(card, load, obtain=obtain, own_test=True)


def read_part(folder: Path, prefix: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 1, H, W) and labels (N,) of the files with a prefix, compressed or not."""
    arrays = []
    for stem in (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"):
        spellings = (folder / stem, folder / f"{stem}.gz", folder / stem.replace("-idx", ".idx"))
        path = next(filter(Path.is_file, spellings), None)
        if path is None:
            raise DataError(f"{name}: {folder} has neither {stem} nor {stem}.gz")
        arrays.append(read_idx(read_file(path, name), f"{name}: {path}"))
    images, labels = arrays
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{name}: {folder} has {prefix} images of shape {images.shape}, labels of {labels.shape}"
        )
    if (labels >= N_CLASSES).any():
        raise DataError(f"{name}: {folder} has the label {labels.max()}; expected 0…{N_CLASSES - 1}")
    return images[:, None], labels.astype(np.int64)


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


def make_digits(
    name: str, pl_type: PartialLabelType, kind: Literal["tabular", "image"] = "tabular"
) -> Source:
    """The digits in one form with one kind of generated candidates."""
    card = DatasetCard(
        name=name,
        kind=kind,
        task="handwritten digit classification",
        source="scikit-learn's load_digits: the test part of UCI's Optical Recognition of Handwritten Digits",
        terms="CC BY 4.0",
        citation=(
            "E. Alpaydin and C. Kaynak. Optical Recognition of Handwritten Digits. "
            "UCI Machine Learning Repository, 1998."
        ),
        default_steps=2_000,
        sizes=Sizes(1_797, 64, 10),
        candidates=CandidateSpec(pl_type),
    )
    return Source(card, partial(load_digits, card))


def load_digits(card: DatasetCard, data_dir: Path | None) -> Dataset:
    """The digits scaled to 0…1, or 0…255 as images; until candidates are drawn, a set is the label alone."""
    features, labels = _read_pixels()
    if card.kind == "image":
        features = np.round(features * 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    return Dataset(features, labels[:, None] == np.arange(10), labels, card)


@cache
def _read_pixels() -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets  # imported late: it is slow, and only these datasets need it

    pixels, labels = datasets.load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64)


DIGITS_USS = make_digits("Digits_USS", "uss")
DIGITS_FPS = make_digits("Digits_FPS", "fps")
DIGITS_ID = make_digits("Digits_ID", "id")
DIGIT_IMAGES = make_digits("DigitImages", "fps", kind="image")
