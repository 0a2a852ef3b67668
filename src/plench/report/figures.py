"""The figures of `results plot`, by name in `FIGURES`: algorithms compared, and what their steps cost.

The box plots and the slope chart are the paper's. A new figure is a `FigureKind` and an entry of `FIGURES`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import DataError, UsageError
from plench.report import drawing, run_figures, statistics
from plench.report.drawing import COLUMN, DARK, GREY, SMALL, FigureKind, Range, label, one_criterion
from plench.report.leaderboard import (
    FEWEST,
    Leaderboard,
    bootstrap_ranks,
    build_leaderboard,
    group_by,
    label_settings,
    rank_values,
    split_by_truth,
    title_criterion,
)
from plench.report.results import Results
from plench.runs.records import Experiment, is_finite
from plench.text import clean, counted, find_name, normalise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The paper leaves them out of its box plots because their accuracy is far below the others'.
LEFT_OUT_BY_THE_PAPER = ("NN", "GA")
LINE = 0.115  # inches between two names of a slope chart


def draw_boxes(board: Leaderboard, leave_out: Collection[str] | None = None, width: float = COLUMN) -> Figure:
    """Draw box plots by algorithm, the best on top, one panel per criterion, over (dataset, split) pairs.

    Boxes of plain accuracies would show how datasets and splits differ, so each accuracy is taken less the
    median of the compared algorithms on the same split. An algorithm that lacks some pair that another one
    has does not compare: its box stands below a line, white instead of filled, with the number of pairs it
    rests on behind its name. Where no data have true labels, boxes are of the criteria themselves, and the
    title says so.
    """
    left_out = [find_name(name, board.algorithms, "algorithm") for name in leave_out or ()]
    if leave_out is None:
        left_out = [*LEFT_OUT_BY_THE_PAPER]
    labelled, scored = split_by_truth(board)
    board = labelled or scored or board
    names = [name for name in board.algorithms if name not in left_out]
    tables = {c: table for c in board.criteria if (table := _read_accuracies(board, c, names)).size}
    if not tables:
        raise UsageError("no test accuracy to draw: nothing selected, or every algorithm left out")
    counts = {c: np.sum(~np.isnan(table), axis=0) for c, table in tables.items()}
    columns = (column[~np.isnan(column)] for column in next(iter(tables.values())).T)
    means = [fmean(column) if len(column) else 0.0 for column in columns]
    order = [i for i in range(len(names)) if any(found[i] for found in counts.values())]
    sign = board.sign(next(iter(tables)))
    order.sort(key=lambda i: (-sign * means[i], names[i]))
    whole = [i for i in order if all(counts[c][i] == len(table) for c, table in tables.items())]
    partial = [i for i in order if i not in whole]
    relative = {
        c: 100 * (table - np.nanmedian(table[:, whole or partial], axis=1, keepdims=True))
        for c, table in tables.items()
    }
    values = [float(v) for table in relative.values() for v in table[~np.isnan(table)]]
    scale = drawing.find_range(values)
    height = 0.115 * len(order) + 0.55
    shape = (width, len(tables), 0.6, 0.7, (0.1, height))
    figure, panels, _ = drawing.new_panels(*shape, sharex=True, sharey=True)
    for axes, (criterion, table) in zip(panels, relative.items(), strict=True):
        _draw_boxes(axes, table[:, [*whole, *partial]], len(whole), scale)
        if whole and partial:
            axes.axhline(len(whole) - 0.5, color=GREY, linewidth=0.7, linestyle=":")
        title = textwrap.fill(title_criterion(criterion, board.settings), 11)
        axes.set(title=title, xlabel="points")
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
    drawing.add_title(
        figure, f"{what} less that of the split's median algorithm, by criterion, {board.extent}, n = {n}"
    )
    asked = ", ".join(name for name in board.algorithms if name in left_out)
    reason = ", as in the paper" if leave_out is None else ""
    beyond = sum(not scale.holds(value) for value in values)
    notes = [f"Left out{reason}: {asked}."] if asked else []
    if min(int(found[i]) for found in counts.values() for i in order) < FEWEST:
        notes.append(f"Dots and their median where there are fewer than {FEWEST} splits.")
    if partial:
        notes.append("White: lacks some splits (how many it has: behind its name), so does not compare.")
    if beyond:
        lie = f"{counted(beyond, 'figure')} lie{'s' if beyond == 1 else ''} beyond the scale"
        notes.append(f"{lie}; of a box whose median does, ◂ or ▸ and the median are shown.")
    drawing.add_notes(figure, notes)
    return figure


def _read_accuracies(board: Leaderboard, criterion: Criterion, names: Sequence[str]) -> statistics.Matrix:
    """Return test accuracies by (dataset, split) and algorithm; NaN for an absent one."""
    found = {
        (dataset, trial, name): value
        for dataset in board.datasets
        for name in names
        for trial, value in board.dataset_splits(dataset, name, criterion).items()
    }
    pairs = dict.fromkeys((dataset, trial) for dataset, trial, _ in found)
    return np.array([[found.get((*pair, name), np.nan) for name in names] for pair in pairs])


def _draw_boxes(axes: Axes, table: statistics.Matrix, n_whole: int, scale: Range) -> None:
    """Draw boxes below each other; one whose median is off the scale is an arrow with that median.

    Fewer than five values are drawn as dots with their median: a box would be made of little more than these.
    """
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
    few = [(place, values) for place, values in drawn if len(values) < FEWEST]
    drawn = [(place, values) for place, values in drawn if len(values) >= FEWEST]
    for place, values in few:
        inside = [value for value in values if scale.holds(value)]
        dots: Any = {"s": 6, "color": DARK if place < n_whole else "white", "edgecolor": DARK}
        axes.scatter(inside, [place] * len(inside), **dots, linewidth=0.5, zorder=3)
        axes.plot([median(values)] * 2, [place - 0.31, place + 0.31], color=DARK, linewidth=1.2)
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
    if not 0 < alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {alpha}")
    scores = statistics.gather_scores(board, criterion)
    n, k = scores.values.shape
    if k < 3 or n < 2:
        lacking = f" ({len(scores.left_out)} lack a figure in some dataset)" if scores.left_out else ""
        raise UsageError(
            f"a critical-difference diagram needs 3 algorithms and 2 datasets without gaps, not {k} and {n}"
            f"{lacking}: choose with --datasets and --algorithms"
        )
    ranks, _, p_value = statistics.friedman(scores.values)
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
        name, rank = label(scores.algorithms[index], 16), f"{ranks[index]:.1f}"
        text, align = (f"{name} {rank}", "right") if on_left else (f"{rank} {name}", "left")
        axes.text(end + shift * (k - 1), row, text, va="center", ha=align, fontsize=SMALL)
    for number, group in enumerate(groups):
        height = 0.8 + 0.45 * number
        ends = [min(ranks[group]) - 0.03, max(ranks[group]) + 0.03]
        axes.plot(ends, [height, height], color=DARK, linewidth=3, solid_capstyle="butt")
    title = title_criterion(criterion, board.settings)
    shown = f"Average rank of {k} algorithms selected by {title}, n = {counted(n, 'dataset')}"
    test = "Nemenyi" if by_nemenyi else "Wilcoxon–Holm"
    drawing.add_title(figure, f"{shown} ({test}, α = {alpha:g}; Friedman p = {p_value:.2g})")
    left_out = ", ".join(scores.left_out)
    missing = f"Left out, with no figure in some dataset: {left_out}." if left_out else ""
    drawing.add_notes(figure, [missing, board.averaging])
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


def draw_rank_intervals(board: Leaderboard, criterion: Criterion, width: float = COLUMN) -> Figure:
    """Draw average ranks with their bootstrap intervals, the best on top; algorithms without gaps only."""
    scores = statistics.gather_scores(board, criterion)
    names, n = scores.algorithms, counted(len(scores.datasets), "dataset")
    if len(names) < 2:
        raise UsageError(
            f"rank intervals need 2 algorithms with a figure on every dataset, not {len(names)}: choose with "
            "--datasets and --algorithms"
        )
    intervals = bootstrap_ranks(board, criterion, names)
    if not intervals.widest:
        raise UsageError("; ".join(intervals.reasons))
    values = board.sign(criterion) * scores.values
    ranks = dict(zip(names, rank_values(values).mean(axis=0).tolist(), strict=True))
    order = sorted(names, key=lambda name: (ranks[name], name))
    figure = drawing.new_figure(width, 0.115 * len(order) + 0.4)
    axes = figure.add_subplot()
    light, notes = drawing.shades(5)[3], ["Dots: average ranks."]
    wide = (intervals.over_datasets, light, 3.5, "Wide bars", intervals.over)
    for limits, colour, thickness, shape, over in (
        wide,
        (intervals.over_splits, DARK, 1.0, "Lines", "the splits of each dataset"),
    ):
        if limits:
            lows, highs = zip(*(limits[name] for name in order), strict=True)
            axes.hlines(range(len(order)), lows, highs, color=colour, linewidth=thickness)
            notes.append(f"{shape}: 95 % bootstrap intervals over {over}.")
    axes.scatter([ranks[name] for name in order], range(len(order)), s=9, color=DARK, zorder=3)
    drawing.name_rows(axes, [f"{label(name, 22)} {ranks[name]:.1f}" for name in order])
    axes.set_xlim(0.5, len(order) + 0.5)
    axes.set_xlabel("average rank")
    drawing.add_grid(axes, "x")
    title = title_criterion(criterion, board.settings)
    drawing.add_title(figure, f"Average rank of {len(order)} algorithms selected by {title}, n = {n}")
    left_out = ", ".join(scores.left_out)
    notes += [f"Left out, with no figure in some dataset: {left_out}." if left_out else "", board.averaging]
    notes += [f"{reason[:1].upper()}{reason[1:]}." for reason in intervals.reasons]
    drawing.add_notes(figure, notes)
    return figure


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
    looks = zip(
        colours, cycle(drawing.DASHES), cycle(drawing.MARKERS), zip(*drawn, strict=True), strict=False
    )
    for colour, dash, marker, ends in looks:
        axes.plot([0, 1], ends, color=colour, linestyle=dash, marker=marker, markersize=3, linewidth=0.9)
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
    drawing.mark_scale_ends(axes, both, scale, 1.2 * gap, 0.5)
    per_line = int(width * 7)
    axes.set_xticks([0, 1], ["\n".join(textwrap.wrap(label(name, 120), per_line)) for name in names])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    pairs = len(common) * (len(common) - 1) // 2
    turned = sum((first[a] - first[b]) * (second[a] - second[b]) < 0 for a, b in combinations(common, 2))
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
    criterion = one_criterion(found, options)
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


# The cost of a step.


@dataclass(frozen=True)
class StepCost:
    """Time and memory of one training step of an algorithm on a dataset."""

    algorithm: str
    dataset: str
    ms: float
    floor_ms: float | None
    peak_mb: float | None


def read_costs(path: Path) -> list[StepCost]:
    """Read a list of measurements (or an object whose `rows` is one); DataError names what is wrong."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read the measurements {str(path)!r}: {error}") from error
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{str(path)!r} holds no list of measurements (plench bench step --output FILE)")
    costs = []
    for number, row in enumerate(rows):
        if row.get("part", "step") not in ("step", "image"):
            continue
        if not isinstance(row.get("algorithm"), str) or not is_finite(row.get("ms")) or row["ms"] <= 0:
            raise DataError(f"{str(path)!r}: measurement {number} lacks algorithm or a positive ms")
        more = [row[key] if is_finite(row.get(key)) else None for key in ("floor_ms", "peak_mb")]
        costs.append(StepCost(row["algorithm"], str(row.get("dataset", "")), row["ms"], *more))
    if not costs:
        raise DataError(f"{str(path)!r} holds no measurement of a step (plench bench step)")
    return costs


