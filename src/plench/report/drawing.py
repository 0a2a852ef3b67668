"""What all figures share: style, titles and notes, limits without outliers, names that do not overlap.

Figures are drawn for the column of a paper and with type of at least 6 points; `width` makes them wider.
Colours come from `cividis`, whose lightness rises evenly, and lines differ by dash and marker too, so that a
figure printed without colour still reads. Each is drawn on a matplotlib Figure (extra `report`), without
pyplot and global state.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plench.criteria import Criterion
from plench.errors import UsageError, needs_package
from plench.files import write_through
from plench.report.leaderboard import Leaderboard
from plench.report.results import Results
from plench.runs.records import Experiment
from plench.text import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
COLUMN, NARROWEST, WIDEST, LOWEST = 3.3, 2.5, 20.0, 1.2  # inches
SMALL, NORMAL, LARGE = 6.0, 6.5, 7.5  # points
MARKERS = "osD^vP*X<>hpd8"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
# Values further than this many interquartile ranges from the quartiles are outliers.
FAR = 2.0
DARK, GREY, LIGHT = "#1a1a1a", "#767676", "#d0d0d0"

_SETTINGS: Any = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": NORMAL,
    "axes.titlesize": NORMAL,
    "axes.titlelocation": "left",
    "axes.labelsize": NORMAL,
    "axes.linewidth": 0.6,
    **{f"{axis}tick.labelsize": SMALL for axis in "xy"},
    **{f"{axis}tick.major.width": 0.6 for axis in "xy"},
    **{f"{axis}tick.major.size": 2.5 for axis in "xy"},
    **{f"{axis}tick.minor.size": 1.5 for axis in "xy"},
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "svg.fonttype": "none",
    "svg.hashsalt": "plench",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: `draw(found, options)` draws results with the options of its command.

    `options` are its own flags, with the keywords of `add_argument`. With `folders_apart`, copies of a run in
    several folders all count. `from_runs` is false for a figure that reads other files than runs.
    """

    name: str
    meaning: str
    draw: Callable[[Results, Any], Figure]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folders_apart: bool = False
    from_runs: bool = True


def one_criterion(found: Results, options: Any) -> Criterion:
    """Return the criterion of a figure that shows one: the given one, or the first of all."""
    if options.criteria and len(found.criteria) > 1:
        raise UsageError(f"this figure shows one criterion, not {', '.join(c.name for c in found.criteria)}")
    return found.criteria[0]


def one_setting(board: Leaderboard) -> Experiment:
    """Return the setting of a figure that shows one."""
    if len(board.settings) != 1:
        known = ", ".join(clean(label) for label in board.labels.values()) or "none"
        raise UsageError(
            "this figure shows one dataset in one setting: choose with --datasets and --where "
            f"(there are {known})"
        )
    return board.settings[0]


