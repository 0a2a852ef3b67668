"""What a module of this folder offers: datasets, each with its card, its loader and its public files."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plench.data.dataset import Dataset, DatasetCard


@dataclass(frozen=True)
class RemoteFile:
    """A public file: where it is, what it is called in `data_dir`, and git's SHA-1 of its content."""

    url: str
    path: str
    git_sha1: str


@dataclass(frozen=True)
class Source:
    """A dataset that can be loaded by name.

    `load` takes the data folder (None where the user named none). `files` are what `download_dataset`
    fetches; a dataset without any says in `obtain` how the user comes by it.
    """

    card: DatasetCard
    load: Callable[[Path | None], Dataset]
    files: tuple[RemoteFile, ...] = ()
    obtain: str = "it is built in, nothing needs to be downloaded"


def compare_published(dataset: Dataset) -> list[str]:
    """Notices for sizes, mean set size and noise rate that differ from the paper's table of datasets.

    The table rounds mean set sizes to 0.01 and noise rates to 0.01 %: half of that is no difference.
    """
    published = dataset.card.published
    if published is None:
        return []
    name, notices = dataset.card.name, []
    for what, found, wanted in (
        ("examples", dataset.n_examples, published.examples),
        ("features", math.prod(dataset.input_shape[1:]), published.features),
        ("classes", dataset.n_classes, published.classes),
    ):
        if found != wanted:
            notices.append(f"{name} has {found:,} {what}; published are {wanted:,}")
    if abs(dataset.mean_candidates - published.mean_candidates) > 0.005 + 1e-9:
        notices.append(
            f"{name} has {dataset.mean_candidates:.4f} candidates on average; "
            f"published are {published.mean_candidates:.2f}"
        )
    if dataset.noise_rate is not None and abs(dataset.noise_rate - published.noise_rate) > 0.00005 + 1e-9:
        notices.append(
            f"{name} has a noise rate of {dataset.noise_rate:.4%}; published are {published.noise_rate:.2%}"
        )
    return notices
