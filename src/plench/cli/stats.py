"""Friedman, Nemenyi and Wilcoxon–Holm over datasets, win/tie/loss, bootstrap intervals, and
regret and rank correlation of every criterion.

examples:
  plench results stats runs/
  plench results stats runs/ --criteria CR --alpha 0.1 --pairs
  plench results stats runs/ --json
"""

import argparse
import json

from plench.cli.options import add_input_options, print_warnings, read_input, terminal_width
from plench.errors import UsageError
from plench.report.criteria_quality import judge_criteria, quality_rows, quality_tables
from plench.report.leaderboard import split_by_truth, warn_of_defects
from plench.report.statistics import compare_algorithms, comparison_tables
from plench.report.tables import SCORED_LEGEND, describe_incomplete, render_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_input_options(parser)
    parser.add_argument("--alpha", type=float, default=0.05, help="level of significance (default 0.05)")
    parser.add_argument("--pairs", action="store_true", help="list all pairs, not only those with the best")
    parser.add_argument("--json", action="store_true", help="print JSON (with all pairs)")


def run(args: argparse.Namespace) -> int:
    """Print the statistics of the runs in the given folders."""
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
