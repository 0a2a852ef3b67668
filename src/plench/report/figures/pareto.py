"""Accuracy against cost, with the algorithms that no other one beats in both."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.costs import StepCost, read_costs
from plench.report.escape import clean
from plench.report.figures.base import FigureKind, one_criterion
from plench.report.figures.labels import name_points
from plench.report.figures.limits import find_range, place_outside
from plench.report.figures.style import (
    COLUMN,
    DARK,
    GREY,
    SMALL,
    add_grid,
    add_notes,
    add_title,
    count,
    new_figure,
    set_plain_ticks,
)
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.results import Results
from plench.report.statistics import gather_scores
from plench.text import normalise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Trade:
    """What an algorithm costs (ms per step) and gives (mean test accuracy, %), over the same datasets."""

    algorithm: str
    ms: float
    accuracy: float


def find_front(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Return the points that no other point beats in both cost and accuracy, by rising cost."""
    front: list[int] = []
    for index in sorted(range(len(costs)), key=lambda i: (costs[i], -accuracies[i])):
        if not front or accuracies[index] > accuracies[front[-1]]:
            front.append(index)
    return front


def draw_pareto(
    board: Leaderboard, criterion: Criterion, costs: Sequence[StepCost], width: float = COLUMN
) -> Figure:
    """Draw each algorithm's mean test accuracy against its time per step (log scale), over the same datasets.

    Datasets without measurements, and algorithms without a figure or a measurement on some of the others, are
    left out, and the figure names them. Outliers stand beyond a dotted line, not to scale.
    """
    board, unmeasured = _keep_measured(board, costs)
    trades, notes = _gather_trades(board, criterion, costs)
    times = [trade.ms for trade in trades]
    accuracies = [trade.accuracy for trade in trades]
    front = find_front(times, accuracies)
    figure = new_figure(width, max(2.8, 0.62 * width))
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.5, max(times) * 1.5)
    set_plain_ticks(axes.xaxis)
    drawn = _set_scale(axes, accuracies)
    steps_x, steps_y = np.array(times)[front], np.array(drawn)[front]
    axes.step(steps_x, steps_y, where="post", color=GREY, linewidth=0.9, linestyle="--")
    others = [i for i in range(len(trades)) if i not in front]
    axes.scatter(
        np.array(times)[others],
        np.array(drawn)[others],
        s=10,
        color="white",
        edgecolor=DARK,
        linewidth=0.7,
        zorder=3,
    )
    axes.scatter(steps_x, steps_y, s=14, color=DARK, zorder=3)
    axes.set_xlabel("time per step (ms, log scale)")
    axes.set_ylabel("mean test accuracy (%)")
    add_grid(axes, "both")
    n = count(sum(_count_splits(board, criterion)), "split")
    shown = ", ".join(clean(board.labels[setting]) for setting in board.settings)
    where = shown if len(board.settings) < 4 else board.extent
    title = title_criterion(criterion, board.settings)
    add_title(figure, f"Accuracy (selected by {title}) against time per step: {where}, n = {n}")
    notes = ["Filled, dashed line: the Pareto front.", *unmeasured, *notes]
    add_notes(figure, notes)
    names = [
        trade.algorithm if trade.accuracy == place else f"{trade.algorithm} {trade.accuracy:.1f}"
        for trade, place in zip(trades, drawn, strict=True)
    ]
    name_points(axes, times, drawn, names, (steps_x.tolist(), steps_y.tolist()))
    return figure


