"""Comparing algorithms over datasets: Friedman, Nemenyi, Wilcoxon–Holm, win/tie/loss, bootstrap intervals.

All tests take a matrix of mean test accuracies, one row per setting (dataset) and one column per algorithm.
The tests are SciPy's; how they are combined follows Demšar (JMLR 2006).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.tables import TableLayout, text_entries
from plench.text import counted

Matrix = NDArray[np.float64]
Comparison = dict[str, Any]

ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Scores:
    """Mean test accuracies of algorithms that have a figure in every setting, and the other algorithms.

    The standard error of a mean over a single split is NaN.
    """

    settings: tuple[str, ...]
    algorithms: tuple[str, ...]
    values: Matrix
    standard_errors: Matrix
    left_out: tuple[str, ...]


def _read_means(board: Leaderboard, criterion: Criterion) -> tuple[Matrix, Matrix]:
    """Return the means and standard errors of all cells, by setting and algorithm; NaN for an absent one."""
    shape = (len(board.settings), len(board.algorithms))
    values, errors = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, setting in enumerate(board.settings):
        for column, algorithm in enumerate(board.algorithms):
            cell = board.cell(setting, algorithm, criterion)
            if cell is not None and cell.mean is not None:
                values[row, column] = cell.mean
                errors[row, column] = np.nan if cell.stderr is None else cell.stderr
    return values, errors


def gather_scores(board: Leaderboard, criterion: Criterion) -> Scores:
    """Take the block of a leaderboard without gaps: only algorithms with a figure in every setting."""
    values, errors = _read_means(board, criterion)
    whole = ~np.isnan(values).any(axis=0)
    names = np.array(board.algorithms, dtype=object)
    labels = tuple(board.labels[setting] for setting in board.settings)
    return Scores(labels, tuple(names[whole]), values[:, whole], errors[:, whole], tuple(names[~whole]))


def friedman(values: Matrix) -> tuple[NDArray[np.float64], float, float]:
    """Test whether the algorithms differ at all: average ranks (1 is best), χ² and p-value.

    Needs three algorithms and two settings.
    """
    n, k = values.shape
    if k < 3 or n < 2:
        raise UsageError(f"Friedman's test needs at least 3 algorithms and 2 datasets, not {k} and {n}")
    rounded = np.round(values, 12)
    ranks = stats.rankdata(-rounded, axis=1)
    statistic, p_value = (0.0, 1.0) if np.all(ranks == ranks[:, :1]) else stats.friedmanchisquare(*rounded.T)
    return ranks.mean(axis=0), float(statistic), float(p_value)


def critical_difference(k: int, n: int, alpha: float = ALPHA) -> float:
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
    p_values = np.ones((values.shape[1], values.shape[1]))
    for pair in compare_columns(values, np.zeros_like(values)):
        p_values[pair.first, pair.second] = p_values[pair.second, pair.first] = pair.p_holm
    return p_values


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


def find_groups(
    average_ranks: NDArray[np.float64], p_values: Matrix, alpha: float = ALPHA
) -> list[list[int]]:
    """Return the longest stretches of neighbours in rank order of which no two differ significantly."""
    order = [int(i) for i in np.argsort(average_ranks, kind="stable")]
    groups: list[list[int]] = []
    for start, first in enumerate(order):
        group = [first]
        for index in order[start + 1 :]:
            if min(p_values[index, group]) < alpha:
                break
            group.append(index)
        if len(group) > 1 and (not groups or group[-1] not in groups[-1]):
            groups.append(group)
    return groups


def bootstrap_mean(
    samples: list[list[float]], confidence: float = 0.95, n_resamples: int = 9999, seed: int = 0
) -> dict[str, float] | None:
    """Return the mean over settings of the mean over splits, with `low` and `high` of a percentile bootstrap.

    Splits are drawn again within each setting, so that the settings stay as they are. None if no setting has
    two splits.
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
    return {"mean": float(mean_of_means(*repeated)), "low": float(low), "high": float(high)}


