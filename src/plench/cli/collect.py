"""`plench collect`: select by every criterion and print the tables."""

import argparse
import sys
from pathlib import Path

from plench.cli.shared.options import terminal_width
from plench.cli.shared.results_input import add_input_options, add_plan_options, read_input
from plench.errors import UsageError
from plench.report.layout import build_chosen_tables, build_tables, drop_errors
from plench.report.leaderboard import Leaderboard
from plench.report.rows import cell_rows, choice_rows, render_csv, render_json, write_parquet
from plench.report.tables import render_latex, render_markdown, render_text
from plench.runs.files import write_text

FORMATS = ("text", "markdown", "latex", "csv", "json", "parquet")

DESCRIPTION = """Read folders of runs (ours or the public benchmark's), select, and print tables."""

EXAMPLES = """examples:
  plench collect runs/
  plench collect runs/ --format latex --by criterion --output table.tex
  plench collect runs/ --algorithms 'SCL_*' CC --criteria CR AA --chosen
  plench collect runs/ --format parquet --output results.parquet
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_input_options(parser)
    add_table_options(parser)
    parser.set_defaults(handler=collect)


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add what `plench collect` and `python -m plench.collect_results` share."""
    add_plan_options(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", choices=FORMATS, default="text", help="form of the tables (default: text)")
    shape.add_argument(
        "--latex", dest="format", action="store_const", const="latex", help="the same as --format latex"
    )
    shape.add_argument(
        "--json", dest="format", action="store_const", const="json", help="the same as --format json"
    )
    parser.add_argument(
        "--by",
        choices=("dataset", "criterion"),
        default="dataset",
        help="one table per dataset (columns: criteria) or per criterion (columns: datasets)",
    )
    parser.add_argument(
        "--without_error", action="store_true", help="leave out the standard errors (text, Markdown, LaTeX)"
    )
    parser.add_argument("--chosen", action="store_true", help="show the chosen configuration of every split")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of printing")


def collect(args: argparse.Namespace) -> int:
    """Print or write the tables that the options ask for."""
    if args.format == "parquet" and args.output is None:
        raise UsageError("Parquet is a binary format: say where to write it with --output FILE")
    found = read_input(args)
    board = found.board
    if args.format == "parquet":
        write_parquet(choice_rows(board) if args.chosen else cell_rows(board), args.output)
    else:
        text = _render(board, args, found.notices)
        if args.output is None:
            sys.stdout.write(text)
        else:
            write_text(args.output, text)
    for notice in found.notices:
        print(f"notice: {notice}", file=sys.stderr)
    return 0


def _render(board: Leaderboard, args: argparse.Namespace, notices: list[str]) -> str:
    if args.format == "json":
        return render_json(board, notices)
    if args.format == "csv":
        return render_csv(choice_rows(board) if args.chosen else cell_rows(board))
    grids = build_chosen_tables(board) if args.chosen else build_tables(board, args.by)
    if args.without_error:
        grids = drop_errors(grids)
    if args.format == "text":
        return render_text(grids, None if args.output else terminal_width()) + "\n"
    return (render_markdown if args.format == "markdown" else render_latex)(grids) + "\n"
