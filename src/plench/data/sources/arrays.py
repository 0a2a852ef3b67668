"""Anybody's arrays: an `.npz` file given by path, with features or images, labels and candidates."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from plench.data.candidates import REAL_CANDIDATES, CandidateSpec
from plench.data.dataset import Dataset, DatasetCard, TestSet
from plench.data.files import read_file
from plench.data.sources.base import Source, SourceFinder
from plench.errors import DataError

DEFAULT_STEPS = {"tabular": 10_000, "image": 60_000}
LAYOUT = (
    "`features` (N×D) or `images` (uint8, N×H×W, N×H×W×C or N×C×H×W), with `candidates` (N×K), `labels` (N) "
    "or both, and perhaps `test_features` or `test_images` with `test_labels`"
)
MAX_MEMBER_BYTES = 2**34


def find_arrays(name: str) -> Source | None:
    """Answer the path of an `.npz` file; the name in records carries a hash of its content."""
    if not name.lower().endswith(".npz"):
        return None
    path = Path(name)
    content = read_file(path, name)
    arrays = read_npz(content, name)
    kind: Literal["tabular", "image"] = "image" if "images" in arrays else "tabular"
    card = make_card(path, hashlib.sha256(content).hexdigest(), kind, has_candidates="candidates" in arrays)
    return Source(card, partial(build_dataset, card, arrays), obtain="it is the user's own file")


def make_card(
    path: Path, digest: str, kind: Literal["tabular", "image"], has_candidates: bool
) -> DatasetCard:
    """Describe a dataset that the user brings; what is unknown says so."""
    return DatasetCard(
        name=f"{path.stem}@{digest[:8]}",
        kind=kind,
        task="the user's own",
        source="the user's own file",
        terms="the user's own",
        citation="none",
        default_steps=DEFAULT_STEPS[kind],
        candidates=REAL_CANDIDATES if has_candidates else CandidateSpec("fps"),
    )


def read_npz(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of an `.npz` file; pickled objects are never read."""
    known = {"features", "images", "candidates", "labels", "test_features", "test_images", "test_labels"}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for entry in packed.infolist():
                if entry.file_size > MAX_MEMBER_BYTES:
                    raise DataError(f"{name}: {entry.filename} unpacks to {entry.file_size:,} bytes")
        with np.load(io.BytesIO(content), allow_pickle=False) as store:
            unknown = sorted(set(store.files) - known)
            if unknown:
                raise DataError(f"{name} has an array {unknown[0]!r}; expected are {LAYOUT}")
            arrays = {key: np.asarray(store[key]) for key in store.files}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise DataError(f"{name} cannot be read as an .npz file of plain arrays ({error})") from None
    if ("features" in arrays) == ("images" in arrays):
        raise DataError(f"{name} must have either `features` or `images`; expected are {LAYOUT}")
    if "candidates" not in arrays and "labels" not in arrays:
        raise DataError(f"{name} has neither `candidates` nor `labels`; expected are {LAYOUT}")
    return arrays


def build_dataset(card: DatasetCard, arrays: dict[str, np.ndarray], data_dir: Path | None) -> Dataset:
    """Make the dataset; without `candidates` each set holds the label alone until candidates are drawn."""
    key = "images" if card.kind == "image" else "features"
    features = arrange(arrays[key], card)
    labels = arrays.get("labels")
    candidates = arrays.get("candidates")
    if candidates is None:
        assert labels is not None
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
            raise DataError(f"{card.name}: labels must be a list of whole numbers from 0")
        candidates = labels[:, None] == np.arange(labels.max() + 1)
    test = None
    if f"test_{key}" in arrays or "test_labels" in arrays:
        if f"test_{key}" not in arrays or "test_labels" not in arrays:
            raise DataError(f"{card.name}: a test set needs both `test_{key}` and `test_labels`")
        test = TestSet(arrange(arrays[f"test_{key}"], card), arrays["test_labels"])
    return Dataset(features, candidates, labels, card, test)


def arrange(features: np.ndarray, card: DatasetCard) -> np.ndarray:
    """Bring images to N×C×H×W: a missing channel axis is added, a last one moved."""
    if card.kind != "image":
        return features
    if features.ndim == 3:
        return features[:, None]
    if features.ndim == 4 and features.shape[1] not in (1, 3) and features.shape[3] in (1, 3):
        return np.ascontiguousarray(features.transpose(0, 3, 1, 2))
    return features


ARRAYS = SourceFinder("path/to/file.npz", LAYOUT, find_arrays)
