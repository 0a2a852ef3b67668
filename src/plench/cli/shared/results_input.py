"""What all commands that read results share: folders and filters, and how warnings are printed."""

import argparse
import sys
from collections.abc import Iterable

from plench.criteria import criteria
from plench.report.results import Results, read_results
from plench.text import clean


def add_input_options(parser: argparse.ArgumentParser, *, folder_option: bool = False) -> None:
    """Add the folders (as arguments, or as the public benchmark's --input_dir) and the filters."""
    if folder_option:
        parser.add_argument(
            "--input_dir",
            dest="folders",
            action="append",
            required=True,
            metavar="DIR",
            help="folder of runs, or results file",
        )
    else:
        parser.add_argument(
            "folders", nargs="+", metavar="DIR", help="folder of runs, or results file (`plench export`)"
        )
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="only these (patterns like 'Digits_*')")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="only these (patterns like 'SCL_*')")
    parser.add_argument(
        "--where",
        nargs="+",
        metavar="KEY=VALUE",
        help="only experiments with these values, such as steps=10000 model=ResNet",
    )
    parser.add_argument("--criteria", nargs="+", metavar="NAME", help=f"only these of {', '.join(criteria)}")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what was planned, for commands that report missing runs."""
    parser.add_argument("--planned_trials", type=int, metavar="N", help="how many splits were planned")
    parser.add_argument(
        "--planned_hparams", type=int, metavar="N", help="how many configurations were planned"
    )


def read_input(args: argparse.Namespace, *, folders_apart: bool = False) -> Results:
    """Read the folders a command was given and keep what its filters ask for."""
    return read_results(
        args.folders,
        datasets=args.datasets,
        algorithms=args.algorithms,
        where=args.where,
        criteria=args.criteria,
        planned_trials=getattr(args, "planned_trials", None),
        planned_hparams=getattr(args, "planned_hparams", None),
        folders_apart=folders_apart,
    )


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings to standard error, without empty ones."""
    for text in filter(None, warnings):
        print(f"warning: {clean(text, None)}", file=sys.stderr)
