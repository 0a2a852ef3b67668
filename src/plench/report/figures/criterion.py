"""Each criterion against test accuracy: a point per configuration, at the checkpoint the criterion chose."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.criterion_quality import CriterionQuality, judge_criteria
from plench.report.figures.style import DARK, GREY, MARKERS, add_grid, label, new_figure, shades
from plench.report.leaderboard import label_settings, title_criterion
from plench.selection import choose_checkpoint
from plench.storage.records import Experiment, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMED = 14
LARGEST_MARK = 12.0
LONGEST_TITLE = 12  # that leaves room for what follows on the line


def draw_criteria(runs: Iterable[Run], shown: Sequence[Criterion]) -> "Figure":
    """Draw one panel per criterion, settings by marker and shade, with regret and mean rank correlation."""
    runs = [run for run in runs if run.finished]
    labels = label_settings({run.experiment.setting for run in runs})
    settings = sorted(labels, key=lambda setting: labels[setting].lower())
    if len(settings) > MOST_NAMED:
        raise UsageError(f"{len(settings)} datasets are too many to tell apart: choose up to {MOST_NAMED}")
    judged = judge_criteria(runs, shown)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(1.6 + 2.6 * columns, 0.8 + 2.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    drawn = 0
    size = min(LARGEST_MARK, max(3.0, 4000 / max(len(runs), 1)))  # thousands must not hide each other
    for axes, criterion in zip(panels, shown, strict=False):
        for number, setting in enumerate(settings):
            points = _points(runs, setting, criterion)
            drawn += len(points)
            if points:
                xs, ys = 100 * np.array(points).T
                axes.scatter(
                    xs,
                    ys,
                    s=size,
                    marker=MARKERS[number],
                    color=[shades(len(settings) + 1)[number]],
                    edgecolor=DARK,
                    linewidth=0.2,
                    alpha=0.8,
                    label=label(labels[setting]),
                )
        low, high = axes.get_xlim()
        axes.plot(
            [low, high],
            [low, high],
            color=GREY,
            linewidth=0.7,
            linestyle=":",
            label="equal",
            scalex=False,
            scaley=False,
        )
        mine = [quality for quality in judged if quality.criterion is criterion]
        title = title_criterion(criterion, settings)
        gap = "\n" if len(title) > LONGEST_TITLE else " "
        axes.set_title(f"{title}:{gap}{_describe(mine)}", loc="left", fontsize=7.5)
        axes.set_xlabel(f"{criterion.title} on validation (%)")
        axes.set_ylabel("test accuracy (%)")
        add_grid(axes, "both")
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    if not drawn:
        raise UsageError("no finished run has both a criterion and a test accuracy")
    handles, names = max((axes.get_legend_handles_labels() for axes in panels), key=lambda pair: len(pair[1]))
    scale = math.sqrt(LARGEST_MARK / size)
    figure.legend(handles, names, loc="outside right center", frameon=False, markerscale=scale)
    return figure


def _points(runs: Iterable[Run], setting: Experiment, criterion: Criterion) -> list[tuple[float, float]]:
    points = []
    for run in runs:
        chosen = choose_checkpoint(run, criterion) if run.experiment.setting == setting else None
        test = chosen[0].get("test_acc") if chosen is not None else None
        if chosen is not None and test is not None:
            points.append((chosen[1], test))
    return points


def _describe(judged: Sequence[CriterionQuality]) -> str:
    regrets = [q.regret for q in judged if q.regret is not None]
    correlations = [q.rank_correlation for q in judged if q.rank_correlation is not None]
    regret = f"regret {100 * fmean(regrets):.2f}" if regrets else "regret undefined"
    rho = f"mean ρ {fmean(correlations):+.2f}" if correlations else "ρ undefined"
    return f"{regret}, {rho}"
