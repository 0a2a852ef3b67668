"""A paper's results in one folder: LaTeX tables, PDF figures, their CSV, references, commands, protocol.

`write_paper` writes `paper.tex`, which includes all parts and compiles as it is; each part can be used alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.files import write_text
from plench.report import figures, run_figures
from plench.report.drawing import figure_style, save_figure
from plench.report.leaderboard import Leaderboard, part_of, split_by_truth
from plench.report.results import Results, Row, choice_rows, render_csv, run_rows
from plench.report.site import GENERATOR, check_folder
from plench.report.site.content import launch_command
from plench.report.statistics import ALPHA, Comparison, compare_algorithms, comparison_tables
from plench.report.tables import TableLayout, build_tables, escape_latex, render_latex
from plench.settings import __version__
from plench.text import clean, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCUMENT = "paper.tex"
PAGE_WIDTH = 6.5  # inches


@dataclass
class Paper:
    """The parts as they are made: what the document includes, and why parts are missing."""

    folder: Path
    included: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_tables(self, name: str, tables: Sequence[TableLayout], rows: Sequence[Row]) -> None:
        """Write tables and the CSV behind them."""
        write_text(self.folder / "csv" / f"{name}.csv", render_csv(rows))
        tables = [replace(table, title=table.title[:1].upper() + table.title[1:]) for table in tables]
        text = f"% numbers: csv/{name}.csv\n{render_latex(tables, name)}\n"
        write_text(self.folder / "tables" / f"{name}.tex", _printable(text))
        self.included.append(rf"\input{{tables/{name}}}")

    def add_figure(self, name: str, draw: Callable[[], Figure], caption: str, rows: Sequence[Row]) -> None:
        """Write a figure as PDF and the CSV behind it; one that cannot be drawn is a warning."""
        try:
            with figure_style():
                figure = draw()
                save_figure(figure, self.folder / "figures" / f"{name}.pdf")
        except UsageError as error:
            self.warnings.append(f"figure {name} is not drawn: {error}")
            return
        if rows:
            write_text(self.folder / "csv" / f"{name}.csv", render_csv(rows))
        self.included += [
            r"\begin{figure}[ht]\centering",
            rf"\includegraphics[width=\ifdim{figure.get_figwidth()}in>\linewidth\linewidth\else"
            rf" {figure.get_figwidth()}in\fi,height=.85\textheight,keepaspectratio]{{figures/{name}.pdf}}",
            _printable(rf"\caption{{{escape_latex(caption)}}}\label{{fig:{name}}}"),
            r"\end{figure}",
        ]


def write_paper(
    results: Results, folder: Path, sweeps: Iterable[tuple[str, str]], command: str, data_dir: Path | None
) -> list[str]:
    """Write everything into a folder of its own; return warnings. Data without true labels are left out."""
    board = split_by_truth(results.board)[0]
    if board is None:
        raise UsageError("there are no true labels here, so there are no accuracies for a paper")
    check_folder(folder, DOCUMENT, "--paper")
    paper = Paper(folder)
    if results.board.unlabelled:
        paper.warnings.append("settings without true labels are left out of the paper")
    grids, cells = build_tables(board, "criterion"), results.cells()
    for criterion, table in zip(board.criteria, grids, strict=False):
        own = [row for row in cells if row["criterion"] == criterion.name]
        paper.add_tables(f"accuracy-{criterion.name}", [table.without_errors()], own)
    if ranks := grids[len(board.criteria) :]:
        paper.add_tables("ranks", ranks, cells)
    for criterion in board.criteria:
        comparison = compare_algorithms(board, criterion)
        rows = _rank_rows(comparison)
        algorithms, *pairs = comparison_tables(comparison, ALPHA, all_pairs=False)
        paper.add_tables(f"comparison-{criterion.name}", [algorithms], rows)
        if pairs:
            paper.add_tables(f"pairs-{criterion.name}", pairs, _pair_rows(comparison))
        where = f"{counted(len(board.datasets), 'dataset')}, chosen by {criterion.title}"
        text = (
            f"Critical-difference diagram (Nemenyi, level {ALPHA:g}) over {where}. Bars join algorithms "
            "whose average ranks do not differ significantly."
        )
        draw = partial(figures.draw_ranks, board, criterion, width=PAGE_WIDTH)
        paper.add_figure(f"critical-difference-{criterion.name}", draw, text, rows)
        text = f"Average ranks with 95 % bootstrap intervals over {where}."
        draw = partial(figures.draw_rank_intervals, board, criterion, PAGE_WIDTH)
        paper.add_figure(f"rank-intervals-{criterion.name}", draw, text, rows)
    drawn = choice_rows(board)
    text = "Test accuracy less that of the median algorithm of the same split, by criterion."
    paper.add_figure("boxes", partial(figures.draw_boxes, board, (), PAGE_WIDTH), text, drawn)
    text = "Each criterion on validation data against test accuracy, a point per configuration."
    points = run_rows(results.runs, results.board)
    draw = partial(run_figures.draw_criteria, results.runs, board.criteria, PAGE_WIDTH)
    paper.add_figure("criterion", draw, text, points)
    references, keys = collect_references(results, board)
    write_text(folder / "references.bib", references)
    write_text(folder / "protocol.tex", _printable(describe_protocol(results, board, keys)))
    write_text(folder / "commands.txt", "\n".join(list_commands(sweeps, command, data_dir)) + "\n")
    parts = {"GENERATOR": GENERATOR, "VERSION": __version__, "INCLUDED": "\n".join(paper.included)}
    document = files("plench.report").joinpath(DOCUMENT).read_text("utf-8")
    for name, text in parts.items():
        document = document.replace(f"{{{{{name}}}}}", text)
    write_text(folder / DOCUMENT, document)
    return paper.warnings


def _printable(text: str) -> str:
    """Replace characters that pdfLaTeX's standard fonts do not have."""
    return re.sub("[^\x00-\u017f]", "?", text)


