"""Placing names so that they do not overlap."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from plench.report.figures.style import DARK, GREY, SMALL, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox


def spread_positions(values: Sequence[float], gap: float) -> list[float]:
    """Move values apart as little as needed so that neighbours are at least `gap` apart; the order is kept.

    Values that would collide form a block that is centred on their mean; blocks that then collide are merged.
    """
    order = np.argsort(values, kind="stable")
    blocks: list[tuple[float, int]] = []  # mean of the wished positions, number of members
    for index in order:
        blocks.append((float(values[index]), 1))
        while len(blocks) > 1:
            (low, n_low), (high, n_high) = blocks[-2], blocks[-1]
            if high - low >= gap * (n_low + n_high) / 2:
                break
            blocks[-2:] = [((low * n_low + high * n_high) / (n_low + n_high), n_low + n_high)]
    placed = [centre + gap * (i - (n - 1) / 2) for centre, n in blocks for i in range(n)]
    result = [0.0] * len(values)
    for position, index in zip(placed, order, strict=True):
        result[int(index)] = position
    return result


def name_points(
    axes: "Axes",
    xs: Sequence[float],
    ys: Sequence[float],
    names: Sequence[str],
    steps: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> None:
    """Write a name beside each point where it covers neither a name nor a point, with a thin line to it.

    `steps` are the corners of a line of steps to leave free as well. The axes' limits must be final:
    positions are found in pixels.
    """
    from matplotlib.text import Text

    figure = axes.get_figure()
    if figure is None:
        raise ValueError("the axes belong to no figure")
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    points = axes.transData.transform(list(zip(xs, ys, strict=True)))
    unit = figure.dpi / 72
    corners = axes.transData.transform(list(zip(*steps, strict=True))) if len(steps[0]) else np.empty((0, 2))
    obstacles = np.vstack([points, _trace(corners, 2 * unit)])
    frame = axes.get_window_extent(renderer)
    taken: list[Bbox] = []
    for index in np.argsort(-points[:, 1], kind="stable"):
        text = axes.annotate(
            label(names[index], 22),
            (xs[index], ys[index]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=SMALL,
            color=DARK,
            va="center",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2, "alpha": 0.85},
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 1.5},
        )
        size = Text.get_window_extent(text, renderer)  # an annotation's own extent includes its line
        place = (points[index][0], points[index][1])
        offset, box = _find_room(obstacles, place, (size.width, size.height), taken, frame, unit)
        text.set_position((offset[0] / unit, offset[1] / unit))
        taken.append(box)


def _trace(corners: np.ndarray, apart: float) -> np.ndarray:
    """Return points along the steps between corners (first across, then up), this many pixels apart."""
    points = [np.empty((0, 2))]
    for start, end in pairwise(corners):
        for first, last in ((start, (end[0], start[1])), ((end[0], start[1]), end)):
            length = float(np.hypot(*np.subtract(last, first)))
            points.append(np.linspace(first, last, max(2, math.ceil(length / apart))))
    return np.vstack(points)


def _find_room(
    obstacles: np.ndarray,
    place: tuple[float, float],
    size: tuple[float, float],
    taken: "list[Bbox]",
    frame: "Bbox",
    unit: float,
) -> "tuple[tuple[float, float], Bbox]":
    """Try places around a point, nearer ones first; the last one without a name on it if none is free."""
    from matplotlib.transforms import Bbox

    width, height = size[0] + 1.5 * unit, size[1] + 1.5 * unit
    x, y = place
    offset, box = (0.0, 0.0), Bbox.from_bounds(x, y, width, height)
    for radius in np.arange(0, 160, 4) * unit:
        for angle in np.arange(0, 360, 15):
            dx = math.cos(math.radians(angle)) * (radius + width / 2 + 3 * unit)
            dy = math.sin(math.radians(angle)) * (radius + height / 2 + 2 * unit)
            tried = Bbox.from_bounds(x + dx - width / 2, y + dy - height / 2, width, height)
            inside = (
                frame.x0 <= tried.x0
                and tried.x1 <= frame.x1
                and frame.y0 <= tried.y0
                and tried.y1 <= frame.y1
            )
            if not inside or any(tried.overlaps(other) for other in taken):
                continue
            offset, box = (dx, dy), tried
            covers = (abs(obstacles[:, 0] - (x + dx)) < width / 2 + 1.5 * unit) & (
                abs(obstacles[:, 1] - (y + dy)) < height / 2 + 1.5 * unit
            )
            if not covers.any():
                return offset, box
    return offset, box
