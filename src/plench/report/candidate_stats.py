"""Statistics of a dataset's candidate sets: sizes, noise, and which labels are confused."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb


@dataclass(frozen=True)
class CandidateStats:
    """Figures of N candidate sets over K classes. Those that need true labels are None without them.

    `flipping[i, j]` is the share of examples of class i whose set contains j (NaN for a class without
    examples); `ambiguity_degree` is its largest off-diagonal entry, at `ambiguous_pair` (true class, other
    class). `class_names` are there where they are known.
    """

    n_examples: int
    n_classes: int
    mean_size: float
    size_counts: NDArray[np.int64]
    candidate_counts: NDArray[np.int64]
    label_counts: NDArray[np.int64] | None
    noise_rate: float | None
    flipping: NDArray[np.float64] | None
    ambiguity_degree: float | None
    ambiguous_pair: tuple[int, int] | None
    class_names: tuple[str, ...] | None = None


def describe_candidates(
    candidates: NDArray[np.bool_],
    labels: NDArray[np.int64] | None,
    class_names: tuple[str, ...] | None = None,
) -> CandidateStats:
    """Count set sizes and labels; with true labels also noise, flipping matrix and ambiguity degree."""
    n, k = candidates.shape
    sizes = candidates.sum(axis=1)
    label_counts = noise = flipping = degree = pair = None
    if labels is not None:
        label_counts = np.bincount(labels, minlength=k)
        noise = float(np.mean(~candidates[np.arange(n), labels]))
        flipping = measure_flipping(candidates, labels)
        between = np.where(np.eye(k, dtype=bool), np.nan, flipping)
        if not np.isnan(between).all():
            first, second = np.unravel_index(np.nanargmax(between), between.shape)
            pair = (int(first), int(second))
            degree = float(between[pair])
    return CandidateStats(
        n_examples=n,
        n_classes=k,
        mean_size=float(sizes.mean()),
        size_counts=np.bincount(sizes, minlength=k + 1),
        candidate_counts=candidates.sum(axis=0),
        label_counts=label_counts,
        noise_rate=noise,
        flipping=flipping,
        ambiguity_degree=degree,
        ambiguous_pair=pair,
        class_names=class_names,
    )


def measure_flipping(candidates: NDArray[np.bool_], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the matrix of p(j ∈ S | y = i), NaN in the rows of classes without examples."""
    k = candidates.shape[1]
    sums = np.zeros((k, k))
    np.add.at(sums, labels, candidates)
    counts = np.bincount(labels, minlength=k)[:, None]
    flipping = np.full((k, k), np.nan)
    np.divide(sums, counts, out=flipping, where=counts > 0)
    return flipping


def measure_noise_by_answers(
    item: NDArray[np.int64], contains: NDArray[np.bool_]
) -> list[tuple[int, int, float]]:
    """Return, for n = 1, 2, …, how many items have n answers or more, and the noise rate of n joined.

    Like `measure_annotator_noise`, where items have different numbers of answers.
    """
    total = np.bincount(item)
    misses = np.bincount(item, weights=~contains)
    rows = []
    for n in range(1, int(total.max()) + 1):
        enough = total >= n
        rate = float(np.mean(comb(misses[enough], n) / comb(total[enough], n)))
        rows.append((n, int(enough.sum()), rate))
    return rows


def measure_annotator_noise(image: NDArray[np.int64], contains: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected noise rate of 1, 2, … annotators' sets joined, up to as many as every example has.

    Every set of every annotator is one entry: `image` says of which example, `contains` whether the set
    holds its true label. The annotators of an example are taken in random order; of A of them, m without the
    label, n all miss it with probability C(m, n)/C(A, n), which is averaged exactly.
    """
    total = np.bincount(image)
    misses = np.bincount(image, weights=~contains)
    most = int(total.min())
    return np.array([float(np.mean(comb(misses, n) / comb(total, n))) for n in range(1, most + 1)])
