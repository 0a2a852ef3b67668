"""The paper's box plots: a panel per criterion, a box over the accuracies of all (dataset, split) pairs."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.figures.style import DARK, add_grid, label, new_figure
from plench.report.leaderboard import Leaderboard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper leaves them out of this figure because their accuracy is far below the others'.
LEFT_OUT_BY_THE_PAPER = ("NN", "GA")


def draw_boxes(board: Leaderboard, leave_out: Collection[str] = LEFT_OUT_BY_THE_PAPER) -> "Figure":
    """Draw box plots of test accuracy by algorithm, coloured by mean, one panel per criterion."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    samples = {c.name: _samples(board, c, leave_out) for c in board.criteria}
    shown = [c for c in board.criteria if samples[c.name]]
    if not shown:
        raise UsageError("no test accuracy to draw: nothing selected, or every algorithm left out")
    first = samples[shown[0].name]
    order = sorted({a for c in shown for a in samples[c.name]}, key=lambda a: -np.mean(first.get(a, [0.0])))
    means = [100 * float(np.mean(values)) for c in shown for values in samples[c.name].values()]
    colours = ScalarMappable(Normalize(min(means), max(means) + 1e-9), cmap="cividis")
    figure = new_figure(max(3.5, 0.27 * len(order) + 1.6), 1.55 * len(shown) + 0.9)
    panels = np.atleast_1d(figure.subplots(len(shown), 1, sharex=True, sharey=True))
    for axes, criterion in zip(panels, shown, strict=True):
        present = [a for a in order if a in samples[criterion.name]]
        values = [100 * np.asarray(samples[criterion.name][a]) for a in present]
        boxes = axes.boxplot(
            values,
            positions=[order.index(a) for a in present],
            widths=0.65,
            patch_artist=True,
            medianprops={"color": DARK, "linewidth": 1.2},
            flierprops={"marker": ".", "markersize": 3},
            whiskerprops={"linewidth": 0.7},
            capprops={"linewidth": 0.7},
        )
        fills = colours.to_rgba(np.array([sample.mean() for sample in values]))
        for box, median, fill in zip(boxes["boxes"], boxes["medians"], fills, strict=True):
            box.set(facecolor=fill, linewidth=0.7)
            # A white median shows on dark boxes, a dark one on light boxes.
            median.set_color("white" if np.mean(fill[:3]) < 0.5 else DARK)
        axes.set_title(f"selected by {criterion.title}", loc="left")
        axes.set_ylabel("test accuracy (%)")
        add_grid(axes)
    panels[-1].set_xticks(range(len(order)), [label(a) for a in order], rotation=90)
    panels[-1].set_xlim(-0.7, len(order) - 0.3)
    figure.colorbar(colours, ax=list(panels), label="mean test accuracy (%)", aspect=40, pad=0.01)
    return figure


def _samples(board: Leaderboard, criterion: Criterion, leave_out: Collection[str]) -> dict[str, list[float]]:
    """Return the test accuracies of each algorithm over all settings and splits."""
    found: dict[str, list[float]] = {}
    for algorithm in board.algorithms:
        if algorithm in leave_out:
            continue
        cells = (board.cell(setting, algorithm, criterion) for setting in board.settings)
        values = [accuracy for cell in cells if cell is not None for accuracy in cell.accuracies]
        if values:
            found[algorithm] = values
    return found
