"""Two arms with the same splits and steps: configurations chosen by the true labels of the
validation split, and the default configuration trained with those examples and their true labels added.
Repeat the command to resume.

examples:
  plench sweep pilot --algorithms PRODEN CC --datasets Digits_FPS --n-hparams 3 --n-trials 2 --steps 1000
  plench sweep pilot --output-dir pilot --plot-only --output pilot.svg
"""

import argparse
import json
from pathlib import Path

from plench.cli.options import add_width_option, print_warnings, read_hparams
from plench.criteria import criteria, find_criterion
from plench.errors import UsageError
from plench.report.drawing import check_figure, figure_style, save_figure
from plench.report.results import read_results
from plench.report.tables import render_text
from plench.runs import read_runs_with_warnings
from plench.runs.sweep_spec import Grid
from plench.sweeps.progress import watch_sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="algorithms to compare")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="datasets to compare them on")
    parser.add_argument(
        "--n-hparams",
        type=int,
        default=20,
        metavar="N",
        help="end of the configurations: 0 to N-1 (default 20)",
    )
    parser.add_argument(
        "--n-trials", type=int, default=3, metavar="N", help="end of the splits: 0 to N-1 (default 3)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="updates per run (default: the dataset's)")
    parser.add_argument(
        "--checkpoint-freq", type=int, default=1000, metavar="N", help="updates between evaluations"
    )
    parser.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files")
    parser.add_argument("--output-dir", default="pilot", metavar="DIR", help="folder of both arms (pilot)")
    parser.add_argument("--workers", type=int, metavar="N", help="parallel runs in the first arm")
    oracles = [name for name, criterion in criteria.items() if criterion.needs_labels]
    parser.add_argument("--criterion", default=oracles[0], help=f"what chooses: {' or '.join(oracles)}")
    parser.add_argument("--plot-only", action="store_true", help="run nothing, show existing results")
    parser.add_argument("--output", type=Path, metavar="FILE", help="figure (default: DIR/pilot.svg)")
    add_width_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run both arms (unless they are only to be read), then print the table and draw the figure."""
    criterion = find_criterion(args.criterion)
    if not criterion.needs_labels:
        raise UsageError(f"the pilot experiment is about clean validation labels; {criterion.name} uses none")
    output = args.output or Path(args.output_dir) / "pilot.svg"
    check_figure(output, args.width)
    code = 0
    if not args.plot_only:
        if not args.algorithms or not args.datasets:
            raise UsageError("name the --algorithms and --datasets to run (or use --plot-only)")
        code = _run(args)
    if code != 130:
        _show(args, output)
    return code


def _run(args: argparse.Namespace) -> int:
    from plench.pilot import run_pilot
    from plench.sweeps.engines.local import LocalEngine

    grid = Grid(
        algorithms=tuple(args.algorithms),
        datasets=tuple(args.datasets),
        n_hparams=args.n_hparams,
        n_trials=args.n_trials,
        steps=args.steps,
        checkpoint_freq=args.checkpoint_freq,
        hparams=read_hparams(args.hparams),
    )
    with watch_sweep() as callback:
        engine = LocalEngine(workers=args.workers)
        outcome = run_pilot(grid, args.output_dir, data_dir=args.data_dir, engine=engine, callback=callback)
    for entry in outcome.sweep.failed:
        print(f"failed: {entry.run.folder}: {entry.message}")
    for run in outcome.training:
        if run.status == "failed":
            print(f"failed: {run.folder.name}: {run.message}")
    return outcome.exit_code


def _show(args: argparse.Namespace, output: Path) -> None:
    from plench import pilot

    folder = Path(args.output_dir)
    choosing = read_results(folder / pilot.VALIDATION_ARM, criteria=[args.criterion])
    training, said = read_runs_with_warnings(folder / pilot.TRAINING_ARM)
    results, apart = pilot.gather_pilot(choosing.runs, training, choosing.criteria[0], choosing.plans)
    print_warnings([*choosing.warnings, *(f"{pilot.TRAINING_ARM}/{text}" for text in said), *apart])
    with figure_style():
        save_figure(pilot.draw_pilot(results, args.width), output)
    if args.json:
        print(json.dumps(pilot.pilot_rows(results), indent=2))
    else:
        print(render_text(pilot.pilot_tables(results)))
        print(f"figure: {output}")
