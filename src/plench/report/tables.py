"""Tables of a leaderboard, as text for a terminal or a log, as Markdown, HTML and LaTeX.

A table without a format is a `TableLayout`: a title, a header, rows of cells, and notes that cells refer to.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import fill

from rich.cells import cell_len

from plench.criteria import Criterion
from plench.report.leaderboard import (
    Leaderboard,
    bootstrap_ranks,
    describe_choice,
    find_best,
    group_by,
    part_of,
    split_by_truth,
    title_criterion,
)
from plench.runs.records import Experiment
from plench.runs.select import Cell
from plench.text import clean, counted

# Accuracies are shares of a few hundred examples, so that differences just as large as an error do come up.
ROUNDING = 1e-12
LONGEST_TITLE = 240
TIES = "within one standard error (the best cell's) of it"
LEGEND = (
    "Test accuracy in %: mean ± sample standard deviation over splits (divisor n − 1), [standard error of "
    "the mean], n = number of splits. Cells without a letter are complete."
)
SCORED_LEGEND = (
    "There are no true labels: figures are the criteria themselves, in % of the validation split, mean ± "
    "sample standard deviation over splits (divisor n − 1), [standard error of the mean], n = number of "
    "splits. They show how well predictions agree with candidate sets and are not accuracies."
)


@dataclass(frozen=True)
class TableEntry:
    """One cell as shown: either figures or a plain text, and the letters of the notes it refers to."""

    mean: float | None = None
    std: float | None = None
    stderr: float | None = None
    n: int = 0
    text: str = ""
    best: bool = False
    tied: bool = False
    marks: tuple[str, ...] = ()


def text_entries(*texts: str) -> tuple[TableEntry, ...]:
    """Return cells of plain text."""
    return tuple(TableEntry(text=text) for text in texts)


@dataclass(frozen=True)
class TableLayout:
    """A table that a format can render. The first column holds the names of the rows.

    `basis` describes what was planned for its cells.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableEntry, ...]], ...]
    notes: tuple[tuple[str, str], ...] = ()
    legend: str = ""
    basis: str = ""

    @cached_property
    def n(self) -> int | None:
        """The number of splits if it is the same for all cells, else None: then every cell shows its own."""
        numbers = {entry.n for _, entries in self.rows for entry in entries if entry.mean is not None}
        return numbers.pop() if len(numbers) == 1 else None

    @property
    def full_title(self) -> str:
        """The title as shown."""
        return clean(self.title, LONGEST_TITLE) + ("" if self.n is None else f", n = {self.n}")

    @property
    def has_best(self) -> bool:
        """Whether a cell is marked as the best of its column."""
        return any(entry.best for _, entries in self.rows for entry in entries)

    def without_errors(self) -> TableLayout:
        """Return the table without the standard errors of the means."""
        rows = tuple((name, tuple(replace(e, stderr=None) for e in entries)) for name, entries in self.rows)
        return replace(self, rows=rows, legend=self.legend.replace(" [standard error of the mean],", ""))


