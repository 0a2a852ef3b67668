"""Dataset sources. Each file here is a source: its module-level `Source` objects are found automatically.

A file may also have a `SourceFinder` for datasets without a fixed name, such as files given by path.
Third-party datasets come by path (`path/to/file.py:SOURCE`), module or entry point.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from plench.data.answers import Answers
from plench.data.check import check_dataset
from plench.data.dataset import OWN_TASK, Dataset, DatasetCard
from plench.data.encoders import is_own_encoder
from plench.data.sources.arrays import make_dataset
from plench.data.sources.base import Source, SourceFinder, attach_encoders
from plench.data.sources.tables import make_table_dataset
from plench.data.tables import is_frame
from plench.errors import DataError, UsageError
from plench.registry import Entry, Registry, is_third_party
from plench.text import find_name

logger = logging.getLogger("plench")

AnySource = Source | SourceFinder
ENCODER_OPTIONS = ("text_encoder", "image_encoder")


def rename(source: AnySource, name: str) -> AnySource:
    """Return a third-party dataset under its name in records; the datasets of a finder have their own."""
    if isinstance(source, SourceFinder):
        return source
    card = replace(source.card, name=name)

    def load(data_dir: Path | None) -> Dataset:
        dataset = source.load(data_dir)
        if not isinstance(dataset, Dataset):
            raise DataError(f"{name}: load returned {type(dataset).__name__}; expected a plench.data.Dataset")
        return replace(dataset, card=replace(card, class_names=card.class_names or dataset.class_names))

    return replace(source, card=card, load=load)


DATASETS = Registry[AnySource](
    "dataset",
    __name__,
    "a plench.data.sources.base.Source or SourceFinder",
    lambda value: isinstance(value, AnySource),
    lambda source: source.card.name if isinstance(source, Source) else source.name,
    group="plench.datasets",
    rename=rename,
)


def dataset_names(own_only: bool = False) -> list[str]:
    """Return the names of all datasets, sorted without regard to case; `own_only` omits third-party ones."""
    entries = DATASETS.own if own_only else DATASETS.items
    return sorted(
        (name for name, entry in entries.items() if isinstance(entry.member, Source)), key=str.lower
    )


def answered_datasets() -> list[Source]:
    """Return our datasets that keep annotators' answers."""
    return [source for name in dataset_names(own_only=True) if (source := find_source(name)).answers]


def check_answers(algorithm: str, annotators: bool, dataset: str, answers: Answers | None) -> None:
    """Raise UsageError unless a dataset has the answers that a method learns from, with their annotators."""
    if answers is not None and not (annotators and answers.anonymous):
        return
    fitting = [
        source.card.name
        for source in answered_datasets()
        if source.card.kind == "tabular" and not (annotators and source.anonymous)
    ]
    lack = "which {} does not have" if answers is None else "but the votes of {} do not say whose they are"
    learned = "answers of known annotators" if annotators else "answers of annotators"
    raise UsageError(
        f"{algorithm} learns from the {learned}, {lack.format(dataset)}; expected one of "
        f"{', '.join(fitting)}, or own data with answers"
    )


def dataset_patterns() -> dict[str, str]:
    """Return how datasets without a fixed name are written, such as files by path, and what they are."""
    return {finder.name: finder.meaning for finder in _list_finders(DATASETS.items)}


def find_source(name: str) -> Source:
    """Return the source of a dataset by any spelling of its name, by path, or a third-party one.

    Known names win over files and folders of that name; a name with a path separator is always a path, so
    `./Lost` is a folder. `?text_encoder=…` and `?image_encoder=…` behind it encode its texts and images.
    Raises UsageError with the nearest names if there is no such dataset.
    """
    base, encoders = split_encoders(name)
    return attach_encoders(_find_base(base), **encoders)


def _find_base(name: str) -> Source:
    is_path = has_separator(name)
    if is_third_party(name) or (not is_path and DATASETS.knows(name)):
        return _as_source(DATASETS.find(name))
    for entries in (DATASETS.own, DATASETS.items):  # third-party code is imported only if ours has no answer
        for finder in _list_finders(entries):
            found = finder.find(name)
            if found is not None:
                return found
    if is_path:
        known = ", ".join(dataset_patterns())
        raise UsageError(f"dataset {name!r}: there is no such folder or file; expected one of {known}")
    return _as_source(DATASETS.find(name))


def split_encoders(name: str) -> tuple[str, dict[str, str]]:
    """Split the encoders off the options of a reference: `t.csv?ignore=a&text_encoder=MiniLM`."""
    path, _, query = name.partition("?")
    parts = query.split("&") if query else []
    chosen = [part for part in parts if part.partition("=")[0] in ENCODER_OPTIONS]
    rest = "&".join(part for part in parts if part not in chosen)
    return f"{path}?{rest}" if rest else path, dict(parse_qsl("&".join(chosen)))


def add_encoders(name: str, **encoders: str | None) -> str:
    """Return a reference with encoders as options, in place of those that it has."""
    base, present = split_encoders(name)
    chosen = {**present, **{option: spec for option, spec in encoders.items() if spec is not None}}
    if not chosen:
        return name
    return base + ("&" if "?" in base else "?") + urlencode(chosen, safe=":/")


