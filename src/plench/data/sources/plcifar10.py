"""PLCIFAR10: CIFAR-10's training images with the candidate labels of about ten human annotators each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.answers import Answers, pick_vaguest, unite
from plench.data.dataset import Dataset, DatasetCard, Published
from plench.data.readers import find_entry, hash_git_blob, read_file, read_pickle
from plench.data.sources.base import RemoteFile, Source, SourceFinder, compare_published
from plench.data.sources.cifar import CIFAR10_FILES, load_cifar
from plench.errors import DataError, UsageError
from plench.text import normalise, short_repr

REPOSITORY = "wwangwitsel/PLCIFAR10"
COMMIT = "8d9eca05917babc6946d94c90df4c9ae804abe83"
RELEASE = RemoteFile(
    f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/plcifar10.pkl",
    "plcifar10/plcifar10.pkl",
    "fbe58701646851fc3b63375d6d6e069ab71a1bad",
)
RELEASED_SETS = 502_190
RELEASED_LABELS = 712_109
N_CLASSES = 10
OBTAIN = f"get plcifar10.pkl from {RELEASE.url}"


def parse_annotations(content: Any, n_images: int, name: str) -> Answers:
    """Check a release's dict, index → list of label lists, and lay it out as arrays."""
    if not isinstance(content, dict):
        raise DataError(
            f"{name} must contain a dict from image index to label lists, not {type(content).__name__}"
        )
    missing = next((index for index in range(n_images) if index not in content), None)
    if missing is not None:
        raise DataError(f"{name} has no annotations for image {missing} ({n_images:,} images)")
    if len(content) != n_images:
        extra = next(key for key in content if not (isinstance(key, int) and 0 <= key < n_images))
        raise DataError(
            f"{name} has annotations for image {short_repr(extra)}; there are images 0…{n_images - 1}"
        )
    per_image = [content[index] for index in range(n_images)]
    for index, sets in enumerate(per_image):
        if not isinstance(sets, list | tuple) or not all(isinstance(labels, list | tuple) for labels in sets):
            raise DataError(f"{name}: the entry of image {index} must be a list of label lists")
    counts = np.fromiter(map(len, per_image), np.int64, n_images)
    flat_sets = list(chain.from_iterable(per_image))
    sizes = np.fromiter(map(len, flat_sets), np.int64, len(flat_sets))
    labels = list(chain.from_iterable(flat_sets))
    image = np.repeat(np.arange(n_images), counts)
    set_of_label = np.repeat(np.arange(len(flat_sets)), sizes)
    for position, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < N_CLASSES:
            where = image[set_of_label[position]]
            raise DataError(
                f"{name}: image {where} has the label {short_repr(label)}; expected 0…{N_CLASSES - 1}"
            )
    sets = np.zeros((len(flat_sets), N_CLASSES), np.bool_)
    sets[set_of_label, np.asarray(labels, np.int64)] = True
    annotator = np.arange(len(flat_sets)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Answers(image, annotator, sets, n_images, sizes)


def make_source(
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


AGGREGATE = make_source(
    "PLCIFAR10_Aggregate", unite, Published(50_000, 3_072, 10, 4.87, 0.0013), protocol_noise_rate=0.00132
)
VAGUEST = make_source(
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
    return make_source(f"PLCIFAR10_Annotators_{first}", partial(unite, first=first))


ANNOTATORS = SourceFinder(
    "PLCIFAR10_Annotators_k", "PLCIFAR10 with the union of the first k annotators", find_annotators
)