@dataclass
class Notes:
    """Letters for notes, the same letter for the same text."""

    letters: dict[str, str] = field(default_factory=dict)

    def mark(self, *texts: str) -> tuple[str, ...]:
        """Return the letters of the texts that are not empty, a new one for a new text: a … z, aa, ab …"""
        for text in filter(None, texts):
            letters, index = "", len(self.letters) + 1
            while index:
                index, digit = divmod(index - 1, 26)
                letters = chr(ord("a") + digit) + letters
            self.letters.setdefault(text, letters)
        return tuple(self.letters[text] for text in texts if text)

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return (letter, text) of every note, in the order they came up."""
        return tuple((letter, text) for text, letter in self.letters.items())


class Tables:
    """Tables of a leaderboard, shown as text where they are printed and as HTML in a notebook.

    Parameters
    ----------
    grids : sequence of TableLayout
        The tables.
    warnings : sequence of str
        What was wrong with single files; shown below the tables in a notebook.
    """

    def __init__(self, grids: Sequence[TableLayout], warnings: Sequence[str] = ()) -> None:
        self.grids = list(grids)
        self.warnings = list(warnings)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return render_html(self.grids, self.warnings)

    def text(self) -> str:
        """Return the tables as `plench collect` prints them."""
        return render_text(self.grids)

    def markdown(self) -> str:
        """Return the tables in Markdown."""
        return render_markdown(self.grids)

    def latex(self) -> str:
        """Return the tables in LaTeX."""
        return render_latex(self.grids)


# What the tables hold.


def build_tables(board: Leaderboard, by: str = "dataset") -> list[TableLayout]:
    """Return the tables of a leaderboard, then the average ranks where there are several datasets.

    `by="dataset"` gives one table per setting with criteria as columns; `by="criterion"` one table per
    criterion with settings as columns. Settings without true labels have their own tables.
    """
    grids = []
    for part in filter(None, split_by_truth(board)):
        if by == "dataset":
            grids += [_grid(part, part.labels[s], [(s, c) for c in part.criteria]) for s in part.settings]
        else:
            grids += [
                _grid(part, f"selected by {c.title}", [(s, c) for s in part.settings]) for c in part.criteria
            ]
        if len(part.datasets) > 1:
            grids.append(_rank_grid(part))
    return grids


def build_chosen_tables(board: Leaderboard) -> list[TableLayout]:
    """Return one table per setting and criterion: what was chosen on each split of each algorithm.

    A planned split without a checkpoint to choose from has a row that says so.
    """
    header = ("Algorithm", "split", "configuration", "step", "criterion", "test accuracy", "hyperparameters")
    grids = []
    by_table = group_by(board.walk(), lambda item: (item[0], item[2].criterion))
    for (setting, criterion), group in by_table.items():
        rows = []
        for _, algorithm, cell in group:
            for trial, choice in cell.by_split():
                texts = [*["none"] * 4, "no run with a checkpoint that counts"]
                if choice is not None:
                    hparams = sorted(choice.run.hparams.items())
                    shown = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in hparams)
                    figures = [f"{100 * choice.score:.2f}", show_mean(choice.test_acc)]
                    place = [str(choice.run.hparams_seed), str(choice.record.step)]
                    texts = [*place, *figures, ", ".join(shown)]
                rows.append((algorithm, text_entries(str(trial), *texts)))
        title = f"{board.labels[setting]}, chosen by {title_criterion(criterion, [setting])}"
        grids.append(TableLayout(title, header, tuple(rows)))
    return grids


def describe_gaps(cell: Cell) -> str:
    """Name the planned runs that a cell lacks and what else to know about it; empty if there is nothing."""
    parts = []
    if not cell.complete:
        plan = cell.plan
        parts.append(
            f"rests on {cell.n} of {len(plan.trial_seeds)} splits and "
            f"{cell.n_finished - cell.n_absent} of {plan.n_runs} planned runs"
        )
    for number, what in (
        (cell.n_missing - cell.n_unfinished, "not started"),
        (cell.n_unfinished - cell.n_failed, "not finished"),
        (cell.n_failed, "failed"),
        (cell.n_diverged, "diverged"),
        (cell.n_absent, "without a checkpoint that counts here"),
    ):
        if number > 0:
            parts.append(f"{number} {what}")
    if cell.criterion.public_defect and cell.experiment.origin == "public":
        parts.append(cell.criterion.public_defect)
    return "; ".join([*parts, *cell.warnings])


def describe_incomplete(board: Leaderboard) -> str:
    """Count the cells that lack planned runs, for output without notes on cells."""
    parts = [part for part in split_by_truth(board) if part is not None]
    n_cells = sum(len(part.settings) * len(part.algorithms) * len(part.criteria) for part in parts)
    lacking = n_cells - sum(cell.complete for part in parts for _, _, cell in part.walk())
    if not lacking:
        return ""
    return f"{lacking} of {n_cells} cells do not rest on all planned runs: `plench collect` says which"


def describe_plans(board: Leaderboard, settings: Sequence[Experiment]) -> str:
    """Count the splits and configurations that were planned for each cell in these settings."""
    texts = {}
    for setting in settings:
        by_plan: dict[str, list[str]] = {}
        for algorithm in board.algorithms:
            cell = board.cell(setting, algorithm, board.criteria[0])
            if cell is not None:
                splits, configurations = len(cell.plan.trial_seeds), len(cell.plan.hparams_seeds)
                plan = f"{counted(splits, 'split')} × {counted(configurations, 'configuration')}"
                if cell.plan.n_runs != splits * configurations:
                    plan = f"{counted(splits, 'split')}, {cell.plan.n_runs} runs"
                by_plan.setdefault(plan, []).append(algorithm)
        named = [f"{plan} ({', '.join(algorithms)})" for plan, algorithms in by_plan.items()]
        texts[setting] = "; ".join(by_plan if len(by_plan) == 1 else named)
    if len(set(texts.values())) == 1:
        return f"Planned: {texts[settings[0]]}."
    return "Planned: " + "; ".join(f"{board.labels[s]}: {text}" for s, text in texts.items()) + "."


def _grid(board: Leaderboard, title: str, columns: Sequence[tuple[Experiment, Criterion]]) -> TableLayout:
    """Arrange one table whose columns are (setting, criterion) pairs, marking the best cells."""
    settings = list(dict.fromkeys(setting for setting, _ in columns))
    one_setting = len(settings) == 1 and len(columns) == len(board.criteria)
    header = [c.title if one_setting else board.labels[s] for s, c in columns]
    notes = Notes()
    entries: dict[str, list[TableEntry]] = {a: [] for a in board.algorithms}
    for setting, criterion in columns:
        sign = board.sign(criterion)
        means = {name: sign * mean for name, mean in board.means(setting, criterion).items()}
        top = max(means, key=lambda name: means[name]) if means else None
        best = board.cell(setting, top, criterion) if top is not None else None
        for algorithm in board.algorithms:
            cell = board.cell(setting, algorithm, criterion)
            if cell is None:
                entries[algorithm].append(TableEntry())
                continue
            chance = "" if board.scored else _describe_chance(cell)
            marks = notes.mark("; ".join(filter(None, (describe_gaps(cell), chance))))
            entry = TableEntry(text="none", marks=marks)
            if cell.mean is not None and best is not None and best.mean is not None:
                is_best = math.isclose(cell.mean, best.mean)
                entry = TableEntry(cell.mean, cell.std, cell.stderr, cell.n, best=is_best, marks=marks)
                entry = replace(entry, tied=not is_best and is_within(cell, best, sign))
            if board.scored and algorithm == top:
                chosen = find_best(board, setting, criterion)
                assert chosen is not None
                entry = replace(entry, marks=entry.marks + notes.mark(describe_choice(chosen, criterion)))
            entries[algorithm].append(entry)
    rows = []
    for algorithm in board.algorithms:
        if any(entry.text or entry.n for entry in entries[algorithm]):
            kind = (board.family(algorithm), board.budget(algorithm, settings)) if board.is_mixed else ()
            rows.append((algorithm, (*text_entries(*kind), *entries[algorithm])))
    return TableLayout(
        f"{title}, no true labels" if board.scored else title,
        ("Algorithm", *(("Family", "Budget") if board.is_mixed else ()), *header),
        tuple(rows),
        notes.listed(),
        SCORED_LEGEND if board.scored else LEGEND,
        describe_plans(board, settings),
    )


def is_within(cell: Cell, best: Cell, sign: int = 1) -> bool:
    """Whether a mean lies within one standard error (the best cell's) of the best; `sign` −1: the lowest."""
    if cell.mean is None or best.mean is None or best.stderr is None:
        return False
    return sign * cell.mean >= sign * best.mean - best.stderr - ROUNDING


def _describe_chance(cell: Cell) -> str:
    """Return a remark if a mean accuracy is known to be below that of a guess."""
    classes = part_of(cell.choices[0].run.info, "dataset").get("n_classes") if cell.choices else None
    if cell.mean is None or type(classes) is not int or classes < 2 or cell.mean >= 1 / classes:
        return ""
    return f"below chance: a guess among {classes:,} classes has {100 / classes:.2f} %"


def _rank_grid(board: Leaderboard) -> TableLayout:
    """Average rank over datasets, by criterion; the best is one of those ranked on most datasets."""
    entries: dict[str, list[TableEntry]] = {algorithm: [] for algorithm in board.algorithms}
    over = ""
    for criterion in board.criteria:
        ranks = board.rank(criterion)
        intervals = bootstrap_ranks(board, criterion, board.algorithms)
        if intervals.widest:
            over = intervals.over
        most = max((n for _, n in ranks.values()), default=0)
        lowest = min((rank for rank, n in ranks.values() if n == most), default=math.inf)
        for algorithm, row in entries.items():
            rank, n = ranks.get(algorithm, (math.inf, 0))
            best = n == most and math.isclose(rank, lowest)
            limits = intervals.widest.get(algorithm)
            within = "" if limits is None else " [{:.1f} to {:.1f}]".format(*limits)
            text = f"{rank:.2f}{within} (n={n})" if n else "none"
            row.append(TableEntry(text=text, best=bool(n) and best))
    legend = (
        f"Rank 1 is the {'best mean criterion' if board.scored else 'highest mean test accuracy'} of a "
        "dataset; n = number of datasets ranked in. Ranks over different datasets do not compare: the best "
        "is one of those with the largest n.",
        f"In brackets: 95 % interval, bootstrap over {over}." if over else "",
        board.averaging,
    )
    return TableLayout(
        f"Average rank over {len(board.datasets)} datasets{' without true labels' if board.scored else ''}",
        ("Algorithm", *(c.title for c in board.criteria)),
        tuple((algorithm, tuple(row)) for algorithm, row in entries.items()),
        legend=" ".join(filter(None, legend)),
    )


def show_mean(mean: float | None, error: float | None = None) -> str:
    """Show a mean in percent with its standard error in brackets."""
    if mean is None:
        return "none"
    return f"{100 * mean:.2f}" + ("" if error is None else f" [{100 * error:.2f}]")


# How each format shows them.

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "{}$&#_%"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "√": r"$\sqrt{}$"}
    | {"χ": r"$\chi$", "²": r"$^2$", "α": r"$\alpha$", "ρ": r"$\rho$", "→": r"$\to$"}
    | {"±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "…": r"\dots{}", "–": "--"}
)


