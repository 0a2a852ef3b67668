"""What all figures share: size, type, colours that survive greyscale, and saving.

Colours come from `cividis`, whose lightness rises evenly, and lines differ by dash and marker too, so that a
figure printed without colour still reads.
"""

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.report.escape import clean
from plench.storage.files import write_through

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".pdf", ".png")
MARKERS = "osD^vP*X<>hpd8"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
DARK, GREY, LIGHT = "#1a1a1a", "#767676", "#d0d0d0"

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "plench",
    "pdf.fonttype": 42,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw under the house's settings; a missing matplotlib is a UsageError that says what to install."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'plench[report]'") from error
    with mpl.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, whose parts are laid out so that nothing is cut off."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


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


def shades(n: int) -> list[Any]:
    """Return n colours from dark to light, none so light that it vanishes on white."""
    from matplotlib import colormaps

    return [colormaps["cividis"](0.88 * i / max(n - 1, 1)) for i in range(n)]


def add_notes(figure: "Figure", notes: Iterable[str]) -> None:
    """Write below the figure what its reader has to know, broken into lines of its width."""
    per_line = max(30, int(14.5 * figure.get_figwidth()))  # letters of this size that fit an inch
    lines = [line for note in notes if note for line in textwrap.wrap(label(note, None), per_line)]
    if lines:
        figure.set_figheight(figure.get_figheight() + 0.12 * len(lines))
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=6.5, color=DARK)


def add_grid(axes: "Axes", axis: Any = "y") -> None:
    """Draw thin lines behind the data."""
    axes.grid(True, axis=axis, color=LIGHT, linewidth=0.5)
