"""The paper's figure of a dataset: labels, noise by number of annotators, flipping probabilities."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from plench.report.candidate_stats import CandidateStats
from plench.report.figures.style import (
    COLUMN,
    DARK,
    SMALL,
    add_grid,
    add_notes,
    add_title,
    count,
    label,
    new_figure,
    shades,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PRINTED_CLASSES = 12
MOST_NAMED_CLASSES = 24


def draw_dataset(
    name: str,
    stats: CandidateStats,
    annotator_noise: NDArray[np.float64] | None = None,
    width: float = COLUMN,
) -> "Figure":
    """Draw what is known: candidates per label, set sizes, annotators, flipping probabilities.

    Classes have their names if those are known, else their numbers.
    """
    names = [label(n, 14) for n in stats.class_names or map(str, range(stats.n_classes))]
    small = 2 + (annotator_noise is not None)
    columns = 1 if width < 5 else small
    rows = -(-small // columns)
    height = 1.5 if columns == 1 else 1.9
    has_matrix = stats.flipping is not None
    matrix_height = min(width, 4.5) if has_matrix else 0.0
    figure = new_figure(width, height * rows + matrix_height)
    heights = [height * rows, matrix_height] if has_matrix else [height * rows]
    parts = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    grid = parts[0].subgridspec(rows, columns)
    panels = [figure.add_subplot(grid[i // columns, i % columns]) for i in range(small)]
    _draw_labels(panels[0], stats, names)
    _draw_sizes(panels[1], stats)
    if annotator_noise is not None:
        _draw_annotators(panels[2], annotator_noise)
    notes = []
    if has_matrix:
        notes = _draw_flipping(figure, figure.add_subplot(parts[1]), stats, names)
    n = count(stats.n_examples, "example")
    add_title(figure, f"{label(name)}: candidate sets over {stats.n_classes} classes, n = {n}")
    add_notes(figure, notes)
    return figure


def _draw_labels(axes: "Axes", stats: CandidateStats, names: Sequence[str]) -> None:
    places = np.arange(stats.n_classes)
    light, dark = shades(5)[3], shades(5)[0]
    axes.bar(places, stats.candidate_counts, width=0.8, color=light, edgecolor=DARK, linewidth=0.3)
    meaning = "wide bars: candidate"
    if stats.label_counts is not None:
        axes.bar(places, stats.label_counts, width=0.4, color=dark)
        meaning += "; narrow: true label"
    axes.set_title(meaning, loc="left")
    _name_classes(axes, names, "x")
    axes.set_ylabel("examples")
    axes.locator_params(axis="y", nbins=4)
    add_grid(axes)


def _draw_sizes(axes: "Axes", stats: CandidateStats) -> None:
    from matplotlib.ticker import MaxNLocator

    present = np.flatnonzero(stats.size_counts)
    low, high = int(present.min()), int(present.max())
    share = 100 * stats.size_counts[low : high + 1] / stats.n_examples
    axes.bar(range(low, high + 1), share, width=0.8, color=shades(5)[2], edgecolor=DARK, linewidth=0.3)
    axes.set_title(f"mean size {stats.mean_size:.2f}", loc="left")
    axes.set_xlabel("size of the candidate set")
    axes.set_ylabel("% of examples")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.locator_params(axis="y", nbins=4)
    add_grid(axes)


def _draw_annotators(axes: "Axes", noise: NDArray[np.float64]) -> None:
    axes.plot(np.arange(1, len(noise) + 1), 100 * noise, color=DARK, marker="o", markersize=3, linewidth=0.9)
    axes.set_xticks(range(1, len(noise) + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("annotators (sets joined)")
    axes.set_ylabel("noise rate (%)")
    add_grid(axes)


def _draw_flipping(figure: "Figure", axes: "Axes", stats: CandidateStats, names: Sequence[str]) -> list[str]:
    """Draw the matrix in %, coloured up to its largest entry off the diagonal, and return notes on it."""
    assert stats.flipping is not None
    percent = 100 * stats.flipping
    largest = 100 * (stats.ambiguity_degree or 0.0)
    top = max(largest, 1.0)
    image = axes.imshow(percent, cmap="cividis", vmin=0, vmax=top, interpolation="nearest")
    if stats.n_classes <= MOST_PRINTED_CLASSES:
        for i, j in np.ndindex(*percent.shape):
            if not np.isnan(percent[i, j]):
                colour = "white" if percent[i, j] < 0.55 * top else DARK
                text = f"{percent[i, j]:.0f}"
                axes.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=colour)
    _name_classes(axes, names, "x")
    _name_classes(axes, names, "y")
    axes.set_xlabel("candidate j")
    axes.set_ylabel("true label i")
    axes.spines[:].set_visible(False)
    axes.set_title("p(j ∈ S | y = i), %", loc="left")
    figure.colorbar(image, ax=axes, shrink=0.8, extend="max", label="%")
    notes = [f"Colours end at the largest entry off the diagonal, {largest:.3g} %; the diagonal is beyond."]
    if np.isnan(percent).any():
        notes.append("White rows: classes without examples.")
    return notes


def _name_classes(axes: "Axes", names: Sequence[str], axis: str) -> None:
    """Name every class where there is room, else every n-th."""
    every = -(-len(names) // MOST_NAMED_CLASSES)
    places = list(range(0, len(names), every))
    texts = [names[place] for place in places]
    if axis == "x":
        axes.set_xticks(places, texts, rotation=90)
    else:
        axes.set_yticks(places, texts)
