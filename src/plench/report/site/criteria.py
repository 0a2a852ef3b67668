"""The page of the criteria, and the pairs of algorithms under each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plench.criteria import Criterion
from plench.report.criteria_quality import (
    CriterionQuality,
    SubsetRegret,
    average_quality,
    measure_subset_regret,
)
from plench.report.leaderboard import Leaderboard
from plench.report.statistics import (
    compare_each_pair,
    critical_difference,
    describe_power,
    describe_test,
    friedman,
    gather_scores,
)
from plench.runs.records import Experiment, Run


def describe_quality(
    board: Leaderboard,
    groups: Mapping[tuple[Experiment, str], Sequence[Run]],
    judged: Sequence[CriterionQuality],
) -> dict[str, Any]:
    """Return regret and rank correlation over all, by dataset, by algorithm, and regret by number tried."""
    by_setting: dict[Experiment, set[Experiment]] = {}
    by_algorithm: dict[str, set[Experiment]] = {}
    for (setting, algorithm, _), cell in board.cells.items():
        by_setting.setdefault(setting, set()).add(cell.experiment)
        by_algorithm.setdefault(algorithm, set()).add(cell.experiment)
    tables = [
        {"by": "all", "rows": [_summarise(board, judged)]},
        {"by": "dataset", "rows": [_summarise(board, judged, by_setting[s]) for s in board.settings]},
        {"by": "algorithm", "rows": [_summarise(board, judged, by_algorithm[a]) for a in board.algorithms]},
    ]
    runs = {setting: _runs_of(setting, groups) for setting in board.settings}
    everything = {id(run): run for own in runs.values() for run in own}
    over: list[tuple[int | None, list[Run]]] = [(None, list(everything.values()))]
    over += [(number, runs[setting]) for number, setting in enumerate(board.settings)]
    found = [(number, measure_subset_regret(own, board.criteria)) for number, own in over]
    curves = [{"setting": number, **_curve(curve)} for number, curve in found if curve is not None]
    return {"tables": tables, "curves": curves}


def _summarise(
    board: Leaderboard, judged: Sequence[CriterionQuality], experiments: set[Experiment] | None = None
) -> list[dict[str, Any] | None]:
    """Return the summary of each criterion over some experiments, or all."""
    kept = [quality for quality in judged if experiments is None or quality.experiment in experiments]
    summary = average_quality(kept, "all")
    found = (summary.get((criterion.name, "all")) for criterion in board.criteria)
    return [None if entry is None else vars(entry) for entry in found]


def _runs_of(setting: Experiment, groups: Mapping[tuple[Experiment, str], Sequence[Run]]) -> list[Run]:
    return [run for (place, _), runs in groups.items() if place == setting for run in runs]


def _curve(found: SubsetRegret) -> dict[str, Any]:
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
