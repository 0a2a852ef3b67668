"""CIFAR-10 and CIFAR-100 from their Python files, with generated candidates or those of human annotators.

PLCIFAR10 has CIFAR-10's training images with the candidate labels of about ten annotators each, CIFAR10H its
test images with about 51 votes each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.answers import Answers, pick_vaguest, spread_votes, unite
from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Published, Sizes, TestSet
from plench.data.readers import (
    find_entry,
    hash_git_blob,
    hash_md5,
    read_archive,
    read_array,
    read_file,
    read_pickle,
)
from plench.data.sources.base import RemoteFile, Source, SourceFinder, compare_published
from plench.errors import DataError, UsageError
from plench.text import normalise, short_repr

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
    batches, warnings = read_batches(name, files, {**files.train, **files.test}, data_dir)
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
    return Dataset(
        np.concatenate([batch[0] for batch in train]),
        labels[:, None] == np.arange(files.n_classes),
        labels,
        replace(card, class_names=files.class_names),
        TestSet(test_images, test_labels),
        tuple(warnings),
    )


def read_batches(
    name: str, files: CifarFiles, wanted: Mapping[str, str], data_dir: Path | None
) -> tuple[dict[str, Batch], list[str]]:
    """Read the wanted files of a distribution, with a warning if some are not the public ones."""
    place = find_entry(name, (files.folder, files.archive.path), data_dir, files.obtain)
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
    if not others:
        return batches, []
    listed = ", ".join(sorted(others, key=list(wanted).index))
    return batches, [f"{name}: {place.name} has other files than the public ones (by MD5): {listed}"]


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

REPOSITORY = "wwangwitsel/PLCIFAR10"
COMMIT = "8d9eca05917babc6946d94c90df4c9ae804abe83"
RELEASE = RemoteFile(
    f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/plcifar10.pkl",
    "plcifar10/plcifar10.pkl",
    "fbe58701646851fc3b63375d6d6e069ab71a1bad",
)
RELEASED_SETS = 502_190
RELEASED_LABELS = 712_109
OBTAIN = f"get plcifar10.pkl from {RELEASE.url}"


def parse_annotations(content: Any, n_images: int, name: str) -> Answers:
    """Check a release's dict, index → list of label lists, and lay it out as arrays."""
    if not isinstance(content, dict):
        raise DataError(
            f"{name} must contain a dict from image index to label lists, not {type(content).__name__}"
        )
    missing = [index for index in range(n_images) if index not in content]
    if missing:
        raise DataError(f"{name} has no annotations for image {missing[0]} ({n_images:,} images)")
    if len(content) != n_images:
        extra = next(key for key in content if not (isinstance(key, int) and 0 <= key < n_images))
        raise DataError(
            f"{name} has annotations for image {short_repr(extra)}; there are images 0…{n_images - 1}"
        )
    n_classes = CIFAR10_FILES.n_classes
    place: list[tuple[int, int]] = []  # image and annotator
    given: list[list[int]] = []
    for index in range(n_images):
        sets = content[index]
        if not isinstance(sets, list | tuple) or not all(isinstance(labels, list | tuple) for labels in sets):
            raise DataError(f"{name}: the entry of image {index} must be a list of label lists")
        for label in chain.from_iterable(sets):
            if type(label) is not int or not 0 <= label < n_classes:
                known = f"0…{n_classes - 1}"
                raise DataError(f"{name}: image {index} has the label {short_repr(label)}; expected {known}")
        place += [(index, number) for number in range(len(sets))]
        given += sets
    lengths = np.fromiter(map(len, given), np.int64, len(given))
    found = np.zeros((len(given), n_classes), np.bool_)
    found[np.repeat(np.arange(len(given)), lengths), np.fromiter(chain.from_iterable(given), np.int64)] = True
    image, annotator = np.array(place, np.int64).reshape(-1, 2).T
    return Answers(image, annotator, found, n_images, lengths)


def make_annotated_source(
    name: str,
    combine: Callable[[Answers], np.ndarray],
    published: Published | None = None,
    protocol_noise_rate: float | None = None,
) -> Source:
    """Return the source for one way to combine the sets of an image's annotators."""
    card = DatasetCard(
        name=name,
        kind="image",
        task="image classification with human annotators",
        source=f"GitHub repository {REPOSITORY} at commit {COMMIT}; images: {CIFAR10_FILES.archive.url}",
        terms="academic use only, at the user's own risk (the authors' notice)",
        citation=(
            "W. Wang, D.-D. Wu, J. Wang, G. Niu, M.-L. Zhang, M. Sugiyama. "
            "Realistic evaluation of deep partial-label learning algorithms. ICLR 2025."
        ),
        default_steps=60_000,
        published=published,
        protocol_noise_rate=protocol_noise_rate,
    )

    def load(data_dir: Path | None) -> Dataset:
        file = Path(RELEASE.path).name
        find_entry(name, (file,), data_dir, OBTAIN)  # before the images are read, which takes longer
        images = load_cifar(card, CIFAR10_FILES, data_dir)
        annotations, is_release = read_annotations(name, data_dir, images.n_examples)
        dataset = replace(
            images, candidates=combine(annotations), verified=is_release and not images.warnings
        )
        if not is_release:
            dataset = dataset.with_warnings(
                [f"{name}: {file} is not the public release (its git SHA-1 differs)"]
            )
        return dataset.with_warnings(compare_published(dataset))

    return Source(
        card,
        load,
        (RELEASE, CIFAR10_FILES.archive),
        f"{OBTAIN} and {CIFAR10_FILES.obtain}",
        lambda data_dir, n_images: read_annotations(name, data_dir, n_images)[0],
        own_test=True,
    )