@dataclass(frozen=True)
class Pair:
    """The first algorithm against the second: datasets won, tied and lost, and the test over them.

    `p_value` is None for fewer than two datasets; `p_holm` is corrected for all pairs tested.
    `spread` is the standard deviation of the differences over datasets, `detectable` the mean difference that
    a test with so many datasets and this spread finds four times in five (None if it cannot find any).
    """

    first: int
    second: int
    n_settings: int
    wins: int
    ties: int
    losses: int
    mean_difference: float | None
    p_value: float | None
    p_holm: float | None
    spread: float | None
    detectable: float | None


def compare_each_pair(board: Leaderboard, criterion: Criterion) -> list[Pair]:
    """Compare every two algorithms, each pair on the settings in which both have a figure."""
    return compare_columns(*_read_means(board, criterion))


def compare_columns(values: Matrix, errors: Matrix) -> list[Pair]:
    """Compare every two columns of means, on the rows where neither is NaN.

    A difference within one standard error (both cells' combined) is a tie. A standard error that is NaN
    counts as 0, so that between two means over single splits every difference is a win or a loss.
    """
    pairs = []
    for first, second in combinations(range(values.shape[1]), 2):
        both = ~np.isnan(values[:, [first, second]]).any(axis=1)
        plain = values[both, first] - values[both, second]
        squares = np.nan_to_num(errors[both][:, [first, second]], nan=0.0) ** 2
        margin = np.sqrt(squares.sum(axis=1)) + 1e-12
        differences, n = np.round(plain, 12), int(both.sum())
        spread = float(np.std(differences, ddof=1)) if n > 1 else None
        effect = smallest_effect(n)
        pairs.append(
            Pair(
                first=first,
                second=second,
                n_settings=n,
                wins=int(np.sum(plain > margin)),
                ties=int(np.sum(np.abs(plain) <= margin)),
                losses=int(np.sum(plain < -margin)),
                mean_difference=float(np.mean(differences)) if n else None,
                p_value=signed_rank_p(differences) if n > 1 else None,
                p_holm=None,
                spread=spread,
                detectable=None if spread is None or effect is None else spread * effect,
            )
        )
    tested = [pair for pair in pairs if pair.p_value is not None]
    adjusted = iter(adjust_holm(np.array([pair.p_value for pair in tested], dtype=float)))
    return [pair if pair.p_value is None else replace(pair, p_holm=float(next(adjusted))) for pair in pairs]


def smallest_p(n_settings: int) -> float:
    """Return the smallest p-value that the signed-rank test can give: all differences of one sign."""
    return 2.0 ** (1 - n_settings) if n_settings else 1.0


