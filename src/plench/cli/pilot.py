"""`plench pilot`: the paper's pilot experiment: clean validation labels for choosing or for training."""

import argparse
import json
import sys
from pathlib import Path

from plench.cli.shared.options import add_width_option, read_hparams
from plench.cli.shared.results_input import read_input
from plench.criteria import criteria, find_criterion
from plench.errors import UsageError
from plench.pilot import TRAINING_ARM, VALIDATION_ARM
from plench.pilot.results import gather_pilot, pilot_rows, pilot_tables
from plench.report.escape import clean
from plench.report.figures.style import check_format, check_width, figure_style, save_figure
from plench.report.tables import render_text
from plench.runs import read_runs_with_notices
from plench.runs.sweep_spec import Grid
from plench.sweeps.progress import watch_sweep

DESCRIPTION = """Two arms with the same splits and steps: configurations chosen by the true labels of the
validation split, and the default configuration trained with those examples and their true labels added.
Repeating the command continues where it stopped."""

EXAMPLES = """examples:
  plench pilot --algorithms PRODEN CC --datasets Digits_FPS --n_hparams 3 --n_trials 2 --steps 1000
  plench pilot --output_dir pilot --plot_only --output pilot.svg
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="algorithms to compare")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="datasets to compare them on")
    parser.add_argument(
        "--n_hparams",
        type=int,
        default=20,
        metavar="N",
        help="end of the configurations: 0 to N-1 (default 20)",
    )
    parser.add_argument(
        "--n_trials", type=int, default=3, metavar="N", help="end of the splits: 0 to N-1 (default 3)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="updates per run (default: the dataset's)")
    parser.add_argument(
        "--checkpoint_freq", type=int, default=1000, metavar="N", help="updates between evaluations"
    )
    parser.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    parser.add_argument("--data_dir", metavar="DIR", help="folder with the data files")
    parser.add_argument("--output_dir", default="pilot", metavar="DIR", help="folder of both arms (pilot)")
    parser.add_argument("--workers", type=int, metavar="N", help="parallel runs in the first arm")
    oracles = [name for name, criterion in criteria.items() if criterion.needs_labels]
    parser.add_argument("--criterion", default=oracles[0], help=f"what chooses: {' or '.join(oracles)}")
    parser.add_argument("--plot_only", action="store_true", help="run nothing, show existing results")
    parser.add_argument("--output", type=Path, metavar="FILE", help="figure (default: DIR/pilot.svg)")
    add_width_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=compare_arms)


def compare_arms(args: argparse.Namespace) -> int:
    """Carry out both arms (unless they are only to be read), then print the table and draw the figure."""
    criterion = find_criterion(args.criterion)
    if not criterion.needs_labels:
        raise UsageError(f"the pilot experiment is about clean validation labels; {criterion.name} uses none")
    output = args.output or Path(args.output_dir) / "pilot.svg"
    check_format(output)
    code = 0
    if not args.plot_only:
        if not args.algorithms or not args.datasets:
            raise UsageError("say which --algorithms and --datasets to run (or --plot_only)")
        code = _run(args)
        if code == 130:
            return code
    _show(args, output)
    return code


def _run(args: argparse.Namespace) -> int:
    from plench.pilot.arms import run_pilot
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
    from plench.pilot.figure import draw_pilot

    folder = Path(args.output_dir)
    everything = {"datasets": None, "algorithms": None, "where": None, "criteria": [args.criterion]}
    choosing = read_input(argparse.Namespace(folders=[folder / VALIDATION_ARM], **everything))
    (criterion,) = choosing.criteria
    training, said = read_runs_with_notices(folder / TRAINING_ARM)
    results, apart = gather_pilot(choosing.runs, training, criterion, choosing.plans)
    for notice in (*choosing.notices, *(f"{TRAINING_ARM}/{text}" for text in said), *apart):
        print(f"notice: {clean(notice, None)}", file=sys.stderr)
    with figure_style():
        save_figure(draw_pilot(results, check_width(args.width)), output)
    if args.json:
        print(json.dumps(pilot_rows(results), indent=2))
    else:
        print(render_text(pilot_tables(results)))
        print(f"figure: {output}")
