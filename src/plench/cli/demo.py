"""`plench demo`: the benchmark in small, on built-in data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

# Two vanilla PLL methods, one with weights for both groups, and one of each other family.
ALGORITHMS = ("PRODEN", "CC", "LWS", "SCL_NL", "CRDPLL", "FREDIS")
DATASETS = ("Digits_USS", "Digits_FPS")
STEPS = 2000


def add_parser(subparsers: Any) -> None:
    """Add `plench demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="compare a few algorithms on built-in data",
        description="Run a few algorithms on two built-in datasets, two splits and two configurations each, "
        "select models by every criterion, and print the leaderboard. The same command continues it.",
    )
    parser.add_argument("--all", action="store_true", help="every registered algorithm")
    parser.add_argument("--output_dir", default="demo-results", metavar="DIR", help="default: demo-results")
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="N", help=f"updates a run (default: {STEPS})"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="runs at a time (default: one a core)")
    parser.set_defaults(handler=demo)


def demo(arguments: argparse.Namespace) -> int:
    """Run the small sweep, then the ordinary selection and tables on its records."""
    from plench.algorithms import algorithms
    from plench.cli.sweep_view import watch_sweep
    from plench.sweeps.engines.local import LocalEngine
    from plench.sweeps.launch import launch
    from plench.sweeps.spec import Grid, SweepSpec

    grid = Grid(
        algorithms=tuple(algorithms()) if arguments.all else ALGORITHMS,
        datasets=DATASETS,
        n_hparams=2,
        n_trials=2,
        steps=arguments.steps,
        checkpoint_freq=max(1, arguments.steps // 10),
    )
    folder = Path(arguments.output_dir)
    with watch_sweep() as listener:
        engine = LocalEngine(workers=arguments.workers)
        outcome = launch([SweepSpec((grid,))], folder, engine=engine, listener=listener)
    if outcome.unfinished:
        print(f"stopped: the same command continues it ({folder})")
        return outcome.exit_code
    show_leaderboard(folder)
    for entry in outcome.failed:
        print(f"failed: {entry.run.folder}: {entry.message}")
    return outcome.exit_code


def show_leaderboard(folder: Path) -> None:
    """Print the tables of a folder, and write them beside its runs in the forms that papers use."""
    from plench.report.grids import build_grids
    from plench.report.leaderboard import build_leaderboard
    from plench.report.tables import render_latex, render_markdown, render_text
    from plench.storage import read_runs
    from plench.storage.files import write_text

    board = build_leaderboard(read_runs(folder))
    grids = build_grids(board, "dataset")
    print(render_text(grids))
    written = {"leaderboard.md": render_markdown(grids), "leaderboard.tex": render_latex(grids)}
    for name, text in written.items():
        write_text(folder / name, text + "\n")
    print(f"runs and records: {folder}")
    for name in written:
        print(f"table:            {folder / name}")
