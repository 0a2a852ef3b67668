"""Critical-difference diagram: average ranks on a line, algorithms that do not differ joined by a bar."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.figures.base import FigureKind, one_criterion
from plench.report.figures.style import COLUMN, DARK, SMALL, add_notes, add_title, label, new_figure
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.results import Results
from plench.report.statistics import (
    critical_difference,
    find_groups,
    friedman,
    gather_scores,
    nemenyi,
    wilcoxon_holm,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POST_HOC_TESTS = ("nemenyi", "wilcoxon")


def draw_ranks(
    board: Leaderboard,
    criterion: Criterion,
    post_hoc: str = "nemenyi",
    alpha: float = 0.05,
    width: float = COLUMN,
) -> Figure:
    """Draw the diagram over the settings of a leaderboard, groups by Nemenyi's or by Wilcoxon–Holm's test."""
    scores = gather_scores(board, criterion)
    n, k = scores.values.shape
    if k < 3 or n < 2:
        lacking = f" ({len(scores.left_out)} lack a figure in some dataset)" if scores.left_out else ""
        raise UsageError(
            f"a critical-difference diagram needs 3 algorithms and 2 datasets without gaps, not {k} and {n}"
            f"{lacking}: choose with --datasets and --algorithms"
        )
    ranking = friedman(scores.values)
    ranks = ranking.average_ranks
    if post_hoc == "nemenyi":
        p_values = nemenyi(ranks, n)
        said = f"Nemenyi, α = {alpha:g}"
    else:
        p_values = wilcoxon_holm(scores.values)
        said = f"Wilcoxon–Holm, α = {alpha:g}"
    groups = find_groups(ranks, p_values, alpha)
    half = (k + 1) // 2
    rows = 2.2 + 0.45 * len(groups) + half
    figure = new_figure(width, 0.12 * rows + 0.45)
    axes = figure.add_subplot()
    axes.set_axis_off()
    # Names take about 0.95 inches on either side of the scale, whatever the width.
    margin = 0.95 / max(width - 1.9, 0.6) * (k - 1)
    axes.set_xlim(1 - margin, k + margin)
    axes.set_ylim(rows, -2.6)
    _draw_scale(axes, k)
    if post_hoc == "nemenyi":
        _draw_difference(axes, critical_difference(k, n, alpha), k)
    order = [int(i) for i in np.argsort(ranks, kind="stable")]
    first_row = 1.6 + 0.45 * len(groups)
    for place, index in enumerate(order):
        on_left = place < half
        row = first_row + (place if on_left else k - 1 - place)
        end = 1 - 0.04 * (k - 1) if on_left else k + 0.04 * (k - 1)
        axes.plot([ranks[index], ranks[index], end], [0, row, row], color=DARK, linewidth=0.6)
        name = label(scores.algorithms[index], 16)
        shown = f"{name} {ranks[index]:.1f}" if on_left else f"{ranks[index]:.1f} {name}"
        shift = -0.01 * (k - 1) if on_left else 0.01 * (k - 1)
        axes.text(end + shift, row, shown, va="center", ha="right" if on_left else "left", fontsize=SMALL)
    for number, group in enumerate(groups):
        height = 0.8 + 0.45 * number
        low, high = min(ranks[group]), max(ranks[group])
        axes.plot([low - 0.03, high + 0.03], [height, height], color=DARK, linewidth=3, solid_capstyle="butt")
    title = title_criterion(criterion, board.settings)
    extent = board.extent.removeprefix(f"{n} ")
    add_title(
        figure,
        f"Average rank of {k} algorithms selected by {title}, n = {n} {extent} "
        f"({said}; Friedman p = {ranking.p_value:.2g})",
    )
    if scores.left_out:
        add_notes(figure, [f"Left out, with no figure in some dataset: {', '.join(scores.left_out)}."])
    return figure


def _draw_scale(axes: Axes, k: int) -> None:
    axes.plot([1, k], [0, 0], color=DARK, linewidth=0.8)
    step = max(1, round(k / 10))
    for tick in range(1, k + 1):
        numbered = (tick - 1) % step == 0
        axes.plot([tick, tick], [0, -0.4 if numbered else -0.25], color=DARK, linewidth=0.8)
        if numbered:
            axes.text(tick, -0.55, str(tick), ha="center", va="bottom", fontsize=SMALL)


def _draw_difference(axes: Axes, difference: float, k: int) -> None:
    end = min(1 + difference, k + 0.4 * (k - 1))
    axes.plot([1, end], [-1.9, -1.9], color=DARK, linewidth=1.2, marker="|", markersize=5)
    axes.text(end + 0.015 * (k - 1), -1.9, f"CD = {difference:.2f}", va="center", ha="left", fontsize=SMALL)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add test and level."""
    parser.add_argument("--post_hoc", choices=("nemenyi", "wilcoxon"), default="nemenyi", help="which groups")
    parser.add_argument("--alpha", type=float, default=0.05, help="level of significance (default 0.05)")


def draw(found: Results, options: Any) -> Figure:
    """Draw the critical-difference diagram of runs that were read."""
    if not 0 < options.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {options.alpha}")
    criterion = one_criterion(found, options)
    return draw_ranks(found.board, criterion, options.post_hoc, options.alpha, options.width)


FIGURE = FigureKind("ranks", "critical-difference diagram over datasets", draw, add_options)
