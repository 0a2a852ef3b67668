"""Repeating stored runs, which `plench results verify` and `plench results submit check` share."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plench.errors import UsageError
from plench.runs.records import Run
from plench.runs.verify import TOLERANCE, choose_sample
from plench.text import clean

if TYPE_CHECKING:  # imports torch
    from plench.training import Verdict


def add_repeat_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose which runs are repeated, and how."""
    parser.add_argument("--sample", type=int, default=5, metavar="N", help="how many runs (default 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the sample (default 0)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files")
    parser.add_argument("--device", default="cpu", help="device to repeat them on (default cpu)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="T",
        help=f"largest difference of accuracies where they need not be bit-equal (default {TOLERANCE})",
    )
    parser.add_argument(
        "--other-processor",
        action="store_true",
        help="the runs were made on another kind of processor: they need not be bit-equal",
    )
    parser.add_argument(
        "--run-code",
        action="store_true",
        help="also repeat runs of third-party algorithms, which executes their code",
    )
    parser.add_argument("--source", type=Path, metavar="FILE", help="file of the third-party algorithm")


def repeat_sample(args: argparse.Namespace, runs: list[Run]) -> int:
    """Repeat `args.sample` of the runs; return 1 if any of them does not agree, else 0."""
    from plench.training import verify_runs

    if args.sample < 1:
        raise UsageError(f"--sample must be at least 1, not {args.sample}")
    if not 0 <= args.tolerance <= 1:
        raise UsageError(f"--tolerance must lie between 0 and 1, not {args.tolerance}")
    sample, warnings = choose_sample(runs, args.sample, args.seed, args.run_code)
    for warning in warnings:
        print(f"warning: {clean(warning, None)}", file=sys.stderr)
    if not sample:
        raise UsageError("there is no finished run that could be repeated")
    n_good = 0
    for verdict in verify_runs(
        sample,
        data_dir=args.data_dir,
        source=args.source,
        device=args.device,
        tolerance=args.tolerance,
        other_processor=args.other_processor,
    ):
        n_good += verdict.good
        print(_describe(verdict, args.tolerance), flush=True)
    print(f"{n_good} of {len(sample)} repeated runs agree (drawn with seed {args.seed} of {len(runs):,})")
    return 0 if n_good == len(sample) else 1


def _describe(verdict: "Verdict", tolerance: float) -> str:
    name = clean(verdict.run.path.name, None)
    if verdict.differences:
        more = len(verdict.differences) - 3
        shown = "; ".join(clean(text, 300) for text in verdict.differences[:3])
        shown += f"; and {more} more" if more > 0 else ""
        if verdict.repeated and not verdict.conditions:
            shown += " (if the runs were made on another kind of processor, add --other-processor)"
        return f"{name}: DIFFERS: {shown}"
    if verdict.conditions:
        conditions = clean(", ".join(verdict.conditions), 300)
        return f"{name}: within {tolerance:g} (different here: {conditions})"
    return f"{name}: bit-equal"
