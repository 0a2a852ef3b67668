"""Each criterion against test accuracy: a point per configuration, at the checkpoint the criterion chose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.criterion_quality import CriterionQuality, judge_criteria
from plench.report.figures.base import FigureKind
from plench.report.figures.limits import find_range
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
from plench.report.leaderboard import label_settings, title_criterion
from plench.report.results import Results
from plench.runs.records import Run
from plench.runs.select import choose_checkpoint, place_experiments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SETTINGS = 14
PANEL = 1.35  # inches

Points = list[tuple[float, float]]


def draw_criteria(runs: Iterable[Run], shown: Sequence[Criterion], width: float = COLUMN) -> Figure:
    """Draw a panel per setting and criterion, with the criterion's regret and mean rank correlation there."""
    runs = [run for run in runs if run.finished]
    tables = place_experiments(run.experiment for run in runs)
    labels = label_settings({setting for settings in tables.values() for setting in settings})
    settings = sorted(labels, key=lambda setting: labels[setting].lower())
    if len(settings) > MOST_SETTINGS:
        raise UsageError(
            f"{len(settings)} datasets are too many for one figure: choose up to {MOST_SETTINGS}"
        )
    by_setting = {s: [run for run in runs if s in tables[run.experiment]] for s in settings}
    points = {(s, c.name): _points(by_setting[s], c) for s in settings for c in shown}
    if not any(points.values()):
        raise UsageError("no finished run has both a criterion and a test accuracy")
    judged = judge_criteria(runs, shown)
    columns = min(len(shown), max(1, int((width - 0.2) / PANEL)))
    rows_each = -(-len(shown) // columns)
    figure = new_figure(width, 0.2 + 1.45 * rows_each * len(settings))
    panels = figure.subplots(rows_each * len(settings), columns, squeeze=False)
    beyond = 0
    for number, setting in enumerate(settings):
        block = panels[number * rows_each : (number + 1) * rows_each].ravel()
        for axes, criterion in zip(block, shown, strict=False):
            beyond += _draw_panel(axes, points[setting, criterion.name])
            mine = [q for q in judged if q.criterion is criterion and setting in tables[q.experiment]]
            axes.set_title(_describe(mine), loc="left", pad=2, fontsize=SMALL)
            axes.set_xlabel(f"{title_criterion(criterion, [setting])} on validation (%)", labelpad=1)
        for axes in block[len(shown) :]:
            axes.set_visible(False)
        for axes in panels[number * rows_each : (number + 1) * rows_each, 0]:
            axes.set_ylabel(f"{label(labels[setting], 60)}:\ntest accuracy (%)")
    n = count(max(map(len, points.values())), "run")
    extent = count(
        len(settings), "setting" if len({s.dataset for s in settings}) < len(settings) else "dataset"
    )
    add_title(
        figure, f"Criteria against test accuracy of each configuration: {extent}, n = {n} a panel at most"
    )
    notes = [
        "Regret: test accuracy lost against choosing by OA w/ ES, in points; ρ: Spearman's, over the "
        "configurations of a split; both are means over algorithms and splits. Dotted: equal.",
        f"{beyond:,} of {count(sum(map(len, points.values())), 'point')} lie beyond the scales."
        if beyond
        else "",
    ]
    add_notes(figure, notes)
    return figure


def _draw_panel(axes: Axes, points: Points) -> int:
    """Draw one cloud on the scale of its bulk, and return how many points lie outside."""
    across, up = (find_range([100 * point[i] for point in points], least=2.0) for i in (0, 1))
    inside = [(100 * x, 100 * y) for x, y in points if across.holds(100 * x) and up.holds(100 * y)]
    size = min(6.0, max(0.8, 600 / max(len(points), 1)))  # thousands must not hide each other
    if inside:
        xs, ys = zip(*inside, strict=True)
        axes.scatter(xs, ys, s=size, color=DARK, alpha=0.45, linewidth=0)
    wide, high = across.padded(0.05), up.padded(0.05)
    ends = (min(wide.low, high.low), max(wide.high, high.high))
    axes.plot(ends, ends, color=GREY, linewidth=0.7, linestyle=":")
    axes.set_xlim(wide.low, wide.high)
    axes.set_ylim(high.low, high.high)
    axes.locator_params(nbins=4)
    add_grid(axes, "both")
    return len(points) - len(inside)


def _points(runs: Iterable[Run], criterion: Criterion) -> Points:
    points = []
    for run in runs:
        chosen = choose_checkpoint(run, criterion)
        test = chosen[0].get("test_acc") if chosen is not None else None
        if chosen is not None and test is not None:
            points.append((chosen[1], test))
    return points


def _describe(judged: Sequence[CriterionQuality]) -> str:
    regrets = [q.regret for q in judged if q.regret is not None]
    correlations = [q.rank_correlation for q in judged if q.rank_correlation is not None]
    regret = f"regret {100 * fmean(regrets):.2f} points" if regrets else "regret undefined"
    rho = f"ρ {fmean(correlations):+.2f}" if correlations else "ρ undefined"
    return f"{regret}, {rho}".replace("-", "−")


def draw(found: Results, options: Any) -> Figure:
    """Draw the criteria of runs that were read against test accuracy."""
    return draw_criteria(found.runs, found.criteria, options.width)


FIGURE = FigureKind("criterion", "each criterion against test accuracy", draw)
