"""Candidate sets of a dataset: sizes, noise, which labels are confused; and the paper's figure of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from plench.report import drawing
from plench.report.drawing import COLUMN, DARK, SMALL, add_grid, label, shades
from plench.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PRINTED_CLASSES = 12
MOST_NAMED_CLASSES = 24


@dataclass(frozen=True)
class CandidateStats:
    """Figures of N candidate sets over K classes. Those that need true labels are None without them.

    `flipping[i, j]` is the share of examples of class i whose set contains j (NaN for a class without
    examples); `ambiguity_degree` is its largest off-diagonal entry, at `ambiguous_pair` (true class, other
    class). `class_names` are there where they are known.
    """

    n_examples: int
    n_classes: int
    mean_size: float
    size_counts: NDArray[np.int64]
    candidate_counts: NDArray[np.int64]
    label_counts: NDArray[np.int64] | None
    noise_rate: float | None
    flipping: NDArray[np.float64] | None
    ambiguity_degree: float | None
    ambiguous_pair: tuple[int, int] | None
    class_names: tuple[str, ...] | None = None


def describe_candidates(
    candidates: NDArray[np.bool_],
    labels: NDArray[np.int64] | None,
    class_names: tuple[str, ...] | None = None,
) -> CandidateStats:
    """Count set sizes and labels; with true labels also noise, flipping matrix and ambiguity degree."""
    n, k = candidates.shape
    sizes = candidates.sum(axis=1)
    label_counts = noise = flipping = degree = pair = None
    if labels is not None:
        label_counts = np.bincount(labels, minlength=k)
        noise = float(np.mean(~candidates[np.arange(n), labels]))
        sums = np.array([candidates[labels == y].sum(axis=0) for y in range(k)])
        with np.errstate(invalid="ignore"):  # NaN in the rows of classes without examples
            flipping = sums / label_counts[:, None]
        between = np.where(np.eye(k, dtype=bool), np.nan, flipping)
        if not np.isnan(between).all():
            first, second = np.unravel_index(np.nanargmax(between), between.shape)
            pair = (int(first), int(second))
            degree = float(between[pair])
    return CandidateStats(
        n_examples=n,
        n_classes=k,
        mean_size=float(sizes.mean()),
        size_counts=np.bincount(sizes, minlength=k + 1),
        candidate_counts=candidates.sum(axis=0),
        label_counts=label_counts,
        noise_rate=noise,
        flipping=flipping,
        ambiguity_degree=degree,
        ambiguous_pair=pair,
        class_names=class_names,
    )


def measure_noise_by_answers(
    item: NDArray[np.int64], contains: NDArray[np.bool_]
) -> list[tuple[int, int, float]]:
    """Return, for n = 1, 2, …, how many items have n answers or more, and the noise rate of n joined.

    Every answer is one entry: `item` says of which example, `contains` whether the answer holds its true
    label. The answers to an item are taken in random order; of A of them, m without the label, n all miss
    it with probability C(m, n)/C(A, n), which is averaged exactly.
    """
    total = np.bincount(item)
    misses = np.bincount(item, weights=~contains)
    rows = []
    for n in range(1, int(total.max()) + 1):
        enough = total >= n
        rate = float(np.mean(comb(misses[enough], n) / comb(total[enough], n)))
        rows.append((n, int(enough.sum()), rate))
    return rows


def measure_annotator_noise(image: NDArray[np.int64], contains: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected noise rate of 1, 2, … annotators' sets joined, up to as many as every example has.

    See `measure_noise_by_answers`; here every set of every annotator is one entry.
    """
    most = int(np.bincount(image).min())
    return np.array([rate for _, _, rate in measure_noise_by_answers(image, contains)[:most]])


def draw_dataset(
    name: str,
    stats: CandidateStats,
    annotator_noise: NDArray[np.float64] | None = None,
    width: float = COLUMN,
) -> Figure:
    """Draw what is known: candidates per label, set sizes, annotators, flipping probabilities.

    Classes have their names if those are known, else their numbers.
    """
    from matplotlib.ticker import MaxNLocator

    names = [label(n, 14) for n in stats.class_names or map(str, range(stats.n_classes))]
    small = 2 + (annotator_noise is not None)
    columns = 1 if width < 5 else small
    rows = -(-small // columns)
    height = 1.5 if columns == 1 else 1.9
    has_matrix = stats.flipping is not None
    matrix_height = min(width, 4.5) if has_matrix else 0.0
    figure = drawing.new_figure(width, height * rows + matrix_height)
    heights = [height * rows, matrix_height] if has_matrix else [height * rows]
    parts = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    labels, sizes, *more = parts[0].subgridspec(rows, columns).subplots(squeeze=False).ravel()
    colours = shades(5)
    bar: Any = {"width": 0.8, "edgecolor": DARK, "linewidth": 0.3}
    labels.bar(range(stats.n_classes), stats.candidate_counts, color=colours[3], **bar)
    meaning = "wide bars: candidate"
    if stats.label_counts is not None:
        labels.bar(range(stats.n_classes), stats.label_counts, width=0.4, color=colours[0])
        meaning += "; narrow: true label"
    labels.set(title=meaning, ylabel="examples")
    _name_classes(labels, names, "x")
    add_grid(labels, ticks=4)
    present = np.flatnonzero(stats.size_counts)
    shown = range(int(present.min()), int(present.max()) + 1)
    sizes.bar(shown, 100 * stats.size_counts[shown] / stats.n_examples, color=colours[2], **bar)
    title = f"mean size {stats.mean_size:.2f}"
    sizes.set(title=title, xlabel="size of the candidate set", ylabel="% of examples")
    sizes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    add_grid(sizes, ticks=4)
    if annotator_noise is not None:
        axes, numbers = more[0], range(1, len(annotator_noise) + 1)
        axes.plot(numbers, 100 * annotator_noise, color=DARK, marker="o", markersize=3, linewidth=0.9)
        axes.set(xticks=numbers, xlabel="annotators (sets joined)", ylabel="noise rate (%)")
        axes.set_ylim(bottom=0)
        add_grid(axes)
    notes = []
    if has_matrix:
        notes = _draw_flipping(figure, figure.add_subplot(parts[1]), stats, names)
    n = counted(stats.n_examples, "example")
    drawing.add_title(figure, f"{label(name)}: candidate sets over {stats.n_classes} classes, n = {n}")
    drawing.add_notes(figure, notes)
    return figure


def _draw_flipping(figure: Figure, axes: Axes, stats: CandidateStats, names: Sequence[str]) -> list[str]:
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
    axes.set(title="p(j ∈ S | y = i), %", xlabel="candidate j", ylabel="true label i")
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.8, extend="max", label="%")
    notes = [f"Colours end at the largest entry off the diagonal, {largest:.3g} %; the diagonal is beyond."]
    if np.isnan(percent).any():
        notes.append("White rows: classes without examples.")
    return notes


def _name_classes(axes: Axes, names: Sequence[str], axis: str) -> None:
    """Name every class where there is room, else every n-th."""
    every = -(-len(names) // MOST_NAMED_CLASSES)
    places, texts = range(0, len(names), every), names[::every]
    if axis == "x":
        axes.set_xticks(places, texts, rotation=90)
    else:
        axes.set_yticks(places, texts)