# Figures and panels.


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw with our settings; a missing matplotlib is a UsageError that says what to install."""
    with needs_package("drawing figures", "matplotlib", "report"):
        import matplotlib as mpl
    with mpl.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches (of at least the height that axes need)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, max(height, LOWEST)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure


def new_panels(
    width: float, n: int, each: float, margin: float, height: tuple[float, float], **share: bool
) -> tuple[Figure, Sequence[Axes], int]:
    """Return a figure with n panels, as many in a row as fit, and the number of columns.

    `each` is the width of a panel and `margin` that of the names on the left, in inches; `height` is a
    constant and the height per row.
    """
    columns = min(n, max(1, int((width - margin) / each)))
    rows = -(-n // columns)
    figure = new_figure(width, height[0] + height[1] * rows)
    panels = figure.subplots(rows, columns, squeeze=False, **share).ravel()  # type: ignore[call-overload]
    for axes in panels[n:]:
        axes.set_visible(False)
    return figure, panels[:n], columns


def check_figure(path: Path, width: float) -> None:
    """Raise UsageError for a path or a width (in inches) that a figure cannot have."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot write a figure to {path.name!r}: it must end in {', '.join(FORMATS)}")
    if not NARROWEST <= width <= WIDEST:
        limits = f"{NARROWEST:g} and {WIDEST:g} inches"
        raise UsageError(f"a figure's width must lie between {limits}, not {width:g}")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the path. The same figure gives the same bytes."""
    form = path.suffix.lower()[1:]
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[form]
    with figure_style():
        write_through(path, lambda temporary: figure.savefig(temporary, format=form, metadata=undated))


# Text, numbers and colours.


def label(name: str, longest: int | None = 40) -> str:
    """Make a name safe to draw: plain text, no formula."""
    return clean(name, longest).replace("$", r"\$")


def format_number(value: float) -> str:
    """Write a number in short: 4096, 0.001, 1e-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.6g}".replace("-", "−")
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def set_plain_ticks(axis: Axis) -> None:
    """Write the numbers of an axis as `format_number` does, on a log scale at most four of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        subs = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=4))
        axis.set_minor_formatter(NullFormatter())


def shades(n: int) -> list[Any]:
    """Return n colours from dark to light, none so light that it vanishes on white."""
    from matplotlib import colormaps

    return [colormaps["cividis"](0.88 * i / max(n - 1, 1)) for i in range(n)]


def add_title(figure: Figure, text: str) -> None:
    """Write on top what the figure shows, over what, and n, broken into lines of the figure's width."""
    lines = _wrap(figure, [text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")], LARGE)
    figure.set_figheight(figure.get_figheight() + LARGE * 1.25 / 72 * len(lines))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=LARGE, color=DARK)


def add_notes(figure: Figure, notes: Iterable[str]) -> None:
    """Write notes below the figure, broken into lines of its width."""
    lines = _wrap(figure, notes, SMALL)
    if lines:
        figure.set_figheight(figure.get_figheight() + SMALL * 1.25 / 72 * len(lines))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL, color=DARK)


def _wrap(figure: Figure, texts: Iterable[str], size: float) -> list[str]:
    """Break texts into lines that fit the figure's width; a letter is about 0.58 of its size wide."""
    per_line = max(20, int(72 * figure.get_figwidth() / (0.58 * size)))
    return [line for text in texts if text for line in textwrap.wrap(label(text, None), per_line)]


def add_grid(axes: Axes, axis: Any = "y", ticks: int | None = None) -> None:
    """Draw thin lines behind the data, and limit the number of ticks."""
    if ticks is not None:
        axes.locator_params(axis=axis, nbins=ticks)
    axes.grid(True, axis=axis, color=LIGHT, linewidth=0.4)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a figure, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)


def write_beyond(axes: Axes, place: int, text: str, *, low: bool) -> None:
    """Write at the edge of a row what lies beyond the scale: an arrow and its figures."""
    axes.annotate(
        f"◂ {text}" if low else f"{text} ▸",
        (0.02 if low else 0.98, place),
        xycoords=("axes fraction", "data"),
        ha="left" if low else "right",
        va="center",
        fontsize=SMALL,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
    )


# Limits without outliers: most values are drawn to scale, outliers at the edge.


class Range(NamedTuple):
    """The part of an axis that is drawn to scale."""

    low: float
    high: float

    @property
    def span(self) -> float:
        """Its length."""
        return self.high - self.low

    def holds(self, value: float) -> bool:
        """Whether a value is drawn to scale."""
        return self.low <= value <= self.high

    def padded(self, share: float) -> Range:
        """Return the range with this share of its length more at both ends."""
        return Range(self.low - share * self.span, self.high + share * self.span)


