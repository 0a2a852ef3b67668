"""The cost of a step, as `plench bench step --output FILE` measured it: reading, charts, Pareto front."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from plench.criteria import Criterion
from plench.errors import DataError, UsageError
from plench.report import drawing
from plench.report.drawing import COLUMN, DARK, GREY, SMALL, FigureKind, label
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.statistics import gather_scores
from plench.runs.records import is_finite
from plench.text import clean, counted, normalise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StepCost:
    """Time and memory of one training step of an algorithm on a dataset."""

    algorithm: str
    dataset: str
    ms: float
    floor_ms: float | None
    peak_mb: float | None


def read_costs(path: Path) -> list[StepCost]:
    """Read a list of measurements (or an object whose `rows` is one); DataError names what is wrong."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read the measurements {str(path)!r}: {error}") from error
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{str(path)!r} holds no list of measurements (plench bench step --output FILE)")
    costs = []
    for number, row in enumerate(rows):
        if row.get("part", "step") not in ("step", "image"):
            continue
        if not isinstance(row.get("algorithm"), str) or not is_finite(row.get("ms")) or row["ms"] <= 0:
            raise DataError(f"{str(path)!r}: measurement {number} lacks algorithm or a positive ms")
        more = [row[key] if is_finite(row.get(key)) else None for key in ("floor_ms", "peak_mb")]
        costs.append(StepCost(row["algorithm"], str(row.get("dataset", "")), row["ms"], *more))
    if not costs:
        raise DataError(f"{str(path)!r} holds no measurement of a step (plench bench step)")
    return costs


def draw_costs(costs: Sequence[StepCost], dataset: str | None = None, width: float = COLUMN) -> Figure:
    """Draw milliseconds (log scale) and peak memory per step, the fastest algorithm on top, for one dataset.

    Memory is shown beyond the least of all: what every process needs would make all bars look the same.
    """
    names = sorted({cost.dataset for cost in costs})
    chosen = dataset if dataset is not None else names[0]
    if dataset is None and len(names) > 1:
        raise UsageError(f"several datasets were measured ({', '.join(names)}): choose with --dataset")
    rows = sorted((cost for cost in costs if cost.dataset == chosen), key=lambda cost: cost.ms)
    if not rows:
        raise UsageError(f"no measurement of dataset {chosen!r}: there are {', '.join(names)}")
    known = [cost.peak_mb for cost in rows if cost.peak_mb is not None]
    figure = drawing.new_figure(width, 0.115 * len(rows) + 0.5)
    left, *more = figure.subplots(1, 2 if known else 1, sharey=True, squeeze=False)[0]
    places, times = range(len(rows)), [cost.ms for cost in rows]
    baselines = [cost.floor_ms for cost in rows if cost.floor_ms is not None and cost.floor_ms > 0]
    baseline = median(baselines) if baselines else None
    low, high = min([*times, *([baseline] if baseline else [])]), max(times)
    left.set_xscale("log")
    left.set_xlim(low / 1.25, high * (high / low) ** 0.35 * 1.3)  # room for the numbers
    drawing.set_plain_ticks(left.xaxis)
    left.hlines(places, left.get_xlim()[0], times, color=GREY, linewidth=0.5)
    left.scatter(times, places, s=10, color=DARK, zorder=3)
    for place, ms in enumerate(times):
        _write_behind(left, ms, place, f"{ms:.2f}" if ms < 10 else f"{ms:.4g}", 3.5)
    left.set_xlabel("time (ms, log scale)")
    left.grid(False)
    notes = []
    if baseline is not None:
        left.axvline(baseline, color=DARK, linestyle=":", linewidth=0.9)
        notes.append(f"Dotted: forward, backward and Adam alone, {baseline:.2g} ms.")
    for axes in more:
        least = min(known)
        beyond = [0.0 if cost.peak_mb is None else cost.peak_mb - least for cost in rows]
        light = drawing.shades(5)[3]
        axes.barh(places, beyond, height=0.6, color=light, edgecolor=DARK, linewidth=0.4)
        for place, cost in enumerate(rows):
            text = "not measured" if cost.peak_mb is None else f"+{beyond[place]:.3g}"
            _write_behind(axes, beyond[place], place, text, 2)
        axes.set(xlim=(0, max(max(beyond), 1.0) * 1.35), xlabel="beyond the least (MB)")
        drawing.add_grid(axes, "x", ticks=4)
        peak = f"peak of the process beyond the least of all, {drawing.format_number(least)} MB"
        notes.append(f"Memory: {peak} (interpreter and torch included).")
    drawing.name_rows(left, [label(cost.algorithm, 22) for cost in rows])
    n = counted(len(rows), "algorithm")
    drawing.add_title(figure, f"Time and memory of a training step: {label(chosen)}, n = {n}, a process each")
    drawing.add_notes(figure, notes)
    return figure


def _write_behind(axes: Axes, x: float, place: int, text: str, shift: float) -> None:
    axes.annotate(
        text, (x, place), xytext=(shift, 0), textcoords="offset points", va="center", fontsize=SMALL
    )


COST = FigureKind(
    "cost",
    "time and memory of a step, by algorithm",
    lambda _, options: draw_costs(read_costs(options.costs), options.dataset, options.width),
    {
        "costs": {"type": Path, "metavar": "JSON", "help": "from plench bench step --output"},
        "--dataset": {"metavar": "NAME", "help": "which dataset, if the file has several"},
    },
    from_runs=False,
)


