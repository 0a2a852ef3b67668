"""All statistics of one criterion's leaderboard, as data and as tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from plench.criteria import Criterion
from plench.report.criterion_quality import CriterionQuality, Summary, average_quality
from plench.report.layout import TableEntry, TableLayout
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.statistics import (
    Scores,
    bootstrap_mean,
    count_wins,
    critical_difference,
    friedman,
    gather_scores,
    nemenyi,
    wilcoxon_holm,
)
from plench.text import counted

Comparison = dict[str, Any]


def compare_algorithms(board: Leaderboard, criterion: Criterion, alpha: float = 0.05) -> Comparison:
    """Return average ranks, tests, pairs and intervals as plain values; tests that need more are None."""
    scores = gather_scores(board, criterion)
    n, k = scores.values.shape
    testable = k >= 3 and n >= 2
    ranking = friedman(scores.values) if testable else None
    ranks = np.empty(0) if ranking is None else ranking.average_ranks
    return {
        "title": f"{criterion.title} itself, no true labels"
        if board.scored
        else f"selected by {title_criterion(criterion, board.settings)}",
        **({"scored": True} if board.scored else {}),
        "settings": list(scores.settings),
        "left_out": list(scores.left_out),
        "extent": board.extent,
        "n_datasets": len({setting.dataset for setting in board.settings}),
        "n_settings": {name: _count_settings(board, criterion, name) for name in board.algorithms},
        "means": {name: _average(board, criterion, name) for name in board.algorithms},
        "average_ranks": dict(zip(scores.algorithms, map(float, ranks), strict=False)),
        "friedman": None if ranking is None else {"statistic": ranking.statistic, "p_value": ranking.p_value},
        "critical_difference": critical_difference(k, n, alpha) if testable else None,
        "means_without_error": int(np.isnan(scores.standard_errors).sum()),
        "pairs": compare_pairs(scores, ranks if testable else None),
        "intervals": _intervals(board, criterion),
    }


def _count_settings(board: Leaderboard, criterion: Criterion, algorithm: str) -> int:
    return sum(algorithm in board.means(setting, criterion) for setting in board.settings)


def _average(board: Leaderboard, criterion: Criterion, algorithm: str) -> float | None:
    """Return the mean over settings of the mean over splits; None if there is none."""
    means = (board.means(setting, criterion).get(algorithm) for setting in board.settings)
    found = [mean for mean in means if mean is not None]
    return fmean(found) if found else None


def compare_pairs(scores: Scores, average_ranks: np.ndarray | None) -> list[dict[str, Any]]:
    """Return wins, ties and losses of all pairs of algorithms, with corrected p-values."""
    wins = count_wins(scores)
    by_nemenyi = None if average_ranks is None else nemenyi(average_ranks, len(scores.settings))
    by_wilcoxon = wilcoxon_holm(scores.values) if len(scores.settings) > 1 else None
    return [
        {
            "first": scores.algorithms[a],
            "second": scores.algorithms[b],
            "wins": int(wins[a, b, 0]),
            "ties": int(wins[a, b, 1]),
            "losses": int(wins[a, b, 2]),
            "p_nemenyi": None if by_nemenyi is None else float(by_nemenyi[a, b]),
            "p_wilcoxon_holm": None if by_wilcoxon is None else float(by_wilcoxon[a, b]),
        }
        for a, b in combinations(range(len(scores.algorithms)), 2)
    ]


def _intervals(board: Leaderboard, criterion: Criterion) -> dict[str, dict[str, float] | None]:
    """Return each algorithm's mean over its settings with a bootstrap interval."""
    found: dict[str, dict[str, float] | None] = {}
    for algorithm in board.algorithms:
        cells = (board.cell(setting, algorithm, criterion) for setting in board.settings)
        interval = bootstrap_mean([cell.accuracies for cell in cells if cell is not None])
        found[algorithm] = None if interval is None else vars(interval)
    return found


def comparison_tables(comparison: Comparison, alpha: float, all_pairs: bool) -> list[TableLayout]:
    """Return the comparison as tables: algorithms by rank, then pairs (with the best one, or all)."""
    ranks: Mapping[str, float] = comparison["average_ranks"]
    names = sorted(comparison["intervals"], key=lambda name: (ranks.get(name, np.inf), name.lower()))
    rows = []
    for name in names:
        rank = f"{ranks[name]:.2f}" if name in ranks else "none"
        mean = comparison["means"][name]
        shown = "none" if mean is None else f"{100 * mean:.2f}"
        interval = _show_interval(comparison["intervals"][name])
        covered = f"{comparison['n_settings'][name]} of {len(comparison['settings'])}"
        rows.append((name, tuple(TableEntry(text=text) for text in (rank, shown, interval, covered))))
    what = "mean criterion (%)" if comparison.get("scored") else "mean accuracy (%)"
    header = ("Algorithm", "average rank", what, "95 % bootstrap interval", "over datasets")
    first = TableLayout(comparison["title"], header, tuple(rows), legend=_describe_test(comparison, alpha))
    pairs = comparison["pairs"]
    if not all_pairs and ranks:
        best = names[0]
        pairs = [_seen_from(best, pair) for pair in pairs if best in (pair["first"], pair["second"])]
    pair_rows = tuple((pair["first"], _pair_entries(pair)) for pair in pairs)
    second = TableLayout(
        f"pairs, {comparison['title']}",
        ("Algorithm", "against", "wins", "ties", "losses", "p (Wilcoxon–Holm)", "p (Nemenyi)"),
        pair_rows,
        legend=" ".join(
            text for text in (_describe_ties(comparison), describe_reach(comparison, alpha)) if text
        ),
    )
    return [first, second] if pair_rows else [first]