def find_range(values: Iterable[float], least: float = 1.0) -> Range:
    """Return the range of the values that are not outliers, at least `least` long."""
    found = np.array([value for value in values if np.isfinite(value)], dtype=float)
    if len(found) == 0:
        return Range(0.0, least)
    first, third = np.quantile(found, (0.25, 0.75))
    reach = FAR * max(third - first, least / FAR)
    kept = found[(found >= first - reach) & (found <= third + reach)]
    low, high = float(kept.min()), float(kept.max())
    lacking = max(least - (high - low), 0.0) / 2
    return Range(low - lacking, high + lacking)


def place_outside(values: Sequence[float], scale: Range, gap: float) -> list[float]:
    """Return where to draw each value: those outside the range are placed beyond its ends, in order."""
    placed = list(values)
    for sign, edge in ((-1, scale.low), (1, scale.high)):
        beyond = sorted((sign * value, i) for i, value in enumerate(values) if sign * value > sign * edge)
        for place, (_, index) in enumerate(beyond, start=2):
            placed[index] = edge + sign * gap * place
    return placed


def mark_scale_ends(axes: Axes, values: Sequence[float], scale: Range, gap: float, at: float) -> None:
    """Draw a dotted line at each end of the scale that some value lies beyond.

    `at` is the place of its text, 0.5 the middle.
    """
    ends = [scale.low - gap] if min(values) < scale.low else []
    ends += [scale.high + gap] if max(values) > scale.high else []
    for edge in ends:
        axes.axhline(edge, color=GREY, linestyle=":", linewidth=0.7)
        axes.annotate(
            "not to scale",
            (at, edge),
            xycoords=("axes fraction", "data"),
            va="center",
            ha="center" if at == 0.5 else "right",
            fontsize=SMALL,
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )


# Names that do not overlap.


def spread_positions(values: Sequence[float], gap: float) -> list[float]:
    """Move values apart as little as needed for gaps of at least `gap`; the order is kept."""
    from scipy.optimize import isotonic_regression

    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(order))
    placed = np.empty(len(order))
    placed[order] = isotonic_regression(np.array(values)[order] - steps).x + steps
    return [float(position) for position in placed]


def name_points(
    axes: Axes,
    xs: Sequence[float],
    ys: Sequence[float],
    names: Sequence[str],
    steps: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> None:
    """Write a name next to each point where it covers neither a name nor a point, with a thin line to it.

    `steps` are the corners of a line of steps to leave free as well. The axes' limits must be final:
    positions are found in pixels.
    """
    from matplotlib.path import Path as Line
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure: Any = axes.get_figure()
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    points = axes.transData.transform(list(zip(xs, ys, strict=True)))
    unit = figure.dpi / 72
    obstacles = points
    if len(steps[0]) > 1:
        corners = np.column_stack([np.repeat(steps[0], 2)[1:], np.repeat(steps[1], 2)[:-1]])
        line = Line(axes.transData.transform(corners)).interpolated(200)
        obstacles = np.vstack([points, line.vertices])
    frame = axes.get_window_extent(renderer)
    taken: list[Bbox] = []

    def find_room(x: float, y: float, width: float, height: float) -> tuple[float, float, Bbox]:
        """Try places around a point, nearer ones first; the last one without a name on it if none is free."""
        found = (0.0, 0.0, Bbox.from_bounds(x, y, width, height))
        for radius in np.arange(0, 160, 4) * unit:
            for angle in np.radians(np.arange(0, 360, 15)):
                dx = math.cos(angle) * (radius + width / 2 + 3 * unit)
                dy = math.sin(angle) * (radius + height / 2 + 2 * unit)
                box = Bbox.from_bounds(x + dx - width / 2, y + dy - height / 2, width, height)
                if frame.count_contains(box.corners()) < 4 or box.count_overlaps(taken):
                    continue
                found = (dx, dy, box)
                if not box.padded(1.5 * unit).count_contains(obstacles):
                    return found
        return found

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
        x, y = points[index]
        dx, dy, box = find_room(x, y, size.width + 4 * unit, size.height + 1.5 * unit)
        text.set_position((dx / unit, dy / unit))
        taken.append(box)