@cache
def smallest_effect(n_settings: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Return the mean difference, in standard deviations, that a test over n settings finds with this power.

    It is that of the paired t-test, which the signed-rank test comes within five percent of for normal
    differences. None where the signed-rank test cannot reach `alpha` at all.
    """
    if smallest_p(n_settings) >= alpha:
        return None
    freedom = n_settings - 1
    limit = float(stats.t.ppf(1 - alpha / 2, freedom))

    def lacking(effect: float) -> float:
        shift = effect * math.sqrt(n_settings)
        found = stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift)
        return float(found) - power

    high = 1.0
    while lacking(high) < 0:
        high *= 1.5
    return float(optimize.brentq(lacking, 0.0, high))


def describe_test(pair: Pair, n_tested: int, alpha: float = ALPHA) -> str:
    """Describe what the test over datasets found, whichever algorithm is first."""
    datasets = counted(pair.n_settings, "dataset")
    if pair.p_value is None or pair.p_holm is None:
        return (
            "No test: Wilcoxon's signed-rank test compares two algorithms over datasets, and these two have "
            f"{datasets} in common. Splits of one dataset overlap in their training examples, so they "
            "cannot stand in for datasets."
        )
    test = f"Wilcoxon's signed-rank test over the {datasets} that both have: p = {pair.p_value:.2g}"
    level = f"{100 * alpha:g} %"
    if n_tested < 2:
        found = "a difference" if pair.p_value < alpha else "no difference"
        return f"{test}. At {level} that shows {found}."
    corrected = (
        f"{test}, and {pair.p_holm:.2g} after Holm's correction for the {n_tested:,} pairs of this page."
    )
    if pair.p_holm < alpha:
        return f"{corrected} At {level} they differ, even as one pair picked out of so many."
    if pair.p_value < alpha:
        return (
            f"{corrected} At {level} they differ only if this pair was the question before anyone looked; "
            "picked out of all pairs, it shows no difference."
        )
    return f"{corrected} At {level} that shows no difference."


def describe_power(pair: Pair, alpha: float = ALPHA) -> str:
    """Describe the power of the test with so many datasets."""
    n, level = pair.n_settings, f"{100 * alpha:g} %"
    datasets = counted(n, "dataset")
    if pair.p_value is None:
        return ""
    if smallest_p(n) >= alpha:
        needed = next(m for m in range(n, 100) if smallest_p(m) < alpha)
        return (
            f"Power: none. With {datasets} the smallest p-value this test can give is {smallest_p(n):.2g}, "
            f"even if one algorithm wins on all of them; below {level} takes at least {needed} datasets. "
            "That nothing was found says nothing."
        )
    if pair.detectable is None or not pair.spread:
        return ""
    return (
        f"Power: with {datasets} whose differences spread as these do (standard deviation "
        f"{100 * pair.spread:.1f} points), a single test at {level} finds a true mean difference of about "
        f"{100 * pair.detectable:.1f} points four times in five, and smaller ones less often. After "
        "correction for many pairs it finds less."
    )


def rank_algorithms(board: Leaderboard, scores: Scores, alpha: float = ALPHA) -> Comparison:
    """Return Friedman's test over the algorithms without gaps, as plain values; None if it needs more."""
    n, k = scores.values.shape
    found: Comparison = {
        "settings": list(scores.settings),
        "left_out": list(scores.left_out),
        "extent": board.extent,
        "n_datasets": len({setting.dataset for setting in board.settings}),
        "average_ranks": {},
        "friedman": None,
        "critical_difference": None,
    }
    if k >= 3 and n >= 2:
        ranks, statistic, p_value = friedman(scores.values)
        found["average_ranks"] = dict(zip(scores.algorithms, ranks.tolist(), strict=True))
        found["friedman"] = {"statistic": statistic, "p_value": p_value}
        found["critical_difference"] = critical_difference(k, n, alpha)
    return found


def compare_algorithms(board: Leaderboard, criterion: Criterion, alpha: float = ALPHA) -> Comparison:
    """Return average ranks, tests, pairs and intervals as plain values; None for a test that needs more."""
    scores = gather_scores(board, criterion)
    scores = replace(scores, values=board.sign(criterion) * scores.values)
    ranked = rank_algorithms(board, scores, alpha)
    ranks = np.array(list(ranked["average_ranks"].values()))
    by_nemenyi = nemenyi(ranks, len(scores.settings)) if len(ranks) else None
    by_setting = [board.means(setting, criterion) for setting in board.settings]
    means = {name: [found[name] for found in by_setting if name in found] for name in board.algorithms}
    cells = {name: [board.cell(setting, name, criterion) for setting in board.settings] for name in means}
    title = f"selected by {title_criterion(criterion, board.settings)}"
    return {
        "title": f"{criterion.title} itself, no true labels" if board.scored else title,
        **({"scored": True} if board.scored else {}),
        **ranked,
        "n_settings": {name: len(found) for name, found in means.items()},
        "means": {name: fmean(found) if found else None for name, found in means.items()},
        "means_without_error": int(np.isnan(scores.standard_errors).sum()),
        "pairs": [
            {
                "first": scores.algorithms[pair.first],
                "second": scores.algorithms[pair.second],
                "wins": pair.wins,
                "ties": pair.ties,
                "losses": pair.losses,
                "p_nemenyi": None if by_nemenyi is None else float(by_nemenyi[pair.first, pair.second]),
                "p_wilcoxon_holm": pair.p_holm,
            }
            for pair in compare_columns(scores.values, scores.standard_errors)
        ],
        "intervals": {
            name: bootstrap_mean([cell.accuracies for cell in found if cell is not None])
            for name, found in cells.items()
        },
    }


def comparison_tables(comparison: Comparison, alpha: float, all_pairs: bool) -> list[TableLayout]:
    """Return the comparison as tables: algorithms by rank, then pairs (with the best one, or all)."""
    ranks: Mapping[str, float] = comparison["average_ranks"]
    names = sorted(comparison["intervals"], key=lambda name: (ranks.get(name, np.inf), name.lower()))
    rows = []
    for name in names:
        mean, interval = comparison["means"][name], comparison["intervals"][name]
        texts = (
            f"{ranks[name]:.2f}" if name in ranks else "none",
            "none" if mean is None else f"{100 * mean:.2f}",
            "none" if interval is None else f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f}",
            f"{comparison['n_settings'][name]} of {len(comparison['settings'])}",
        )
        rows.append((name, text_entries(*texts)))
    what = "mean criterion (%)" if comparison.get("scored") else "mean accuracy (%)"
    header = ("Algorithm", "average rank", what, "95 % bootstrap interval", "over datasets")
    drawn = " Intervals: splits drawn again within datasets."
    first = TableLayout(
        comparison["title"], header, tuple(rows), legend=describe_friedman(comparison, alpha, drawn)
    )
    pair_rows = []
    for pair in comparison["pairs"]:
        one, other, won, lost = pair["first"], pair["second"], pair["wins"], pair["losses"]
        if not all_pairs and ranks:
            if names[0] not in (one, other):
                continue
            if names[0] == other:  # seen from the best one
                one, other, won, lost = other, one, lost, won
        p_values = (pair["p_wilcoxon_holm"], pair["p_nemenyi"])
        shown = ("none" if p is None else f"{p:.3g}" for p in p_values)
        pair_rows.append((one, text_entries(other, str(won), str(pair["ties"]), str(lost), *shown)))
    ties = "A difference within one combined standard error of both means is a tie."
    if single := comparison["means_without_error"]:
        ties += (
            f" Means over a single split ({single} here) have no standard error: it is taken as 0, and "
            "between two of them every difference counts as a win or a loss."
        )
    second = TableLayout(
        f"pairs, {comparison['title']}",
        ("Algorithm", "against", "wins", "ties", "losses", "p (Wilcoxon–Holm)", "p (Nemenyi)"),
        tuple(pair_rows),
        legend=" ".join(filter(None, (ties, describe_reach(comparison, alpha)))),
    )
    return [first, second] if pair_rows else [first]


