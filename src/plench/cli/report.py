"""Write a static site from folders of runs: leaderboard, every cell down to its runs,
comparisons, criteria, datasets, algorithms, and how it was made. It opens from disk.

examples:
  plench report runs/ -o site                      then open site/index.html
  plench report runs/ -o site --data-dir data      with flipping matrices, measured on the data
  plench report runs/ -o site --every 60           while a sweep runs: rewritten every minute
"""

import argparse
import math
import shlex
import time
from pathlib import Path

from plench.cli.options import add_input_options, add_plan_options, print_warnings, read_input
from plench.errors import UsageError
from plench.report.figures import read_costs
from plench.report.site import SiteInput, list_sweep_files, measure_candidates, write_site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_input_options(parser)
    add_plan_options(parser)
    text = "folder of the site: a new one, or that of an earlier page"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help=text)
    text = "also show statistics of candidate sets of datasets in this folder or built in"
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=text)
    text = "also show the cost of a step (plench bench step --output)"
    parser.add_argument("--costs", type=Path, metavar="JSON", help=text)
    text = "rewrite it every S seconds until all planned runs have ended"
    parser.add_argument("--every", type=float, metavar="S", help=text)


def run(args: argparse.Namespace) -> int:
    """Write the site and print the path of its page."""
    if args.every is not None and not 0 < args.every < math.inf:
        raise UsageError(f"--every must be a positive number of seconds, not {args.every:g}")
    while True:
        found = read_input(args)
        measured, missed = ({}, []) if args.data_dir is None else measure_candidates(found, args.data_dir)
        content = SiteInput(
            results=found,
            warnings=(*found.warnings, *missed),
            sweeps=list_sweep_files(args.folders),
            command=shlex.join(["plench", "report", *map(str, args.folders), "-o", str(args.output)]),
            costs=() if args.costs is None else read_costs(args.costs),
            measured=measured,
        )
        written = write_site(content, args.output)
        print(f"{written.page}  ({written.n_files} files, {written.n_bytes / 1e6:.1f} MB)", flush=True)
        if args.every is None or written.complete:
            break
        time.sleep(args.every)
    print_warnings(written.warnings)
    return 0
