"""Dataset sources. One file here is one source: its module-level `Source` objects are found by themselves.

A file may also hold a `SourceFinder` for datasets that have no fixed name, such as files given by path.
"""

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

from plench.data.dataset import Dataset, DatasetCard
from plench.data.sources.arrays import make_dataset
from plench.data.sources.base import Source, SourceFinder
from plench.discovery import find_members
from plench.errors import UsageError
from plench.names import find_name, normalise

__all__ = [
    "as_dataset",
    "dataset_card",
    "dataset_names",
    "dataset_patterns",
    "describe_datasets",
    "find_source",
    "load_dataset",
]

logger = logging.getLogger("plench")


@cache
def _sources() -> dict[str, Source]:
    return find_members(
        __name__, "dataset", lambda value: value.card.name if isinstance(value, Source) else None
    )


@cache
def _finders() -> dict[str, SourceFinder]:
    return find_members(
        __name__, "dataset finder", lambda value: value.name if isinstance(value, SourceFinder) else None
    )


def dataset_names() -> list[str]:
    """Names of all known datasets, sorted without regard to case."""
    return sorted(_sources(), key=str.lower)


def dataset_patterns() -> dict[str, str]:
    """How datasets without a fixed name are asked for, such as files by path, and what they are."""
    return {finder.name: finder.meaning for finder in _finders().values()}


def find_source(name: str) -> Source:
    """The source of a dataset by any spelling of its name, or by path.

    A name with a path separator is a path. Raises UsageError with the nearest names where nothing is meant.
    """
    sources, finders = _sources(), _finders()
    known = {normalise(entry): source for entry, source in sources.items()}
    is_path = any(separator in name for separator in (os.sep, os.altsep) if separator)
    if not is_path and normalise(name) in known:
        return known[normalise(name)]
    for finder in finders.values():
        source = finder.find(name)
        if source is not None:
            return source
    if is_path:
        raise UsageError(f"dataset {name!r}: there is no such folder, and it is no .npz file")
    found = find_name(name, [*sources, *finders], "dataset")
    raise UsageError(f"dataset {found!r} stands for: {finders[found].meaning}")


def dataset_card(name: str) -> DatasetCard:
    """The card of a dataset, without loading it."""
    return find_source(name).card


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a dataset by any spelling of its name, or by path; built-in ones need no `data_dir`.

    Its notices, say that a file is not the public one, are logged as well as kept. Generated candidates are
    not drawn here: pass the result and its card's `candidates` to `draw_candidates`.
    """
    dataset = find_source(name).load(None if data_dir is None else Path(data_dir))
    for notice in dataset.notices:
        logger.warning("%s", notice)
    return dataset


def as_dataset(given: Any, data_dir: str | Path | None = None) -> Dataset:
    """Return the dataset that is meant: a name, a path, a `Dataset`, or (features, candidates[, labels])."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, str | os.PathLike):
        return load_dataset(os.fspath(given), data_dir)
    if isinstance(given, tuple | list) and len(given) in (2, 3):
        return make_dataset(*given)
    raise UsageError(
        "a dataset is a name, a path, a plench.Dataset, or a tuple (features, candidates) or "
        f"(features, candidates, labels), not {type(given).__name__}"
    )


def describe_datasets() -> list[dict[str, Any]]:
    """Describe each dataset by its card, as rows."""
    rows = []
    for name in dataset_names():
        source = find_source(name)
        card, sizes, published = source.card, source.card.known_sizes, source.card.published
        rows.append(
            {
                "name": name,
                "kind": card.kind,
                "data": source.how,
                "examples": sizes and sizes.examples,
                "classes": sizes and sizes.classes,
                "candidates": card.candidates.pl_type,
                "mean_size": published and published.mean_candidates,
                "noise_rate": published and published.noise_rate,
                "steps": card.default_steps,
                "task": card.task,
            }
        )
    return rows
