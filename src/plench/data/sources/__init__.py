"""Dataset sources. One file here is one source: its module-level `Source` objects are found by themselves."""

from functools import cache
from pathlib import Path

from plench.data.dataset import Dataset, DatasetCard
from plench.data.sources.base import Source
from plench.discovery import find_members
from plench.names import find_name

__all__ = ["dataset_card", "dataset_names", "find_source", "load_dataset"]


@cache
def _sources() -> dict[str, Source]:
    return find_members(
        __name__, "dataset", lambda value: value.card.name if isinstance(value, Source) else None
    )


def dataset_names() -> list[str]:
    """Names of all known datasets, sorted without regard to case."""
    return sorted(_sources(), key=str.lower)


def find_source(name: str) -> Source:
    """The source of a dataset by any spelling of its name; UsageError with the nearest names otherwise."""
    sources = _sources()
    return sources[find_name(name, sources, "dataset")]


def dataset_card(name: str) -> DatasetCard:
    """The card of a dataset, without loading it."""
    return find_source(name).card


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a dataset by any spelling of its name; built-in ones need no `data_dir`.

    Generated candidates are not drawn here: pass the result and its card's `candidates` to `draw_candidates`.
    """
    return find_source(name).load(None if data_dir is None else Path(data_dir))
