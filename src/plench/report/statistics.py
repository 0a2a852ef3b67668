"""Comparing algorithms: tests over datasets (Friedman, Nemenyi, Wilcoxon–Holm) and over splits, intervals.

Tests over datasets take a matrix of mean test accuracies, one row per dataset (`Leaderboard.datasets`) and
one column per algorithm. The tests are SciPy's; how they are combined follows Demšar (JMLR 2006). Splits of
one dataset are compared by the corrected resampled t-test of Nadeau and Bengio (Machine Learning 52, 2003).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.leaderboard import (
    FEWEST,
    Leaderboard,
    bootstrap_ranks,
    part_of,
    rank_values,
    title_criterion,
)
from plench.report.tables import TableLayout, text_entries
from plench.runs.select import Cell
from plench.text import counted

Matrix = NDArray[np.float64]
Comparison = dict[str, Any]

ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Scores:
    """Mean test accuracies of algorithms that have a figure on every dataset, and the other algorithms.

    The standard error of a mean over a single split is NaN.
    """

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    values: Matrix
    standard_errors: Matrix
    left_out: tuple[str, ...]


def _read_means(board: Leaderboard, criterion: Criterion) -> tuple[Matrix, Matrix]:
    """Return means and standard errors by dataset and algorithm; NaN for an absent one."""
    shape = (len(board.datasets), len(board.algorithms))
    values, errors = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, dataset in enumerate(board.datasets):
        means = board.dataset_means(dataset, criterion)
        for column, name in enumerate(board.algorithms):
            splits = list(board.dataset_splits(dataset, name, criterion).values()) if name in means else []
            values[row, column] = means.get(name, np.nan)
            if len(splits) > 1:
                errors[row, column] = np.std(splits, ddof=1) / math.sqrt(len(splits))
    return values, errors


def gather_scores(board: Leaderboard, criterion: Criterion) -> Scores:
    """Take the block of a leaderboard without gaps: only algorithms with a figure on every dataset."""
    values, errors = _read_means(board, criterion)
    whole = ~np.isnan(values).any(axis=0)
    names = np.array(board.algorithms, dtype=object)
    return Scores(
        tuple(board.datasets), tuple(names[whole]), values[:, whole], errors[:, whole], tuple(names[~whole])
    )


def friedman(values: Matrix) -> tuple[NDArray[np.float64], float, float]:
    """Test whether the algorithms differ at all: average ranks (1 is best), χ² and p-value.

    Needs three algorithms and two datasets.
    """
    n, k = values.shape
    if k < 3 or n < 2:
        raise UsageError(f"Friedman's test needs at least 3 algorithms and 2 datasets, not {k} and {n}")
    rounded, ranks = np.round(values, 12), rank_values(values)
    statistic, p_value = (0.0, 1.0) if np.all(ranks == ranks[:, :1]) else stats.friedmanchisquare(*rounded.T)
    return ranks.mean(axis=0), float(statistic), float(p_value)


def critical_difference(k: int, n: int, alpha: float = ALPHA) -> float:
    """Return Nemenyi's critical difference of average ranks for k algorithms over n datasets."""
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


