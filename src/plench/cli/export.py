"""One row per record, with configuration, criteria, test figures, timing, versions and identity
(docs/results.md lists the columns). The file is read like the folders it was made from.

examples:
  plench results export runs/ -o results.parquet
  plench collect results.parquet              (so do stats, plot and report)
"""

import argparse
import sys
from pathlib import Path

from plench.runs.gather import gather_results
from plench.runs.parquet import check_name, write_results_file
from plench.text import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folder of runs, or results file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="FILE.parquet")


def run(args: argparse.Namespace) -> int:
    """Write the results file and print what it has."""
    check_name(args.output)
    results = gather_results(args.folders)
    write_results_file(results, args.output)
    for warning in results.warnings:
        print(f"warning: {clean(warning, None)}", file=sys.stderr)
    print(f"{args.output}: {results.describe()}")
    return 0