def read_annotations(name: str, data_dir: Path | None, n_images: int) -> tuple[Answers, bool]:
    """Read every annotator's sets, and whether the file is the release, which must have its numbers."""
    path = find_entry(name, (Path(RELEASE.path).name,), data_dir, OBTAIN)
    content = read_file(path, name)
    where = f"{name}: {path.name}"
    annotations = parse_annotations(read_pickle(content, where), n_images, where)
    is_release = hash_git_blob(content) == RELEASE.git_sha1
    n_labels = annotations.lengths.sum()
    if is_release and (len(annotations.sets), n_labels) != (RELEASED_SETS, RELEASED_LABELS):
        raise DataError(
            f"{where} is the public release, but {len(annotations.sets):,} sets with "
            f"{n_labels:,} labels were read instead of {RELEASED_SETS:,} with {RELEASED_LABELS:,}"
        )
    return annotations, is_release


AGGREGATE = make_annotated_source(
    "PLCIFAR10_Aggregate", unite, Published(50_000, 3_072, 10, 4.87, 0.0013), protocol_noise_rate=0.00132
)
VAGUEST = make_annotated_source(
    "PLCIFAR10_Vaguest", pick_vaguest, Published(50_000, 3_072, 10, 3.49, 0.1756), protocol_noise_rate=0.17556
)


def find_annotators(name: str) -> Source | None:
    """Return the source of `PLCIFAR10_Annotators_3`: the union of the first three annotators."""
    match = re.fullmatch(r"plcifar10annotators(\d+)", normalise(name))
    if match is None:
        return None
    first = int(match[1])
    if first < 1:
        raise UsageError(f"dataset {name!r}: the number of annotators must be at least 1")
    return make_annotated_source(f"PLCIFAR10_Annotators_{first}", partial(unite, first=first))


ANNOTATORS = SourceFinder(
    "PLCIFAR10_Annotators_k", "PLCIFAR10 with the union of the first k annotators", find_annotators
)


VOTES_FILE = RemoteFile(
    "https://raw.githubusercontent.com/jcpeterson/cifar-10h/48da312b193b82e6939ec20f23d1f09cbdd849c8/data/"
    "cifar10h-counts.npy",
    "cifar10h/cifar10h-counts.npy",
    "497e9331ae297b49669d073d657fb1d54688e319",
)
VOTED_CARD = DatasetCard(
    name="CIFAR10H",
    kind="image",
    task="image classification with about 51 votes for each image of CIFAR-10's test set",
    source=f"{VOTES_FILE.url}; images: {CIFAR10_FILES.archive.url}",
    terms=f"votes: CC BY-NC-SA 4.0; images: {TERMS}",
    citation=(
        "J. C. Peterson, R. M. Battleday, T. L. Griffiths, O. Russakovsky. Human uncertainty makes "
        "classification more robust. ICCV 2019."
    ),
    default_steps=60_000,
    sizes=Sizes(10_000, math.prod(IMAGE_SHAPE), CIFAR10_FILES.n_classes),
    class_names=CIFAR10_FILES.class_names,
)
OBTAIN_VOTES = f"get cifar10h-counts.npy from {VOTES_FILE.url}"


def load_voted(data_dir: Path | None) -> Dataset:
    """Load the test images of CIFAR-10 with the votes of CIFAR-10H, which are in the same order."""
    name = VOTED_CARD.name
    path = find_entry(name, (Path(VOTES_FILE.path).name,), data_dir, OBTAIN_VOTES)
    content = read_file(path, name)
    batches, warnings = read_batches(name, CIFAR10_FILES, CIFAR10_FILES.test, data_dir)
    warnings += VOTES_FILE.warn_mismatch(name, path.name, content)
    images, labels, _ = batches["test_batch"]
    votes, shape = read_array(content, f"{name}: {path.name}"), (len(images), CIFAR10_FILES.n_classes)
    whole = votes.astype(np.int64) if votes.dtype.kind in "iuf" else np.full(1, -1)
    if votes.shape != shape or (whole != votes).any() or (whole < 0).any() or not whole.any(1).all():
        raise DataError(
            f"{name}: {path.name} must have whole numbers of votes {shape}, at least one per image, not "
            f"{votes.dtype} of {votes.shape}"
        )
    agree = float((whole.argmax(1) == labels).mean())
    if agree < 0.5:
        raise DataError(
            f"{name}: most votes go to the true label of {agree:.0%} of the images, so the images of "
            f"test_batch are not in the public order; {CIFAR10_FILES.obtain}"
        )
    answers = spread_votes(whole)
    return Dataset(
        images,
        unite(answers),
        labels,
        VOTED_CARD,
        warnings=tuple(warnings),
        verified=not warnings,
        answers=answers,
    )


VOTED = Source(
    VOTED_CARD,
    load_voted,
    (VOTES_FILE, CIFAR10_FILES.archive),
    f"{OBTAIN_VOTES} and {CIFAR10_FILES.obtain}",
    answers=True,
    anonymous=True,
)
