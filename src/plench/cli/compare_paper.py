"""Compare our PLCIFAR10 results with the paper's.

Only runs on the real PLCIFAR10 release with the paper's number of steps are compared.
Figures of the paper that came from a faulty implementation are marked with the reason.

examples:
  plench results compare-paper runs/
  plench results compare-paper runs/ --criteria CR OA --json
"""

import argparse
import json

from plench.cli.options import add_input_options, add_plan_options, print_warnings, read_input, terminal_width
from plench.report.compare_paper import pair_with_paper, paper_rows, paper_tables
from plench.report.tables import render_text
from plench.text import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_input_options(parser)
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
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
