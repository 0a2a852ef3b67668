"""What a module of this folder offers: datasets, each with its card, its loader and its public files."""

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
    obtain: str = "it is built in: nothing needs to be downloaded"
