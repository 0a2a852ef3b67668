"""The paper's slope chart: the same algorithms in two sets of results, and how often their order turns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.report.figures.base import FigureKind, one_criterion, one_setting
from plench.report.figures.labels import spread_positions
from plench.report.figures.limits import Range, find_range, place_outside
from plench.report.figures.style import (
    COLUMN,
    DARK,
    DASHES,
    GREY,
    MARKERS,
    SMALL,
    add_notes,
    add_title,
    label,
    new_figure,
    shades,
)
from plench.report.leaderboard import build_leaderboard, label_settings, title_criterion
from plench.report.results import Results
from plench.runs.records import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 0.115  # inches between two names


def count_inversions(first: Mapping[str, float], second: Mapping[str, float]) -> int:
    """Count the pairs of algorithms whose order in one set is the opposite of their order in the other."""
    common = [name for name in first if name in second]
    return sum((first[a] - first[b]) * (second[a] - second[b]) < 0 for a, b in combinations(common, 2))


def draw_slopes(
    first: Mapping[str, float],
    second: Mapping[str, float],
    names: tuple[str, str],
    title: str,
    width: float = COLUMN,
) -> Figure:
    """Draw a line per algorithm from its accuracy (a fraction) in one set to that in the other.

    Outliers stand below or above a dotted line, in their order but not to scale. Algorithms that only one set
    has are named below.
    """
    common = sorted((a for a in first if a in second), key=lambda a: -first[a])
    if len(common) < 2:
        raise UsageError("the two sets of results have fewer than two algorithms in common")
    sides = [[100 * values[a] for a in common] for values in (first, second)]
    scale = find_range([value for side in sides for value in side])
    n_outside = max(sum(not scale.holds(value) for value in side) for side in sides)
    height = max(1.2, LINE * (len(common) + 1))
    figure = new_figure(width, height + 0.5)
    axes = figure.add_subplot()
    # The rows of the outliers and the gap before them are taken from the height first.
    gap = scale.span * LINE / max(height - LINE * (n_outside + 2), 0.5)
    drawn = [place_outside(side, scale, gap) for side in sides]
    colours = shades(len(common))
    for i, (left, right) in enumerate(zip(*drawn, strict=True)):
        look = {
            "color": colours[i],
            "linestyle": DASHES[i % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        axes.plot([0, 1], [left, right], markersize=3, linewidth=0.9, **look)
    places = [_place_names(positions, side, scale, gap) for positions, side in zip(drawn, sides, strict=True)]
    for number, (positions, side, named) in enumerate(zip(drawn, sides, places, strict=True)):
        _write_names(axes, number, common, side, positions, named)
    every = [place for both in (*drawn, *places) for place in both]
    axes.set_ylim(min(every) - 0.7 * gap, max(every) + 0.7 * gap)
    _mark_scale(axes, scale, gap, [value for side in sides for value in side])
    axes.set_xlim(-1.05, 2.05)
    per_line = int(width * 7)
    axes.set_xticks([0, 1], ["\n".join(textwrap.wrap(label(name, 120), per_line)) for name in names])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    pairs = len(common) * (len(common) - 1) // 2
    turned = count_inversions(first, second)
    add_title(figure, f"{title}: {turned} of {pairs} pairs of {len(common)} algorithms change order")
    alone = [
        f"Only in {name}: {', '.join(a for a in here if a not in there)}."
        for name, here, there in ((names[0], first, second), (names[1], second, first))
        if here.keys() - there.keys()
    ]
    add_notes(figure, alone)
    return figure


def _place_names(drawn: Sequence[float], values: Sequence[float], scale: Range, gap: float) -> list[float]:
    """Spread the names of one side, those of outliers apart from the others."""
    inside = [i for i, value in enumerate(values) if scale.holds(value)]
    spread = spread_positions([drawn[i] for i in inside], gap)
    # Many names at one end would run into the outliers' rows: the whole column moves.
    shift = max(0.0, scale.low - min(spread, default=scale.low) - gap / 2)
    placed = list(drawn)
    for i, position in zip(inside, spread, strict=True):
        placed[i] = position + shift
    return placed


def _write_names(
    axes: Axes,
    side: int,
    names: Sequence[str],
    values: Sequence[float],
    drawn: Sequence[float],
    placed: Sequence[float],
) -> None:
    """Write each algorithm and its accuracy beside its end of the line."""
    edge, text_x = (-0.03, -0.14) if side == 0 else (1.03, 1.14)
    for name, value, start, place in zip(names, values, drawn, placed, strict=True):
        axes.plot([edge, text_x], [start, place], color=GREY, linewidth=0.35)
        shown = f"{label(name, 22)} {value:.2f}" if side == 0 else f"{value:.2f} {label(name, 22)}"
        align = "right" if side == 0 else "left"
        axes.text(text_x, place, shown, va="center", ha=align, fontsize=SMALL, color=DARK)


def _mark_scale(axes: Axes, scale: Range, gap: float, values: Sequence[float]) -> None:
    """Draw a dotted line where the scale ends, if there are outliers beyond."""
    for outside, edge, shift in (
        (min(values) < scale.low, scale.low, -1.2 * gap),
        (max(values) > scale.high, scale.high, 1.2 * gap),
    ):
        if outside:
            axes.axhline(edge + shift, color=GREY, linestyle=":", linewidth=0.7)
            axes.text(
                0.5,
                edge + shift,
                "not to scale",
                va="center",
                ha="center",
                fontsize=SMALL,
                color=GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )


def draw(found: Results, options: Any) -> Figure:
    """Draw the results of two folders side by side, for one dataset."""
    if len(options.folders) != 2:
        raise UsageError(f"a slope chart needs two folders of runs, not {len(options.folders)}")
    criterion = one_criterion(found, options)
    sets: list[dict[str, float]] = []
    splits: list[int] = []
    settings: list[Experiment] = []
    for folder in options.folders:
        board = build_leaderboard(
            [run for run in found.runs if run.path.parent == Path(folder)], [criterion], found.plans
        )
        settings.append(one_setting(board))
        sets.append(board.means(settings[-1], criterion))
        splits.append(max(cell.n for cell in board.cells.values()))
    labels = label_settings(set(settings))
    folders = _name_folders(options.folders)
    first, second = (f"{name}: {labels[s]}" for name, s in zip(folders, settings, strict=True))
    title = f"Mean test accuracy (%) selected by {title_criterion(criterion, settings)}"
    n = str(splits[0]) if splits[0] == splits[1] else f"{splits[0]} and {splits[1]}"
    return draw_slopes(sets[0], sets[1], (first, second), f"{title}, n = {n} splits", options.width)


def _name_folders(folders: Sequence[str]) -> list[str]:
    """Return the folders' own names, with as many of the folders above them as tell them apart."""
    parts = [Path(folder).resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(folders)


FIGURE = FigureKind(
    "slope", "two folders of runs side by side, with rank inversions", draw, folders_apart=True
)
