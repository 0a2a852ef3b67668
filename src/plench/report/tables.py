"""Tables as text for a terminal or a log."""

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

from plench.report.grids import Entry, Grid, build_grids
from plench.report.leaderboard import build_leaderboard
from plench.results.records import Run

LONGEST_NAME = 48


def render_leaderboard(runs: Iterable[Run]) -> str:
    """Return the text tables of all runs by every criterion, as `plench demo` and `plench collect` print."""
    return render_text(build_grids(build_leaderboard(runs)))


def render_text(grids: Iterable[Grid]) -> str:
    """Return tables aligned with spaces; best in its column marked *, within one standard error marked ~."""
    grids = list(grids)
    legends = dict.fromkeys(grid.legend for grid in grids if grid.legend)
    key = "* best of its column, ~ within one standard error (the best cell's) of it."
    return "\n\n".join([*(_render_grid(grid) for grid in grids), "\n".join([*legends, key])])


def clean(name: str) -> str:
    """Make a name from a file safe to print: no control characters or direction marks, not endless."""
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in name)
    return kept if len(kept) <= LONGEST_NAME else kept[: LONGEST_NAME - 1] + "…"


def _render_grid(grid: Grid) -> str:
    header = [clean(name) for name in grid.header]
    body = [[clean(name), *(_show(entry) for entry in entries)] for name, entries in grid.rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *body, strict=True)]
    lines = [clean(grid.title) if len(grid.title) <= LONGEST_NAME else grid.title]
    lines.append("  ".join(_pad(text, width) for text, width in zip(header, widths, strict=True)).rstrip())
    lines.append("  ".join("─" * width for width in widths))
    for row in body:
        lines.append("  ".join(_pad(text, width) for text, width in zip(row, widths, strict=True)).rstrip())
    lines.extend(f"({letter}) {text}" for letter, text in grid.notes)
    return "\n".join(lines)


def _show(entry: Entry) -> str:
    marks = "".join(f"({letter})" for letter in entry.marks)
    sign = "*" if entry.best else "~" if entry.tied else " "
    if entry.mean is None:
        return f"{entry.text or '–'}{sign}{marks}".rstrip()
    spread = "" if entry.std is None else f" ± {100 * entry.std:.2f}"
    error = "" if entry.stderr is None else f" [{100 * entry.stderr:.2f}]"
    return f"{100 * entry.mean:5.2f}{spread}{error} n={entry.n}{sign}{marks}".rstrip()


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