def _rank_rows(comparison: Comparison) -> list[Row]:
    """Return one row per algorithm: average rank, mean, and their intervals."""
    rows = []
    for name, mean in comparison["means"].items():
        row: Row = {"algorithm": clean(name, None), "average_rank": comparison["average_ranks"].get(name)}
        for kind in ("over_splits", "over_datasets"):
            limits = (comparison["rank_intervals"][kind] or {}).get(name, (None, None))
            row |= {f"rank_{kind}_low": limits[0], f"rank_{kind}_high": limits[1]}
        interval = comparison["intervals"][name] or {}
        row |= {"mean_accuracy": mean, **{key: interval.get(key) for key in ("low", "high", "method")}}
        rows.append(row | {"datasets": comparison["n_datasets_of"][name]})
    return rows


def _pair_rows(comparison: Comparison) -> list[Row]:
    """Return one row per pair and dataset, with the tests over datasets in each of them."""
    return [
        {
            **{key: value for key, value in pair.items() if key != "splits"},
            **{f"split_{key}" if key != "dataset" else key: value for key, value in found.items()},
        }
        for pair in comparison["pairs"]
        for found in pair["splits"]
    ]


def collect_references(results: Results, board: Leaderboard) -> tuple[str, dict[str, str]]:
    """Return BibTeX of the algorithms and datasets, and the key of each.

    Entries of our algorithms are our own; what records of third-party algorithms name is not given to LaTeX.
    """
    from plench.algorithms.registry import own_cards  # imports torch

    entries, keys, missing = {}, {}, []
    known = own_cards()
    names = {cell.experiment.algorithm for cell in board.cells.values()}
    for name in sorted(names, key=str.lower):
        key = re.match(r"@\w+\{([^,]+),", known[name].bibtex) if name in known else None
        if key is None:
            missing.append(clean(name, None))
        else:
            keys[name], entries[key[1]] = key[1], known[name].bibtex
    cited = {run.experiment.dataset: part_of(run.info, "dataset").get("citation") for run in results.runs}
    for dataset in board.datasets:
        citation = cited.get(dataset)
        if isinstance(citation, str) and citation != "none":
            key_text = "data-" + re.sub(r"[^A-Za-z0-9]+", "-", dataset)
            keys[dataset] = key_text
            title, note = (escape_latex(_printable(clean(text, None))) for text in (dataset, citation))
            fields = f"key = {{{title}}}, title = {{{{{title}}}}}, note = {{{note}}}"
            entries[key_text] = f"@misc{{{key_text}, {fields}}}"
        else:
            missing.append(clean(dataset, None))
    comment = f"Without an entry: {', '.join(missing)}\n\n" if missing else ""
    return comment.replace("@", "(at)") + "\n\n".join(entries.values()) + "\n", keys


