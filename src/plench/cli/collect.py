"""Read folders of runs (ours or the public benchmark's), select, and print tables.

examples:
  plench collect runs/
  plench collect runs/ --format latex --by criterion --output table.tex
  plench collect runs/ --algorithms 'SCL_*' CC --criteria CR AA --chosen
  plench collect runs/ --format parquet --output results.parquet
"""

import argparse
import sys
from pathlib import Path

from plench.cli.options import add_input_options, add_plan_options, print_warnings, read_input, terminal_width
from plench.errors import UsageError
from plench.files import write_text
from plench.report.results import Results, render_csv, render_json, write_parquet
from plench.report.tables import (
    build_chosen_tables,
    build_tables,
    render_latex,
    render_markdown,
    render_text,
)

FORMATS = ("text", "markdown", "latex", "csv", "json", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_input_options(parser)
    add_table_options(parser)


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add what `plench collect` and `python -m plench.collect_results` share."""
    add_plan_options(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", choices=FORMATS, default="text", help="form of the tables (default: text)")
    for name in ("latex", "json"):
        text = f"the same as --format {name}"
        shape.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=text)
    text = "one table per dataset (columns: criteria) or per criterion (columns: datasets)"
    parser.add_argument("--by", choices=("dataset", "criterion"), default="dataset", help=text)
    text = "leave out the standard errors (text, Markdown, LaTeX)"
    parser.add_argument("--without-error", action="store_true", help=text)
    parser.add_argument("--chosen", action="store_true", help="show the chosen configuration of every split")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of printing")


def run(args: argparse.Namespace) -> int:
    """Print or write the tables that the options ask for."""
    if args.format == "parquet" and args.output is None:
        raise UsageError("Parquet is a binary format: say where to write it with --output FILE")
    found = read_input(args)
    if args.format == "parquet":
        write_parquet(found.chosen() if args.chosen else found.cells(), args.output)
    else:
        text = _render(found, args)
        if args.output is None:
            sys.stdout.write(text)
        else:
            write_text(args.output, text)
    print_warnings(found.warnings)
    return 0


def _render(found: Results, args: argparse.Namespace) -> str:
    if args.format == "json":
        return render_json(found.board, found.warnings)
    if args.format == "csv":
        return render_csv(found.chosen() if args.chosen else found.cells())
    grids = build_chosen_tables(found.board) if args.chosen else build_tables(found.board, args.by)
    if args.without_error:
        grids = [grid.without_errors() for grid in grids]
    if args.format == "text":
        return render_text(grids, None if args.output else terminal_width()) + "\n"
    return (render_markdown if args.format == "markdown" else render_latex)(grids) + "\n"