def escape_latex(text: str) -> str:
    """Escape what LaTeX would read as a command."""
    return text.translate(_LATEX)


def escape_markdown(text: str) -> str:
    """Escape what Markdown or HTML would read as markup, and the bar that ends a cell."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


@dataclass(frozen=True)
class _Format:
    """How a format escapes text, and how it shows a cell that is plain, best or tied, and a note's letter."""

    escape: Callable[[str], str]
    best: str
    tied: str
    mark: str
    plain: str = "{}"

    def lines(self, grid: TableLayout) -> list[list[str]]:
        """Return the texts of a table line by line: the header, then the rows."""
        lines = [[self.escape(clean(name)) for name in grid.header]]
        for name, entries in grid.rows:
            lines.append([self.escape(clean(name))])
            for entry in entries:
                look = self.best if entry.best else self.tied if entry.tied else self.plain
                marks = "".join(self.mark.format(letter) for letter in entry.marks)
                lines[-1].append((look.format(self.escape(_figures(entry, grid))) + marks).rstrip())
        return lines


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


_TEXT = _Format(str, "{}*", "{}~", "({})", "{} ")
_MARKDOWN = _Format(lambda text: escape_markdown(text.strip()), "**{}**", "*{}*", "<sup>{}</sup>")
_HTML = _Format(lambda text: html.escape(text.strip()), "<b>{}</b>", "<i>{}</i>", "<sup>{}</sup>")
_TEX = _Format(
    lambda text: escape_latex(text.strip()), r"\textbf{{{}}}", r"\underline{{{}}}", r"\textsuperscript{{{}}}"
)


