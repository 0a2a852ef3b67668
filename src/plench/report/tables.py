"""Tables as text for a terminal or a log, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from textwrap import fill

from rich.cells import cell_len

from plench.report.escape import clean, escape_latex, escape_markdown
from plench.report.layout import TableEntry, TableLayout, build_tables, drop_errors
from plench.report.leaderboard import Leaderboard

LONGEST_TITLE = 240
TIES = "within one standard error (the best cell's) of it"


class Tables:
    """Tables of a leaderboard, shown as text where they are printed and as HTML in a notebook."""

    def __init__(self, grids: Sequence[TableLayout], notices: Sequence[str] = ()) -> None:
        self.grids = list(grids)
        self.notices = list(notices)

    @classmethod
    def of(cls, board: Leaderboard, by: str = "dataset", notices: Sequence[str] = ()) -> Tables:
        """Return the tables of a leaderboard, one per dataset or one per criterion."""
        return cls(build_tables(board, by), notices)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return render_html(self.grids, self.notices)

    def text(self) -> str:
        """Return the tables as `plench collect` prints them."""
        return render_text(self.grids)

    def markdown(self) -> str:
        """Return the tables in Markdown."""
        return render_markdown(self.grids)

    def latex(self) -> str:
        """Return the tables in LaTeX."""
        return render_latex(self.grids)


def render_text(grids: Iterable[TableLayout], width: int | None = None) -> str:
    """Return tables aligned with spaces; best in its column marked *, within one standard error marked ~.

    What does not fit into `width` characters is left out, first the standard errors and then the last
    columns, and a line says so.
    """
    grids = list(grids)
    if width is None:
        blocks, left_out = [_text_block(grid) for grid in grids], False
    else:
        fitted = [fit_grid(grid, width) for grid in grids]
        blocks = [_wrap(_text_block(grid), width) for grid in fitted]
        left_out = any(found is not grid for found, grid in zip(fitted, grids, strict=True))
        grids = fitted
    legend = _legend(grids, f"* best of its column, ~ {TIES}.", "\n")
    if left_out:
        legend.append(f"Not all fits into {width} characters: a wider window, or a file, shows all.")
    return "\n\n".join([*blocks, *(text if width is None else _wrap(text, width) for text in legend)])


def fit_grid(grid: TableLayout, width: int) -> TableLayout:
    """Return a table that fits into a width: without standard errors, or with its first columns only."""
    if _text_width(grid) <= width:
        return grid
    (shorter,) = drop_errors([grid])
    while _text_width(shorter) > width and len(shorter.header) > 2:
        shorter = replace(
            shorter,
            header=shorter.header[:-1],
            rows=tuple((name, entries[:-1]) for name, entries in shorter.rows),
        )
    return shorter


def _text_width(grid: TableLayout) -> int:
    """Return how many characters wide the rows of a table are."""
    widths = [max(map(cell_len, column)) for column in _columns(grid)]
    return sum(widths) + 2 * (len(widths) - 1)


def _columns(grid: TableLayout) -> list[tuple[str, ...]]:
    """Return the texts of a table column by column."""
    body = [[clean(name), *(_text_entry(entry, grid) for entry in entries)] for name, entries in grid.rows]
    return list(zip([clean(name) for name in grid.header], *body, strict=True))


def _wrap(text: str, width: int) -> str:
    """Break long lines of words; rows of a table fit already."""
    lines = (
        fill(line, width, break_long_words=False) if len(line) > width else line for line in text.splitlines()
    )
    return "\n".join(lines)


def render_markdown(grids: Iterable[TableLayout]) -> str:
    """Return GitHub-flavoured Markdown; best in bold, within one standard error in italics."""
    grids = list(grids)
    blocks = [_markdown_block(grid) for grid in grids]
    return "\n\n".join(
        [*blocks, *_legend(grids, f"**Bold**: best of its column; *italics*: {TIES}.", "  \n")]
    )


def render_latex(grids: Iterable[TableLayout]) -> str:
    """Return LaTeX tables (package booktabs); best in bold, within one standard error underlined."""
    return "\n\n".join(_latex_block(grid) for grid in grids)


def render_html(grids: Iterable[TableLayout], notices: Iterable[str] = ()) -> str:
    """Return HTML for a notebook; best in bold, within one standard error in italics."""
    grids = list(grids)
    blocks = [_html_block(grid) for grid in grids]
    legend = _legend(grids, f"Bold: best of its column; italics: {TIES}.", "\n")
    said = [*"\n".join(legend).splitlines(), *(f"notice: {clean(notice, None)}" for notice in notices)]
    return "\n".join([*blocks, *(f"<p>{escape(line)}</p>" for line in said)])


def _legend(grids: list[TableLayout], marks: str, line_end: str) -> list[str]:
    legends = dict.fromkeys(grid.legend for grid in grids if grid.legend)
    marked = any(entry.best for grid in grids for _, entries in grid.rows for entry in entries)
    lines = [*(clean(legend, None) for legend in legends), *([marks] if marked else [])]
    return [line_end.join(lines)] if lines else []


def _title(grid: TableLayout) -> str:
    return clean(grid.title, LONGEST_TITLE) + ("" if grid.n is None else f", n = {grid.n}")


def _text_block(grid: TableLayout) -> str:
    columns = _columns(grid)
    widths = [max(map(cell_len, column)) for column in columns]
    header, *body = zip(*columns, strict=True)
    lines = [_title(grid)]
    for row in (header, ["─" * width for width in widths], *body):
        padded = (text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    lines.extend([clean(grid.basis, None)] if grid.basis else [])
    lines.extend(f"({letter}) {clean(text, None)}" for letter, text in grid.notes)
    return "\n".join(lines)


def _text_entry(entry: TableEntry, grid: TableLayout) -> str:
    marks = "".join(f"({letter})" for letter in entry.marks)
    sign = "*" if entry.best else "~" if entry.tied else " "
    return f"{_figures(entry, grid)}{sign}{marks}".rstrip()


def _figures(entry: TableEntry, grid: TableLayout) -> str:
    """Show the figures of a cell, all in percent: `68.70 ± 1.23 [0.71]`, with n where it differs by cell."""
    if entry.mean is None:
        return clean(entry.text, None) or "–"
    parts = [f"{100 * entry.mean:5.2f}"]
    if entry.std is not None:
        parts.append(f"± {100 * entry.std:.2f}")
    if entry.std is not None and entry.stderr is not None:
        parts.append(f"[{100 * entry.stderr:.2f}]")
    if grid.n is None:
        parts.append(f"n={entry.n}")
    return " ".join(parts)


def _markdown_block(grid: TableLayout) -> str:
    header = [escape_markdown(clean(name)) for name in grid.header]
    lines = [f"### {escape_markdown(_title(grid))}", "", _markdown_row(header)]
    lines.append(_markdown_row(["---"] * len(header)))
    for name, entries in grid.rows:
        shown = (_markdown_entry(entry, grid) for entry in entries)
        lines.append(_markdown_row([escape_markdown(clean(name)), *shown]))
    if grid.basis:
        lines.extend(["", escape_markdown(clean(grid.basis, None)) + "  "])
    if grid.notes:
        lines.extend([] if grid.basis else [""])
        lines.extend(
            f"<sup>{letter}</sup> {escape_markdown(clean(text, None))}  " for letter, text in grid.notes
        )
    return "\n".join(lines)


def _markdown_row(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _markdown_entry(entry: TableEntry, grid: TableLayout) -> str:
    text = escape_markdown(_figures(entry, grid).strip())
    text = f"**{text}**" if entry.best else f"*{text}*" if entry.tied else text
    return text + "".join(f"<sup>{letter}</sup>" for letter in entry.marks)


def _html_block(grid: TableLayout) -> str:
    lines = [f"<table><caption>{escape(_title(grid))}</caption>"]
    lines.append("<tr>" + "".join(f"<th>{escape(clean(name))}</th>" for name in grid.header) + "</tr>")
    for name, entries in grid.rows:
        cells = "".join(f"<td>{_html_entry(entry, grid)}</td>" for entry in entries)
        lines.append(f"<tr><th>{escape(clean(name))}</th>{cells}</tr>")
    lines.append("</table>")
    lines += [f"<p>{escape(letter)}: {escape(clean(text, None))}</p>" for letter, text in grid.notes]
    if grid.basis:
        lines.append(f"<p>{escape(clean(grid.basis, None))}</p>")
    return "\n".join(lines)


def _html_entry(entry: TableEntry, grid: TableLayout) -> str:
    text = escape(_figures(entry, grid))
    tag = "b" if entry.best else "i" if entry.tied else ""
    marks = f"<sup>{escape(','.join(entry.marks))}</sup>" if entry.marks else ""
    return (f"<{tag}>{text}</{tag}>" if tag else text) + marks


def _latex_block(grid: TableLayout) -> str:
    caption = " ".join(text for text in (f"{_title(grid)}.", grid.basis, grid.legend) if text)
    marked = any(entry.best for _, entries in grid.rows for entry in entries)
    caption += f" Bold: best of its column; underlined: {TIES}." if marked else ""
    header = [escape_latex(clean(name)) for name in grid.header]
    rows = [
        [escape_latex(clean(name)), *(_latex_entry(entry, grid) for entry in entries)]
        for name, entries in grid.rows
    ]
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
        r"\begin{table}[ht]",
        r"\centering",
        rf"\caption{{{escape_latex(caption)}}}",
        r"\par\smallskip",
        # Made smaller where it is wider than the page, and only there.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{_latex_columns(grid)}}}",
        r"\toprule",
        _latex_row(header),
        r"\midrule",
        *map(_latex_row, rows),
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\medskip"] if grid.notes else []),
    ]
    lines.extend(
        rf"\par\footnotesize\raggedright\textsuperscript{{{letter}}}~{escape_latex(clean(text, None))}"
        for letter, text in grid.notes
    )
    lines.append(r"\end{table}")
    return "\n".join(lines)


def _latex_columns(grid: TableLayout) -> str:
    """Return the columns' kinds: centred, or broken into lines where a text is long."""
    columns = zip(*(entries for _, entries in grid.rows), strict=True)
    kinds = ["p{80mm}" if any(len(e.text) > 50 for e in column) else "c" for column in columns]
    return "l" + "".join(kinds or "c" * (len(grid.header) - 1))


def _latex_row(cells: list[str]) -> str:
    # The row before ends in \\, which would read a bracket or a star as its own.
    guard = "{}" if cells[0][:1] in ("[", "*") else ""
    return guard + " & ".join(cells) + r" \\"


def _latex_entry(entry: TableEntry, grid: TableLayout) -> str:
    text = escape_latex(_figures(entry, grid).strip())
    if entry.best:
        text = rf"\textbf{{{text}}}"
    elif entry.tied:
        text = rf"\underline{{{text}}}"
    return text + "".join(rf"\textsuperscript{{{letter}}}" for letter in entry.marks)