def describe_reach(comparison: Comparison, alpha: float) -> str:
    """Say where no pair could be significant, whatever its figures, for want of datasets; else nothing.

    With n datasets the smallest p of Wilcoxon's test is 2/2ⁿ, which Holm multiplies by the number of pairs.
    """
    n, pairs = len(comparison["settings"]), len(comparison["pairs"])
    if not pairs or comparison["pairs"][0]["p_wilcoxon_holm"] is None:
        return ""
    smallest = min(1.0, 2 * pairs / 2**n)
    if smallest <= alpha:
        return ""
    needed = next(more for more in range(n, 200) if 2 * pairs / 2**more <= alpha)
    alone = next(more for more in range(1, 200) if 2 / 2**more <= alpha)
    return (
        f"With {counted(n, 'dataset')} no p (Wilcoxon–Holm) of {counted(pairs, 'pair')} can be below "
        f"{smallest:.3g}, so none can be significant at α = {alpha:g}: that takes "
        f"{counted(needed, 'dataset')} (or {alone} and a single pair, chosen with --algorithms)."
    )


def _describe_ties(comparison: Comparison) -> str:
    rule = "A difference within one combined standard error of both means is a tie."
    single = comparison["means_without_error"]
    if not single:
        return rule
    return (
        f"{rule} Means over a single split ({single} here) have no standard error: it is taken as 0, and "
        "between two of them every difference counts as a win or a loss."
    )


def _describe_test(comparison: Comparison, alpha: float) -> str:
    n = len(comparison["settings"])
    left_out = comparison["left_out"]
    missing = f" Left out, with no figure in some dataset: {', '.join(left_out)}." if left_out else ""
    if comparison["friedman"] is None:
        needs = "Friedman's test needs 3 algorithms with a figure in each of 2 or more datasets"
        more = " More splits of one dataset never make a difference significant here." if n == 1 else ""
        return f"{needs} (here {n}).{more}{missing}"
    where = comparison["extent"]
    if comparison["n_datasets"] < n:
        where += " (not independent: choose with --datasets and --where)"
    return (
        f"Friedman over {where}: χ² = {comparison['friedman']['statistic']:.3f}, "
        f"p = {comparison['friedman']['p_value']:.3g}; Nemenyi's critical difference at α = {alpha:g}: "
        f"{comparison['critical_difference']:.3f}. Intervals: splits drawn again within datasets.{missing}"
    )


def _show_interval(interval: Mapping[str, float] | None) -> str:
    return "none" if interval is None else f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f}"


def _seen_from(name: str, pair: dict[str, Any]) -> dict[str, Any]:
    if pair["first"] == name:
        return pair
    turned = {"first": name, "second": pair["first"], "wins": pair["losses"], "losses": pair["wins"]}
    return {**pair, **turned}


def _pair_entries(pair: Mapping[str, Any]) -> tuple[TableEntry, ...]:
    counts = [str(pair[key]) for key in ("wins", "ties", "losses")]
    p_values = [pair["p_wilcoxon_holm"], pair["p_nemenyi"]]
    shown = ["none" if p is None else f"{p:.3g}" for p in p_values]
    return tuple(TableEntry(text=text) for text in (pair["second"], *counts, *shown))


def quality_rows(judged: Sequence[CriterionQuality]) -> list[dict[str, Any]]:
    """Return regret and rank correlation as flat rows: averages over everything, by dataset and by algorithm.

    The last rows, by `experiment`, are the single ones: one dataset (and setting) and one algorithm.
    """
    averages = [
        {"criterion": criterion, "by": by, "of": place, **asdict(summary)}
        for by in ("all", "dataset", "algorithm")
        for (criterion, place), summary in average_quality(judged, by).items()
    ]
    single = [
        {
            "criterion": quality.criterion.name,
            "by": "experiment",
            "of": quality.experiment.details,
            "regret": quality.regret,
            "rank_correlation": quality.rank_correlation,
        }
        for quality in judged
    ]
    return averages + single


def quality_tables(judged: Sequence[CriterionQuality], shown: Sequence[Criterion]) -> list[TableLayout]:
    """Return how good each criterion is as tables: over everything, by dataset, by algorithm."""
    grids = []
    for by in ("all", "dataset", "algorithm"):
        summary = average_quality(judged, by)
        places = list(dict.fromkeys(place for _, place in summary))
        rows = tuple(
            (
                place,
                tuple(
                    TableEntry(text=text)
                    for text in _describe_quality([summary[c.name, place] for c in shown])
                ),
            )
            for place in places
        )
        title = "Criteria over everything" if by == "all" else f"Criteria by {by}"
        legend = (
            "Regret: test accuracy lost against OA w/ ES on the same splits, in points; "
            "ρ: Spearman's correlation of criterion and test accuracy over the configurations of a split. "
            "Means over experiments (one algorithm on one dataset); in brackets, over how many if not all."
        )
        titles = (title_criterion(c, [quality.experiment for quality in judged]) for c in shown)
        grids.append(TableLayout(title, (by.capitalize(), "experiments", *titles), rows, legend=legend))
    return grids


def _describe_quality(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the number of experiments, then regret and correlation by each criterion."""
    yield str(summaries[0].n_experiments)
    for summary in summaries:
        whole = summary.n_experiments
        regret, correlation = "none", "none"
        if summary.regret is not None:
            shown = round(100 * summary.regret, 2) + 0.0  # no minus before a zero
            regret = f"{shown:.2f}" + _count(summary.n_regret, whole)
        if summary.rank_correlation is not None:
            correlation = f"{summary.rank_correlation:+.2f}" + _count(summary.n_correlation, whole)
        yield f"{regret}, ρ {correlation}"


def _count(n: int, whole: int) -> str:
    return "" if n == whole else f" ({n})"
