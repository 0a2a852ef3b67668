"""How much each hyperparameter matters: test accuracy of all configurations against its value."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report.escape import clean
from plench.report.figures.style import DARK, GREY, add_grid, label, new_figure, shades
from plench.report.leaderboard import title_criterion
from plench.selection import choose_checkpoint
from plench.storage.lines import is_finite
from plench.storage.records import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CATEGORIES = 8


def draw_sensitivity(runs: Sequence[Run], algorithm: str, criterion: Criterion) -> "Figure":
    """Draw one panel per hyperparameter that varies, for one algorithm.

    Accuracy is taken at the checkpoint the criterion chose, less the mean of its dataset and split, so that
    several datasets can be shown together.
    """
    points = _relative_accuracies([run for run in runs if run.experiment.algorithm == algorithm], criterion)
    names = sorted({name for run, _ in points for name in run.hparams})
    varying = [name for name in names if len({str(run.hparams.get(name)) for run, _ in points}) > 1]
    if not varying:
        name = clean(algorithm)
        raise UsageError(f"no hyperparameter of {name} varies over its {len(points)} finished runs")
    columns = min(3, len(varying))
    rows = math.ceil(len(varying) / columns)
    figure = new_figure(1.0 + 2.1 * columns, 1.2 + 1.6 * rows)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, varying, strict=False):
        _draw_panel(axes, name, points)
    for axes in panels[len(varying) :]:
        axes.set_visible(False)
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=3, frameon=False)
    figure.supylabel("test accuracy less the mean\nof its dataset and split (points)", fontsize=8)
    title = title_criterion(criterion, [run.experiment for run, _ in points])
    figure.supxlabel(f"hyperparameters of {label(algorithm)}, checkpoint by {title}", fontsize=8)
    return figure


def _relative_accuracies(runs: Sequence[Run], criterion: Criterion) -> list[tuple[Run, float]]:
    """Return each finished run with its test accuracy less the mean of its setting and split, in points."""
    found: dict[Any, list[tuple[Run, float]]] = {}
    for run in runs:
        chosen = choose_checkpoint(run, criterion) if run.finished else None
        test = chosen[0].get("test_acc") if chosen is not None else None
        if test is not None:
            found.setdefault((run.experiment, run.trial_seed), []).append((run, 100 * test))
    points: list[tuple[Run, float]] = []
    for group in found.values():
        mean = float(np.mean([test for _, test in group]))
        points.extend((run, test - mean) for run, test in group)
    return points


def _draw_panel(axes: "Axes", name: str, points: list[tuple[Run, float]]) -> None:
    values = [run.hparams.get(name) for run, _ in points]
    numbers = [float(value) for value in values if is_finite(value)]
    categories = sorted({str(value) for value in values}, key=_by_size)
    if len(numbers) == len(values) and len(categories) > MOST_CATEGORIES:
        xs = numbers
        if min(numbers) > 0 and max(numbers) / min(numbers) > 20:
            axes.set_xscale("log")
    else:
        xs = [float(categories.index(str(value))) for value in values]
        axes.set_xticks(range(len(categories)), [_shorten(c) for c in categories], rotation=90)
        axes.set_xlim(-0.6, len(categories) - 0.4)
    ys = [relative for _, relative in points]
    default = np.array([run.hparams_seed == 0 for run, _ in points])
    dark, light = shades(5)[0], shades(5)[3]
    axes.axhline(0, color=GREY, linewidth=0.6)
    for mask, colour, marker, text in (
        (~default, light, "o", "drawn configuration"),
        (default, dark, "D", "default configuration"),
    ):
        chosen = np.flatnonzero(mask)
        axes.scatter(
            np.array(xs)[chosen],
            np.array(ys)[chosen],
            s=14,
            marker=marker,
            color=[colour],
            edgecolor=DARK,
            linewidth=0.3,
            label=text,
        )
    axes.set_title(label(name), loc="left", fontsize=8)
    add_grid(axes)


def _shorten(text: str) -> str:
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return label(text)[:12]


def _by_size(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)
