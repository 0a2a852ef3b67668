"""The paper's first figure: clean validation labels used for choosing (lighter) and for training (darker)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from plench.errors import UsageError
from plench.report.figures.style import DARK, add_grid, label, new_figure, shades
from plench.report.pilot import PilotResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_pilot(results: Sequence[PilotResult]) -> "Figure":
    """Draw two bars per algorithm, one panel per dataset, with standard errors."""
    datasets = list(dict.fromkeys(result.dataset for result in results))
    if not datasets:
        raise UsageError("no algorithm has finished runs of both arms on a common split")
    most = max(sum(result.dataset == dataset for result in results) for dataset in datasets)
    figure = new_figure(max(3.2, 0.3 * most + 1.2), 2.1 * len(datasets) + 0.7)
    panels = figure.subplots(len(datasets), 1, squeeze=False).ravel()
    light, dark = shades(5)[4], shades(5)[1]
    for axes, dataset in zip(panels, datasets, strict=True):
        group = [result for result in results if result.dataset == dataset]
        places = np.arange(len(group))
        lowest = 100.0
        for shift, colour, hatch, text, arms in (
            (-0.2, light, "", "for choosing", [result.choosing for result in group]),
            (0.2, dark, "//", "for training", [result.training for result in group]),
        ):
            means = [100 * arm.mean for arm in arms]
            errors = [100 * (arm.stderr or 0.0) for arm in arms]
            lowest = min(lowest, *(mean - error for mean, error in zip(means, errors, strict=True)))
            axes.bar(
                places + shift,
                means,
                width=0.4,
                yerr=errors,
                color=colour,
                hatch=hatch,
                edgecolor=DARK,
                linewidth=0.4,
                error_kw={"linewidth": 0.7, "capsize": 1.5},
                label=text,
            )
        # Bars start at zero unless that would hide all differences; then the axis says so.
        bottom = 5 * math.floor((lowest - 15) / 5) if lowest > 30 else 0
        axes.set_ylim(bottom=bottom)
        axes.set_xticks(places, [label(result.algorithm) for result in group], rotation=90)
        axes.set_ylabel("test accuracy (%)" + (f"\nfrom {bottom}, not 0" if bottom else ""))
        axes.set_title(label(dataset), loc="left")
        add_grid(axes)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside upper center", ncols=2, frameon=False, title="clean validation labels"
    )
    return figure
