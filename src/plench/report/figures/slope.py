"""The paper's slope chart: the same algorithms in two sets of results, and how often their order turns."""

import textwrap
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from plench.errors import UsageError
from plench.report.figures.labels import spread_positions
from plench.report.figures.style import DARK, DASHES, GREY, MARKERS, add_notes, label, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def count_inversions(first: Mapping[str, float], second: Mapping[str, float]) -> int:
    """Count the pairs of algorithms whose order in one set is the opposite of their order in the other."""
    common = [name for name in first if name in second]
    return sum((first[a] - first[b]) * (second[a] - second[b]) < 0 for a, b in combinations(common, 2))


def draw_slopes(
    first: Mapping[str, float], second: Mapping[str, float], names: tuple[str, str], title: str
) -> "Figure":
    """Draw a line per algorithm from its accuracy (a fraction) in one set to that in the other.

    Algorithms that only one set has are named below.
    """
    common = sorted((a for a in first if a in second), key=lambda a: -first[a])
    if len(common) < 2:
        raise UsageError("the two sets of results have fewer than two algorithms in common")
    figure = new_figure(4.6, max(2.6, 0.165 * len(common) + 1.1))
    axes = figure.add_subplot()
    left = [100 * first[a] for a in common]
    right = [100 * second[a] for a in common]
    values = left + right
    span = max(max(values) - min(values), 1.0)
    # A line of text is about 9 points high; the axes are about 72·(height − 1) points.
    gap = span * 9.5 / (72 * (figure.get_figheight() - 0.9))
    places = (spread_positions(left, gap), spread_positions(right, gap))
    colours = shades(len(common))
    for i, name in enumerate(common):
        axes.plot(
            [0, 1],
            [left[i], right[i]],
            color=colours[i],
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=3.5,
            linewidth=1.1,
        )
        for side, value in ((0, left[i]), (1, right[i])):
            place = places[side][i]
            edge, text_x = (-0.02, -0.1) if side == 0 else (1.02, 1.1)
            axes.plot([edge, text_x], [value, place], color=GREY, linewidth=0.4)
            shown = f"{label(name)} {value:.2f}" if side == 0 else f"{value:.2f} {label(name)}"
            axes.text(
                text_x,
                place,
                shown,
                va="center",
                ha="right" if side == 0 else "left",
                fontsize=6.5,
                color=DARK,
            )
    axes.set_xlim(-0.75, 1.75)
    lowest = min(min(places[0]), min(places[1]), *values) - gap
    axes.set_ylim(lowest, max(max(places[0]), max(places[1]), *values) + gap)
    axes.set_xticks([0, 1], ["\n".join(textwrap.wrap(label(name, 120), 26)) for name in names], fontsize=8)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    pairs = len(common) * (len(common) - 1) // 2
    axes.set_title(
        f"{label(title)} (test accuracy, %)\n{count_inversions(first, second)} of {pairs} pairs change order",
        fontsize=8,
    )
    alone = [
        f"Only in {name}: {', '.join(a for a in here if a not in there)}."
        for name, here, there in ((names[0], first, second), (names[1], second, first))
        if here.keys() - there.keys()
    ]
    add_notes(figure, alone)
    return figure