def describe_reach(comparison: Comparison, alpha: float) -> str:
    """Explain why no pair can be significant with so few datasets; empty if one can.

    Holm multiplies the smallest p-value of Wilcoxon's test by the number of pairs.
    """
    n, pairs = len(comparison["settings"]), len(comparison["pairs"])
    smallest = min(1.0, pairs * smallest_p(n))
    if not pairs or comparison["pairs"][0]["p_wilcoxon_holm"] is None or smallest <= alpha:
        return ""
    needed, alone = (next(n for n in range(1, 200) if m * smallest_p(n) <= alpha) for m in (pairs, 1))
    return (
        f"With {counted(n, 'dataset')} no p (Wilcoxon–Holm) of {counted(pairs, 'pair')} can be below "
        f"{smallest:.3g}, so none can be significant at α = {alpha:g}: that takes "
        f"{counted(needed, 'dataset')} (or {alone} and a single pair, chosen with --algorithms)."
    )


def describe_friedman(comparison: Comparison, alpha: float = ALPHA, more: str = "") -> str:
    """Describe what Friedman's test found (`more` follows its figures), or what it needs."""
    n = len(comparison["settings"])
    left_out = comparison["left_out"]
    missing = f" Left out, with no figure in some dataset: {', '.join(left_out)}." if left_out else ""
    if comparison["friedman"] is None:
        needs = "Friedman's test needs 3 algorithms with a figure in each of 2 or more datasets"
        alone = " More splits of one dataset never make a difference significant here." if n == 1 else ""
        return f"{needs} (here {n}).{alone}{missing}"
    where = comparison["extent"]
    if comparison["n_datasets"] < n:
        where += " (not independent: choose with --datasets and --where)"
    return (
        f"Friedman over {where}: χ² = {comparison['friedman']['statistic']:.3f}, "
        f"p = {comparison['friedman']['p_value']:.3g}; Nemenyi's critical difference at α = {alpha:g}: "
        f"{comparison['critical_difference']:.3f}.{more}{missing}"
    )
