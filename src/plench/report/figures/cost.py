"""The paper's two charts of complexity: time and memory of a step, by algorithm."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.report.costs import StepCost, read_costs
from plench.report.figures.base import FigureKind
from plench.report.figures.style import (
    COLUMN,
    DARK,
    GREY,
    SMALL,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_costs(costs: Sequence[StepCost], dataset: str | None = None, width: float = COLUMN) -> Figure:
    """Draw milliseconds and peak memory per step, the fastest algorithm on top, for one dataset.

    Memory is shown beyond the least of all: what every process needs would make all bars alike.
    """
    names = sorted({cost.dataset for cost in costs})
    chosen = dataset if dataset is not None else names[0]
    if dataset is None and len(names) > 1:
        raise UsageError(f"the measurements are of several datasets ({', '.join(names)}): say which")
    rows = sorted((cost for cost in costs if cost.dataset == chosen), key=lambda cost: cost.ms)
    if not rows:
        raise UsageError(f"no measurement of dataset {chosen!r}: there are {', '.join(names)}")
    memory = [cost.peak_mb for cost in rows]
    known = [peak for peak in memory if peak is not None]
    figure = new_figure(width, 0.115 * len(rows) + 0.5)
    panels = figure.subplots(1, 2 if known else 1, sharey=True, squeeze=False)[0]
    notes = _draw_times(panels[0], rows)
    if known:
        least = min(known)
        _draw_memory(panels[1], memory, least)
        notes.append(
            f"Memory: peak of the process beyond the least of all, {format_number(least)} MB "
            "(interpreter and torch included)."
        )
    panels[0].set_yticks(range(len(rows)), [label(cost.algorithm, 22) for cost in rows])
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    n = count(len(rows), "algorithm")
    add_title(figure, f"Time and memory of a training step: {label(chosen)}, n = {n}, a process each")
    add_notes(figure, notes)
    return figure


def _draw_times(axes: Axes, rows: Sequence[StepCost]) -> list[str]:
    """Draw a dot per algorithm on a log scale, with its time, and return what has to be said of them."""
    axes.set_xscale("log")
    times = [cost.ms for cost in rows]
    floors = [cost.floor_ms for cost in rows if cost.floor_ms is not None and cost.floor_ms > 0]
    floor = median(floors) if floors else None
    low, high = min([*times, *([floor] if floor else [])]), max(times)
    axes.set_xlim(low / 1.25, high * (high / low) ** 0.35 * 1.3)  # room for the numbers
    set_plain_ticks(axes.xaxis)
    axes.hlines(range(len(rows)), axes.get_xlim()[0], times, color=GREY, linewidth=0.5)
    axes.scatter(times, range(len(rows)), s=10, color=DARK, zorder=3)
    for place, ms in enumerate(times):
        text = f"{ms:.2f}" if ms < 10 else f"{ms:.4g}"
        axes.annotate(
            text, (ms, place), xytext=(3.5, 0), textcoords="offset points", va="center", fontsize=SMALL
        )
    axes.set_xlabel("time (ms, log scale)")
    axes.grid(False)
    if floor is None:
        return []
    axes.axvline(floor, color=DARK, linestyle=":", linewidth=0.9)
    return [f"Dotted: forward, backward and Adam alone, {floor:.2g} ms."]


def _draw_memory(axes: Axes, memory: Sequence[float | None], least: float) -> None:
    """Draw a bar per algorithm for the memory beyond the least; where there is none, say so."""
    beyond = [0.0 if peak is None else peak - least for peak in memory]
    axes.barh(range(len(memory)), beyond, height=0.6, color=shades(5)[3], edgecolor=DARK, linewidth=0.4)
    for place, peak in enumerate(memory):
        text = "not measured" if peak is None else f"+{beyond[place]:.3g}"
        axes.annotate(
            text,
            (beyond[place], place),
            xytext=(2, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
        )
    axes.set_xlim(0, max(max(beyond), 1.0) * 1.35)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("beyond the least (MB)")
    add_grid(axes, "x")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the file of costs."""
    parser.add_argument("costs", type=Path, metavar="JSON", help="from plench bench step --output")
    parser.add_argument("--dataset", metavar="NAME", help="which dataset, if the file has several")


def draw(found: Any, options: Any) -> Figure:
    """Draw time and memory of a step, from a file of costs."""
    return draw_costs(read_costs(options.costs), options.dataset, options.width)


FIGURE = FigureKind("cost", "time and memory of a step, by algorithm", draw, add_options, from_runs=False)
