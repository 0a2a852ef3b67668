"""Compare a few algorithms on built-in data.

Run them on two datasets, two splits and two configurations, select models by every criterion, print the
leaderboard and write it as a web page. The same command resumes it.

examples:
  plench demo
  plench demo --all --steps 500 --output-dir all
"""

from __future__ import annotations

import argparse
from pathlib import Path

import plench
from plench.cli import main
from plench.files import write_text

# Two vanilla PLL methods, one with weights for both groups, and one of each other family.
ALGORITHMS = ("PRODEN", "CC", "LWS", "SCL_NL", "CRDPLL", "FREDIS")
DATASETS = ("Digits_USS", "Digits_FPS")
STEPS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--all", action="store_true", help="run every algorithm that fits the data")
    parser.add_argument("--output-dir", default="demo-results", metavar="DIR", help="default: demo-results")
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"updates per run (default: {STEPS})"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="parallel runs (default: one per core)")


def run(args: argparse.Namespace) -> int:
    """Run the small sweep, then select and write the tables and the page."""
    from plench.sweeps.plan import own_algorithms

    folder = Path(args.output_dir)
    outcome = plench.sweep(
        own_algorithms(lambda card: not card.answers) if args.all else ALGORITHMS,
        DATASETS,
        folder,
        n_hparams=2,
        n_trials=2,
        steps=args.steps,
        checkpoint_freq=max(1, args.steps // 10),
        workers=args.workers,
    )
    if outcome.unfinished:
        print(f"stopped: the same command resumes it ({folder})")
        return outcome.exit_code
    tables = plench.collect(folder)
    print(tables)
    print(f"runs and records: {folder}")
    for name, text in {"leaderboard.md": tables.markdown(), "leaderboard.tex": tables.latex()}.items():
        write_text(folder / name, text + "\n")
        print(f"table:            {folder / name}")
    print("page:             ", end="", flush=True)
    main(["report", str(folder), "-o", str(folder / "site"), "--data-dir", str(folder)])
    for entry in outcome.failed:
        print(f"failed: {entry.run.folder}: {entry.message}")
    page = folder / "site" / "index.html"
    print(f"Open {page}. Compare the columns: CR and AA chose models without true labels, OA with them.")
    return outcome.exit_code
