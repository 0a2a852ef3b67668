"""How much each hyperparameter matters: test accuracy of all configurations against its value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.escape import clean
from plench.report.figures.base import FigureKind, one_criterion
from plench.report.figures.limits import Range, find_range
from plench.report.figures.style import (
    COLUMN,
    DARK,
    GREY,
    add_grid,
    add_notes,
    add_title,
    count,
    format_number,
    label,
    new_figure,
    set_plain_ticks,
    shades,
)
from plench.report.leaderboard import title_criterion
from plench.report.results import Results
from plench.runs.lines import is_finite
from plench.runs.records import Run
from plench.runs.select import choose_checkpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CATEGORIES = 8
PANEL = 0.95  # inches


def draw_sensitivity(
    runs: Sequence[Run], algorithm: str, criterion: Criterion, width: float = COLUMN
) -> Figure:
    """Draw one panel per hyperparameter that varies, for one algorithm.

    Accuracy is taken at the checkpoint the criterion chose, less the median of its dataset and split, so that
    several datasets can be shown together and a failed configuration does not shift the others.
    """
    points = _relative_accuracies([run for run in runs if run.experiment.algorithm == algorithm], criterion)
    names = sorted({name for run, _ in points for name in run.hparams})
    varying = [name for name in names if len({str(run.hparams.get(name)) for run, _ in points}) > 1]
    if not varying:
        name = clean(algorithm)
        raise UsageError(f"no hyperparameter of {name} varies over its {len(points)} finished runs")
    scale = find_range([relative for _, relative in points])
    columns = min(max(1, int((width - 0.3) / PANEL)), len(varying))
    rows = math.ceil(len(varying) / columns)
    figure = new_figure(width, 0.2 + 1.15 * rows)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, varying, strict=False):
        _draw_panel(axes, name, points, scale)
    for axes in panels[len(varying) :]:
        axes.set_visible(False)
    view = scale.padded(0.08)
    panels[0].set_ylim(view.low, view.high)
    for axes in panels[::columns]:
        axes.set_ylabel("points")
    title = title_criterion(criterion, [run.experiment for run, _ in points])
    n_settings = len({run.experiment for run, _ in points})
    extent = count(n_settings, "dataset" if _distinct(points) == n_settings else "setting")
    n = count(len(points), "run")
    what = f"{label(algorithm)}: test accuracy less its split's median, by hyperparameter"
    add_title(figure, f"{what} (checkpoints by {title}), {extent}, n = {n}")
    beyond = sum(not scale.holds(relative) for _, relative in points)
    legend = "Dots: drawn configurations; diamonds: the default; bars: medians."
    lying = f"At the edge (triangles): {count(beyond, 'run')} beyond the scale." if beyond else ""
    add_notes(figure, [legend, lying])
    return figure


def _distinct(points: Sequence[tuple[Run, float]]) -> int:
    return len({run.experiment.dataset for run, _ in points})


def _relative_accuracies(runs: Sequence[Run], criterion: Criterion) -> list[tuple[Run, float]]:
    """Return each finished run with its test accuracy less the median of its setting and split, in points."""
    found: dict[Any, list[tuple[Run, float]]] = {}
    for run in runs:
        chosen = choose_checkpoint(run, criterion) if run.finished else None
        test = chosen[0].get("test_acc") if chosen is not None else None
        if test is not None:
            found.setdefault((run.experiment, run.trial_seed), []).append((run, 100 * test))
    points: list[tuple[Run, float]] = []
    for group in found.values():
        middle = float(np.median([test for _, test in group]))
        points.extend((run, test - middle) for run, test in group)
    return points


def _draw_panel(axes: Axes, name: str, points: list[tuple[Run, float]], scale: Range) -> None:
    values = [run.hparams.get(name) for run, _ in points]
    ys = np.array([relative for _, relative in points])
    shown = np.array([scale.clip(y) for y in ys])
    default = np.array([run.hparams_seed == 0 for run, _ in points])
    xs = _place_values(axes, values, ys)
    axes.axhline(0, color=GREY, linewidth=0.5)
    outside = shown != ys
    dark, light = shades(5)[0], shades(5)[3]
    for mask, colour, marker, size in (
        (~default & ~outside, light, "o", 5),
        (outside & (ys < 0), light, "v", 7),
        (outside & (ys > 0), light, "^", 7),
        (default & ~outside, dark, "D", 6),
    ):
        axes.scatter(
            xs[mask], shown[mask], s=size, marker=marker, color=[colour], edgecolor=DARK, linewidth=0.2
        )
    axes.set_title(label(name, 18), loc="left", pad=2)
    axes.locator_params(axis="y", nbins=4)
    add_grid(axes)


def _place_values(axes: Axes, values: Sequence[Any], ys: np.ndarray) -> np.ndarray:
    """Return where each value lies on the axis: a number on a scale, or a category with a little jitter."""
    numbers = [float(value) for value in values if is_finite(value)]
    categories = sorted({str(value) for value in values}, key=_by_size)
    if len(numbers) == len(values) and len(categories) > MOST_CATEGORIES:
        if min(numbers) > 0 and max(numbers) / min(numbers) > 20:
            axes.set_xscale("log")
            axes.set_xlim(min(numbers) / 1.4, max(numbers) * 1.4)
        else:
            axes.locator_params(axis="x", nbins=3)
        set_plain_ticks(axes.xaxis)
        xs = np.array(numbers)
        order = np.argsort(xs, kind="stable")
        for part in np.array_split(order, min(5, len(xs))):
            ends = [xs[part].min(), xs[part].max()]
            axes.plot(ends, [np.median(ys[part])] * 2, color=DARK, linewidth=1.3, solid_capstyle="butt")
        return xs
    places = np.array([categories.index(str(value)) for value in values], dtype=float)
    texts = [_shorten(category) for category in categories]
    upright = sum(map(len, texts)) > 13
    axes.set_xticks(range(len(categories)), texts, rotation=90 if upright else 0)
    axes.set_xlim(-0.6, len(categories) - 0.4)
    for place in range(len(categories)):
        middle = np.median(ys[places == place])
        axes.plot([place - 0.38, place + 0.38], [middle] * 2, color=DARK, linewidth=1.3)
    return places + np.random.default_rng(0).uniform(-0.28, 0.28, len(places))


def _shorten(text: str) -> str:
    try:
        return format_number(float(text))
    except ValueError:
        return label(text, 12)


def _by_size(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def draw(found: Results, options: Any) -> Figure:
    """Draw the hyperparameters of the one algorithm whose runs were read."""
    algorithms = sorted({run.experiment.algorithm for run in found.runs})
    if len(algorithms) > 1:
        known = ", ".join(map(clean, algorithms))
        raise UsageError(f"one algorithm at a time: choose with --algorithms from {known}")
    return draw_sensitivity(found.runs, algorithms[0], one_criterion(found, options), options.width)


FIGURE = FigureKind("sensitivity", "test accuracy against each hyperparameter", draw)
