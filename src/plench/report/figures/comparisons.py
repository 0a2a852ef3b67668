"""Algorithms compared: the paper's box plots and slope chart, and the critical-difference diagram."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report import drawing, statistics
from plench.report.drawing import COLUMN, DARK, GREY, SMALL, FigureKind, Range, label
from plench.report.leaderboard import (
    Leaderboard,
    build_leaderboard,
    label_settings,
    split_by_truth,
    title_criterion,
)
from plench.report.results import Results
from plench.runs.records import Experiment
from plench.text import counted, find_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The paper leaves them out of its box plots because their accuracy is far below the others'.
LEFT_OUT_BY_THE_PAPER = ("NN", "GA")
LINE = 0.115  # inches between two names of a slope chart


def draw_boxes(
    board: Leaderboard, leave_out: Collection[str] = LEFT_OUT_BY_THE_PAPER, width: float = COLUMN
) -> Figure:
    """Draw box plots by algorithm, the best on top, one panel per criterion, over (dataset, split) pairs.

    Boxes of plain accuracies would show how datasets and splits differ, so each accuracy is taken less the
    median of the compared algorithms on the same split. An algorithm that lacks some pair that another one
    has does not compare: its box stands below a line, white instead of filled, with the number of pairs it
    rests on behind its name. Where no data have true labels, boxes are of the criteria themselves, and the
    title says so.
    """
    labelled, scored = split_by_truth(board)
    board = labelled or scored or board
    names = [name for name in board.algorithms if name not in leave_out]
    tables = {c: table for c in board.criteria if (table := _read_accuracies(board, c, names)).size}
    if not tables:
        raise UsageError("no test accuracy to draw: nothing selected, or every algorithm left out")
    counts = {c: np.sum(~np.isnan(table), axis=0) for c, table in tables.items()}
    columns = (column[~np.isnan(column)] for column in next(iter(tables.values())).T)
    means = [fmean(column) if len(column) else 0.0 for column in columns]
    order = [i for i in range(len(names)) if any(found[i] for found in counts.values())]
    order.sort(key=lambda i: (-means[i], names[i]))
    whole = [i for i in order if all(counts[c][i] == len(table) for c, table in tables.items())]
    partial = [i for i in order if i not in whole]
    relative = {
        c: 100 * (table - np.nanmedian(table[:, whole or partial], axis=1, keepdims=True))
        for c, table in tables.items()
    }
    values = [float(v) for table in relative.values() for v in table[~np.isnan(table)]]
    scale = drawing.find_range(values)
    height = 0.115 * len(order) + 0.4
    figure, panels, _ = drawing.new_panels(
        width, len(tables), 0.6, 0.7, (0.1, height), sharex=True, sharey=True
    )
    for axes, (criterion, table) in zip(panels, relative.items(), strict=True):
        _draw_boxes(axes, table[:, [*whole, *partial]], len(whole), scale)
        if whole and partial:
            axes.axhline(len(whole) - 0.5, color=GREY, linewidth=0.7, linestyle=":")
        axes.set(title=f"by {title_criterion(criterion, board.settings)}", xlabel="points")
        axes.tick_params(labelbottom=True, left=axes.get_subplotspec().is_first_col())  # type: ignore[union-attr]
        drawing.add_grid(axes, "x")
    rows = [label(names[i], 22) for i in whole]
    for i in partial:  # how many pairs it has, the fewest by any criterion
        fewest = min(tables, key=lambda c: counts[c][i] / len(tables[c]))
        rows.append(f"{label(names[i], 22)} {counts[fewest][i]}/{len(tables[fewest])}")
    drawing.name_rows(panels[0], rows)
    panels[0].set_xlim(scale.padded(0.04))
    n = counted(max(map(len, tables.values())), "split")
    what = "No true labels: criterion" if board.scored else "Test accuracy"
    drawing.add_title(figure, f"{what} less that of the split's median algorithm, {board.extent}, n = {n}")
    asked = ", ".join(name for name in board.algorithms if name in leave_out)
    reason = ", as in the paper" if leave_out is LEFT_OUT_BY_THE_PAPER else ""
    beyond = sum(not scale.holds(value) for value in values)
    notes = [f"Left out{reason}: {asked}."] if asked else []
    if partial:
        notes.append("White: lacks some splits (how many it has: behind its name), so does not compare.")
    if beyond:
        lie = f"{counted(beyond, 'figure')} lie{'s' if beyond == 1 else ''} beyond the scale"
        notes.append(f"{lie}; of a box whose median does, ◂ or ▸ and the median are shown.")
    drawing.add_notes(figure, notes)
    return figure


def _read_accuracies(board: Leaderboard, criterion: Criterion, names: Sequence[str]) -> statistics.Matrix:
    """Return test accuracies by (setting, split) and algorithm; NaN for an absent one."""
    found = {
        (setting, choice.trial_seed, name): choice.test_acc
        for setting in board.settings
        for name in names
        if (cell := board.cell(setting, name, criterion)) is not None
        for choice in cell.choices
        if choice.test_acc is not None
    }
    pairs = dict.fromkeys((setting, trial) for setting, trial, _ in found)
    return np.array([[found.get((*pair, name), np.nan) for name in names] for pair in pairs])


def _draw_boxes(axes: Axes, table: statistics.Matrix, n_whole: int, scale: Range) -> None:
    """Draw boxes below each other; one whose median is off the scale is an arrow with that median."""
    from matplotlib import patheffects

    axes.axvline(0, color=GREY, linewidth=0.6)
    drawn: list[tuple[int, list[float]]] = []
    for place, column in enumerate(table.T):
        values = column[~np.isnan(column)].tolist()
        middle = median(values) if values else 0.0
        if values and scale.holds(middle):
            drawn.append((place, values))
        elif values:
            low = middle < scale.low
            text = f"{middle:.0f}".replace("-", "−") if low else f"{middle:+.0f}"
            drawing.write_beyond(axes, place, text, low=low)
    if not drawn:
        return
    thin = {"linewidth": 0.6}
    boxes = axes.boxplot(
        [values for _, values in drawn],
        positions=[place for place, _ in drawn],
        orientation="horizontal",
        widths=0.62,
        patch_artist=True,
        manage_ticks=False,
        medianprops={"color": DARK, "linewidth": 1.2},
        flierprops={"marker": ".", "markersize": 2},
        boxprops=thin,
        whiskerprops=thin,
        capprops=thin,
    )
    for box, line, (place, _) in zip(boxes["boxes"], boxes["medians"], drawn, strict=True):
        box.set_facecolor(drawing.shades(5)[3] if place < n_whole else "white")
        # Dark within white shows on any box, and where the box has no height.
        line.set_path_effects([patheffects.withStroke(linewidth=2.2, foreground="white")])


def _boxes(found: Results, options: Any) -> Figure:
    if options.leave_out is None:
        return draw_boxes(found.board, LEFT_OUT_BY_THE_PAPER, options.width)
    left_out = [find_name(name, found.board.algorithms, "algorithm") for name in options.leave_out]
    return draw_boxes(found.board, left_out, options.width)


BOXES = FigureKind(
    "boxes",
    "box plots of test accuracy, one panel per criterion",
    _boxes,
    {"--leave-out": {"nargs": "*", "metavar": "NAME", "help": "default: NN and GA, as in the paper"}},
)


def draw_ranks(
    board: Leaderboard,
    criterion: Criterion,
    post_hoc: str = "nemenyi",
    alpha: float = 0.05,
    width: float = COLUMN,
) -> Figure:
    """Draw average ranks on a line, algorithms that do not differ joined by a bar.

    Groups are found by Nemenyi's test or by Wilcoxon–Holm's, over the settings of a leaderboard.
    """
    scores = statistics.gather_scores(board, criterion)
    n, k = scores.values.shape
    if k < 3 or n < 2:
        lacking = f" ({len(scores.left_out)} lack a figure in some dataset)" if scores.left_out else ""
        raise UsageError(
            f"a critical-difference diagram needs 3 algorithms and 2 datasets without gaps, not {k} and {n}"
            f"{lacking}: choose with --datasets and --algorithms"
        )
    ranking = statistics.friedman(scores.values)
    ranks = ranking.average_ranks
    by_nemenyi = post_hoc == "nemenyi"
    p_values = statistics.nemenyi(ranks, n) if by_nemenyi else statistics.wilcoxon_holm(scores.values)
    groups = statistics.find_groups(ranks, p_values, alpha)
    half = (k + 1) // 2
    rows = 2.2 + 0.45 * len(groups) + half
    figure = drawing.new_figure(width, 0.12 * rows + 0.45)
    axes = figure.add_subplot()
    axes.set_axis_off()
    # Names take about 0.95 inches on either side of the scale, whatever the width.
    margin = 0.95 / max(width - 1.9, 0.6) * (k - 1)
    axes.set_xlim(1 - margin, k + margin)
    axes.set_ylim(rows, -2.6)
    _draw_rank_scale(axes, k, statistics.critical_difference(k, n, alpha) if by_nemenyi else None)
    first_row = 1.6 + 0.45 * len(groups)
    for place, index in enumerate(np.argsort(ranks, kind="stable")):
        on_left = place < half
        row = first_row + (place if on_left else k - 1 - place)
        end, shift = (1 - 0.04 * (k - 1), -0.01) if on_left else (k + 0.04 * (k - 1), 0.01)
        axes.plot([ranks[index], ranks[index], end], [0, row, row], color=DARK, linewidth=0.6)
        name = label(scores.algorithms[index], 16)
        shown = f"{name} {ranks[index]:.1f}" if on_left else f"{ranks[index]:.1f} {name}"
        align = "right" if on_left else "left"
        axes.text(end + shift * (k - 1), row, shown, va="center", ha=align, fontsize=SMALL)
    for number, group in enumerate(groups):
        height = 0.8 + 0.45 * number
        ends = [min(ranks[group]) - 0.03, max(ranks[group]) + 0.03]
        axes.plot(ends, [height, height], color=DARK, linewidth=3, solid_capstyle="butt")
    title = title_criterion(criterion, board.settings)
    extent = board.extent.removeprefix(f"{n} ")
    drawing.add_title(
        figure,
        f"Average rank of {k} algorithms selected by {title}, n = {n} {extent} "
        f"({'Nemenyi' if by_nemenyi else 'Wilcoxon–Holm'}, α = {alpha:g}; "
        f"Friedman p = {ranking.p_value:.2g})",
    )
    if scores.left_out:
        left_out = ", ".join(scores.left_out)
        drawing.add_notes(figure, [f"Left out, with no figure in some dataset: {left_out}."])
    return figure


def _draw_rank_scale(axes: Axes, k: int, difference: float | None) -> None:
    """Draw the scale from 1 to k, and the critical difference above it."""
    axes.plot([1, k], [0, 0], color=DARK, linewidth=0.8)
    step = max(1, round(k / 10))
    for tick in range(1, k + 1):
        numbered = (tick - 1) % step == 0
        axes.plot([tick, tick], [0, -0.4 if numbered else -0.25], color=DARK, linewidth=0.8)
        if numbered:
            axes.text(tick, -0.55, str(tick), ha="center", va="bottom", fontsize=SMALL)
    if difference is not None:
        end = min(1 + difference, k + 0.4 * (k - 1))
        axes.plot([1, end], [-1.9, -1.9], color=DARK, linewidth=1.2, marker="|", markersize=5)
        text = f"CD = {difference:.2f}"
        axes.text(end + 0.015 * (k - 1), -1.9, text, va="center", ha="left", fontsize=SMALL)


def _ranks(found: Results, options: Any) -> Figure:
    if not 0 < options.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {options.alpha}")
    criterion = drawing.one_criterion(found, options)
    return draw_ranks(found.board, criterion, options.post_hoc, options.alpha, options.width)


RANKS = FigureKind(
    "ranks",
    "critical-difference diagram over datasets",
    _ranks,
    {
        "--post-hoc": {"choices": ("nemenyi", "wilcoxon"), "default": "nemenyi", "help": "which groups"},
        "--alpha": {"type": float, "default": 0.05, "help": "level of significance (default 0.05)"},
    },
)


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
    both = [value for side in sides for value in side]
    scale = drawing.find_range(both)
    n_outside = max(sum(not scale.holds(value) for value in side) for side in sides)
    height = max(1.2, LINE * (len(common) + 1))
    figure = drawing.new_figure(width, height + 0.5)
    axes = figure.add_subplot()
    # The rows of the outliers and the gap before them are taken from the height first.
    gap = scale.span * LINE / max(height - LINE * (n_outside + 2), 0.5)
    drawn = [drawing.place_outside(side, scale, gap) for side in sides]
    colours = drawing.shades(len(common))
    for i, ends in enumerate(zip(*drawn, strict=True)):
        axes.plot(
            [0, 1],
            ends,
            markersize=3,
            linewidth=0.9,
            color=colours[i],
            linestyle=drawing.DASHES[i % len(drawing.DASHES)],
            marker=drawing.MARKERS[i % len(drawing.MARKERS)],
        )
    places = [_place_names(positions, side, scale, gap) for positions, side in zip(drawn, sides, strict=True)]
    for number, (positions, side, named) in enumerate(zip(drawn, sides, places, strict=True)):
        edge, text_x, align = (-0.03, -0.14, "right") if number == 0 else (1.03, 1.14, "left")
        for name, value, start, place in zip(common, side, positions, named, strict=True):
            axes.plot([edge, text_x], [start, place], color=GREY, linewidth=0.35)
            shown = [label(name, 22), f"{value:.2f}"]
            text = " ".join(shown if number == 0 else shown[::-1])
            axes.text(text_x, place, text, va="center", ha=align, fontsize=SMALL, color=DARK)
    every = [place for positions in (*drawn, *places) for place in positions]
    axes.set_ylim(min(every) - 0.7 * gap, max(every) + 0.7 * gap)
    axes.set_xlim(-1.05, 2.05)
    if min(both) < scale.low:
        drawing.mark_scale_end(axes, scale.low - 1.2 * gap, 0.5)
    if max(both) > scale.high:
        drawing.mark_scale_end(axes, scale.high + 1.2 * gap, 0.5)
    per_line = int(width * 7)
    axes.set_xticks([0, 1], ["\n".join(textwrap.wrap(label(name, 120), per_line)) for name in names])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    pairs = len(common) * (len(common) - 1) // 2
    turned = count_inversions(first, second)
    drawing.add_title(figure, f"{title}: {turned} of {pairs} pairs of {len(common)} algorithms change order")
    alone = [
        f"Only in {name}: {', '.join(a for a in here if a not in there)}."
        for name, here, there in ((names[0], first, second), (names[1], second, first))
        if here.keys() - there.keys()
    ]
    drawing.add_notes(figure, alone)
    return figure


def _place_names(drawn: Sequence[float], values: Sequence[float], scale: Range, gap: float) -> list[float]:
    """Spread the names of one side, those of outliers apart from the others."""
    inside = [i for i, value in enumerate(values) if scale.holds(value)]
    spread = drawing.spread_positions([drawn[i] for i in inside], gap)
    # Many names at one end would run into the outliers' rows: the whole column moves.
    shift = max(0.0, scale.low - min(spread, default=scale.low) - gap / 2)
    placed = list(drawn)
    for i, position in zip(inside, spread, strict=True):
        placed[i] = position + shift
    return placed


def _slopes(found: Results, options: Any) -> Figure:
    if len(options.folders) != 2:
        raise UsageError(f"a slope chart needs two folders of runs, not {len(options.folders)}")
    criterion = drawing.one_criterion(found, options)
    sets: list[dict[str, float]] = []
    splits: list[int] = []
    settings: list[Experiment] = []
    for folder in options.folders:
        runs = [run for run in found.runs if run.path.parent == Path(folder)]
        board = build_leaderboard(runs, [criterion], found.plans)
        settings.append(drawing.one_setting(board))
        sets.append(board.means(settings[-1], criterion))
        splits.append(max(cell.n for cell in board.cells.values()))
    # The folders' own names, with as many of the folders above them as tell them apart.
    parts = [Path(folder).resolve().parts for folder in options.folders]
    depths = range(1, max(map(len, parts)))
    candidates = (["/".join(part[-depth:]) for part in parts] for depth in depths)
    folders = next((names for names in candidates if names[0] != names[1]), options.folders)
    labels = label_settings(set(settings))
    first, second = (f"{name}: {labels[s]}" for name, s in zip(folders, settings, strict=True))
    title = f"Mean test accuracy (%) selected by {title_criterion(criterion, settings)}"
    n = " and ".join(map(str, dict.fromkeys(splits)))
    return draw_slopes(sets[0], sets[1], (first, second), f"{title}, n = {n} splits", options.width)


SLOPE = FigureKind(
    "slope", "two folders of runs side by side, with rank inversions", _slopes, folders_apart=True
)
