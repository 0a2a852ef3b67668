"""Critical-difference diagram: average ranks on a line, algorithms that do not differ joined by a bar."""

from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.figures.style import DARK, add_notes, label, new_figure
from plench.report.leaderboard import Leaderboard, title_criterion
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
    board: Leaderboard, criterion: Criterion, post_hoc: str = "nemenyi", alpha: float = 0.05
) -> "Figure":
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
    figure = new_figure(7.0, 0.17 * rows + 0.9)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(1 - 0.42 * (k - 1), k + 0.42 * (k - 1))
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
        shown = f"{label(scores.algorithms[index])}  {ranks[index]:.2f}"
        if not on_left:
            shown = f"{ranks[index]:.2f}  {label(scores.algorithms[index])}"
        shift = -0.01 * (k - 1) if on_left else 0.01 * (k - 1)
        axes.text(end + shift, row, shown, va="center", ha="right" if on_left else "left", fontsize=7)
    for number, group in enumerate(groups):
        height = 0.8 + 0.45 * number
        low, high = min(ranks[group]), max(ranks[group])
        axes.plot([low - 0.03, high + 0.03], [height, height], color=DARK, linewidth=3, solid_capstyle="butt")
    title = title_criterion(criterion, board.settings)
    axes.set_title(
        f"Average rank over {board.extent}, selected by {title} ({said}; Friedman p = {ranking.p_value:.2g})",
        fontsize=8,
    )
    if scores.left_out:
        add_notes(figure, [f"Left out, with no figure in some dataset: {', '.join(scores.left_out)}."])
    return figure


def _draw_scale(axes: "Axes", k: int) -> None:
    axes.plot([1, k], [0, 0], color=DARK, linewidth=0.8)
    step = max(1, round(k / 10))
    for tick in range(1, k + 1):
        numbered = (tick - 1) % step == 0
        axes.plot([tick, tick], [0, -0.4 if numbered else -0.25], color=DARK, linewidth=0.8)
        if numbered:
            axes.text(tick, -0.55, str(tick), ha="center", va="bottom", fontsize=7)


def _draw_difference(axes: "Axes", difference: float, k: int) -> None:
    end = min(1 + difference, k + 0.4 * (k - 1))
    axes.plot([1, end], [-1.9, -1.9], color=DARK, linewidth=1.2, marker="|", markersize=5)
    axes.text(end + 0.015 * (k - 1), -1.9, f"CD = {difference:.2f}", va="center", ha="left", fontsize=7)
