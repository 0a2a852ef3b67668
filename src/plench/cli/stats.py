"""`plench stats`: test the differences between algorithms, judge the criteria."""

import argparse
import json
import sys

from plench.cli.shared.options import terminal_width
from plench.cli.shared.results_input import add_input_options, read_input
from plench.errors import UsageError
from plench.report.comparison import compare_algorithms, comparison_tables, quality_rows, quality_tables
from plench.report.criterion_quality import judge_criteria
from plench.report.layout import describe_incomplete
from plench.report.leaderboard import warn_of_defects
from plench.report.tables import render_text
from plench.report.unlabelled import LEGEND as WITHOUT_LABELS
from plench.report.unlabelled import split_by_truth

DESCRIPTION = """Friedman, Nemenyi and Wilcoxon–Holm over datasets, win/tie/loss, bootstrap intervals, and
regret and rank correlation of every criterion."""

EXAMPLES = """examples:
  plench stats runs/
  plench stats runs/ --criteria CR --alpha 0.1 --pairs
  plench stats runs/ --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_input_options(parser)
    parser.add_argument("--alpha", type=float, default=0.05, help="level of significance (default 0.05)")
    parser.add_argument("--pairs", action="store_true", help="list all pairs, not only those with the best")
    parser.add_argument("--json", action="store_true", help="print JSON (with all pairs)")
    parser.set_defaults(handler=show_statistics)


def show_statistics(args: argparse.Namespace) -> int:
    """Print the statistics of the runs in the given folders."""
    if not 0 < args.alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, not {args.alpha}")
    found = read_input(args)
    board = found.board
    labelled, scored = split_by_truth(board)
    comparisons = {}
    if labelled is not None:
        comparisons = {c.name: compare_algorithms(labelled, c, args.alpha) for c in found.criteria}
    without = {}
    if scored is not None:
        without = {c.name: compare_algorithms(scored, c, args.alpha) for c in scored.criteria}
    judged = judge_criteria(found.runs, found.criteria)
    if args.json:
        content = {"alpha": args.alpha, "by_criterion": comparisons, "criteria": quality_rows(judged)}
        print(json.dumps({**content, **({"without_labels": without} if without else {})}, indent=2))
    else:
        width = terminal_width()
        for comparison in (*comparisons.values(), *without.values()):
            print(render_text(comparison_tables(comparison, args.alpha, args.pairs), width) + "\n")
        if without:
            print(f"{WITHOUT_LABELS}\n")
        if comparisons:
            print(render_text(quality_tables(judged, found.criteria), width))
    for notice in (*found.notices, *warn_of_defects(board), describe_incomplete(board)):
        if notice:
            print(f"notice: {notice}", file=sys.stderr)
    return 0
