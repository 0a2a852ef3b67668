"""`plench report`: the results as a static site."""

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from plench.cli.results_input import ResultsInput, add_input_options, add_plan_options, read_input
from plench.errors import UsageError

if TYPE_CHECKING:
    from plench.report.candidate_stats import CandidateStats
    from plench.report.site import SiteOutput
    from plench.storage.records import Experiment

EXAMPLES = """examples:
  plench report runs/ -o site                      then open site/index.html
  plench report runs/ -o site --data_dir data      with flipping matrices, measured on the data
  plench report runs/ -o site --every 60           while a sweep runs: write again every minute
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `report` to the main parser."""
    parser = subparsers.add_parser(
        "report",
        help="write the results as a web page",
        description="Write a static site from folders of runs: leaderboard, every cell down to its runs, "
        "comparisons, criteria, datasets, algorithms, and how it was made. It opens from disk.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_plan_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the site (new, or an earlier one)",
    )
    parser.add_argument(
        "--data_dir",
        type=Path,
        metavar="DIR",
        help="also measure the candidate sets of datasets found here, or built in",
    )
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="JSON",
        help="also show what a step costs, from benchmarks/step.py --json",
    )
    parser.add_argument(
        "--every",
        type=float,
        metavar="S",
        help="write again every S seconds until all planned runs have ended",
    )
    parser.set_defaults(handler=report)


def report(args: argparse.Namespace) -> int:
    """Write the site and print the path of its page."""
    if args.every is not None and args.every <= 0:
        raise UsageError(f"--every must be a positive number of seconds, not {args.every:g}")
    while True:
        found = read_input(args)
        written = write(found, args)
        print(f"{written.page}  ({written.n_files} files, {written.n_bytes / 1e6:.1f} MB)", flush=True)
        if args.every is None or written.complete:
            break
        time.sleep(args.every)
    for notice in found.notices:
        print(f"notice: {notice}", file=sys.stderr)
    return 0


def write(found: ResultsInput, args: argparse.Namespace) -> "SiteOutput":
    """Write the site of what was read."""
    # Imported here: SciPy takes a while to import, and every command builds this parser.
    from plench.report.costs import read_costs
    from plench.report.site import SiteInput, write_site

    content = SiteInput(
        runs=found.runs,
        criteria=found.criteria,
        plans=found.plans,
        notices=found.notices,
        sweeps=read_sweep_texts(args.folders),
        command=shlex.join(["plench", "report", *map(str, args.folders), "-o", str(args.output)]),
        costs=[] if args.costs is None else read_costs(args.costs),
        measured={} if args.data_dir is None else measure_candidates(found, args.data_dir),
    )
    return write_site(content, args.output)


def read_sweep_texts(folders: list[str]) -> list[tuple[str, str]]:
    """Return the names and texts of the sweep files in these folders."""
    from plench.sweeps.spec import FILE_PATTERN

    paths = [path for folder in folders for path in sorted(Path(folder).glob(FILE_PATTERN))]
    return [(path.name, path.read_text(encoding="utf-8", errors="replace")) for path in paths]


def measure_candidates(found: ResultsInput, data_dir: Path) -> "dict[Experiment, CandidateStats]":
    """Measure the candidate sets of every setting whose data are here and are those of its runs."""
    from plench.data import CandidateSpec, draw_candidates, load_dataset
    from plench.errors import PlenchError
    from plench.report.candidate_stats import describe_candidates

    measured = {}
    for setting in dict.fromkeys(run.experiment.setting for run in found.runs):
        try:
            dataset = load_dataset(setting.dataset, data_dir)
            if dataset.fingerprint != setting.details.get("dataset_fingerprint"):
                found.notices.append(
                    f"{setting.dataset}: the data here are not those of the runs, not measured"
                )
                continue
            spec = CandidateSpec(**setting.details["candidates"])
            drawn = draw_candidates(dataset, spec, 0)
        except (PlenchError, TypeError) as error:
            found.notices.append(f"{setting.dataset}: candidate sets not measured: {error}")
            continue
        measured[setting] = describe_candidates(drawn.candidates, drawn.labels)
    return measured
