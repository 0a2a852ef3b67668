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
from plench.report.figures.style import DARK, GREY, add_grid, new_figure
from plench.report.leaderboard import Leaderboard

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
    """Draw each algorithm's mean test accuracy over its settings against its time per step (log scale)."""
    from matplotlib.ticker import LogFormatter

    by_name: dict[str, list[float]] = {}
    for cost in costs:
        by_name.setdefault(normalise(cost.algorithm), []).append(cost.ms)
    names, times, accuracies = [], [], []
    for algorithm in board.algorithms:
        cells = (board.cell(setting, algorithm, criterion) for setting in board.settings)
        means = [cell.mean for cell in cells if cell is not None and cell.mean is not None]
        if means and normalise(algorithm) in by_name:
            names.append(algorithm)
            times.append(fmean(by_name[normalise(algorithm)]))
            accuracies.append(100 * fmean(means))
    if not names:
        raise UsageError("no algorithm has both results and measurements of its cost")
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
    axes.set_xlabel("time per step (ms, log scale)")
    axes.set_ylabel(f"mean test accuracy (%), selected by {criterion.title}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.1), ncols=2, frameon=False)
    add_grid(axes, "both")
    name_points(axes, times, accuracies, names, _trace(steps_x, steps_y))
    return figure


def _trace(xs: np.ndarray, ys: np.ndarray) -> list[tuple[float, float]]:
    """Return points along the steps of the front, which names should not cover."""
    points: list[tuple[float, float]] = []
    for i in range(len(xs) - 1):
        points.extend((float(x), float(ys[i])) for x in np.geomspace(xs[i], xs[i + 1], 12))
        points.extend((float(xs[i + 1]), float(y)) for y in np.linspace(ys[i], ys[i + 1], 12))
    return points