def draw_costs(costs: Sequence[StepCost], dataset: str | None = None, width: float = COLUMN) -> Figure:
    """Draw milliseconds (log scale) and peak memory per step, the fastest algorithm on top, for one dataset.

    Memory is shown beyond the least of all: what every process needs would make all bars look the same.
    """
    names = sorted({cost.dataset for cost in costs})
    chosen = dataset if dataset is not None else names[0]
    if dataset is None and len(names) > 1:
        raise UsageError(f"several datasets were measured ({', '.join(names)}): choose with --dataset")
    rows = sorted((cost for cost in costs if cost.dataset == chosen), key=lambda cost: cost.ms)
    if not rows:
        raise UsageError(f"no measurement of dataset {chosen!r}: there are {', '.join(names)}")
    known = [cost.peak_mb for cost in rows if cost.peak_mb is not None]
    figure = drawing.new_figure(width, 0.115 * len(rows) + 0.5)
    left, *more = figure.subplots(1, 2 if known else 1, sharey=True, squeeze=False)[0]
    # A baseline is measured with each algorithm, so that noise may put it above the step itself.
    baselines = {i: cost.floor_ms for i, cost in enumerate(rows) if cost.floor_ms and cost.floor_ms > 0}
    places, times = range(len(rows)), [max(cost.ms, baselines.get(i, 0)) for i, cost in enumerate(rows)]
    below = sum(cost.ms < time for cost, time in zip(rows, times, strict=True))
    low, high = min([*times, *baselines.values()]), max(times)
    left.set_xscale("log")
    left.set_xlim(low / 1.25, high * (high / low) ** 0.35 * 1.3)  # room for the numbers
    drawing.set_plain_ticks(left.xaxis)
    starts = [baselines.get(i, left.get_xlim()[0]) for i in places]
    left.hlines(places, starts, times, color=GREY, linewidth=0.5)
    left.scatter(times, places, s=10, color=DARK, zorder=3)
    for place, cost in enumerate(rows):
        text = f"{cost.ms:.2f}" if cost.ms < 10 else f"{cost.ms:.4g}"
        _write_behind(left, times[place], place, text, 3.5)
    left.set_xlabel("time (ms, log scale)")
    left.grid(False)
    notes = []
    if baselines:
        left.scatter(list(baselines.values()), list(baselines), s=14, marker="|", color=DARK, linewidth=0.9)
        middle = median(baselines.values())
        alone = "forward, backward and Adam alone, measured with each algorithm"
        said = "was measured below its own bar, which is noise, and stands on it"
        notes.append(f"Bar: {alone} (median {middle:.2g} ms).")
        notes.append(f"{counted(below, 'algorithm')} {said}." if below else "")
    for axes in more:
        least = min(known)
        beyond = [0.0 if cost.peak_mb is None else cost.peak_mb - least for cost in rows]
        light = drawing.shades(5)[3]
        axes.barh(places, beyond, height=0.6, color=light, edgecolor=DARK, linewidth=0.4)
        for place, cost in enumerate(rows):
            text = "not measured" if cost.peak_mb is None else f"+{beyond[place]:.3g}"
            _write_behind(axes, beyond[place], place, text, 2)
        axes.set(xlim=(0, max(max(beyond), 1.0) * 1.35), xlabel="beyond the least (MB)")
        drawing.add_grid(axes, "x", ticks=4)
        peak = f"peak of the process beyond the least of all, {least:.0f} MB"
        notes.append(f"Memory: {peak} (interpreter and torch included).")
    drawing.name_rows(left, [label(cost.algorithm, 22) for cost in rows])
    n = counted(len(rows), "algorithm")
    drawing.add_title(figure, f"Time and memory of a training step: {label(chosen)}, n = {n}, a process each")
    drawing.add_notes(figure, notes)
    return figure


