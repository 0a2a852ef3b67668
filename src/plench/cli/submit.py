"""Check runs of a new algorithm and merge them into a results file.

examples:
  plench results submit check runs/ --source my_method.py
  plench results submit check mine.parquet --source my_method.py --run-code --sample 3 --data-dir DIR
  plench results submit merge results.parquet mine.parquet --source my_method.py -o new.parquet
"""

import argparse
from pathlib import Path

from plench.cli.repeating import add_repeat_options, repeat_sample
from plench.errors import UsageError
from plench.runs.gather import gather_results
from plench.runs.parquet import StoredResults, check_name, write_results_file
from plench.runs.verify import check_submission, merge_results
from plench.settings import PROTOCOL_VERSION
from plench.text import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    checking = commands.add_parser(
        "check",
        help="check that runs are complete and match their description",
        description="Checks source hash, protocol version, planned runs, records and data fingerprints. "
        "Executes nothing of the submission unless --run-code is given: then a sample of runs is repeated.",
    )
    checking.add_argument("results", metavar="DIR", help="folder of runs, or results file")
    checking.add_argument("--against", metavar="FILE", help="results file that they would be added to")
    add_repeat_options(checking)
    checking.set_defaults(run=submit_check)
    merging = commands.add_parser("merge", help="add a submission that passes the check to a results file")
    merging.add_argument("into", metavar="FILE", help="results file, or folder of runs")
    merging.add_argument("results", metavar="DIR", help="the submission: folder of runs, or results file")
    merging.add_argument("--source", type=Path, required=True, metavar="FILE", help="the algorithm's file")
    merging.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="FILE.parquet")
    merging.set_defaults(run=merge)


def submit_check(args: argparse.Namespace) -> int:
    """Print what every check found; return 1 if anything is wrong."""
    if args.source is None:
        raise UsageError("the algorithm's file is needed: --source FILE")
    results = gather_results([args.results])
    others = gather_results([args.against]) if args.against else None
    if not _print_checks(results, args.source, others):
        return 1
    if not args.run_code:
        print("No run was repeated: --run-code does that, and executes the submission's code.")
        return 0
    submitted = [run for run in results.runs if "@" in run.experiment.algorithm]
    return repeat_sample(args, submitted)


def merge(args: argparse.Namespace) -> int:
    """Write a results file with both, if the submission passes."""
    check_name(args.output)
    into, submission = gather_results([args.into]), gather_results([args.results])
    if not _print_checks(submission, args.source, into):
        return 1
    merged = merge_results([into, submission])
    write_results_file(merged, args.output)
    print(f"{args.output}: {merged.describe()}")
    return 0


def _print_checks(results: StoredResults, source: Path, others: StoredResults | None) -> bool:
    found = check_submission(results, source, PROTOCOL_VERSION, others.runs if others is not None else ())
    for name, problems in found.items():
        print(f"{name}: {'' if problems else 'good'}".rstrip())
        for problem in problems:
            print(f"  {clean(problem, None)}")
    good = not any(found.values())
    print(f"{results.describe()}: " + ("passed" if good else "NOT passed"))
    return good