def find_front(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
    """Return the points that no other point beats in both cost and accuracy, by rising cost."""
    front: list[int] = []
    for index in sorted(range(len(costs)), key=lambda i: (costs[i], -accuracies[i])):
        if not front or accuracies[index] > accuracies[front[-1]]:
            front.append(index)
    return front


def draw_pareto(
    board: Leaderboard, criterion: Criterion, costs: Sequence[StepCost], width: float = COLUMN
) -> Figure:
    """Draw each algorithm's mean test accuracy against its time per step (log scale), over the same datasets.

    Datasets without measurements, and algorithms without a figure or a measurement on some of the others, are
    left out, and the figure names them. Outliers stand beyond a dotted line, not to scale.
    """
    board, names, times, accuracies, notes = _gather_trades(board, criterion, costs)
    front = find_front(times, accuracies)
    figure = drawing.new_figure(width, max(2.8, 0.62 * width))
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.5, max(times) * 1.5)
    drawing.set_plain_ticks(axes.xaxis)
    drawn = _set_scale(axes, accuracies)
    xs, ys = np.array(times), np.array(drawn)
    axes.step(xs[front], ys[front], where="post", color=GREY, linewidth=0.9, linestyle="--")
    others = [i for i in range(len(times)) if i not in front]
    axes.scatter(xs[others], ys[others], s=10, color="white", edgecolor=DARK, linewidth=0.7, zorder=3)
    axes.scatter(xs[front], ys[front], s=14, color=DARK, zorder=3)
    axes.set(xlabel="time per step (ms, log scale)", ylabel="mean test accuracy (%)")
    drawing.add_grid(axes, "both")
    cells = [[board.cell(setting, a, criterion) for a in board.algorithms] for setting in board.settings]
    n_splits = sum(max((cell.n for cell in row if cell is not None), default=0) for row in cells)
    shown = ", ".join(clean(board.labels[setting]) for setting in board.settings)
    where = shown if len(board.settings) < 4 else board.extent
    title = title_criterion(criterion, board.settings)
    n = counted(n_splits, "split")
    drawing.add_title(figure, f"Accuracy (selected by {title}) against time per step: {where}, n = {n}")
    drawing.add_notes(figure, ["Filled, dashed line: the Pareto front.", *notes])
    texts = [
        name if accuracy == place else f"{name} {accuracy:.1f}"
        for name, accuracy, place in zip(names, accuracies, drawn, strict=True)
    ]
    drawing.name_points(axes, times, drawn, texts, (xs[front].tolist(), ys[front].tolist()))
    return figure


def _gather_trades(
    board: Leaderboard, criterion: Criterion, costs: Sequence[StepCost]
) -> tuple[Leaderboard, list[str], list[float], list[float], list[str]]:
    """Return what is drawn: the measured datasets' leaderboard; names, ms and accuracies (%); notes.

    The algorithms are those that have both figures on every measured dataset; notes name the others.
    """
    by_name: dict[str, dict[str, list[float]]] = {}
    for cost in costs:
        by_dataset = by_name.setdefault(normalise(cost.algorithm), {})
        by_dataset.setdefault(normalise(cost.dataset), []).append(cost.ms)
    measured = {dataset for by_dataset in by_name.values() for dataset in by_dataset}
    kept = tuple(setting for setting in board.settings if normalise(setting.dataset) in measured)
    if not kept:
        there = ", ".join(sorted({clean(cost.dataset) for cost in costs if cost.dataset}))
        known = ", ".join(sorted({clean(setting.dataset) for setting in board.settings}))
        raise UsageError(
            f"the costs were measured on {there or 'no named dataset'}, but the results are on {known}: "
            "accuracy and cost must be of the same datasets"
        )
    absent = [clean(board.labels[setting]) for setting in board.settings if setting not in kept]
    board = replace(board, settings=kept)
    scores = gather_scores(board, criterion)
    datasets = sorted({normalise(setting.dataset) for setting in kept})
    names, times, accuracies, unmeasured = [], [], [], []
    for algorithm, means in zip(scores.algorithms, scores.values.T, strict=True):
        found = by_name.get(normalise(algorithm), {})
        if all(dataset in found for dataset in datasets):
            names.append(algorithm)
            times.append(fmean(fmean(found[dataset]) for dataset in datasets))
            accuracies.append(100 * float(means.mean()))
        else:
            unmeasured.append(algorithm)
    if not names:
        raise UsageError(
            "no algorithm has both results on every dataset here and measurements of its cost: choose with "
            "--datasets and --algorithms"
        )
    left_out = (
        ("without measured cost", absent),
        ("with no figure in some dataset", scores.left_out),
        ("with no measurement of the cost", unmeasured),
    )
    notes = [f"Left out, {why}: {', '.join(which)}." for why, which in left_out if which]
    return board, names, times, accuracies, notes


def _set_scale(axes: Axes, accuracies: Sequence[float]) -> list[float]:
    """Set the scale of the bulk and return where each accuracy is drawn; outliers stand beyond it."""
    scale = drawing.find_range(accuracies)
    gap = scale.span * 0.09
    placed = drawing.place_outside(accuracies, scale, gap)
    limits = min([*placed, scale.low]) - gap, max([*placed, scale.high]) + gap
    axes.set_ylim(limits)
    if min(placed) < scale.low:
        drawing.mark_scale_end(axes, scale.low - 1.1 * gap, 0.99)
    if max(placed) > scale.high:
        drawing.mark_scale_end(axes, scale.high + 1.1 * gap, 0.99)
    axes.set_yticks([tick for tick in axes.get_yticks() if scale.padded(0.05).holds(tick)])
    axes.set_ylim(limits)
    return placed


PARETO = FigureKind(
    "pareto",
    "accuracy against time per step, with the Pareto front",
    lambda found, options: draw_pareto(
        found.board, drawing.one_criterion(found, options), read_costs(options.costs), options.width
    ),
    {
        "--costs": {
            "type": Path,
            "required": True,
            "metavar": "JSON",
            "help": "from plench bench step --output",
        }
    },
)
