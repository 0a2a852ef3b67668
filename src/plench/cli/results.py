"""Work with the results of finished runs: folders of runs, or results files (`plench results export`).

`stats` prints Friedman, Nemenyi and Wilcoxon–Holm over datasets, win/tie/loss, bootstrap intervals, regret
and rank correlation of every criterion. `compare-paper` compares runs on the real PLCIFAR10 release with the
paper's number of steps, and marks figures of the paper that came from a faulty implementation.

examples:
  plench results stats runs/ --criteria CR --alpha 0.1 --pairs
  plench results plot boxes runs/ --output boxes.pdf
  plench results plot ranks runs/ --criteria CR --post-hoc wilcoxon --output ranks.svg
  plench results plot slope runs_a/ runs_b/ --datasets Lost --output slope.svg
  plench results plot cost step.json --output cost.pdf      step.json: plench bench step --output
  plench results compare-paper runs/ --criteria CR OA
  plench results export runs/ -o results.parquet
  plench results verify results.parquet --sample 5 --data-dir DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from plench.cli import Parser, add_commands
from plench.cli.options import (
    add_input_options,
    add_plan_options,
    add_width_option,
    print_warnings,
    read_input,
    terminal_width,
)
from plench.errors import UsageError
from plench.report.leaderboard import split_by_truth, warn_of_defects
from plench.report.tables import SCORED_LEGEND, describe_incomplete, render_text
from plench.text import clean

FILES = {
    "export": "write all records to one Parquet file",
    "verify": "repeat a random sample of runs and compare their records",
    "submit": "check runs of a new algorithm, and merge them into a results file",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    stats = commands.add_parser("stats", help="test differences between algorithms and judge the criteria")
    add_input_options(stats)
    stats.add_argument("--alpha", type=float, default=0.05, help="level of significance (default 0.05)")
    stats.add_argument("--pairs", action="store_true", help="list all pairs, not only those with the best")
    stats.add_argument("--json", action="store_true", help="print JSON (with all pairs)")
    stats.set_defaults(run=show_statistics)
    commands.add_parser("plot", help="draw a figure (box plots, ranks, curves, …)", fill=add_figures)
    paper = commands.add_parser("compare-paper", help="compare PLCIFAR10 results with the paper's")
    add_input_options(paper)
    add_plan_options(paper)
    paper.add_argument("--json", action="store_true", help="print JSON")
    paper.set_defaults(run=compare_with_paper)
    add_commands(commands, FILES)


def add_figures(parser: Parser) -> None:
    """Add a command for each figure."""
    from plench.report.figures import FIGURES  # imports scipy.stats

    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for name, figure in FIGURES.items():
        kind = kinds.add_parser(name, help=figure.meaning, description=figure.meaning)
        if figure.from_runs:
            add_input_options(kind)
        for flag, details in figure.options.items():
            kind.add_argument(flag, **details)
        kind.add_argument(
            "--output", type=Path, required=True, metavar="FILE", help="FILE.svg, FILE.pdf or FILE.png"
        )
        add_width_option(kind)
        kind.set_defaults(run=plot, figure=figure)


def show_statistics(args: argparse.Namespace) -> int:
    """Print the statistics of the runs in the given folders."""
    from plench.report.criteria_quality import judge_criteria, quality_rows, quality_tables
    from plench.report.statistics import compare_algorithms, comparison_tables

    if not 0 < args.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {args.alpha}")
    found = read_input(args)
    comparisons, without_labels = (
        {} if board is None else {c.name: compare_algorithms(board, c, args.alpha) for c in board.criteria}
        for board in split_by_truth(found.board)
    )
    judged = judge_criteria(found.runs, found.criteria)
    if args.json:
        content = {"alpha": args.alpha, "by_criterion": comparisons, "criteria": quality_rows(judged)}
        more = {"without_labels": without_labels} if without_labels else {}
        print(json.dumps({**content, **more}, indent=2))
    else:
        width = terminal_width()
        for comparison in (*comparisons.values(), *without_labels.values()):
            print(render_text(comparison_tables(comparison, args.alpha, args.pairs), width) + "\n")
        if without_labels:
            print(f"{SCORED_LEGEND}\n")
        if comparisons:
            print(render_text(quality_tables(judged, found.criteria), width))
    print_warnings([*found.warnings, *warn_of_defects(found.board), describe_incomplete(found.board)])
    return 0


def plot(args: argparse.Namespace) -> int:
    """Read the data of the figure, draw and save it."""
    from plench.report.drawing import check_figure, figure_style, save_figure

    figure = args.figure
    check_figure(args.output, args.width)
    found = read_input(args, folders_apart=figure.folders_apart) if figure.from_runs else None
    if found is not None:
        print_warnings([*found.warnings, *warn_of_defects(found.board), describe_incomplete(found.board)])
    with figure_style():
        save_figure(figure.draw(found, args), args.output)
    print(args.output)
    return 0


def compare_with_paper(args: argparse.Namespace) -> int:
    """Print the comparison with the paper."""
    from plench.report.compare_paper import pair_with_paper, paper_rows, paper_tables

    found = read_input(args)
    pairs, reasons = pair_with_paper(found.board, found.runs)
    if args.json:
        print(json.dumps({"cells": paper_rows(pairs), "not_compared": reasons}, indent=2))
    else:
        tables = render_text(paper_tables(pairs), terminal_width())
        print(tables if pairs else "nothing here can be compared with the paper")
        for reason in reasons:
            print(f"not compared: {clean(reason, None)}")
    print_warnings(found.warnings)
    return 0
