"""Placing names so that they do not overlap."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from plench.report.figures.style import DARK, GREY, label

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
    avoid: Sequence[tuple[float, float]] = (),
) -> None:
    """Write a name beside each point where it covers neither a name nor a point, with a thin line to it.

    `avoid` are further places to leave free, such as points of a line. The axes' limits must be final:
    positions are found in pixels.
    """
    from matplotlib.text import Text

    figure = axes.get_figure()
    if figure is None:
        raise ValueError("the axes belong to no figure")
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    points = axes.transData.transform([*zip(xs, ys, strict=True), *avoid])
    frame = axes.get_window_extent(renderer)
    unit = figure.dpi / 72
    taken: list[Bbox] = []
    for index in np.argsort(-points[: len(names), 1], kind="stable"):
        text = axes.annotate(
            label(names[index]),
            (xs[index], ys[index]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=6.5,
            color=DARK,
            va="center",
            ha="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85},
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2},
        )
        size = Text.get_window_extent(text, renderer)  # an annotation's own extent includes its line
        offset, box = _find_room(points, int(index), (size.width, size.height), taken, frame, unit)
        text.set_position((offset[0] / unit, offset[1] / unit))
        taken.append(box)


def _find_room(
    points: np.ndarray, index: int, size: tuple[float, float], taken: "list[Bbox]", frame: "Bbox", unit: float
) -> "tuple[tuple[float, float], Bbox]":
    """Try places around the point, nearer ones first; the last one tried if none is free."""
    from matplotlib.transforms import Bbox

    width, height = size[0] + 2 * unit, size[1] + 2 * unit
    x, y = points[index]
    offset, box = (0.0, 0.0), Bbox.from_bounds(x, y, width, height)
    for radius in np.arange(0, 160, 5) * unit:
        for angle in np.arange(0, 360, 20):
            dx = math.cos(math.radians(angle)) * (radius + width / 2 + 4 * unit)
            dy = math.sin(math.radians(angle)) * (radius + height / 2 + 4 * unit)
            box = Bbox.from_bounds(x + dx - width / 2, y + dy - height / 2, width, height)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if not inside or any(box.overlaps(other) for other in taken):
                continue
            covers = (abs(points[:, 0] - (x + dx)) < width / 2 + 3 * unit) & (
                abs(points[:, 1] - (y + dy)) < height / 2 + 3 * unit
            )
            if not covers.any():
                return (dx, dy), box
            offset = (dx, dy)
    return offset, box