def find_interval(samples: list[list[float]]) -> Comparison | None:
    """Return the mean over datasets of the mean over splits, with `low` and `high` of its 95 % interval.

    It is a percentile bootstrap (`method`): splits are drawn again within each dataset, so that the datasets
    stay as they are. If a dataset has fewer than five splits it is a t-interval, with the degrees of freedom
    of Welch and Satterthwaite. None if a dataset has a single split.
    """
    data = [np.asarray(sample) for sample in samples if len(sample)]
    if not data or any(len(sample) < 2 for sample in data):
        return None

    def mean_of_means(*parts: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = sum(part.mean(axis=axis) for part in parts) / len(data)
        return mean

    mean = float(mean_of_means(*data))
    if min(map(len, data)) < FEWEST:
        squares = np.array([sample.var(ddof=1) / len(sample) for sample in data])
        freedom = np.sum(squares**2 / np.array([len(sample) - 1 for sample in data]))
        reach = 0.0
        if freedom > 0:
            limit = stats.t.ppf(0.975, squares.sum() ** 2 / freedom)
            reach = float(limit) * math.sqrt(squares.sum()) / len(data)
        return {"mean": mean, "low": mean - reach, "high": mean + reach, "method": "t"}
    result = stats.bootstrap(
        data, mean_of_means, method="percentile", vectorized=True, rng=np.random.default_rng(0)
    )
    low, high = result.confidence_interval
    return {"mean": mean, "low": float(low), "high": float(high), "method": "bootstrap"}


def describe_intervals(intervals: Mapping[str, Comparison | None]) -> str:
    """Describe the kinds of intervals that there are, with the reason."""
    methods = {None if found is None else found["method"] for found in intervals.values()}
    said = {
        "bootstrap": "percentile bootstrap, splits drawn again within datasets",
        "t": f"(t): t-interval over splits, since a dataset has fewer than {FEWEST} and a bootstrap would "
        "show little more than the least and the largest",
        None: "none: a dataset has a single split, or there is no figure",
    }
    kinds = "; ".join(text for method, text in said.items() if method in methods)
    return f"Intervals: {kinds}. Splits share training examples, so that all are somewhat too narrow."


def corrected_t_test(differences: Sequence[float], test_ratio: float) -> float | None:
    """Return the two-sided p-value of the corrected resampled t-test (Nadeau and Bengio).

    The variance of the mean of n paired differences is s² (1/n + `test_ratio`), where the ratio of test to
    training examples allows for training sets that overlap. None for a single split, or where all
    differences are the same and not zero.
    """
    n, mean = len(differences), float(np.mean(differences)) if len(differences) else 0.0
    if n < 2:
        return None
    spread = float(np.std(differences, ddof=1))
    if spread < 1e-12:
        return 1.0 if abs(mean) < 1e-12 else None
    return float(2 * special.stdtr(n - 1, -abs(mean) / (spread * math.sqrt(1 / n + test_ratio))))


def find_test_ratio(cell: Cell) -> float:
    """Return the examples that a split draws for testing per training example, for `corrected_t_test`.

    A test set that comes with the data is the same for all splits. What they draw, and what makes training
    sets differ, is then the validation part. The sizes are those of a run's record, or else follow from the
    split's fractions.
    """
    data = part_of(cell.choices[0].run.info, "dataset") if cell.choices else {}
    n_train, n_validation, n_test = (data.get(f"n_{part}") for part in ("train", "validation", "test"))
    if type(n_test) is int and type(n_train) is int and n_train > 0:
        sizes = {**part_of(data, "sizes"), **part_of(data, "published")}
        if type(n_validation) is int and sizes.get("examples") == n_train + n_validation:
            return n_validation / n_train
        return n_test / n_train
    details = cell.experiment.details
    test, held_out = (
        value if isinstance(value := details.get(name), float) and 0 < value < 1 else 0.1
        for name in ("test_fraction", "holdout_fraction")
    )
    return test / ((1 - test) * (1 - held_out))


def compare_splits(board: Leaderboard, criterion: Criterion, first: str, second: str) -> list[Comparison]:
    """Compare two algorithms on the splits that both have of each dataset, by the corrected resampled t-test.

    Each dataset has its mean paired difference over `n_splits`, and the test's p-value.
    """
    found = []
    for dataset, settings in board.datasets.items():
        cell = board.cell(settings[0], first, criterion)
        mine, others = (board.dataset_splits(dataset, name, criterion) for name in (first, second))
        differences = [mine[trial] - others[trial] for trial in mine if trial in others]
        if cell is not None and differences:
            figures = {"dataset": dataset, "n_splits": len(differences), "difference": fmean(differences)}
            found.append({**figures, "p_value": corrected_t_test(differences, find_test_ratio(cell))})
    return found


@dataclass(frozen=True)
class Pair:
    """The first algorithm against the second: datasets won, tied and lost, and the test over them.

    `p_value` is None for fewer than two datasets; `p_holm` is corrected for all pairs tested.
    `spread` is the standard deviation of the differences over datasets, `detectable` the mean difference that
    a test with so many datasets and this spread finds four times in five (None if it cannot find any).
    """

    first: int
    second: int
    n_datasets: int
    wins: int
    ties: int
    losses: int
    mean_difference: float | None
    p_value: float | None
    p_holm: float | None
    spread: float | None
    detectable: float | None


def compare_each_pair(board: Leaderboard, criterion: Criterion) -> list[Pair]:
    """Compare every two algorithms, each pair on the datasets on which both have a figure."""
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
                n_datasets=n,
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


def smallest_p(n_datasets: int) -> float:
    """Return the smallest p-value that the signed-rank test can give: all differences of one sign."""
    return 2.0 ** (1 - n_datasets) if n_datasets else 1.0


@cache
def smallest_effect(n_datasets: int) -> float | None:
    """Return the mean difference, in standard deviations, that a test over n datasets finds.

    It is that of the paired t-test, which the signed-rank test comes within five percent of for normal
    differences, at the level `ALPHA` with the power `POWER`. None where the signed-rank test cannot reach
    that level at all.
    """
    if smallest_p(n_datasets) >= ALPHA:
        return None
    freedom = n_datasets - 1
    limit = float(stats.t.ppf(1 - ALPHA / 2, freedom))

    def lacking(effect: float) -> float:
        shift = effect * math.sqrt(n_datasets)
        found = stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift)
        return float(found) - POWER

    high = 1.0
    while lacking(high) < 0:
        high *= 1.5
    return float(optimize.brentq(lacking, 0.0, high))