def _write_behind(axes: Axes, x: float, place: int, text: str, shift: float) -> None:
    look: Any = {"textcoords": "offset points", "va": "center", "fontsize": SMALL}
    axes.annotate(text, (x, place), xytext=(shift, 0), **look)


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
    board, names, times, accuracies, notes = _gather_trades(board, criterion, costs)
    front = find_front(times, accuracies)
    figure = drawing.new_figure(width, max(2.8, 0.62 * width))
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.5, max(times) * 1.5)
    drawing.set_plain_ticks(axes.xaxis)
    # The bulk is drawn to scale, with ticks; outliers stand beyond it.
    scale = drawing.find_range(accuracies)
    gap = scale.span * 0.09
    drawn = drawing.place_outside(accuracies, scale, gap)
    limits = min([*drawn, scale.low]) - gap, max([*drawn, scale.high]) + gap
    axes.set_ylim(limits)
    drawing.mark_scale_ends(axes, drawn, scale, 1.1 * gap, 0.99)
    axes.set_yticks([tick for tick in axes.get_yticks() if scale.padded(0.05).holds(tick)])
    axes.set_ylim(limits)
    xs, ys = np.array(times), np.array(drawn)
    axes.step(xs[front], ys[front], where="post", color=GREY, linewidth=0.9, linestyle="--")
    others = [i for i in range(len(times)) if i not in front]
    axes.scatter(xs[others], ys[others], s=10, color="white", edgecolor=DARK, linewidth=0.7, zorder=3)
    axes.scatter(xs[front], ys[front], s=14, color=DARK, zorder=3)
    axes.set(xlabel="time per step (ms, log scale)", ylabel="mean test accuracy (%)")
    drawing.add_grid(axes, "both")
    cells = [[board.cell(setting, a, criterion) for a in board.algorithms] for setting in board.settings]
    n_splits = sum(max((cell.n for cell in row if cell is not None), default=0) for row in cells)
    shown = ", ".join(clean(board.labels[setting]) for setting in board.settings)
    where = shown if len(board.settings) < 4 else board.extent
    title = title_criterion(criterion, board.settings)
    n = counted(n_splits, "split")
    drawing.add_title(figure, f"Accuracy (selected by {title}) against time per step: {where}, n = {n}")
    drawing.add_notes(figure, ["Filled, dashed line: the Pareto front.", *notes])
    texts = [
        name if accuracy == place else f"{name} {accuracy:.1f}"
        for name, accuracy, place in zip(names, accuracies, drawn, strict=True)
    ]
    drawing.name_points(axes, times, drawn, texts, (xs[front].tolist(), ys[front].tolist()))
    return figure


