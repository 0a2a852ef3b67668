"""The paper's figure of a dataset: labels, noise by number of annotators, flipping probabilities."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from plench.report.candidate_stats import CandidateStats
from plench.report.figures.style import DARK, add_grid, label, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PRINTED_CLASSES = 12


def draw_dataset(
    name: str, stats: CandidateStats, annotator_noise: NDArray[np.float64] | None = None
) -> "Figure":
    """Draw what is known: candidates per label, set sizes, annotators, flipping probabilities."""
    panels = [_draw_labels, _draw_sizes]
    n_panels = 2 + (annotator_noise is not None) + (stats.flipping is not None)
    figure = new_figure(3.1 * n_panels, 3.0)
    axes = figure.subplots(1, n_panels, squeeze=False)[0]
    names = [str(i) for i in range(stats.n_classes)]
    for panel, draw in zip(axes, panels, strict=False):
        draw(panel, stats, names)
    if annotator_noise is not None:
        _draw_annotators(axes[2], annotator_noise)
    if stats.flipping is not None:
        _draw_flipping(figure, axes[-1], stats, names)
    figure.suptitle(label(name), fontsize=9)
    return figure


def _draw_labels(axes: "Axes", stats: CandidateStats, names: list[str]) -> None:
    places = np.arange(stats.n_classes)
    light, dark = shades(5)[3], shades(5)[0]
    axes.bar(
        places,
        stats.candidate_counts,
        width=0.8,
        color=light,
        edgecolor=DARK,
        linewidth=0.3,
        label="candidate",
    )
    if stats.label_counts is not None:
        axes.bar(places, stats.label_counts, width=0.4, color=dark, label="true label")
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2)
    _name_classes(axes, names, "x")
    axes.set_xlabel("class")
    axes.set_ylabel("examples")
    add_grid(axes)


def _draw_sizes(axes: "Axes", stats: CandidateStats, names: list[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    present = np.flatnonzero(stats.size_counts)
    low, high = int(present.min()), int(present.max())
    share = 100 * stats.size_counts[low : high + 1] / stats.n_examples
    axes.bar(range(low, high + 1), share, width=0.8, color=shades(5)[2], edgecolor=DARK, linewidth=0.3)
    axes.set_title(f"mean size {stats.mean_size:.2f}", fontsize=8)
    axes.set_xlabel("size of the candidate set")
    axes.set_ylabel("% of examples")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_grid(axes)


def _draw_annotators(axes: "Axes", noise: NDArray[np.float64]) -> None:
    axes.plot(np.arange(1, len(noise) + 1), 100 * noise, color=DARK, marker="o", markersize=4, linewidth=1)
    axes.set_xticks(range(1, len(noise) + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("number of annotators (sets joined)")
    axes.set_ylabel("noise rate (%)")
    add_grid(axes)


def _draw_flipping(figure: "Figure", axes: "Axes", stats: CandidateStats, names: list[str]) -> None:
    assert stats.flipping is not None
    image = axes.imshow(stats.flipping, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    if stats.n_classes <= MOST_PRINTED_CLASSES:
        for i, j in np.ndindex(*stats.flipping.shape):
            value = stats.flipping[i, j]
            colour = "white" if value < 0.55 else DARK
            axes.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=5, color=colour)
    _name_classes(axes, names, "x")
    _name_classes(axes, names, "y")
    axes.set_xlabel("candidate j")
    empty = " (white: no examples)" if np.isnan(stats.flipping).any() else ""
    axes.set_ylabel(f"true label i{empty}")
    axes.spines[:].set_visible(False)
    degree = (
        "" if stats.ambiguity_degree is None else f", largest off the diagonal {stats.ambiguity_degree:.3f}"
    )
    axes.set_title(f"p(j ∈ S | y = i){degree}", fontsize=7)
    figure.colorbar(image, ax=axes, shrink=0.8)


def _name_classes(axes: "Axes", names: list[str], axis: str) -> None:
    """Name every class where there is room, else every so many."""
    every = -(-len(names) // 24)
    places = list(range(0, len(names), every))
    texts = [names[place] for place in places]
    if axis == "x":
        axes.set_xticks(places, texts, rotation=90, fontsize=6)
    else:
        axes.set_yticks(places, texts, fontsize=6)
