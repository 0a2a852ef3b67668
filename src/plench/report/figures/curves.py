"""Learning curves of the chosen runs, with the selected checkpoint marked."""

import math
from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.escape import clean
from plench.report.figures.style import DARK, DASHES, add_grid, add_notes, label, new_figure, shades
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.selection import Choice
from plench.storage.records import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_curves(board: Leaderboard, setting: Experiment, criterion: Criterion) -> "Figure":
    """Draw one panel per algorithm: test accuracy and criterion of the run chosen on each split."""
    chosen: dict[str, tuple[Choice, ...]] = {}
    for algorithm in board.algorithms:
        cell = board.cell(setting, algorithm, criterion)
        if cell is not None and cell.choices:
            chosen[algorithm] = cell.choices
    if not chosen:
        raise UsageError(f"nothing was selected by {criterion.title} on {clean(setting.dataset)}")
    columns = min(4, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(1.2 + 1.75 * columns, 0.9 + 1.35 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (algorithm, choices) in zip(panels, chosen.items(), strict=False):
        _draw_panel(axes, choices, criterion.record_key, title_criterion(criterion, [setting]))
        axes.set_title(label(algorithm), loc="left", fontsize=8)
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    # Under a hidden panel the one above shows the steps.
    for axes in panels[max(len(chosen) - columns, 0) : len(chosen)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("step")
    for axes in panels:
        axes.locator_params(axis="x", nbins=3)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False)
    absent = [a for a in board.algorithms if a not in chosen]
    add_notes(figure, [f"Without a checkpoint to choose: {', '.join(absent)}."] if absent else [])
    figure.supylabel(f"% on {label(board.labels[setting])}", fontsize=8)
    return figure


def _draw_panel(axes: "Axes", choices: tuple[Choice, ...], record_key: str, title: str) -> None:
    colours = shades(max(len(choices), 2))
    for number, choice in enumerate(choices):
        records = [record for record in choice.run.records if record.step > 0]
        steps = [record.step for record in records]
        first = number == 0
        for key, dash, width, name in (
            ("test_acc", DASHES[0], 1.0, "test accuracy (a shade per split)"),
            (record_key, DASHES[2], 0.9, f"{title} (validation)"),
        ):
            values = [record.get(key) for record in records]
            shown = [np.nan if value is None else 100 * value for value in values]
            axes.plot(
                steps,
                shown,
                color=colours[number],
                linestyle=dash,
                linewidth=width,
                label=name if first else None,
            )
        if choice.test_acc is not None:
            axes.plot(
                [choice.record.step],
                [100 * choice.test_acc],
                marker="o",
                markersize=5,
                markerfacecolor="white",
                markeredgecolor=DARK,
                linestyle="none",
                label="selected checkpoint (one per split)" if first else None,
            )
    add_grid(axes)
