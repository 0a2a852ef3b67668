"""The paper's box plots: a panel per criterion, a box over all (dataset, split) pairs.

Boxes of plain accuracies would show how datasets and splits differ, so each accuracy is taken less the median
of the compared algorithms on the same split.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.figures.base import FigureKind
from plench.report.figures.limits import Range, find_range
from plench.report.figures.style import (
    COLUMN,
    DARK,
    GREY,
    SMALL,
    add_grid,
    add_notes,
    add_title,
    count,
    label,
    new_figure,
    shades,
)
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.results import Results
from plench.report.unlabelled import split_by_truth
from plench.runs.records import Experiment
from plench.text import find_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Figures by setting and split.
BoxScores = dict[tuple[Experiment, int], float]

# The paper leaves them out of this figure because their accuracy is far below the others'.
LEFT_OUT_BY_THE_PAPER = ("NN", "GA")


def draw_boxes(
    board: Leaderboard, leave_out: Collection[str] = LEFT_OUT_BY_THE_PAPER, width: float = COLUMN
) -> Figure:
    """Draw box plots by algorithm, the best on top, one panel per criterion.

    An algorithm that lacks some (dataset, split) pair that another one has does not compare: its box stands
    below a line, white instead of filled, with the number of pairs it rests on behind its name. Where no
    data have true labels, boxes are of the criteria themselves, and the title says so.
    """
    labelled, scored = split_by_truth(board)
    board = labelled or scored or board
    samples = {c.name: _gather(board, c, leave_out) for c in board.criteria}
    shown = [c for c in board.criteria if samples[c.name]]
    if not shown:
        raise UsageError("no test accuracy to draw: nothing selected, or every algorithm left out")
    n_pairs = {c.name: len({pair for s in samples[c.name].values() for pair in s}) for c in shown}
    whole, partial = _order(samples, shown, n_pairs)
    relative = {c.name: subtract_medians(samples[c.name], whole or partial) for c in shown}
    rows = [*whole, *partial]
    scale = find_range([v for found in relative.values() for s in found.values() for v in s.values()])
    columns = min(len(shown), max(1, int((width - 0.7) / 0.6)))
    lines = -(-len(shown) // columns)
    figure = new_figure(width, lines * (0.115 * len(rows) + 0.4) + 0.1)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, criterion in zip(panels, shown, strict=False):
        found = relative[criterion.name]
        _draw_column(axes, [found.get(name, {}) for name in rows], len(whole), scale)
        if whole and partial:
            axes.axhline(len(whole) - 0.5, color=GREY, linewidth=0.7, linestyle=":")
        axes.set_title(f"by {title_criterion(criterion, board.settings)}", loc="left")
        axes.set_xlabel("points")
        axes.tick_params(labelbottom=True, left=axes.get_subplotspec().is_first_col())
        add_grid(axes, "x")
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    names = [label(name, 22) for name in whole]
    names += [f"{label(name, 22)} {_count_pairs(relative, n_pairs, name)}" for name in partial]
    panels[0].set_yticks(range(len(rows)), names)
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    view = scale.padded(0.04)
    panels[0].set_xlim(view.low, view.high)
    n = count(max(n_pairs.values()), "split")
    what = "No true labels: criterion" if board.scored else "Test accuracy"
    add_title(figure, f"{what} less that of the split's median algorithm, {board.extent}, n = {n}")
    beyond = sum(
        not scale.holds(v) for found in relative.values() for s in found.values() for v in s.values()
    )
    add_notes(figure, _notes(board, leave_out, bool(partial), beyond))
    return figure


def subtract_medians(found: Mapping[str, BoxScores], compared: Collection[str]) -> dict[str, BoxScores]:
    """Return accuracies in points above the median of the compared algorithms on the same pair."""
    at_pair: dict[tuple[Experiment, int], list[float]] = {}
    for name in compared:
        for pair, accuracy in found.get(name, {}).items():
            at_pair.setdefault(pair, []).append(accuracy)
    middle = {pair: median(accuracies) for pair, accuracies in at_pair.items()}
    return {
        name: {pair: 100 * (accuracy - middle[pair]) for pair, accuracy in sample.items() if pair in middle}
        for name, sample in found.items()
    }


def _draw_column(axes: Axes, samples: Sequence[BoxScores], n_whole: int, scale: Range) -> None:
    """Draw boxes below each other; one whose median is off the scale is an arrow with that median."""
    from matplotlib import patheffects

    light = shades(5)[3]
    axes.axvline(0, color=GREY, linewidth=0.6)
    drawn: list[tuple[int, list[float]]] = []
    for place, sample in enumerate(samples):
        values = list(sample.values())
        middle = median(values) if values else 0.0
        if values and scale.holds(middle):
            drawn.append((place, values))
        elif values:
            low = middle < scale.low
            text = f"◂ {middle:.0f}".replace("-", "−") if low else f"{middle:+.0f} ▸"
            _write_at_edge(axes, place, text, 0 if low else 1)
    if not drawn:
        return
    looks: dict[str, Any] = {name: {"linewidth": 0.6} for name in ("boxprops", "whiskerprops", "capprops")}
    boxes = axes.boxplot(
        [values for _, values in drawn],
        positions=[place for place, _ in drawn],
        orientation="horizontal",
        widths=0.62,
        patch_artist=True,
        manage_ticks=False,
        medianprops={"color": DARK, "linewidth": 1.2},
        flierprops={"marker": ".", "markersize": 2},
        **looks,
    )
    for box, line, (place, _) in zip(boxes["boxes"], boxes["medians"], drawn, strict=True):
        box.set_facecolor(light if place < n_whole else "white")
        # Dark within white shows on any box, and where the box has no height.
        line.set_path_effects([patheffects.withStroke(linewidth=2.2, foreground="white")])


def _write_at_edge(axes: Axes, place: int, text: str, edge: int) -> None:
    """Write at the left (0) or right (1) edge of a row, over a white ground."""
    axes.annotate(
        text,
        (0.02 if edge == 0 else 0.98, place),
        xycoords=("axes fraction", "data"),
        ha="left" if edge == 0 else "right",
        va="center",
        fontsize=SMALL,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
    )


def _gather(board: Leaderboard, criterion: Criterion, leave_out: Collection[str]) -> dict[str, BoxScores]:
    """Return the test accuracies of each algorithm over all settings and splits."""
    found: dict[str, BoxScores] = {}
    for algorithm in board.algorithms:
        cells = [(s, board.cell(s, algorithm, criterion)) for s in board.settings]
        sample = {
            (setting, choice.trial_seed): choice.test_acc
            for setting, cell in cells
            for choice in (() if cell is None else cell.choices)
            if choice.test_acc is not None
        }
        if sample and algorithm not in leave_out:
            found[algorithm] = sample
    return found


def _order(
    samples: Mapping[str, Mapping[str, BoxScores]], shown: Sequence[Criterion], n_pairs: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Return the algorithms that have every pair by every criterion, best first, and the others."""
    first = samples[shown[0].name]
    names = sorted({a for c in shown for a in samples[c.name]}, key=lambda a: (-_mean(first.get(a, {})), a))
    whole = [a for a in names if all(len(samples[c.name].get(a, {})) == n_pairs[c.name] for c in shown)]
    return whole, [a for a in names if a not in whole]


