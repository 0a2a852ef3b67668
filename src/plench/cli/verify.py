"""Records must be bit-equal where versions, platform, device and threads are the same; elsewhere
criteria and test accuracy of the last record must agree within --tolerance. Exit code 1 if a run differs or
cannot be repeated.

examples:
  plench results verify results.parquet --sample 5 --data-dir DIR
  plench results verify runs/ --sample 2 --seed 7
  plench results verify theirs.parquet --run-code --source their_method.py
"""

import argparse

from plench.cli.repeating import add_repeat_options, repeat_sample
from plench.runs.gather import gather_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("results", metavar="DIR", help="folder of runs, or results file")
    add_repeat_options(parser)


def run(args: argparse.Namespace) -> int:
    """Repeat a sample of runs and print how each compares."""
    return repeat_sample(args, gather_results([args.results]).runs)