def _set_scale(axes: Axes, accuracies: Sequence[float]) -> list[float]:
    """Set the scale of the bulk and return where each accuracy is drawn; outliers stand beyond it."""
    scale = find_range(accuracies)
    gap = scale.span * 0.09
    placed = place_outside(accuracies, scale, gap)
    low, high = min([*placed, scale.low]) - gap, max([*placed, scale.high]) + gap
    axes.set_ylim(low, high)
    edges = [scale.low - 1.1 * gap] * (min(placed) < scale.low) + [scale.high + 1.1 * gap] * (
        max(placed) > scale.high
    )
    for edge in edges:
        axes.axhline(edge, color=GREY, linestyle=":", linewidth=0.7)
        axes.annotate(
            "not to scale",
            (0.99, edge),
            xycoords=("axes fraction", "data"),
            va="center",
            ha="right",
            fontsize=SMALL,
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
    axes.set_yticks([tick for tick in axes.get_yticks() if scale.padded(0.05).holds(tick)])
    axes.set_ylim(low, high)
    return placed


def _keep_measured(board: Leaderboard, costs: Sequence[StepCost]) -> tuple[Leaderboard, list[str]]:
    """Return the leaderboard of the datasets whose cost was measured, and a note that names the others."""
    measured = {normalise(cost.dataset) for cost in costs}
    kept = tuple(setting for setting in board.settings if normalise(setting.dataset) in measured)
    if not kept:
        there, known = (", ".join(sorted(names)) for names in _datasets(board, costs))
        raise UsageError(
            f"the costs were measured on {there or 'no named dataset'}, but the results are on {known}: "
            "accuracy and cost must be of the same datasets"
        )
    absent = [clean(board.labels[setting]) for setting in board.settings if setting not in kept]
    notes = [f"Left out, without measured cost: {', '.join(absent)}."] if absent else []
    return replace(board, settings=kept), notes


def _datasets(board: Leaderboard, costs: Sequence[StepCost]) -> tuple[set[str], set[str]]:
    return {clean(c.dataset) for c in costs if c.dataset}, {clean(s.dataset) for s in board.settings}


def _gather_trades(
    board: Leaderboard, criterion: Criterion, costs: Sequence[StepCost]
) -> tuple[list[Trade], list[str]]:
    """Return the algorithms that have both figures on every dataset, and notes on those left out."""
    scores = gather_scores(board, criterion)
    datasets = {normalise(setting.dataset) for setting in board.settings}
    by_name: dict[str, dict[str, list[float]]] = {}
    for cost in costs:
        by_dataset = by_name.setdefault(normalise(cost.algorithm), {})
        by_dataset.setdefault(normalise(cost.dataset), []).append(cost.ms)
    trades: list[Trade] = []
    unmeasured = []
    for algorithm, means in zip(scores.algorithms, scores.values.T, strict=True):
        measured = by_name.get(normalise(algorithm), {})
        if datasets <= measured.keys():
            ms = fmean(fmean(measured[dataset]) for dataset in sorted(datasets))
            trades.append(Trade(algorithm, ms, 100 * float(means.mean())))
        else:
            unmeasured.append(algorithm)
    if not trades:
        raise UsageError(
            "no algorithm has both results on every dataset here and measurements of its cost: choose with "
            "--datasets and --algorithms"
        )
    notes = []
    if scores.left_out:
        notes.append(f"Left out, with no figure in some dataset: {', '.join(scores.left_out)}.")
    if unmeasured:
        notes.append(f"Left out, with no measurement of the cost: {', '.join(unmeasured)}.")
    return trades, notes


def _count_splits(board: Leaderboard, criterion: Criterion) -> list[int]:
    """Return, for each setting, the number of splits behind its means (the largest of any algorithm)."""
    cells = [[board.cell(setting, a, criterion) for a in board.algorithms] for setting in board.settings]
    return [max((cell.n for cell in row if cell is not None), default=0) for row in cells]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file of costs."""
    parser.add_argument(
        "--costs", type=Path, required=True, metavar="JSON", help="from plench bench step --output"
    )


def draw(found: Results, options: Any) -> Figure:
    """Draw the accuracy of runs that were read against cost."""
    costs = read_costs(options.costs)
    return draw_pareto(found.board, one_criterion(found, options), costs, options.width)


FIGURE = FigureKind("pareto", "accuracy against time per step, with the Pareto front", draw, add_options)
