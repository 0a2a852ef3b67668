"""Learning curves of the chosen runs, with the selected checkpoint marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.escape import clean
from plench.report.figures.base import FigureKind, one_criterion, one_setting
from plench.report.figures.limits import Range, find_range
from plench.report.figures.style import (
    COLUMN,
    DARK,
    DASHES,
    add_grid,
    add_notes,
    add_title,
    count,
    label,
    new_figure,
    set_plain_ticks,
    shades,
)
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.results import Results
from plench.runs.records import Experiment
from plench.runs.select import ChosenRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 0.95  # inches


def draw_curves(
    board: Leaderboard, setting: Experiment, criterion: Criterion, width: float = COLUMN
) -> Figure:
    """Draw one panel per algorithm: test accuracy and criterion of the run chosen on each split.

    Panels share a scale. An algorithm whose test accuracies lie far from the others' has a scale of its own.
    """
    chosen: dict[str, tuple[ChosenRun, ...]] = {}
    for algorithm in board.algorithms:
        cell = board.cell(setting, algorithm, criterion)
        if cell is not None and cell.choices:
            chosen[algorithm] = cell.choices
    if not chosen:
        raise UsageError(f"nothing was selected by {criterion.title} on {clean(setting.dataset)}")
    keys = ("test_acc", criterion.record_key)
    shared, apart = _share_scale(chosen, keys)
    columns = min(max(1, int((width - 0.3) / PANEL)), len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(width, 0.6 + 0.85 * rows)
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    title = title_criterion(criterion, [setting])
    for number, (axes, (algorithm, choices)) in enumerate(zip(panels, chosen.items(), strict=False)):
        _draw_panel(axes, choices, criterion.record_key)
        own = algorithm in apart
        axes.set_title(label(algorithm, 18) + (" *" if own else ""), loc="left", pad=2)
        scale = apart[algorithm] if own else shared
        axes.set_ylim(scale.low, scale.high)
        axes.locator_params(axis="y", nbins=4)
        axes.tick_params(labelleft=own or number % columns == 0, labelbottom=number >= len(chosen) - columns)
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    for axes in panels[max(len(chosen) - columns, 0) : len(chosen)]:
        axes.set_xlabel("step")
    for axes in panels:
        axes.locator_params(axis="x", nbins=3)
        set_plain_ticks(axes.xaxis)
    absent = [a for a in board.algorithms if a not in chosen]
    legend = (
        f"Solid: test accuracy, a shade per split; dotted: {title} on validation; rings: chosen checkpoints."
    )
    notes = [legend] + (["* on a scale of its own."] if apart else [])
    notes += [f"Without a checkpoint to choose: {', '.join(absent)}."] if absent else []
    n = count(max(len(choices) for choices in chosen.values()), "split")
    where = label(board.labels[setting], 120)
    add_title(figure, f"Learning curves (%) of the runs chosen by {title}: {where}, n = {n}")
    add_notes(figure, notes)
    return figure


def _share_scale(
    chosen: Mapping[str, Sequence[ChosenRun]], keys: Sequence[str]
) -> tuple[Range, dict[str, Range]]:
    """Return the scale of most panels, and the scale of each algorithm that is far from the others.

    Far is where the highest test accuracy is an outlier among those of all algorithms.
    """
    values = {
        name: {
            key: [
                100 * value
                for choice in choices
                for record in choice.run.usable_records
                if (value := record.get(key)) is not None
            ]
            for key in keys
        }
        for name, choices in chosen.items()
    }
    peaks = {name: max(by_key["test_acc"]) for name, by_key in values.items() if by_key["test_acc"]}
    usual = find_range(peaks.values(), least=10.0)
    far = [name for name, peak in peaks.items() if not usual.holds(peak)]
    pooled = [v for name, by_key in values.items() if name not in far for vs in by_key.values() for v in vs]
    own = {
        name: find_range([v for vs in values[name].values() for v in vs], 10.0).padded(0.05) for name in far
    }
    return find_range(pooled, least=10.0).padded(0.05), own


def _draw_panel(axes: Axes, choices: Sequence[ChosenRun], record_key: str) -> None:
    colours = shades(max(len(choices), 2))
    for choice, colour in zip(choices, colours, strict=False):
        records = [record for record in choice.run.records if record.step > 0]
        steps = [record.step for record in records]
        for key, dash, width in (("test_acc", DASHES[0], 0.8), (record_key, DASHES[2], 0.7)):
            values = [record.get(key) for record in records]
            shown = [np.nan if value is None else 100 * value for value in values]
            axes.plot(steps, shown, color=colour, linestyle=dash, linewidth=width)
    rings = [(choice.record.step, 100 * choice.test_acc) for choice in choices if choice.test_acc is not None]
    if rings:
        xs, ys = zip(*rings, strict=True)
        axes.scatter(xs, ys, s=9, color="white", edgecolor=DARK, linewidth=0.7, zorder=3)
    add_grid(axes)


def draw(found: Results, options: Any) -> Figure:
    """Draw the learning curves of runs that were read, of one setting."""
    return draw_curves(found.board, one_setting(found.board), one_criterion(found, options), options.width)


FIGURE = FigureKind("curves", "learning curves with the selected checkpoint", draw)