def describe_test(pair: Pair, n_tested: int) -> str:
    """Describe what the test over datasets found, whichever algorithm is first."""
    datasets = counted(pair.n_datasets, "dataset")
    if pair.p_value is None or pair.p_holm is None:
        return (
            "No test: Wilcoxon's signed-rank test compares two algorithms over datasets, and these two have "
            f"{datasets} in common. Splits of one dataset overlap in their training examples, so they "
            "cannot stand in for datasets."
        )
    test = f"Wilcoxon's signed-rank test over the {datasets} that both have: p = {pair.p_value:.2g}"
    level = f"{100 * ALPHA:g} %"
    if n_tested < 2:
        found = "a difference" if pair.p_value < ALPHA else "no difference"
        return f"{test}. At {level} that shows {found}."
    holm = f"{pair.p_holm:.2g} after Holm's correction for the {n_tested:,} pairs of this page."
    corrected = f"{test}, and {holm}"
    if pair.p_holm < ALPHA:
        return f"{corrected} At {level} they differ, even as one pair picked out of so many."
    if pair.p_value < ALPHA:
        return (
            f"{corrected} At {level} they differ only if this pair was the question before anyone looked; "
            "picked out of all pairs, it shows no difference."
        )
    return f"{corrected} At {level} that shows no difference."


def describe_power(pair: Pair) -> str:
    """Describe the power of the test with so many datasets."""
    n, level = pair.n_datasets, f"{100 * ALPHA:g} %"
    datasets = counted(n, "dataset")
    if pair.p_value is None:
        return ""
    if smallest_p(n) >= ALPHA:
        needed = next(m for m in range(n, 100) if smallest_p(m) < ALPHA)
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
    """Return average ranks and Friedman's test over the algorithms without gaps; None if it needs more."""
    n, k = scores.values.shape
    found: Comparison = {
        "settings": [board.labels[setting] for setting in board.settings],
        "datasets": list(scores.datasets),
        "left_out": list(scores.left_out),
        "extent": counted(n, "dataset"),
        "averaging": board.averaging,
        "n_datasets": n,
        "average_ranks": {},
        "friedman": None,
        "critical_difference": None,
    }
    if k >= 2 and n:
        ranks = rank_values(scores.values).mean(axis=0)
        found["average_ranks"] = dict(zip(scores.algorithms, ranks.tolist(), strict=True))
    if k >= 3 and n >= 2:
        _, statistic, p_value = friedman(scores.values)
        found["friedman"] = {"statistic": statistic, "p_value": p_value}
        found["critical_difference"] = critical_difference(k, n, alpha)
    return found


