"""The page of the criteria, and the pairs of algorithms under each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plench.criteria import Criterion
from plench.report.criterion_quality import CriterionQuality, summarise
from plench.report.leaderboard import Leaderboard
from plench.report.pairs import compare_each_pair, describe_power, describe_test
from plench.report.statistics import critical_difference, friedman, gather_scores
from plench.report.subset_regret import SubsetRegret, measure_subset_regret
from plench.storage.records import Run


def describe_quality(
    board: Leaderboard, runs: Sequence[Run], judged: Sequence[CriterionQuality]
) -> dict[str, Any]:
    """Return regret and rank correlation over all, by dataset, by algorithm, and regret by number tried."""
    tables = []
    for by, places in (
        ("all", ["all"]),
        ("dataset", [board.labels[setting] for setting in board.settings]),
        ("algorithm", list(board.algorithms)),
    ):
        summary = summarise(judged, by)
        rows = []
        for place in places:
            found = [summary.get((criterion.name, place)) for criterion in board.criteria]
            rows.append([None if entry is None else vars(entry) for entry in found])
        tables.append({"by": by, "rows": rows})
    curves = [{"setting": None, **_curve(measure_subset_regret(runs, board.criteria))}]
    for number, setting in enumerate(board.settings):
        own = [run for run in runs if run.experiment.setting == setting]
        curves.append({"setting": number, **_curve(measure_subset_regret(own, board.criteria))})
    return {"tables": tables, "curves": [curve for curve in curves if curve.get("regrets")]}


def _curve(found: SubsetRegret | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "regrets": found.regrets,
        "accuracies": found.accuracies,
        "n": found.n_experiments,
        "left_out": found.n_left_out,
    }


def describe_pairs(board: Leaderboard, criterion: Criterion) -> dict[str, Any]:
    """Return every pair of algorithms under one criterion, each with its test and power in words."""
    pairs = compare_each_pair(board, criterion)
    n_tested = sum(pair.p_value is not None for pair in pairs)
    return {
        "overall": describe_overall(board, criterion),
        "pairs": [
            {
                "at": [pair.first, pair.second],
                "n": pair.n_settings,
                "wtl": [pair.wins, pair.ties, pair.losses],
                "mean": pair.mean_difference,
                "p": pair.p_value,
                "test": describe_test(pair, n_tested),
                "power": describe_power(pair),
            }
            for pair in pairs
        ],
    }


def describe_overall(board: Leaderboard, criterion: Criterion) -> str:
    """Say what Friedman's test finds over the algorithms with a figure in every setting with true labels."""
    labelled = tuple(setting for setting in board.settings if board.means(setting, criterion))
    scores = gather_scores(replace(board, settings=labelled), criterion)
    n, k = scores.values.shape
    left_out = (
        f" Left out, with no figure on some dataset: {', '.join(scores.left_out)}." if scores.left_out else ""
    )
    if k < 3 or n < 2:
        needs = "Friedman's test needs 3 algorithms with a figure on each of 2 or more datasets"
        return f"Do any differ at all? {needs}; here are {k} on {n}.{left_out}"
    ranking = friedman(scores.values)
    datasets = len({setting.dataset for setting in labelled})
    apart = "" if datasets == n else f" ({n} settings of {datasets} datasets, which are not independent)"
    return (
        f"Do any differ at all? Friedman's test over {k} algorithms on {n} datasets{apart}: "
        f"χ² = {ranking.statistic:.2f}, p = {ranking.p_value:.2g}. Two average ranks differ at 5 % by "
        f"Nemenyi's test if they are more than {critical_difference(k, n):.2f} apart.{left_out}"
    )
