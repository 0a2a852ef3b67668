"""What single runs show: learning curves, sensitivity to hyperparameters, criteria against test accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report import drawing
from plench.report.criteria_quality import judge_criteria, relative_accuracies, score_and_test
from plench.report.drawing import COLUMN, DARK, GREY, SMALL, Range, find_range, label
from plench.report.leaderboard import Leaderboard, describe_extent, label_settings, title_criterion
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import ChosenRun, place_experiments
from plench.text import clean, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 0.95  # inches
CRITERION_PANEL = 1.35
MOST_CATEGORIES = 8
MOST_SETTINGS = 14


def draw_curves(
    board: Leaderboard, setting: Experiment, criterion: Criterion, width: float = COLUMN
) -> Figure:
    """Draw one panel per algorithm: test accuracy and criterion of the run chosen on each split.

    Panels share a scale. An algorithm whose test accuracies lie far from the others' has its own scale.
    """
    chosen: dict[str, tuple[ChosenRun, ...]] = {}
    for algorithm in board.algorithms:
        cell = board.cell(setting, algorithm, criterion)
        if cell is not None and cell.choices:
            chosen[algorithm] = cell.choices
    if not chosen:
        raise UsageError(f"nothing was selected by {criterion.title} on {clean(setting.dataset)}")
    shared, apart = _share_scale(chosen, ("test_acc", criterion.record_key))
    n = len(chosen)
    figure, panels, columns = drawing.new_panels(width, n, PANEL, 0.3, (0.6, 0.85), sharex=True)
    for number, (axes, (algorithm, choices)) in enumerate(zip(panels, chosen.items(), strict=True)):
        for choice, colour in zip(choices, drawing.shades(max(len(choices), 2)), strict=False):
            records = [record for record in choice.run.records if record.step > 0]
            steps = [record.step for record in records]
            for key, dash, thickness in (("test_acc", 0, 0.8), (criterion.record_key, 2, 0.7)):
                values = [record.get(key) for record in records]
                shown = [np.nan if value is None else 100 * value for value in values]
                axes.plot(steps, shown, color=colour, linestyle=drawing.DASHES[dash], linewidth=thickness)
        rings = [(c.record.step, 100 * c.test_acc) for c in choices if c.test_acc is not None]
        if rings:
            xs, ys = zip(*rings, strict=True)
            axes.scatter(xs, ys, s=9, color="white", edgecolor=DARK, linewidth=0.7, zorder=3)
        drawing.add_grid(axes, ticks=4)
        own = algorithm in apart
        axes.set_title(label(algorithm, 18) + (" *" if own else ""), pad=2)
        axes.set_ylim(apart.get(algorithm, shared))
        is_last = number >= n - columns
        axes.tick_params(labelleft=own or number % columns == 0, labelbottom=is_last)
        axes.set_xlabel("step" if is_last else "")
        axes.locator_params(axis="x", nbins=3)
        drawing.set_plain_ticks(axes.xaxis)
    title = title_criterion(criterion, [setting])
    splits = counted(max(len(choices) for choices in chosen.values()), "split")
    where = label(board.labels[setting], 120)
    drawing.add_title(figure, f"Learning curves (%) of the runs chosen by {title}: {where}, n = {splits}")
    absent = ", ".join(a for a in board.algorithms if a not in chosen)
    notes = [
        f"Solid: test accuracy, a shade per split; dotted: {title} on validation; rings: chosen checkpoints.",
        "* on a scale of its own." if apart else "",
        f"Without a checkpoint to choose: {absent}." if absent else "",
    ]
    drawing.add_notes(figure, notes)
    return figure


def _share_scale(
    chosen: Mapping[str, Sequence[ChosenRun]], keys: Sequence[str]
) -> tuple[Range, dict[str, Range]]:
    """Return the scale of most panels, and the scale of each algorithm that is far from the others.

    Far is where the highest test accuracy is an outlier among those of all algorithms.
    """
    values: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}
    for name, choices in chosen.items():
        records = [record for choice in choices for record in choice.run.usable_records]
        by_key = [[100 * v for r in records if (v := r.get(key)) is not None] for key in keys]
        values[name] = [value for found in by_key for value in found]
        if by_key[0]:
            peaks[name] = max(by_key[0])
    usual = find_range(peaks.values(), least=10.0)
    far = [name for name, peak in peaks.items() if not usual.holds(peak)]
    pooled = [value for name, found in values.items() if name not in far for value in found]
    own = {name: find_range(values[name], least=10.0).padded(0.05) for name in far}
    return find_range(pooled, least=10.0).padded(0.05), own


def draw_sensitivity(runs: Sequence[Run], criterion: Criterion, width: float = COLUMN) -> Figure:
    """Draw one panel per hyperparameter that varies, for runs of one algorithm.

    Accuracy is taken at the checkpoint the criterion chose, less the median of its dataset and split, so that
    several datasets can be shown together and a failed configuration does not shift the others.
    """
    algorithm, *others = sorted({run.experiment.algorithm for run in runs})
    if others:
        known = ", ".join(map(clean, [algorithm, *others]))
        raise UsageError(f"one algorithm at a time: choose with --algorithms from {known}")
    points = [(run, 100 * test) for run, test in relative_accuracies(runs, criterion, median)]
    names = sorted({name for run, _ in points for name in run.hparams})
    varying = [name for name in names if len({str(run.hparams.get(name)) for run, _ in points}) > 1]
    if not varying:
        finished = f"{len(points)} finished runs"
        raise UsageError(f"no hyperparameter of {clean(algorithm)} varies over its {finished}")
    scale = find_range(relative for _, relative in points)
    figure, panels, columns = drawing.new_panels(width, len(varying), PANEL, 0.3, (0.2, 1.15), sharey=True)
    ys = np.array([relative for _, relative in points])
    shown = np.clip(ys, *scale)
    outside = shown != ys
    default = np.array([run.hparams_seed == 0 for run, _ in points])
    dark, light = drawing.shades(5)[0], drawing.shades(5)[3]
    for axes, name in zip(panels, varying, strict=True):
        xs = _place_values(axes, [run.hparams.get(name) for run, _ in points], ys)
        axes.axhline(0, color=GREY, linewidth=0.5)
        for mask, colour, marker, size in (
            (~default & ~outside, light, "o", 5),
            (outside & (ys < 0), light, "v", 7),
            (outside & (ys > 0), light, "^", 7),
            (default & ~outside, dark, "D", 6),
        ):
            look: Any = {"s": size, "marker": marker, "color": [colour], "edgecolor": DARK, "linewidth": 0.2}
            axes.scatter(xs[mask], shown[mask], **look)
        axes.set_title(label(name, 18), pad=2)
        drawing.add_grid(axes, ticks=4)
    panels[0].set_ylim(scale.padded(0.08))
    for axes in panels[::columns]:
        axes.set_ylabel("points")
    experiments = {run.experiment for run, _ in points}
    n = counted(len(points), "run")
    drawing.add_title(
        figure,
        f"{label(algorithm)}: test accuracy less its split's median, by hyperparameter (checkpoints by "
        f"{title_criterion(criterion, experiments)}), {describe_extent(experiments)}, n = {n}",
    )
    beyond = int(outside.sum())
    legend = "Dots: drawn configurations; diamonds: the default; bars: medians."
    lying = f"At the edge (triangles): {counted(beyond, 'run')} beyond the scale." if beyond else ""
    drawing.add_notes(figure, [legend, lying])
    return figure


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
        drawing.set_plain_ticks(axes.xaxis)
        xs = np.array(numbers)
        order = np.argsort(xs, kind="stable")
        for part in np.array_split(order, min(5, len(xs))):
            ends = [xs[part].min(), xs[part].max()]
            axes.plot(ends, [np.median(ys[part])] * 2, color=DARK, linewidth=1.3, solid_capstyle="butt")
        return xs
    places = np.array([categories.index(str(value)) for value in values], dtype=float)
    texts = [
        label(category, 12) if kind else drawing.format_number(number)
        for category in categories
        for kind, number, _ in [_by_size(category)]
    ]
    upright = sum(map(len, texts)) > 13
    axes.set_xticks(range(len(categories)), texts, rotation=90 if upright else 0)
    axes.set_xlim(-0.6, len(categories) - 0.4)
    for place in range(len(categories)):
        middle = np.median(ys[places == place])
        axes.plot([place - 0.38, place + 0.38], [middle] * 2, color=DARK, linewidth=1.3)
    return places + np.random.default_rng(0).uniform(-0.28, 0.28, len(places))


def _by_size(text: str) -> tuple[int, float, str]:
    """Return what categories are sorted by: numbers first, by size, then other texts."""
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def draw_criteria(runs: Iterable[Run], shown: Sequence[Criterion], width: float = COLUMN) -> Figure:
    """Draw a panel per setting and criterion: its value against test accuracy, a point per configuration.

    Both are taken at the checkpoint the criterion chose. Titles have regret and mean rank correlation.
    """
    runs = [run for run in runs if run.finished]
    tables = place_experiments(run.experiment for run in runs)
    labels = label_settings({setting for settings in tables.values() for setting in settings})
    settings = sorted(labels, key=lambda setting: labels[setting].lower())
    if len(settings) > MOST_SETTINGS:
        raise UsageError(
            f"{len(settings)} datasets are too many for one figure: choose up to {MOST_SETTINGS}"
        )
    points = {
        (setting, criterion): [
            (100 * point[0], 100 * point[1])
            for run in runs
            if setting in tables[run.experiment] and (point := score_and_test(run, criterion)) is not None
        ]
        for setting in settings
        for criterion in shown
    }
    if not any(points.values()):
        raise UsageError("no finished run has both a criterion and a test accuracy")
    judged = judge_criteria(runs, shown)
    columns = min(len(shown), max(1, int((width - 0.2) / CRITERION_PANEL)))
    rows_each = -(-len(shown) // columns)
    figure = drawing.new_figure(width, 0.2 + 1.45 * rows_each * len(settings))
    panels = figure.subplots(rows_each * len(settings), columns, squeeze=False)
    beyond = 0
    for number, setting in enumerate(settings):
        block = panels[number * rows_each : (number + 1) * rows_each]
        for axes, criterion in zip(block.ravel(), shown, strict=False):
            beyond += _draw_cloud(axes, points[setting, criterion])
            mine = [q for q in judged if q.criterion is criterion and setting in tables[q.experiment]]
            regrets = [q.regret for q in mine if q.regret is not None]
            correlations = [q.rank_correlation for q in mine if q.rank_correlation is not None]
            regret = f"regret {100 * fmean(regrets):.2f} points" if regrets else "regret undefined"
            rho = f"ρ {fmean(correlations):+.2f}" if correlations else "ρ undefined"
            axes.set_title(f"{regret}, {rho}".replace("-", "−"), pad=2, fontsize=SMALL)
            axes.set_xlabel(f"{title_criterion(criterion, [setting])} on validation (%)", labelpad=1)
        for axes in block.ravel()[len(shown) :]:
            axes.set_visible(False)
        for axes in block[:, 0]:
            axes.set_ylabel(f"{label(labels[setting], 60)}:\ntest accuracy (%)")
    n = counted(max(map(len, points.values())), "run")
    title = "Criteria against test accuracy of each configuration"
    drawing.add_title(figure, f"{title}: {describe_extent(settings)}, n = {n} per panel at most")
    total = counted(sum(map(len, points.values())), "point")
    notes = [
        "Regret: test accuracy lost against choosing by OA w/ ES, in points; ρ: Spearman's, over the "
        "configurations of a split; both are means over algorithms and splits. Dotted: equal.",
        f"{beyond:,} of {total} lie beyond the scales." if beyond else "",
    ]
    drawing.add_notes(figure, notes)
    return figure


def _draw_cloud(axes: Axes, points: list[tuple[float, float]]) -> int:
    """Draw one cloud on the scale of its bulk, and return how many points lie outside."""
    across, up = (find_range([point[i] for point in points], least=2.0) for i in (0, 1))
    inside = [(x, y) for x, y in points if across.holds(x) and up.holds(y)]
    size = min(6.0, max(0.8, 600 / max(len(points), 1)))  # thousands must not hide each other
    if inside:
        xs, ys = zip(*inside, strict=True)
        axes.scatter(xs, ys, s=size, color=DARK, alpha=0.45, linewidth=0)
    across, up = across.padded(0.05), up.padded(0.05)
    ends = (min(across.low, up.low), max(across.high, up.high))
    axes.plot(ends, ends, color=GREY, linewidth=0.7, linestyle=":")
    axes.set(xlim=across, ylim=up)
    drawing.add_grid(axes, "both", ticks=4)
    return len(points) - len(inside)
