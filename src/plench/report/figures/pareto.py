"""Accuracy against cost, with the algorithms that no other one beats in both."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.names import normalise
from plench.report.costs import Cost
from plench.report.figures.labels import name_points
from plench.report.figures.style import DARK, GREY, add_grid, add_notes, label, new_figure
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.statistics import gather_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def find_front(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Return the points that no other point beats in both cost and accuracy, by rising cost."""
    front: list[int] = []
    for index in sorted(range(len(costs)), key=lambda i: (costs[i], -accuracies[i])):
        if not front or accuracies[index] > accuracies[front[-1]]:
            front.append(index)
    return front


def draw_pareto(board: Leaderboard, criterion: Criterion, costs: Sequence[Cost]) -> "Figure":
    """Draw each algorithm's mean test accuracy over the settings against its time per step (log scale).

    Means over different datasets do not compare: an algorithm without a figure in some setting, or without a
    measurement on some dataset of `costs`, is left out, and the figure names it.
    """
    from matplotlib.ticker import LogFormatter

    points, notes = _gather_points(board, criterion, costs)
    names = list(points)
    times = [points[name][0] for name in names]
    accuracies = [points[name][1] for name in names]
    front = find_front(times, accuracies)
    figure = new_figure(6.4, 4.4)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(LogFormatter())
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
    spread = max(max(accuracies) - min(accuracies), 1.0)
    axes.set_xlim(min(times) / 1.5, max(times) * 1.5)
    axes.set_ylim(min(accuracies) - 0.12 * spread, max(accuracies) + 0.12 * spread)
    steps_x, steps_y = np.array(times)[front], np.array(accuracies)[front]
    axes.step(steps_x, steps_y, where="post", color=GREY, linewidth=1, linestyle="--", label="Pareto front")
    others = [i for i in range(len(names)) if i not in front]
    axes.scatter(
        np.array(times)[others], np.array(accuracies)[others], s=22, facecolor="white", edgecolor=DARK
    )
    axes.scatter(steps_x, steps_y, s=26, color=DARK, label="on the front")
    measured = ", ".join(sorted({cost.dataset for cost in costs if cost.dataset}))
    axes.set_xlabel(label(f"time per step{measured and f' on {measured}'} (ms, log scale)", 90))
    where = f" over {board.extent}" if len(board.settings) > 1 else ""
    axes.set_ylabel(
        f"mean test accuracy{where} (%),\nselected by {title_criterion(criterion, board.settings)}"
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.1), ncols=2, frameon=False)
    add_grid(axes, "both")
    add_notes(figure, notes)
    name_points(axes, times, accuracies, names, _trace(steps_x, steps_y))
    return figure


def _gather_points(
    board: Leaderboard, criterion: Criterion, costs: Sequence[Cost]
) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """Return milliseconds and mean accuracy (%) of the algorithms that have both, and who was left out."""
    scores = gather_scores(board, criterion)
    by_name: dict[str, dict[str, list[float]]] = {}
    for cost in costs:
        by_name.setdefault(normalise(cost.algorithm), {}).setdefault(cost.dataset, []).append(cost.ms)
    datasets = {cost.dataset for cost in costs}
    points: dict[str, tuple[float, float]] = {}
    unmeasured = []
    for algorithm, means in zip(scores.algorithms, scores.values.T, strict=True):
        measured = by_name.get(normalise(algorithm), {})
        if measured.keys() == datasets:
            points[algorithm] = (fmean(map(fmean, measured.values())), 100 * float(means.mean()))
        else:
            unmeasured.append(algorithm)
    if not points:
        raise UsageError(
            "no algorithm has both results on every dataset here and measurements of its cost: choose with "
            "--datasets and --algorithms"
        )
    notes = []
    if scores.left_out:
        notes.append(f"Left out, with no figure in some dataset: {', '.join(scores.left_out)}.")
    if unmeasured:
        notes.append(f"Left out, with no measurement of the cost: {', '.join(unmeasured)}.")
    return points, notes


def _trace(xs: np.ndarray, ys: np.ndarray) -> list[tuple[float, float]]:
    """Return points along the steps of the front, which names should not cover."""
    points: list[tuple[float, float]] = []
    for i in range(len(xs) - 1):
        points.extend((float(x), float(ys[i])) for x in np.geomspace(xs[i], xs[i + 1], 12))
        points.extend((float(xs[i + 1]), float(y)) for y in np.linspace(ys[i], ys[i + 1], 12))
    return points
