"""`plench verify`: repeat a random sample of runs and compare their records."""

import argparse

from plench.cli.shared.repeating import add_repeat_options, repeat_sample
from plench.runs.gather import gather_results

DESCRIPTION = """Records must agree in every bit where versions, platform, device and threads agree; elsewhere
criteria and test accuracy of the last record within --tolerance. Exit code 1 if a run differs or cannot be
repeated."""

EXAMPLES = """examples:
  plench verify results.parquet --sample 5 --data_dir DIR
  plench verify runs/ --sample 2 --seed 7
  plench verify theirs.parquet --run_code --source their_method.py
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("results", metavar="DIR", help="folder of runs, or results file (`plench export`)")
    add_repeat_options(parser)
    parser.set_defaults(handler=verify)


def verify(args: argparse.Namespace) -> int:
    """Repeat a sample of runs and print how each compares."""
    return repeat_sample(args, gather_results([args.results]).runs)
