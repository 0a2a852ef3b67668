"""Dataset sources, one file each, found by themselves: a module here lists what it offers in `SOURCES`."""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType

from plench.data.dataset import Dataset, DatasetCard
from plench.data.sources.source import RemoteFile, Source
from plench.errors import PlenchError
from plench.names import find_name, normalise

__all__ = ["RemoteFile", "Source", "dataset_card", "dataset_names", "find_source", "load_dataset"]


def discover_sources(package: ModuleType) -> dict[str, Source]:
    """Import every module of a package and collect its `SOURCES` by name.

    Two datasets of one name, or a module that cannot be imported, are errors that name the files.
    """
    found: dict[str, tuple[Source, str]] = {}
    for module_info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        path = str(Path(package.__path__[0]) / f"{module_info.name}.py")
        try:
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
        except Exception as error:  # whatever a module does wrong, the answer is its file and the reason
            raise PlenchError(f"the dataset source {path} cannot be imported: {error!r}") from error
        for source in getattr(module, "SOURCES", ()):
            key = normalise(source.card.name)
            if key in found:
                raise PlenchError(
                    f"dataset {source.card.name} is offered twice: by {found[key][1]} and by {path}"
                )
            found[key] = (source, path)
    return {source.card.name: source for source, _ in found.values()}


@cache
def _sources() -> dict[str, Source]:
    return discover_sources(importlib.import_module(__name__))


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
