"""CIFAR-10 and CIFAR-100 from their Python files, with generated candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Sizes, TestSet
from plench.data.readers import find_entry, hash_md5, read_archive, read_file, read_pickle
from plench.data.sources.base import RemoteFile, Source
from plench.errors import DataError

CITATION = "A. Krizhevsky. Learning multiple layers of features from tiny images. Technical report, 2009."
TERMS = "free to use with a reference to the technical report"
IMAGE_SHAPE = (3, 32, 32)
N_SUPERCLASSES = 20
Batch = tuple[np.ndarray, np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class CifarFiles:
    """One of the two distributions: its folder, archive and files with their MD5, the key of its labels."""

    folder: str
    archive: RemoteFile
    train: Mapping[str, str]
    test: Mapping[str, str]
    label_key: bytes
    n_classes: int
    class_names: tuple[str, ...] | None = None

    @property
    def obtain(self) -> str:
        """How a user gets the files."""
        return f"get {self.archive.path} from {self.archive.url}"


def make_archive(name: str, md5: str) -> RemoteFile:
    """Return one of the public archives."""
    return RemoteFile(f"https://www.cs.toronto.edu/~kriz/{name}", name, md5=md5)


CIFAR10_FILES = CifarFiles(
    "cifar-10-batches-py",
    make_archive("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    {"test_batch": "40351d587109b95175f43aff81a1287e"},
    b"labels",
    10,
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)
CIFAR100_FILES = CifarFiles(
    "cifar-100-python",
    make_archive("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    {"train": "16019d7e3df5f24257cddd939b257f8d"},
    {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    b"fine_labels",
    100,
)


def load_cifar(
    card: DatasetCard, files: CifarFiles, data_dir: Path | None, hierarchical: bool = False
) -> Dataset:
    """Load a distribution from its unpacked folder or else from its archive.

    Until candidates are drawn, a candidate set is the label alone.
    """
    name = card.name
    place = find_entry(name, (files.folder, files.archive.path), data_dir, files.obtain)
    wanted = {**files.train, **files.test}
    contents: Iterator[tuple[str, bytes]]
    if place.is_dir():
        contents = ((file, read_file(place / file, name)) for file in wanted)
    else:
        contents = read_archive(place, [f"{files.folder}/{file}" for file in wanted], name)
    others: list[str] = []
    batches: dict[str, Batch] = {}
    for path, content in contents:
        file = path.rpartition("/")[2]
        if hash_md5(content) != wanted[file]:
            others.append(file)
        batches[file] = read_batch(content, files, f"{name}: {place.name}/{file}")
    train = [batches[file] for file in files.train]
    test_images, test_labels, _ = batches[next(iter(files.test))]
    labels = np.concatenate([batch[1] for batch in train])
    coarse = [batch[2] for batch in train if batch[2] is not None]
    if hierarchical and not coarse:
        raise DataError(f"{name}: the files have no coarse labels")
    if coarse:
        superclasses = np.full(files.n_classes, -1)
        superclasses[labels] = np.concatenate(coarse)
        if (superclasses[labels] != np.concatenate(coarse)).any() or (superclasses < 0).any():
            raise DataError(f"{name}: fine and coarse labels do not agree")
        if hierarchical:
            card = replace(card, superclasses=tuple(superclasses.tolist()))
    dataset = Dataset(
        np.concatenate([batch[0] for batch in train]),
        labels[:, None] == np.arange(files.n_classes),
        labels,
        replace(card, class_names=files.class_names),
        TestSet(test_images, test_labels),
    )
    if others:
        listed = ", ".join(sorted(others, key=list(wanted).index))
        return dataset.with_warnings(
            [f"{name}: {place.name} has other files than the public ones (by MD5): {listed}"]
        )
    return dataset


def read_batch(content: bytes, files: CifarFiles, name: str) -> Batch:
    """Return images (n, 3, 32, 32), labels (n,) and superclasses (n,), if any, of one file."""
    batch = read_pickle(content, name)
    if not isinstance(batch, dict):
        raise DataError(f"{name} does not contain a dict")
    images = batch.get(b"data")
    width = math.prod(IMAGE_SHAPE)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (width,):
        raise DataError(f"{name}: `data` must be a uint8 array of shape n×{width}")
    labels = check_image_labels(batch.get(files.label_key), len(images), files.n_classes, name)
    coarse = batch.get(b"coarse_labels")
    if coarse is not None:
        coarse = check_image_labels(coarse, len(images), N_SUPERCLASSES, name)
    return images.reshape(-1, *IMAGE_SHAPE), labels, coarse


def check_image_labels(labels: Any, count: int, n_classes: int, name: str) -> np.ndarray:
    """Return labels as an array, if there is a whole number below `n_classes` for each image."""
    if not isinstance(labels, list | np.ndarray) or len(labels) != count:
        raise DataError(f"{name}: there must be {count:,} labels, one per image")
    array = np.asarray(labels) if all(isinstance(label, int | np.integer) for label in labels) else None
    if array is None or array.dtype.kind not in "iu":
        raise DataError(f"{name}: labels must be whole numbers")
    wrong = np.flatnonzero((array < 0) | (array >= n_classes))
    if len(wrong):
        raise DataError(
            f"{name}: the label of image {wrong[0]} is {array[wrong[0]]}; expected 0…{n_classes - 1}"
        )
    return array.astype(np.int64)


def make_source(
    name: str, files: CifarFiles, candidates: CandidateSpec, task: str, hierarchical: bool = False
) -> Source:
    """Return the source of a distribution with its default candidates."""
    card = DatasetCard(
        name=name,
        kind="image",
        task=task,
        source=files.archive.url,
        terms=TERMS,
        citation=CITATION,
        default_steps=60_000,
        sizes=Sizes(50_000, math.prod(IMAGE_SHAPE), files.n_classes),
        candidates=candidates,
    )

    def load(data_dir: Path | None) -> Dataset:
        return load_cifar(card, files, data_dir, hierarchical)

    return Source(card, load, (files.archive,), files.obtain, own_test=True)


CIFAR10 = make_source("CIFAR10", CIFAR10_FILES, CandidateSpec("fps"), "image classification")
CIFAR100 = make_source(
    "CIFAR100", CIFAR100_FILES, CandidateSpec("fps", fps_rate=0.05), "image classification, 100 classes"
)
CIFAR100_HIERARCHICAL = make_source(
    "CIFAR100_Hierarchical",
    CIFAR100_FILES,
    CandidateSpec("fps", fps_rate=0.5),
    "image classification, wrong candidates from the label's superclass",
    hierarchical=True,
)
