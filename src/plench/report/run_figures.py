"""What single runs show: learning curves, sensitivity to hyperparameters, criteria against test accuracy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError
from plench.report import drawing
from plench.report.criteria_quality import Sensitivity, judge_criteria, measure_sensitivity, score_and_test
from plench.report.drawing import COLUMN, DARK, GREY, NORMAL, SMALL, Range, find_range, label
from plench.report.leaderboard import Leaderboard, describe_extent, label_settings, title_criterion
from plench.runs.records import Experiment, Run, is_finite
from plench.runs.select import ChosenRun, place_experiments
from plench.text import clean, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 0.95  # inches
CRITERION_PANEL = 0.68
MOST_SETTINGS = 14


def draw_curves(
    board: Leaderboard, setting: Experiment, criterion: Criterion, width: float = COLUMN
) -> Figure:
    """Draw one panel per algorithm: test accuracy and criterion of the run chosen on each split.

    Panels share a scale. An algorithm whose test accuracies lie far from the others' has its own scale.
    """
    cells = {algorithm: board.cell(setting, algorithm, criterion) for algorithm in board.algorithms}
    chosen = {algorithm: cell.choices for algorithm, cell in cells.items() if cell and cell.choices}
    if not chosen:
        raise UsageError(f"nothing was selected by {criterion.title} on {clean(setting.dataset)}")
    shared, apart = _share_scale(chosen, ("test_acc", criterion.record_key))
    n = len(chosen)
    stepped = [c.run for own in chosen.values() for c in own if not c.run.experiment.fitted]
    longest = max((record.step for run in stepped for record in run.records), default=1)
    figure, panels, columns = drawing.new_panels(width, n, PANEL, 0.3, (0.6, 0.85))
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
        numbered = own or number % columns == 0 or list(chosen)[number - 1] in apart
        axes.set_title(label(algorithm, 18) + (" *" if own else ""), pad=2)
        axes.set_ylim(apart.get(algorithm, shared))
        steps_of = [record.step for choice in choices for record in choice.run.records]
        fitted = choices[0].run.experiment.fitted  # a few rounds would be a dot on the scale of steps
        is_last = number >= n - columns
        axes.set_xlim(Range(0, max(steps_of) if fitted else longest).padded(0.05))
        axes.tick_params(labelleft=numbered, labelbottom=is_last or fitted)
        axes.set_xlabel("round" if fitted else "step" if is_last else "")
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
    """Draw one panel per hyperparameter that varies, for runs of one algorithm (`measure_sensitivity`)."""
    algorithm, *others = sorted({run.experiment.algorithm for run in runs})
    if others:
        known = ", ".join(map(clean, [algorithm, *others]))
        raise UsageError(f"one algorithm at a time: choose with --algorithms from {known}")
    varying = measure_sensitivity(runs, criterion)
    if not varying:
        finished = f"{sum(run.finished for run in runs)} finished runs"
        raise UsageError(f"no hyperparameter of {clean(algorithm)} varies over its {finished}")
    points = varying[0].runs
    ys = 100 * np.array(varying[0].differences)
    scale = find_range(ys)
    figure, panels, columns = drawing.new_panels(width, len(varying), PANEL, 0.3, (0.2, 1.15), sharey=True)
    shown = np.clip(ys, *scale)
    outside = shown != ys
    default = np.array([run.hparams_seed == 0 for run in points])
    dark, light = drawing.shades(5)[0], drawing.shades(5)[3]
    for axes, measured in zip(panels, varying, strict=True):
        xs = _place_values(axes, measured)
        axes.axhline(0, color=GREY, linewidth=0.5)
        for mask, colour, marker, size in (
            (~default & ~outside, light, "o", 5),
            (outside & (ys < 0), light, "v", 7),
            (outside & (ys > 0), light, "^", 7),
            (default & ~outside, dark, "D", 6),
        ):
            look: Any = {"s": size, "marker": marker, "color": [colour], "edgecolor": DARK, "linewidth": 0.2}
            axes.scatter(xs[mask], shown[mask], **look)
        axes.set_title(label(measured.name, 18), pad=2)
        drawing.add_grid(axes, ticks=4)
    panels[0].set_ylim(scale.padded(0.08))
    for axes in panels[::columns]:
        axes.set_ylabel("points")
    experiments = {run.experiment for run in points}
    n = counted(len(points), "run")
    drawing.add_title(
        figure,
        f"{label(algorithm)}: test accuracy less its split's median, by hyperparameter (checkpoints by "
        f"{title_criterion(criterion, experiments)}), {describe_extent(experiments)}, n = {n}",
    )
    beyond = int(outside.sum())
    legend = "Dots: drawn configurations; diamonds: the default; bars: medians of a value or a quarter."
    lying = f"At the edge (triangles): {counted(beyond, 'run')} beyond the scale." if beyond else ""
    drawing.add_notes(figure, [legend, lying])
    return figure


def _place_values(axes: Axes, measured: Sensitivity) -> np.ndarray:
    """Draw the medians; return where each run lies: a number, or a category with a little jitter."""
    xs = np.array(measured.places)
    if measured.categories is None:
        if measured.is_log:
            axes.set_xscale("log")
            axes.set_xlim(xs.min() / 1.4, xs.max() * 1.4)
        else:
            axes.locator_params(axis="x", nbins=3)
        drawing.set_plain_ticks(axes.xaxis)
    else:
        texts = [label(str(value), 12) for value in measured.categories]
        for number, value in enumerate(measured.categories):
            if is_finite(value):
                short = value if isinstance(value, int) else float(f"{value:.3g}")
                texts[number] = drawing.format_number(short)
        axes.set_xticks(range(len(texts)), texts, rotation=90 if sum(map(len, texts)) > 13 else 0)
        axes.set_xlim(-0.6, len(texts) - 0.4)
        xs = xs + np.random.default_rng(0).uniform(-0.28, 0.28, len(xs))
    for value, place, _, middle in measured.bins:
        ends = value if measured.categories is None else (place - 0.38, place + 0.38)
        axes.plot(ends, [100 * middle] * 2, color=DARK, linewidth=1.3, solid_capstyle="butt")
    return xs


def draw_criteria(runs: Iterable[Run], shown: Sequence[Criterion], width: float = COLUMN) -> Figure:
    """Draw a panel per setting and criterion: its value against test accuracy, a point per configuration.

    Both are taken at the checkpoint the criterion chose. Titles have regret and mean rank correlation.
    """
    runs = [run for run in runs if run.finished]
    tables = place_experiments(run.experiment for run in runs)
    labels = label_settings({setting for settings in tables.values() for setting in settings})
    settings = sorted(labels, key=lambda setting: labels[setting].lower())
    if (n := len(settings)) > MOST_SETTINGS:
        raise UsageError(f"{n} datasets are too many for one figure: choose up to {MOST_SETTINGS}")
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
    columns = min(len(shown), max(1, int((width - 0.5) / CRITERION_PANEL)))
    rows_each = -(-len(shown) // columns)
    panel = (width - 0.5) / columns
    height = min(1.4, 0.25 + 0.9 * panel)
    figure = drawing.new_figure(width, 0.3 + height * rows_each * len(settings))
    panels = figure.subplots(rows_each * len(settings), columns, squeeze=False)
    beyond, per_line = 0, int(72 * panel / (0.62 * SMALL))
    for number, setting in enumerate(settings):
        block = panels[number * rows_each : (number + 1) * rows_each]
        for axes, criterion in zip(block.ravel(), shown, strict=False):
            beyond += _draw_cloud(axes, points[setting, criterion])
            mine = [q for q in judged if q.criterion is criterion and setting in tables[q.experiment]]
            regrets = [q.regret for q in mine if q.regret is not None]
            correlations = [q.rank_correlation for q in mine if q.rank_correlation is not None]
            regret = f"regret {100 * fmean(regrets):z.2f}" if regrets else "no regret"
            rho = f"ρ {fmean(correlations):+.2f}" if correlations else "ρ none"
            lines = [regret.replace("-", "−"), rho.replace("-", "−")]
            if rows_each > 1 or number == 0:
                lines = textwrap.wrap(title_criterion(criterion, [setting]), per_line) + lines
            axes.set_title("\n".join(lines), pad=2, fontsize=SMALL, loc="center")
            if rows_each > 1 or number == len(settings) - 1:
                axes.set_xlabel("criterion (%)", labelpad=1, fontsize=SMALL)
        for axes in block.ravel()[len(shown) :]:
            axes.set_visible(False)
        for axes in block[:, 0]:
            name = "\n".join(textwrap.wrap(label(labels[setting], 60), int(72 * height / (0.62 * NORMAL))))
            axes.set_ylabel(f"{name}\ntest (%)", labelpad=1)
    most = counted(max(map(len, points.values())), "run")
    title = "Criteria against test accuracy of each configuration"
    drawing.add_title(figure, f"{title}: {describe_extent(settings)}, n = {most} per panel at most")
    total = counted(sum(map(len, points.values())), "point")
    notes = [
        "Up: test accuracy; across: the criterion on validation. Above: regret, the test accuracy lost "
        "compared with choosing by OA w/ ES, in points, and ρ, Spearman's over the configurations of a "
        "split; both are means over algorithms and splits. Dotted: equal.",
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
    drawing.add_grid(axes, "x", ticks=2)
    drawing.add_grid(axes, "y", ticks=3)
    ticks = [tick for tick in axes.get_xticks() if across.holds(tick)]
    axes.set_xticks(ticks[:1] + ticks[1:][-1:])  # three numbers side by side run into each other
    return len(points) - len(inside)
