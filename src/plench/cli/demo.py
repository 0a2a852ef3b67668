"""Run a few algorithms on two built-in datasets, two splits and two configurations each, select models by
every criterion, print the leaderboard and write it as a web page. The same command resumes it.

examples:
  plench demo
  plench demo --all --steps 500 --output-dir all
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import plench
from plench.report.site import SiteInput, list_sweep_files, measure_candidates, write_site
from plench.runs.files import write_text

# Two vanilla PLL methods, one with weights for both groups, and one of each other family.
ALGORITHMS = ("PRODEN", "CC", "LWS", "SCL_NL", "CRDPLL", "FREDIS")
DATASETS = ("Digits_USS", "Digits_FPS")
STEPS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--all", action="store_true", help="every registered algorithm")
    parser.add_argument("--output-dir", default="demo-results", metavar="DIR", help="default: demo-results")
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"updates per run (default: {STEPS})"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="parallel runs (default: one per core)")


def list_runnable() -> tuple[str, ...]:
    """Return our algorithms except those that need annotators' answers, which the demo's data lack."""
    from plench.sweeps.plan import own_algorithms

    return own_algorithms(lambda card: not card.answers)


def run(arguments: argparse.Namespace) -> int:
    """Run the small sweep, then the ordinary selection and tables on its records."""
    folder = Path(arguments.output_dir)
    outcome = plench.sweep(
        list_runnable() if arguments.all else ALGORITHMS,
        DATASETS,
        folder,
        n_hparams=2,
        n_trials=2,
        steps=arguments.steps,
        checkpoint_freq=max(1, arguments.steps // 10),
        workers=arguments.workers,
    )
    if outcome.unfinished:
        print(f"stopped: the same command continues it ({folder})")
        return outcome.exit_code
    show_leaderboard(folder)
    for entry in outcome.failed:
        print(f"failed: {entry.run.folder}: {entry.message}")
    return outcome.exit_code


def show_leaderboard(folder: Path) -> None:
    """Print the tables of a folder, and write them beside its runs in the forms that papers use."""
    tables = plench.collect(folder)
    print(tables)
    written = {"leaderboard.md": tables.markdown(), "leaderboard.tex": tables.latex()}
    for name, text in written.items():
        write_text(folder / name, text + "\n")
    print(f"runs and records: {folder}")
    for name in written:
        print(f"table:            {folder / name}")
    print(f"page:             {write_page(folder)}")


def write_page(folder: Path) -> Path:
    """Write the results of a folder as a web page beside its runs; return its path."""
    found = plench.results(folder)
    site = folder / "site"
    measured, _ = measure_candidates(found, folder)  # of built-in data, which need no folder
    content = SiteInput(
        results=found,
        notices=found.warnings,
        sweeps=list_sweep_files([folder]),
        command=shlex.join(["plench", "report", str(folder), "-o", str(site)]),
        measured=measured,
    )
    return write_site(content, site).page