def find_own_source(name: str) -> Source | None:
    """Return the source of one of our datasets, by name or path, else None; imports no third-party code."""
    name, encoders = split_encoders(name)
    if is_third_party(name) or any(not is_own_encoder(spec) for spec in encoders.values()):
        return None
    if not has_separator(name) and DATASETS.is_own(name):
        return attach_encoders(_as_source(DATASETS.find(name)), **encoders)
    if not has_separator(name) and DATASETS.knows(name):
        return None
    found = next((found for finder in _list_finders(DATASETS.own) if (found := finder.find(name))), None)
    return found and attach_encoders(found, **encoders)


def has_separator(name: str) -> bool:
    """Return True if a name can only be a path."""
    return any(separator in name for separator in (os.sep, os.altsep) if separator)


def keeps_name(name: str) -> bool:
    """Return True if runs record a dataset under the given name, unlike those of paths and third parties.

    Nothing is read or imported.
    """
    if has_separator(name) or is_third_party(name) or "?" in name:
        return False
    if DATASETS.knows(name):
        return name in DATASETS.own
    return not Path(name).suffix and not os.path.isdir(name)


def _list_finders(entries: Mapping[str, Entry[AnySource]]) -> list[SourceFinder]:
    return [entry.member for entry in entries.values() if isinstance(entry.member, SourceFinder)]


def _as_source(entry: Entry[AnySource]) -> Source:
    if isinstance(entry.member, SourceFinder):
        raise UsageError(f"dataset {entry.name!r} stands for: {entry.member.meaning}")
    return entry.member


def dataset_card(name: str, own_only: bool = False) -> DatasetCard:
    """Return the card of a dataset without loading it; `own_only` accepts names of our datasets only."""
    if own_only:
        return _as_source(DATASETS.own[find_name(name, DATASETS.own, "dataset")]).card
    return find_source(name).card


def load_dataset(name: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a dataset by any spelling of its name, or by path; built-in ones need no `data_dir`.

    Its warnings, such as that a file is not the public one, are also logged. Generated candidates are not
    drawn here: pass the result and its card's `candidates` to `draw_candidates`.
    """
    return log_warnings(find_source(os.fspath(name)).load(None if data_dir is None else Path(data_dir)))


def log_warnings(dataset: Dataset) -> Dataset:
    """Log what loading had to say and what is suspicious in a user's own data, and return the dataset."""
    found: list[str] = []
    if dataset.card.task == OWN_TASK:
        logger.info("%s: %s", dataset.card.name, dataset.card.source)
        found = [f"{dataset.card.name}: {finding.message}" for finding in check_dataset(dataset)]
    for warning in (*dataset.warnings, *found):
        logger.warning("%s", warning)
    return dataset


def download_dataset(name: str, data_dir: str | Path) -> list[Path]:
    """Fetch the public files of a dataset into `data_dir`, each verified, and return their paths."""
    source = find_source(name)
    if not source.files:
        reason = source.obtain or "it is built in or given by path"
        raise DataError(f"{source.card.name} cannot be downloaded: {reason}")
    return [remote.download(Path(data_dir) / remote.path) for remote in source.files]


def as_dataset(
    given: Any,
    data_dir: str | Path | None = None,
    *,
    text_encoder: str | None = None,
    image_encoder: str | None = None,
) -> Dataset:
    """Return a `Dataset` from a name, a path, a `Source`, (features, candidates[, labels]) or a frame.

    Texts and images are encoded by the encoders given. Warnings of data that is read here are logged.
    """
    encoders = {"text_encoder": text_encoder, "image_encoder": image_encoder}
    if isinstance(given, Source):
        given = DATASETS.find(given).name
    if isinstance(given, str | os.PathLike):
        return load_dataset(add_encoders(os.fspath(given), **encoders), data_dir)
    if is_frame(given):
        return log_warnings(make_table_dataset(given, text_encoder=text_encoder, image_encoder=image_encoder))
    dataset = given
    if isinstance(given, tuple | list) and len(given) in (2, 3):
        dataset = log_warnings(make_dataset(*given))
    if isinstance(dataset, Dataset):
        return attach_encoders(Source(dataset.card, lambda _: dataset), **encoders).load(None)
    raise UsageError(
        "a dataset is a name, a path, a plench.Dataset, a tuple (features, candidates) or (features, "
        f"candidates, labels), or a pandas or polars frame, not {type(given).__name__}"
    )


def describe_datasets() -> list[dict[str, Any]]:
    """Describe each dataset by its card, as rows."""
    rows = []
    for name in dataset_names():
        source = find_source(name)
        card, published = source.card, source.card.published
        sizes = published or card.sizes
        combined = None if source.annotations is None else "combined"
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
                "test_set": "own" if source.own_test else "drawn",
                # For learning, by annotators or as votes only, or made into sets.
                "answers": ("votes" if source.anonymous else "kept") if source.answers else combined,
                "steps": card.default_steps,
                "task": card.task,
            }
        )
    return rows