def compare_algorithms(board: Leaderboard, criterion: Criterion, alpha: float = ALPHA) -> Comparison:
    """Return average ranks, tests, pairs and intervals as plain values; None for a test that needs more."""
    scores = gather_scores(board, criterion)
    scores = replace(scores, values=board.sign(criterion) * scores.values)
    names, ranked = scores.algorithms, rank_algorithms(board, scores, alpha)
    ranks = np.array(list(ranked["average_ranks"].values()))
    by_nemenyi = nemenyi(ranks, len(scores.datasets)) if ranked["friedman"] else None
    intervals = bootstrap_ranks(board, criterion, scores.algorithms)
    by_dataset = [board.dataset_means(dataset, criterion) for dataset in board.datasets]
    by_setting = [board.means(setting, criterion) for setting in board.settings]
    means = {name: [found[name] for found in by_dataset if name in found] for name in board.algorithms}
    title = f"selected by {title_criterion(criterion, board.settings)}"
    return {
        "title": f"{criterion.title} itself, no true labels" if board.scored else title,
        **({"scored": True} if board.scored else {}),
        **ranked,
        "rank_intervals": vars(intervals),
        "n_settings": {name: sum(name in found for found in by_setting) for name in means},
        "n_datasets_of": {name: len(found) for name, found in means.items()},
        "means": {name: fmean(found) if found else None for name, found in means.items()},
        "means_without_error": int(np.isnan(scores.standard_errors).sum()),
        "pairs": [
            {
                "first": names[pair.first],
                "second": names[pair.second],
                "wins": pair.wins,
                "ties": pair.ties,
                "losses": pair.losses,
                "p_nemenyi": None if by_nemenyi is None else float(by_nemenyi[pair.first, pair.second]),
                "p_wilcoxon_holm": pair.p_holm,
                "splits": compare_splits(board, criterion, names[pair.first], names[pair.second]),
            }
            for pair in compare_columns(scores.values, scores.standard_errors)
        ],
        "intervals": {
            name: find_interval(
                [list(board.dataset_splits(d, name, criterion).values()) for d in board.datasets]
            )
            for name in board.algorithms
        },
    }


