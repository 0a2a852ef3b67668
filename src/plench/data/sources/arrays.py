"""A user's arrays: an `.npz` file, or `.npy` files in one folder, with features or images and candidates.

Features in an `.npy` file stay there: they are mapped, not read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from plench.data.answers import check_num_classes, combine_answers, read_answer_matrix
from plench.data.check import keep_together
from plench.data.dataset import OWN_TASK, REAL_CANDIDATES, CandidateSpec, Dataset, DatasetCard, TestSet
from plench.data.readers import read_array
from plench.data.sources.base import DEFAULT_STEPS, Source, SourceFinder
from plench.errors import DataError, as_data_error
from plench.files import sha256
from plench.text import short_repr

LAYOUT = (
    "`features` (N×D) or `images` (uint8, N×H×W, N×H×W×C or N×C×H×W), with `candidates` (N×K) or `answers` "
    "(N×M classes, -1 in gaps, or N×M×K), `labels` (N) or both, and perhaps `class_names` (K), `groups` (N), "
    "and `test_features` or `test_images` with `test_labels`"
)
OPTIONAL = ("candidates", "answers", "labels", "class_names", "groups")


def find_arrays(name: str) -> Source | None:
    """Return the source of an `.npz` file; its name in records carries a hash of its content."""
    if not name.lower().endswith(".npz"):
        return None
    with as_data_error(f"{name} cannot be read as an .npz file of plain arrays"):
        digest = sha256(Path(name))
        with np.load(name, allow_pickle=False) as archive:
            check_array_names(set(archive.files), name)
            arrays = {key: archive[key] for key in archive.files}
    return make_source(Path(name), digest, arrays)


def find_mapped(name: str) -> Source | None:
    """Return the source of an `.npy` file of features, or of a folder with `features.npy`.

    Features are mapped, not read; the other arrays are `.npy` files in the same folder.
    """
    path = Path(name)
    found = [path / file for file in ("features.npy", "images.npy") if os.path.isfile(path / file)]
    if found:
        path = found[0]
    elif not name.lower().endswith(".npy"):
        return None
    elif (
        not any(os.path.isfile(path.parent / f"{other}.npy") for other in OPTIONAL[:3])
        and (path.parent / "candidates.csv").is_file()
    ):
        return None  # features whose candidates are in a table
    key = "images" if path.stem == "images" else "features"
    files = {key: path}
    for other in (*OPTIONAL, f"test_{key}", "test_labels"):
        if os.path.isfile(path.parent / f"{other}.npy"):
            files[other] = path.parent / f"{other}.npy"
    check_array_names(set(files), name)
    digest = hashlib.sha256()
    arrays: dict[str, np.ndarray] = {}
    for part, file in sorted(files.items()):
        arrays[part] = read_array(file, f"{name}: {file.name}", mapped=key in part)
        digest.update(f"{part};{sha256(file)};".encode())
    return make_source(path.resolve().parent, digest.hexdigest(), arrays)


def make_source(path: Path, digest: str, arrays: dict[str, np.ndarray]) -> Source:
    """Describe a dataset of arrays."""
    kind: Literal["tabular", "image"] = "image" if "images" in arrays else "tabular"
    card = make_card(path, digest, kind, has_candidates="candidates" in arrays or "answers" in arrays)
    return Source(card, lambda data_dir: build_dataset(card, arrays))


def make_card(
    path: Path, digest: str, kind: Literal["tabular", "image"], has_candidates: bool
) -> DatasetCard:
    """Return the card of a user's own data."""
    return DatasetCard(
        name=f"{path.stem}@{digest[:8]}",
        kind=kind,
        task=OWN_TASK,
        source="the user's own file",
        terms="the user's own",
        citation="none",
        default_steps=DEFAULT_STEPS[kind],
        candidates=REAL_CANDIDATES if has_candidates else CandidateSpec("fps"),
    )


def check_array_names(names: set[str], file: str) -> None:
    """Raise DataError unless the arrays are exactly those of a dataset."""
    key = "images" if "images" in names else "features"
    test = {f"test_{key}", "test_labels"}
    unknown = sorted(names - {key, *OPTIONAL, *test})
    problem = None
    if ("features" in names) == ("images" in names):
        problem = f"it must have either `features` or `images`; expected {LAYOUT}"
    elif not names & {"candidates", "answers", "labels"}:
        problem = f"it has neither `candidates` nor `labels`; expected {LAYOUT}"
    elif {"candidates", "answers"} <= names:
        problem = "it has `candidates` and `answers`; the candidate sets come from one of them"
    elif unknown:
        problem = f"it has an array {short_repr(unknown[0])} in addition to `{key}`; expected {LAYOUT}"
    elif len(names & test) == 1:
        problem = f"a test set needs both `test_{key}` and `test_labels`"
    if problem:
        raise DataError(f"{file} cannot be used: {problem}")


