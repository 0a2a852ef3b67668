"""What all figures share: size, type, colours that survive greyscale, titles, numbers on axes, and saving.

Figures are drawn for the column of a paper and with type of at least 6 points; `width` makes them wider.
Colours come from `cividis`, whose lightness rises evenly, and lines differ by dash and marker too, so that a
figure printed without colour still reads.
"""

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError, missing_package
from plench.report.escape import clean
from plench.runs.files import write_through

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
COLUMN, NARROWEST, WIDEST, LOWEST = 3.3, 2.5, 20.0, 1.2  # inches
SMALL, NORMAL, LARGE = 6.0, 6.5, 7.5  # points
MARKERS = "osD^vP*X<>hpd8"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
DARK, GREY, LIGHT = "#1a1a1a", "#767676", "#d0d0d0"

_SETTINGS: Any = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": NORMAL,
    "axes.titlesize": NORMAL,
    "axes.labelsize": NORMAL,
    "axes.linewidth": 0.6,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "legend.fontsize": SMALL,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "svg.fonttype": "none",
    "svg.hashsalt": "plench",
    "pdf.fonttype": 42,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw with our settings; a missing matplotlib is a UsageError that says what to install."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise missing_package("drawing figures", "matplotlib", "report") from error
    with mpl.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, whose parts are laid out so that nothing is cut off.

    One of few rows gets the height that axes need to be there at all.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, max(height, LOWEST)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure


def check_width(width: float) -> float:
    """Return the width asked for, in inches; UsageError for one that no figure can have."""
    if not NARROWEST <= width <= WIDEST:
        raise UsageError(
            f"a figure's width must lie between {NARROWEST:g} and {WIDEST:g} inches, not {width:g}"
        )
    return width


def check_format(path: Path) -> str:
    """Return the format that a path's ending asks for; UsageError for one that figures do not have."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot write a figure to {path.name!r}: it must end in {', '.join(FORMATS)}")
    return path.suffix.lower()[1:]


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the path. The same figure gives the same bytes."""
    form = check_format(path)
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[form]
    with figure_style():
        write_through(path, lambda temporary: figure.savefig(temporary, format=form, metadata=undated))


def label(name: str, longest: int | None = 40) -> str:
    """Make a name safe to draw: plain text, no formula."""
    return clean(name, longest).replace("$", r"\$")


def format_number(value: float) -> str:
    """Write a number in short: 4096, 0.001, 1e-4."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.6g}".replace("-", "−")
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def set_plain_ticks(axis: "Axis", most: int = 4) -> None:
    """Write the numbers of an axis as `format_number` does, on a log scale at most so many of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        subs = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=most))
        axis.set_minor_formatter(NullFormatter())


def shades(n: int) -> list[Any]:
    """Return n colours from dark to light, none so light that it vanishes on white."""
    from matplotlib import colormaps

    return [colormaps["cividis"](0.88 * i / max(n - 1, 1)) for i in range(n)]


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 split, 5 splits."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def add_title(figure: "Figure", text: str) -> None:
    """Write on top what the figure shows, over what, and n, broken into lines of the figure's width."""
    lines = _wrap(figure, [text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")], LARGE)
    figure.set_figheight(figure.get_figheight() + LARGE * 1.25 / 72 * len(lines))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=LARGE, color=DARK)


def add_notes(figure: "Figure", notes: Iterable[str]) -> None:
    """Write notes below the figure, broken into lines of its width."""
    lines = _wrap(figure, notes, SMALL)
    if lines:
        figure.set_figheight(figure.get_figheight() + SMALL * 1.25 / 72 * len(lines))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL, color=DARK)


def _wrap(figure: "Figure", texts: Iterable[str], size: float) -> list[str]:
    """Break texts into lines that fit the figure's width; a letter is about 0.58 of its size wide."""
    per_line = max(20, int(72 * figure.get_figwidth() / (0.58 * size)))
    return [line for text in texts if text for line in textwrap.wrap(label(text, None), per_line)]


def add_grid(axes: "Axes", axis: Any = "y") -> None:
    """Draw thin lines behind the data."""
    axes.grid(True, axis=axis, color=LIGHT, linewidth=0.4)
