"""`plench beside-paper`: show our PLCIFAR10 results beside the paper's."""

import argparse
import json
import sys

from plench.cli.shared.options import terminal_width
from plench.cli.shared.results_input import add_input_options, add_plan_options, read_input
from plench.report.beside_paper import beside_rows, beside_tables, pair_with_paper
from plench.report.escape import clean
from plench.report.tables import render_text

DESCRIPTION = """Only runs on the real PLCIFAR10 release with the paper's number of steps are compared.
Figures of the paper that came from a faulty implementation are marked with the reason."""

EXAMPLES = """examples:
  plench beside-paper runs/
  plench beside-paper runs/ --criteria CR OA --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_input_options(parser)
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=show_beside_paper)


def show_beside_paper(args: argparse.Namespace) -> int:
    """Print the comparison."""
    found = read_input(args)
    pairs, reasons = pair_with_paper(found.board, found.runs)
    if args.json:
        print(json.dumps({"cells": beside_rows(pairs), "not_compared": reasons}, indent=2))
    else:
        print(
            render_text(beside_tables(pairs), terminal_width())
            if pairs
            else "nothing here can be compared with the paper"
        )
        for reason in reasons:
            print(f"not compared: {clean(reason, None)}")
    for notice in found.notices:
        print(f"notice: {notice}", file=sys.stderr)
    return 0
