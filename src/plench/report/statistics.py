"""Comparing algorithms over datasets: Friedman, Nemenyi, Wilcoxon–Holm, win/tie/loss, bootstrap intervals.

All tests take a matrix of mean test accuracies, one row per setting (dataset) and one column per algorithm.
The tests are SciPy's; what is put together here follows Demšar (JMLR 2006).
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.leaderboard import Leaderboard, rank_values

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Mean test accuracies of algorithms that have a figure in every setting, and those left out.

    The standard error of a mean over a single split is NaN: there is none.
    """

    settings: tuple[str, ...]
    algorithms: tuple[str, ...]
    values: Matrix
    standard_errors: Matrix
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Ranking:
    """Friedman's test of "all algorithms are equal", with average ranks (1 is best)."""

    average_ranks: NDArray[np.float64]
    statistic: float
    p_value: float


@dataclass(frozen=True)
class Interval:
    """A mean over settings with its percentile bootstrap interval."""

    mean: float
    low: float
    high: float


def gather_scores(board: Leaderboard, criterion: Criterion) -> Scores:
    """Take the block of a leaderboard without gaps: only algorithms with a figure in every setting."""
    complete: list[str] = []
    left_out: list[str] = []
    for algorithm in board.algorithms:
        cells = [board.cell(setting, algorithm, criterion) for setting in board.settings]
        whole = all(cell is not None and cell.mean is not None for cell in cells)
        (complete if whole else left_out).append(algorithm)
    values = np.full((len(board.settings), len(complete)), np.nan)
    errors = np.full_like(values, np.nan)
    for row, setting in enumerate(board.settings):
        for column, algorithm in enumerate(complete):
            cell = board.cell(setting, algorithm, criterion)
            if cell is not None and cell.mean is not None:
                values[row, column] = cell.mean
                errors[row, column] = np.nan if cell.stderr is None else cell.stderr
    labels = tuple(board.labels[setting] for setting in board.settings)
    return Scores(labels, tuple(complete), values, errors, tuple(left_out))


def rank_rows(values: Matrix) -> Matrix:
    """Rank each row, 1 for the highest; equal values share the average of their ranks."""
    return np.array([rank_values(row) for row in values.tolist()])


def friedman(values: Matrix) -> Ranking:
    """Test whether the algorithms differ at all. Needs three algorithms and two settings."""
    n, k = values.shape
    if k < 3 or n < 2:
        raise UsageError(f"Friedman's test needs at least 3 algorithms and 2 datasets, not {k} and {n}")
    ranks = rank_rows(values)
    if np.all(ranks == ranks[:, :1]):
        return Ranking(ranks.mean(axis=0), 0.0, 1.0)
    statistic, p_value = stats.friedmanchisquare(*np.round(values, 12).T)
    return Ranking(ranks.mean(axis=0), float(statistic), float(p_value))


def critical_difference(k: int, n: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of average ranks for k algorithms over n settings."""
    q = float(stats.studentized_range.ppf(1 - alpha, k, np.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))


def nemenyi(average_ranks: NDArray[np.float64], n: int) -> Matrix:
    """Return the p-values of all pairs (K×K), which allow for their number by construction."""
    k = len(average_ranks)
    distance = np.abs(average_ranks[:, None] - average_ranks[None, :])
    scaled = distance / math.sqrt(k * (k + 1) / (6 * n)) * math.sqrt(2)
    p_values: Matrix = np.minimum(stats.studentized_range.sf(scaled, k, np.inf), 1.0)
    return p_values


def wilcoxon_holm(values: Matrix) -> Matrix:
    """Return the p-values of Wilcoxon's signed-rank test of all pairs, corrected by Holm (K×K)."""
    k = values.shape[1]
    pairs = list(combinations(range(k), 2))
    raw = []
    for a, b in pairs:
        raw.append(signed_rank_p(np.round(values[:, a] - values[:, b], 12)))
    adjusted = np.ones((k, k))
    for (a, b), p_value in zip(pairs, adjust_holm(np.array(raw)), strict=True):
        adjusted[a, b] = adjusted[b, a] = p_value
    return adjusted


def signed_rank_p(differences: NDArray[np.float64]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; zeros are left out.

    Where some differences are equal or zero, SciPy goes through all patterns of signs, which for the pairs of
    27 algorithms takes minutes. Adding the ranks to the distribution one by one gives the same number.
    """
    sizes = np.abs(differences[differences != 0])
    if len(sizes) == 0:
        return 1.0
    if len(np.unique(sizes)) == len(differences):
        return float(stats.wilcoxon(differences).pvalue)
    doubled = np.rint(2 * stats.rankdata(sizes)).astype(int)  # shared ranks are halves
    positive = int(doubled[differences[differences != 0] > 0].sum())
    chances = np.zeros(doubled.sum() + 1)
    chances[0] = 1.0
    for rank in doubled:
        chances /= 2
        chances[rank:] += chances[:-rank].copy()
    return float(min(1.0, 2 * min(chances[: positive + 1].sum(), chances[positive:].sum())))


def adjust_holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust m p-values by Holm's rule: the i-th smallest times m − i + 1, kept rising, at most 1."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    adjusted = np.empty_like(stepped)
    adjusted[order] = stepped
    return adjusted


def count_wins(scores: Scores) -> NDArray[np.int64]:
    """Count wins, ties and losses of row against column algorithm over settings (K×K×3).

    A difference within one standard error (both cells' combined) is a tie. Where there is none it is taken
    as 0, so that between two means over single splits every difference is a win or a loss.
    """
    values, squares = scores.values, np.nan_to_num(scores.standard_errors, nan=0.0) ** 2
    difference = values[:, :, None] - values[:, None, :]
    margin = np.sqrt(squares[:, :, None] + squares[:, None, :]) + 1e-12
    outcomes = [difference > margin, np.abs(difference) <= margin, difference < -margin]
    return np.stack([outcome.sum(axis=0) for outcome in outcomes], axis=-1)


def find_groups(average_ranks: NDArray[np.float64], p_values: Matrix, alpha: float = 0.05) -> list[list[int]]:
    """Return the longest stretches of neighbours in rank order of which no two differ significantly."""
    order = [int(i) for i in np.argsort(average_ranks, kind="stable")]
    groups: list[list[int]] = []
    reached = -1
    for start in range(len(order)):
        end = start
        while end + 1 < len(order) and all(
            p_values[order[i], order[end + 1]] >= alpha for i in range(start, end + 1)
        ):
            end += 1
        if end > start and end > reached:
            groups.append(order[start : end + 1])
            reached = end
    return groups


def bootstrap_mean(
    samples: list[list[float]], confidence: float = 0.95, n_resamples: int = 9999, seed: int = 0
) -> Interval | None:
    """Return the mean over settings of the mean over splits, with a percentile bootstrap interval.

    Splits are drawn again within each setting, so that the settings stay as they are. None if no setting has
    two splits: then nothing can be drawn again.
    """
    data = [np.asarray(sample) for sample in samples if len(sample)]
    if not data or all(len(sample) < 2 for sample in data):
        return None
    single = float(sum(sample[0] for sample in data if len(sample) < 2))
    repeated = [sample for sample in data if len(sample) > 1]

    def mean_of_means(*parts: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = (sum(part.mean(axis=axis) for part in parts) + single) / len(data)
        return mean

    result = stats.bootstrap(
        repeated,
        mean_of_means,
        confidence_level=confidence,
        n_resamples=n_resamples,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    low, high = result.confidence_interval
    return Interval(float(mean_of_means(*repeated)), float(low), float(high))
