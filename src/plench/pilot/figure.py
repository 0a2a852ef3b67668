"""The paper's first figure: clean validation labels used for choosing (rings) and for training (dots)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plench.errors import UsageError
from plench.pilot.results import PilotResult
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
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_pilot(results: Sequence[PilotResult], width: float = COLUMN) -> "Figure":
    """Draw two points with standard errors per algorithm, one panel per dataset."""
    datasets = list(dict.fromkeys(result.dataset for result in results))
    if not datasets:
        raise UsageError("no algorithm has finished runs of both arms on a common split")
    groups = [[result for result in results if result.dataset == dataset] for dataset in datasets]
    figure = new_figure(width, sum(0.125 * len(group) + 0.45 for group in groups))
    ratios = [len(group) + 2 for group in groups]
    panels = figure.subplots(len(datasets), 1, squeeze=False, height_ratios=ratios).ravel()
    n_beyond = 0
    for axes, dataset, group in zip(panels, datasets, groups, strict=True):
        arms = [arm for result in group for arm in (result.choosing, result.training)]
        scale = find_range([100 * (a.mean + sign * (a.stderr or 0.0)) for a in arms for sign in (-1, 1)])
        n_beyond += _draw_panel(axes, group, scale)
        axes.set_title(label(dataset, 60), loc="left")
        axes.set_yticks(range(len(group)), [label(result.algorithm, 22) for result in group])
        axes.set_ylim(len(group) - 0.4, -0.6)
        view = scale.padded(0.06)
        axes.set_xlim(view.low, view.high)
        add_grid(axes, "x")
    panels[-1].set_xlabel("test accuracy (%)")
    splits = [len(result.choosing.accuracies) for result in results]
    n = str(max(splits)) if min(splits) == max(splits) else f"{min(splits)} to {max(splits)}"
    extent = count(len(datasets), "dataset")
    add_title(figure, f"Clean validation labels used for choosing and for training: {extent}, n = {n} splits")
    legend = "Rings: for choosing; dots: for training; bars: ± one standard error of the mean."
    add_notes(figure, [legend, "◂ ▸ beyond the scale: choosing → training." if n_beyond else ""])
    return figure


def _draw_panel(axes: "Axes", group: Sequence[PilotResult], scale: Range) -> int:
    """Draw one dataset, and return how many algorithms lie beyond the scale, which are written as text."""
    n_beyond = 0
    for place, result in enumerate(group):
        means = [100 * arm.mean for arm in (result.choosing, result.training)]
        if not all(map(scale.holds, means)):
            low = min(means) < scale.low
            shown = f"{means[0]:.1f} → {means[1]:.1f}"
            axes.annotate(
                f"◂ {shown}" if low else f"{shown} ▸",
                (0.01 if low else 0.99, place),
                xycoords=("axes fraction", "data"),
                ha="left" if low else "right",
                va="center",
                fontsize=SMALL,
            )
            n_beyond += 1
            continue
        for arm, shift, fill in ((result.choosing, -0.17, "white"), (result.training, 0.17, DARK)):
            axes.errorbar(
                [100 * arm.mean],
                [place + shift],
                xerr=[100 * (arm.stderr or 0.0)],
                marker="o",
                markersize=3,
                markerfacecolor=fill,
                markeredgecolor=DARK,
                markeredgewidth=0.7,
                color=GREY if fill == "white" else DARK,
                linewidth=0.7,
            )
    return n_beyond