def _gather_trades(
    board: Leaderboard, criterion: Criterion, costs: Sequence[StepCost]
) -> tuple[Leaderboard, list[str], list[float], list[float], list[str]]:
    """Return what is drawn: the measured datasets' leaderboard; names, ms and accuracies (%); notes.

    The algorithms are those that have both figures on every measured dataset; notes name the others.
    """
    measured_ms = group_by(costs, lambda cost: (normalise(cost.algorithm), normalise(cost.dataset)))
    measured = {dataset for _, dataset in measured_ms}
    kept = tuple(setting for setting in board.settings if normalise(setting.dataset) in measured)
    if not kept:
        there = ", ".join(sorted({clean(cost.dataset) for cost in costs if cost.dataset}))
        known = ", ".join(sorted({clean(setting.dataset) for setting in board.settings}))
        raise UsageError(
            f"the costs were measured on {there or 'no named dataset'}, but the results are on {known}: "
            "accuracy and cost must be of the same datasets"
        )
    absent = [clean(board.labels[setting]) for setting in board.settings if setting not in kept]
    board = replace(board, settings=kept)
    scores = statistics.gather_scores(board, criterion)
    datasets = sorted({normalise(setting.dataset) for setting in kept})
    names, times, accuracies, unmeasured = [], [], [], []
    for algorithm, means in zip(scores.algorithms, scores.values.T, strict=True):
        found = [measured_ms.get((normalise(algorithm), dataset), []) for dataset in datasets]
        if all(found):
            names.append(algorithm)
            times.append(fmean(fmean(cost.ms for cost in same) for same in found))
            accuracies.append(100 * float(means.mean()))
        else:
            unmeasured.append(algorithm)
    if not names:
        raise UsageError(
            "no algorithm has both results on every dataset here and measurements of its cost: choose with "
            "--datasets and --algorithms"
        )
    left_out = (
        ("without measured cost", absent),
        ("with no figure in some dataset", scores.left_out),
        ("with no measurement of the cost", unmeasured),
    )
    notes = [f"Left out, {why}: {', '.join(which)}." for why, which in left_out if which]
    return board, names, times, accuracies, notes


