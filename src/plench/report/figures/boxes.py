"""The paper's box plots: a panel per criterion, a box over the accuracies of all (dataset, split) pairs."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.figures.style import DARK, GREY, add_grid, add_notes, label, new_figure
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.storage.records import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Test accuracies by setting and split.
Sample = dict[tuple[Experiment, int], float]

# The paper leaves them out of this figure because their accuracy is far below the others'.
LEFT_OUT_BY_THE_PAPER = ("NN", "GA")

NOTE = "Hatched: lacks some of the (dataset, split) pairs, so does not compare; above: how many it has."


def draw_boxes(board: Leaderboard, leave_out: Collection[str] = LEFT_OUT_BY_THE_PAPER) -> "Figure":
    """Draw box plots of test accuracy by algorithm, coloured by mean, one panel per criterion.

    An algorithm that lacks some (dataset, split) pair that another one has does not compare: its box stands
    behind a line, hatched instead of coloured, with the number of pairs it rests on.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    samples = {c.name: _gather(board, c, leave_out) for c in board.criteria}
    shown = [c for c in board.criteria if samples[c.name]]
    if not shown:
        raise UsageError("no test accuracy to draw: nothing selected, or every algorithm left out")
    n_pairs = {c.name: len({pair for s in samples[c.name].values() for pair in s}) for c in shown}
    whole, partial = _order(samples, shown, n_pairs)
    means = [100 * _mean(samples[c.name][a]) for c in shown for a in whole] or [0.0]
    colours = ScalarMappable(Normalize(min(means), max(means) + 1e-9), cmap="cividis")
    n_boxes = len(whole) + len(partial)
    figure = new_figure(max(3.5, 0.27 * n_boxes + 1.6), 1.55 * len(shown) + 0.9)
    panels = np.atleast_1d(figure.subplots(len(shown), 1, sharex=True, sharey=True))
    for axes, criterion in zip(panels, shown, strict=True):
        found = samples[criterion.name]
        fills = colours.to_rgba(np.array([100 * _mean(found[a]) for a in whole]))
        _draw_row(axes, [found[a] for a in whole], 0, [{"facecolor": fill} for fill in fills])
        rest = [found.get(a, {}) for a in partial]
        _draw_row(axes, rest, len(whole), [{"facecolor": "white", "hatch": "////"}] * len(rest))
        for place, sample in enumerate(rest, start=len(whole)):
            count = f"{len(sample)}/{n_pairs[criterion.name]}"
            axes.text(place, 1.02, count, ha="center", fontsize=5.5, transform=axes.get_xaxis_transform())
        if whole and partial:
            axes.axvline(len(whole) - 0.5, color=GREY, linewidth=0.8, linestyle=":")
        title = f"selected by {title_criterion(criterion, board.settings)}"
        axes.set_title(title, loc="left", pad=12 if partial else None)
        axes.set_ylabel("test accuracy (%)")
        add_grid(axes)
    panels[-1].set_xticks(range(n_boxes), [label(a) for a in [*whole, *partial]], rotation=90)
    panels[-1].set_xlim(-0.7, n_boxes - 0.3)
    if whole:
        figure.colorbar(colours, ax=list(panels), label="mean test accuracy (%)", aspect=40, pad=0.01)
    most = max(n_pairs.values())
    extent = f"A box: the test accuracies of {most} (dataset, split) pairs, {board.extent}."
    add_notes(figure, [extent, NOTE if partial else ""])
    return figure


def _draw_row(axes: "Axes", samples: Sequence[Sample], first: int, looks: Sequence[dict[str, Any]]) -> None:
    """Draw boxes side by side from place `first` on; an empty sample leaves its place free."""
    from matplotlib import patheffects

    drawn = [(first + i, sample, looks[i]) for i, sample in enumerate(samples) if sample]
    if not drawn:
        return
    boxes = axes.boxplot(
        [100 * np.array(list(sample.values())) for _, sample, _ in drawn],
        positions=[place for place, _, _ in drawn],
        widths=0.65,
        patch_artist=True,
        manage_ticks=False,
        medianprops={"color": DARK, "linewidth": 1.2},
        flierprops={"marker": ".", "markersize": 3},
        whiskerprops={"linewidth": 0.7},
        capprops={"linewidth": 0.7},
    )
    for box, median, (_, _, look) in zip(boxes["boxes"], boxes["medians"], drawn, strict=True):
        box.set(linewidth=0.7, **look)
        # Dark within white shows on boxes of any shade, and where the box has no height.
        median.set_path_effects([patheffects.withStroke(linewidth=2.6, foreground="white")])


def _gather(board: Leaderboard, criterion: Criterion, leave_out: Collection[str]) -> dict[str, Sample]:
    """Return the test accuracies of each algorithm over all settings and splits."""
    found: dict[str, Sample] = {}
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
    samples: Mapping[str, Mapping[str, Sample]], shown: Sequence[Criterion], n_pairs: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Return the algorithms that have every pair by every criterion, best first, and the others."""
    first = samples[shown[0].name]
    names = sorted({a for c in shown for a in samples[c.name]}, key=lambda a: (-_mean(first.get(a, {})), a))
    whole = [a for a in names if all(len(samples[c.name].get(a, {})) == n_pairs[c.name] for c in shown)]
    return whole, [a for a in names if a not in whole]


def _mean(sample: Sample) -> float:
    return float(np.mean(list(sample.values()))) if sample else 0.0
