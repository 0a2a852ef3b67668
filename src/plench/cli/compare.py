"""`plench compare`: our PLCIFAR10 results beside the paper's."""

import argparse
import json
import sys

from plench.cli.results_input import add_input_options, add_plan_options, read_input
from plench.report.escape import clean
from plench.report.leaderboard import build_leaderboard

EXAMPLES = """examples:
  plench compare runs/
  plench compare runs/ --criteria CR OA --json
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `compare` to the main parser."""
    parser = subparsers.add_parser(
        "compare",
        help="show our PLCIFAR10 results beside the paper's",
        description="Only runs on the real PLCIFAR10 release with the paper's number of steps are compared. "
        "Figures of the paper that came from a faulty implementation are marked with the reason.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_plan_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=compare)


def compare(args: argparse.Namespace) -> int:
    """Print the comparison."""
    from plench.report.beside_paper import beside_grids, beside_rows, pair_with_paper
    from plench.report.tables import render_text

    found = read_input(args)
    board = build_leaderboard(found.runs, found.criteria, found.plans)
    pairs, reasons = pair_with_paper(board, found.runs)
    if args.json:
        print(json.dumps({"cells": beside_rows(pairs), "not_compared": reasons}, indent=2))
    else:
        print(render_text(beside_grids(pairs)) if pairs else "nothing here can be compared with the paper")
        for reason in reasons:
            print(f"not compared: {clean(reason, None)}")
    for notice in found.notices:
        print(f"notice: {notice}", file=sys.stderr)
    return 0
