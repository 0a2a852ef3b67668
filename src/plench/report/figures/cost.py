"""The paper's two bar charts of complexity: time and memory of a step, by algorithm."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.report.costs import Cost
from plench.report.figures.style import DARK, GREY, add_grid, label, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_costs(costs: Sequence[Cost], dataset: str | None = None) -> "Figure":
    """Draw milliseconds and peak memory per step as bars, the cheapest algorithm on top, for one dataset."""
    names = sorted({cost.dataset for cost in costs})
    chosen = dataset if dataset is not None else names[0]
    if dataset is None and len(names) > 1:
        raise UsageError(f"the measurements are of several datasets ({', '.join(names)}): say which")
    rows = sorted((cost for cost in costs if cost.dataset == chosen), key=lambda cost: -cost.ms)
    if not rows:
        raise UsageError(f"no measurement of dataset {chosen!r}: there are {', '.join(names)}")
    with_memory = [cost for cost in rows if cost.peak_mb is not None]
    figure = new_figure(7.0 if with_memory else 3.8, 0.17 * len(rows) + 1.1)
    panels = figure.subplots(1, 2 if with_memory else 1, sharey=True, squeeze=False)[0]
    dark, light = shades(5)[1], shades(5)[3]
    times = [cost.ms for cost in rows]
    _draw_bars(panels[0], times, dark, "time per step (ms)")
    floors = [cost.floor_ms for cost in rows if cost.floor_ms is not None]
    if floors:
        panels[0].axvline(median(floors), color=GREY, linestyle=":", linewidth=1)
        panels[0].set_title("dotted: forward + backward + Adam alone", loc="left", fontsize=7)
    panels[0].set_yticks(range(len(rows)), [label(cost.algorithm) for cost in rows])
    panels[0].set_ylim(-0.7, len(rows) - 0.3)
    if with_memory:
        _draw_bars(panels[1], [cost.peak_mb for cost in rows], light, "peak memory of the process (MB)")
    figure.suptitle(f"Cost of a training step on {label(chosen)}", fontsize=9)
    return figure


def _draw_bars(axes: "Axes", values: Sequence[float | None], colour: Any, title: str) -> None:
    """Draw one bar per value; where there is none, say so."""
    lengths = [value or 0.0 for value in values]
    axes.barh(range(len(values)), lengths, height=0.7, color=colour, edgecolor=DARK, linewidth=0.4)
    for place, value in enumerate(values):
        text = " not measured" if value is None else f" {value:.3g}"
        axes.text(lengths[place], place, text, va="center", ha="left", fontsize=6)
    axes.set_xlim(0, max(lengths) * 1.15)
    axes.set_xlabel(title)
    add_grid(axes, "x")