def describe_protocol(results: Results, board: Leaderboard, keys: dict[str, str]) -> str:
    """Return a paragraph about what was run and how it was chosen and compared, with its numbers."""

    def cite(name: str) -> str:
        return escape_latex(clean(name)) + (rf"~\cite{{{keys[name]}}}" if name in keys else "")

    def vary(key: str, form: Callable[[Any], str] = str) -> str:
        found = dict.fromkeys(setting.details.get(key) for setting in board.settings)
        return escape_latex(" or ".join(form(value) for value in found if value is not None))

    def percent(value: float) -> str:
        return f"{100 * value:g} %"

    algorithms = sorted({cell.experiment.algorithm for cell in board.cells.values()}, key=str.lower)
    here = {cell.experiment for cell in board.cells.values()}
    runs = [run for run in results.runs if run.experiment in here]
    plans = [results.plans[experiment] for experiment in here]
    splits = " or ".join(map(str, sorted({len(plan.trial_seeds) for plan in plans})))
    configurations = " or ".join(map(str, sorted({len(plan.hparams_seeds) for plan in plans})))
    finished, diverged = sum(run.finished for run in runs), sum(run.diverged for run in runs)
    planned = sum(plan.n_runs for plan in plans)
    fitted = sorted({e.algorithm for e in here if e.fitted}, key=str.lower)
    made_with = []
    for name, key in (("plench", "plench"), ("PyTorch", "torch")):
        versions = sorted({str(part_of(run.info, "versions").get(key)) for run in runs} - {"None"})
        made_with += [f"{name} {', '.join(versions)}"] if versions else []
    sentences = [
        f"We compare {counted(len(algorithms), 'algorithm')}, {', '.join(map(cite, algorithms))}, on "
        f"{counted(len(board.datasets), 'dataset')}, {', '.join(map(cite, board.datasets))}.",
        f"Each split holds out {vary('test_fraction', percent)} of a dataset for testing, or its own test "
        f"set, and {vary('holdout_fraction', percent)} of the rest for validation; true labels are never "
        "used for training.",
        f"For each of {splits} splits, {configurations} configurations of hyperparameters are trained: the "
        "defaults first, the others drawn at random.",
        f"Networks ({vary('model')}) are trained for {vary('steps', lambda n: f'{n:,}')} steps."
        if vary("model")
        else "",
        f"Fitted in rounds instead: {', '.join(map(escape_latex, map(clean, fitted)))}." if fitted else "",
        "On each split a criterion on the validation examples chooses a checkpoint of each configuration and "
        "then a configuration: "
        + "; ".join(f"{escape_latex(c.title)}: {escape_latex(c.meaning.rstrip('.'))}" for c in board.criteria)
        + ".",
        "We report the test accuracy of what was chosen, as mean and sample standard deviation over splits.",
        escape_latex(board.averaging.replace(" (choose one with --where)", "")),
        "Algorithms are compared over datasets by Friedman's test, Nemenyi's critical difference and "
        "Wilcoxon's signed-rank test with Holm's correction, and on single datasets by the corrected "
        "resampled $t$-test; intervals of average ranks are percentile bootstraps.",
        f"Of {planned:,} planned runs {finished:,} are finished, of which {diverged:,} diverged.",
        escape_latex(f"All were made with {' and '.join(made_with)}.") if made_with else "",
    ]
    return "\n".join(filter(None, sentences)) + "\n"


def list_commands(sweeps: Iterable[tuple[str, str]], command: str, data_dir: Path | None) -> list[str]:
    """Return the commands that repeat the results and this folder."""
    launches = [launch_command(name, text, data_dir) for name, text in sweeps]
    unknown = ["# no sweep file is known: the page of plench report has the command of each chosen run"]
    head = "# The runs (RUNS: a new folder, DATA: the folder of the data files)"
    return [head, *(launches or unknown), "# This folder", command]