def build_dataset(card: DatasetCard, arrays: dict[str, np.ndarray]) -> Dataset:
    """Make the dataset; without `candidates` each set is the label alone until candidates are drawn."""
    key = "images" if card.kind == "image" else "features"
    features = arrange(arrays[key], card)
    labels = arrays.get("labels")
    candidates = arrays.get("candidates")
    class_names = None
    if "class_names" in arrays:
        names = arrays["class_names"]
        if names.ndim != 1 or names.dtype.kind not in "UiuS":
            raise DataError(
                f"{card.name}: class_names must be a list of texts, not {names.dtype} of {names.shape}"
            )
        class_names = tuple(str(text) for text in names.astype(np.str_))
    answers = None
    if "answers" in arrays:
        n_classes = None if class_names is None else len(class_names)
        answers = read_answer_matrix(arrays["answers"], n_classes, f"{card.name}: answers")
        if labels is not None and labels.dtype.kind in "iu" and labels.size:
            n_classes = max(answers.n_classes, int(labels.max()) + 1)  # one that no annotator has named
            check_num_classes(n_classes, len(features), card.name)
            answers = answers.widen(n_classes)
        candidates = combine_answers(answers)
    if candidates is None:
        assert labels is not None
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
            raise DataError(f"{card.name}: labels must be a list of whole numbers from 0")
        check_num_classes(int(labels.max()) + 1, len(labels), card.name)
        candidates = labels[:, None] == np.arange(int(labels.max()) + 1)
    test = None
    if "test_labels" in arrays:
        test = TestSet(arrange(arrays[f"test_{key}"], card), arrays["test_labels"])
    dataset = Dataset(
        features,
        candidates,
        labels,
        replace(card, class_names=class_names),
        test,
        groups=arrays.get("groups"),
        answers=answers,
    )
    return keep_together(dataset)


def make_dataset(
    features: ArrayLike,
    candidates: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    answers: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    groups: ArrayLike | None = None,
) -> Dataset:
    """Make a dataset of arrays: features N×D or images, candidates N×K, and labels if they are known.

    Instead of candidates there may be annotators' `answers`, N×M classes with −1 in gaps, or N×M×K with 0 and
    1. Its name in records carries a hash of its content.
    """
    if (candidates is None) == (answers is None):
        raise DataError("a dataset of arrays has either candidates or annotators' answers")
    named = {"features": features, "candidates": candidates, "labels": labels, "answers": answers}
    given: dict[str, np.ndarray] = {}
    for key, value in {**named, "groups": groups, "class_names": class_names}.items():
        if value is None:
            continue
        try:
            given[key] = np.asarray(list(map(str, value)) if key == "class_names" else value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:  # lists of different lengths, or not a list
            raise DataError(f"{key} cannot be read as an array ({error})") from None
    kind: Literal["tabular", "image"] = "image" if given["features"].ndim > 2 else "tabular"
    if kind == "image":
        given["images"] = given.pop("features")
    nameless = make_card(Path("arrays"), "", kind, has_candidates=True)
    dataset = build_dataset(nameless, given)
    card = make_card(Path("arrays"), dataset.fingerprint, kind, has_candidates=True)
    return replace(dataset, card=replace(dataset.card, name=card.name))


def arrange(features: np.ndarray, card: DatasetCard) -> np.ndarray:
    """Bring images to N×C×H×W: a missing channel axis is added, a last one moved.

    The axis of the channels is the second if it has size 1 or 3, else the smaller one.
    """
    if card.kind != "image":
        return features
    if features.ndim == 3:
        return features[:, None]
    if features.ndim == 4 and features.shape[1] not in (1, 3) and features.shape[3] < features.shape[1]:
        return np.ascontiguousarray(features.transpose(0, 3, 1, 2))
    return features


ARRAYS = SourceFinder("path/to/file.npz", LAYOUT, find_arrays)
MAPPED = SourceFinder(
    "path/to/features.npy",
    "the arrays of an .npz file, each an .npy file in one folder; features stay on disk",
    find_mapped,
)