def render_text(grids: Iterable[TableLayout], width: int | None = None) -> str:
    """Return tables aligned with spaces; best in its column marked *, within one standard error marked ~.

    What does not fit into `width` characters is left out, first the standard errors and then the last
    columns, and a line says so.
    """
    shown, blocks, fits = [], [], True
    for grid in grids:
        if width is not None and _width(grid) > width:
            grid, fits = grid.without_errors(), False
            while _width(grid) > width and len(grid.header) > 2:
                rows = tuple((name, entries[:-1]) for name, entries in grid.rows)
                grid = replace(grid, header=grid.header[:-1], rows=rows)
        shown.append(grid)
        header, *body = _TEXT.lines(grid)
        widths = _widths(grid)
        lines = [grid.full_title]
        for row in (header, ["─" * w for w in widths], *body):
            padded = (text + " " * (w - cell_len(text)) for text, w in zip(row, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
        notes = [f"({letter}) {clean(text, None)}" for letter, text in grid.notes]
        blocks.append("\n".join([*lines, *filter(None, [clean(grid.basis, None)]), *notes]))
    blocks += _legend(shown, f"* best of its column, ~ {TIES}.", "\n")
    if not fits:
        blocks.append(f"Not all fits into {width} characters: a wider window, or a file, shows all.")
    lines = "\n\n".join(blocks).split("\n")
    if width is not None:  # rows of a table fit already
        lines = [fill(line, width, break_long_words=False) if len(line) > width else line for line in lines]
    return "\n".join(lines)


def _widths(grid: TableLayout) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*_TEXT.lines(grid), strict=True)]