_COSTS: Mapping[str, Any] = {"type": Path, "metavar": "JSON", "help": "from plench bench step --output"}
_KINDS = (
    FigureKind(
        "boxes",
        "box plots of test accuracy, one panel per criterion",
        lambda found, options: draw_boxes(found.board, options.leave_out, options.width),
        {"--leave-out": {"nargs": "*", "metavar": "NAME", "help": "default: NN and GA, as in the paper"}},
    ),
    FigureKind(
        "cost",
        "time and memory of a step, by algorithm",
        lambda _, options: draw_costs(read_costs(options.costs), options.dataset, options.width),
        {"costs": _COSTS, "--dataset": {"metavar": "NAME", "help": "which dataset, if the file has several"}},
        from_runs=False,
    ),
    FigureKind(
        "criterion",
        "each criterion against test accuracy",
        lambda found, options: run_figures.draw_criteria(found.runs, found.criteria, options.width),
    ),
    FigureKind(
        "curves",
        "learning curves with the selected checkpoint",
        lambda found, options: run_figures.draw_curves(
            found.board, drawing.one_setting(found.board), one_criterion(found, options), options.width
        ),
    ),
    FigureKind(
        "pareto",
        "accuracy against time per step, with the Pareto front",
        lambda found, options: draw_pareto(
            found.board, one_criterion(found, options), read_costs(options.costs), options.width
        ),
        {"--costs": {**_COSTS, "required": True}},
    ),
    FigureKind(
        "rank-intervals",
        "average ranks with bootstrap intervals",
        lambda found, options: draw_rank_intervals(found.board, one_criterion(found, options), options.width),
    ),
    FigureKind(
        "ranks",
        "critical-difference diagram over datasets",
        lambda found, options: draw_ranks(
            found.board, one_criterion(found, options), options.post_hoc, options.alpha, options.width
        ),
        {
            "--post-hoc": {"choices": ("nemenyi", "wilcoxon"), "default": "nemenyi", "help": "which groups"},
            "--alpha": {"type": float, "default": 0.05, "help": "level of significance (default 0.05)"},
        },
    ),
    FigureKind(
        "sensitivity",
        "test accuracy against each hyperparameter",
        lambda found, options: run_figures.draw_sensitivity(
            found.runs, one_criterion(found, options), options.width
        ),
    ),
    FigureKind(
        "slope", "two folders of runs side by side, with rank inversions", _slopes, folders_apart=True
    ),
)
FIGURES: dict[str, FigureKind] = {kind.name: kind for kind in _KINDS}