def _mean(sample: BoxScores) -> float:
    return fmean(sample.values()) if sample else 0.0


def _count_pairs(found: Mapping[str, Mapping[str, BoxScores]], n_pairs: Mapping[str, int], name: str) -> str:
    """Say how many of the pairs an algorithm has, the fewest by any criterion."""
    had = {criterion: len(samples.get(name, {})) for criterion, samples in found.items()}
    fewest = min(had, key=lambda criterion: had[criterion] / n_pairs[criterion])
    return f"{had[fewest]}/{n_pairs[fewest]}"


def _notes(board: Leaderboard, leave_out: Collection[str], partial: bool, beyond: int) -> list[str]:
    """Say what is left out and why, what white boxes mean, and what is off the scale."""
    notes = []
    asked = [name for name in board.algorithms if name in leave_out]
    if asked:
        reason = ", as in the paper" if leave_out is LEFT_OUT_BY_THE_PAPER else ""
        notes.append(f"Left out{reason}: {', '.join(asked)}.")
    if partial:
        notes.append("White: lacks some splits (how many it has: behind its name), so does not compare.")
    if beyond:
        arrows = "; of a box whose median does, ◂ or ▸ and the median are shown"
        notes.append(f"{count(beyond, 'figure')} lie{'s' if beyond == 1 else ''} beyond the scale{arrows}.")
    return notes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add which algorithms are left out."""
    parser.add_argument("--leave_out", nargs="*", metavar="NAME", help="default: NN and GA, as in the paper")


def draw(found: Results, options: Any) -> Figure:
    """Draw the box plots of runs that were read."""
    if options.leave_out is None:
        return draw_boxes(found.board, LEFT_OUT_BY_THE_PAPER, options.width)
    left_out = [find_name(name, found.board.algorithms, "algorithm") for name in options.leave_out]
    return draw_boxes(found.board, left_out, options.width)


FIGURE = FigureKind("boxes", "box plots of test accuracy, one panel per criterion", draw, add_options)