def _width(grid: TableLayout) -> int:
    return sum(_widths(grid)) + 2 * (len(grid.header) - 1)


def _legend(grids: list[TableLayout], marks: str, line_end: str) -> list[str]:
    legends = dict.fromkeys(clean(grid.legend, None) for grid in grids if grid.legend)
    lines = [*legends, *([marks] if any(grid.has_best for grid in grids) else [])]
    return [line_end.join(lines)] if lines else []


def render_markdown(grids: Iterable[TableLayout]) -> str:
    """Return GitHub-flavoured Markdown; best in bold, within one standard error in italics."""
    grids = list(grids)
    blocks = []
    for grid in grids:
        header, *rows = _MARKDOWN.lines(grid)
        table = [header, ["---"] * len(header), *rows]
        lines = [f"### {escape_markdown(grid.full_title)}", ""]
        lines += ["| " + " | ".join(row) + " |" for row in table]
        below = [escape_markdown(clean(grid.basis, None)) + "  "] if grid.basis else []
        for letter, text in grid.notes:
            below.append(f"<sup>{letter}</sup> {escape_markdown(clean(text, None))}  ")
        blocks.append("\n".join([*lines, "", *below] if below else lines))
    return "\n\n".join(
        [*blocks, *_legend(grids, f"**Bold**: best of its column; *italics*: {TIES}.", "  \n")]
    )


def render_html(grids: Iterable[TableLayout], warnings: Iterable[str] = ()) -> str:
    """Return HTML for a notebook; best in bold, within one standard error in italics."""
    grids = list(grids)
    lines = []
    for grid in grids:
        header, *rows = _HTML.lines(grid)
        lines.append(f"<table><caption>{html.escape(grid.full_title)}</caption>")
        lines.append("<tr>" + "".join(f"<th>{name}</th>" for name in header) + "</tr>")
        for name, *cells in rows:
            lines.append(f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        lines.append("</table>")
        below = [*(f"{letter}: {text}" for letter, text in grid.notes), *filter(None, [grid.basis])]
        lines += [f"<p>{html.escape(clean(text, None))}</p>" for text in below]
    legend = _legend(grids, f"Bold: best of its column; italics: {TIES}.", "\n")
    said = [*"\n".join(legend).splitlines(), *(f"warning: {clean(text, None)}" for text in warnings)]
    return "\n".join([*lines, *(f"<p>{html.escape(line)}</p>" for line in said)])


def render_latex(grids: Iterable[TableLayout], label: str = "") -> str:
    """Return LaTeX tables (package booktabs); best in bold, within one standard error underlined.

    With a `label`, tables can be referred to by it, and by it and a number from the second one on.
    """
    blocks = []
    for number, grid in enumerate(grids, start=1):
        labels = [rf"\label{{tab:{label}{f'-{number}' if number > 1 else ''}}}"] if label else []
        caption = " ".join(filter(None, (f"{grid.full_title}.", grid.basis, grid.legend)))
        caption += f" Bold: best of its column; underlined: {TIES}." if grid.has_best else ""
        # A column with a long text is broken into lines, the others are centred.
        columns = zip(*(entries for _, entries in grid.rows), strict=True)
        kinds = ["p{80mm}" if any(len(e.text) > 50 for e in column) else "c" for column in columns]
        header, *rows = (
            # The row before ends in \\, which would read a bracket or a star as its own.
            ("{}" if row[0][:1] in ("[", "*") else "") + " & ".join(row) + r" \\"
            for row in _TEX.lines(grid)
        )
        notes = [
            rf"\par\footnotesize\raggedright\textsuperscript{{{letter}}}~{escape_latex(clean(text, None))}"
            for letter, text in grid.notes
        ]
        lines = [
            "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
            r"\begin{table}[ht]",
            r"\centering",
            rf"\caption{{{escape_latex(caption)}}}",
            *labels,
            r"\par\smallskip",
            # Made smaller where it is wider than the page, and only there.
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{''.join(kinds or 'c' * (len(grid.header) - 1))}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}}",
            *([r"\par\medskip", *notes] if notes else []),
            r"\end{table}",
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
