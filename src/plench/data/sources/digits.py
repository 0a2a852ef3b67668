"""Built-in data: scikit-learn's handwritten digits, as 64 numbers or as images of 1×8×8 pixels."""

from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from plench.data.dataset import CandidateSpec, Dataset, DatasetCard, Sizes
from plench.data.sources.base import Source
from plench.settings import PartialLabelType


def make_source(
    name: str, pl_type: PartialLabelType, kind: Literal["tabular", "image"] = "tabular"
) -> Source:
    """The digits in one form with one kind of generated candidates."""
    card = DatasetCard(
        name=name,
        kind=kind,
        task="handwritten digit classification",
        source="scikit-learn's load_digits: the test part of UCI's Optical Recognition of Handwritten Digits",
        terms="CC BY 4.0",
        citation=(
            "E. Alpaydin and C. Kaynak. Optical Recognition of Handwritten Digits. "
            "UCI Machine Learning Repository, 1998."
        ),
        default_steps=2_000,
        sizes=Sizes(1_797, 64, 10),
        candidates=CandidateSpec(pl_type),
    )
    return Source(card, partial(load_digits, card))


def load_digits(card: DatasetCard, data_dir: Path | None) -> Dataset:
    """The digits scaled to 0…1, or 0…255 as images; until candidates are drawn, a set is the label alone."""
    features, labels = _read_pixels()
    if card.kind == "image":
        features = np.round(features * 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    return Dataset(features, labels[:, None] == np.arange(10), labels, card)


@cache
def _read_pixels() -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets  # imported late: it is slow, and only these datasets need it

    pixels, labels = datasets.load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64)


DIGITS_USS = make_source("Digits_USS", "uss")
DIGITS_FPS = make_source("Digits_FPS", "fps")
DIGITS_ID = make_source("Digits_ID", "id")
DIGIT_IMAGES = make_source("DigitImages", "fps", kind="image")