def comparison_tables(comparison: Comparison, alpha: float, all_pairs: bool) -> list[TableLayout]:
    """Return the comparison as tables: algorithms by rank, then pairs (with the best one, or all).

    The pairs come twice: over datasets, and split by split on each dataset.
    """
    ranks: Mapping[str, float] = comparison["average_ranks"]
    names = sorted(comparison["intervals"], key=lambda name: (ranks.get(name, np.inf), name.lower()))
    limits = comparison["rank_intervals"]
    kinds = [name for name in ("over_splits", "over_datasets") if limits[name]]
    rows = []
    for name in names:
        mean, interval = comparison["means"][name], comparison["intervals"][name]
        shown = "none" if interval is None else f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f}"
        texts = (
            f"{ranks[name]:.2f}" if name in ranks else "none",
            *("{:.1f} to {:.1f}".format(*limits[k][name]) if name in limits[k] else "none" for k in kinds),
            "none" if mean is None else f"{100 * mean:.2f}",
            shown + (" (t)" if interval is not None and interval["method"] == "t" else ""),
            f"{comparison['n_datasets_of'][name]} of {comparison['n_datasets']}",
        )
        rows.append((name, text_entries(*texts)))
    what = "mean criterion (%)" if comparison.get("scored") else "mean accuracy (%)"
    over = (f"95 % {kind.replace('_', ' ')}" for kind in kinds)
    header = ("Algorithm", "average rank", *over, what, "95 % interval", "over datasets")
    said = {
        "over_splits": "the same splits drawn for all algorithms",
        "over_datasets": "datasets drawn again",
    }
    drawn = " and ".join(said[kind] for kind in kinds)
    reasons = "; ".join(limits["reasons"])
    legend = (
        describe_friedman(comparison, alpha),
        comparison["averaging"],
        describe_intervals(comparison["intervals"]),
        f"Intervals of ranks: percentile bootstrap, {drawn}." if kinds else "",
        f"{reasons[:1].upper()}{reasons[1:]}." if reasons and ranks else "",
    )
    first = TableLayout(comparison["title"], header, tuple(rows), legend=" ".join(filter(None, legend)))
    pair_rows, split_rows = [], []
    for pair in comparison["pairs"]:
        one, other, won, lost, sign = pair["first"], pair["second"], pair["wins"], pair["losses"], 1
        if not all_pairs and ranks:
            if names[0] not in (one, other):
                continue
            if names[0] == other:  # seen from the best one
                one, other, won, lost, sign = other, one, lost, won, -1
        p_values = (pair["p_wilcoxon_holm"], pair["p_nemenyi"])
        shown_p = ("none" if p is None else f"{p:.3g}" for p in p_values)
        pair_rows.append((one, text_entries(other, str(won), str(pair["ties"]), str(lost), *shown_p)))
        shown_splits = dict.fromkeys(comparison["datasets"], "none")
        for found in pair["splits"]:
            test = "no test" if found["p_value"] is None else f"p {found['p_value']:.2g}"
            text = f"{100 * sign * found['difference']:+.2f} ({test}, n={found['n_splits']})"
            shown_splits[found["dataset"]] = text.replace("-", "−")
        split_rows.append((one, text_entries(other, *shown_splits.values())))
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
    third = TableLayout(
        f"pairs split by split, {comparison['title']}",
        ("Algorithm", "against", *comparison["datasets"]),
        tuple(split_rows),
        legend="Mean paired difference over splits in points, with p of the corrected resampled t-test "
        "(Nadeau and Bengio), which allows for overlapping training sets but not for the number of pairs.",
    )
    return [first, second, third] if pair_rows else [first]


def describe_reach(comparison: Comparison, alpha: float) -> str:
    """Explain why no pair can be significant with so few datasets; empty if one can.

    Holm multiplies the smallest p-value of Wilcoxon's test by the number of pairs.
    """
    n, pairs = len(comparison["datasets"]), len(comparison["pairs"])
    smallest = min(1.0, pairs * smallest_p(n))
    if not pairs or comparison["pairs"][0]["p_wilcoxon_holm"] is None or smallest <= alpha:
        return ""
    needed, alone = (next(n for n in range(1, 200) if m * smallest_p(n) <= alpha) for m in (pairs, 1))
    return (
        f"With {counted(n, 'dataset')} no p (Wilcoxon–Holm) of {counted(pairs, 'pair')} can be below "
        f"{smallest:.3g}, so none can be significant at α = {alpha:g}: that takes "
        f"{counted(needed, 'dataset')} (or {alone} and a single pair, chosen with --algorithms)."
    )


def describe_friedman(comparison: Comparison, alpha: float = ALPHA) -> str:
    """Describe what Friedman's test found, or what it needs."""
    n = len(comparison["datasets"])
    left_out = comparison["left_out"]
    missing = f" Left out, with no figure in some dataset: {', '.join(left_out)}." if left_out else ""
    if comparison["friedman"] is None:
        needs = "Friedman's test needs 3 algorithms with a figure in each of 2 or more datasets"
        alone = " More splits of one dataset never make a difference significant here." if n == 1 else ""
        return f"{needs} (here {n}).{alone}{missing}"
    return (
        f"Friedman over {comparison['extent']}: χ² = {comparison['friedman']['statistic']:.3f}, "
        f"p = {comparison['friedman']['p_value']:.3g}; Nemenyi's critical difference at α = {alpha:g}: "
        f"{comparison['critical_difference']:.3f}.{missing}"
    )
