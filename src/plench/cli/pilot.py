"""Two arms with the same splits and steps: configurations chosen by the true labels of the
validation split, and the default configuration trained with those examples and their true labels added.
Repeat the command to resume.

examples:
  plench sweep pilot --algorithms PRODEN CC --datasets Digits_FPS --n-hparams 3 --n-trials 2 --steps 1000
  plench sweep pilot --output-dir pilot --plot-only --output pilot.svg
"""

# The paper's pilot experiment: is a clean validation set better used for choosing or for training? The first
# arm is an ordinary sweep, in which true labels of the validation split choose among configurations. In the
# second, the validation examples join the training split with their true label as the only candidate, and
# nothing is chosen.

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.cli.options import (
    CANDIDATE_SETTINGS,
    add_settings,
    add_width_option,
    given_settings,
    print_warnings,
    read_hparams,
)
from plench.criteria import Criterion, criteria, find_criterion
from plench.data import CandidateSpec, Dataset, Split
from plench.errors import DataError, UsageError
from plench.report import drawing
from plench.report.drawing import COLUMN, DARK, GREY, check_figure, figure_style, label, save_figure
from plench.report.leaderboard import group_by, label_settings
from plench.report.results import read_results
from plench.report.tables import (
    Notes,
    TableEntry,
    TableLayout,
    describe_gaps,
    render_text,
    show_mean,
    text_entries,
)
from plench.runs import read_runs_with_warnings
from plench.runs.records import Experiment, Run
from plench.runs.select import Plan, place_experiments, select
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import declared, seed_hash
from plench.text import counted

if TYPE_CHECKING:  # these import torch or matplotlib
    from matplotlib.figure import Figure

    from plench.training import RunOutcome

# Folders of the two arms below the pilot's own.
VALIDATION_ARM = "validation"
TRAINING_ARM = "training"
# Ends the name of data whose validation examples have joined the training split.
SUFFIX = "+validation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="algorithms to compare")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="datasets to compare them on")
    for name, default, what in (("--n-hparams", 20, "configurations"), ("--n-trials", 3, "splits")):
        text = f"{what} 0 … N-1 (default: {default})"
        parser.add_argument(name, type=int, default=default, metavar="N", help=text)
    add_settings(parser, ("steps", "checkpoint_freq"))
    parser.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files")
    folder = "folder of both arms (default: pilot)"
    parser.add_argument("--output-dir", default="pilot", metavar="DIR", help=folder)
    parser.add_argument("--workers", type=int, metavar="N", help="parallel runs in the first arm")
    oracles = [name for name, criterion in criteria.items() if criterion.needs_labels]
    chooses = f"what chooses: {' or '.join(oracles)} (default: {oracles[0]})"
    parser.add_argument("--criterion", default=oracles[0], help=chooses)
    parser.add_argument("--plot-only", action="store_true", help="run nothing, show existing results")
    parser.add_argument("--output", type=Path, metavar="FILE", help="figure (default: DIR/pilot.svg)")
    add_width_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run both arms (unless they are only to be read), then print the table and draw the figure."""
    criterion = find_criterion(args.criterion)
    if not criterion.needs_labels:
        raise UsageError(f"the pilot experiment is about clean validation labels; {criterion.name} uses none")
    folder = Path(args.output_dir)
    output = args.output or folder / "pilot.svg"
    check_figure(output, args.width)
    code = 0 if args.plot_only else run_arms(args)
    if code == 130:
        return code
    choosing = read_results(folder / VALIDATION_ARM, criteria=[args.criterion])
    training, warnings = read_runs_with_warnings(folder / TRAINING_ARM)
    rows, apart = gather_pilot(choosing.runs, training, choosing.criteria[0], choosing.plans)
    print_warnings([*choosing.warnings, *(f"{TRAINING_ARM}/{text}" for text in warnings), *apart])
    with figure_style():
        save_figure(draw_pilot(rows, args.width), output)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(render_text(pilot_tables(rows)))
        print(f"figure: {output}")
    return code


def run_arms(args: argparse.Namespace) -> int:
    """Run both arms, or what is missing of them; return the exit code: 1 if a run failed, 130 if stopped."""
    from plench.sweeps.engines.local import LocalEngine
    from plench.sweeps.launch import launch_sweep
    from plench.sweeps.plan import StackOptions
    from plench.sweeps.progress import watch_sweep

    if not args.algorithms or not args.datasets:
        raise UsageError("name the --algorithms and --datasets to run (or use --plot-only)")
    grid = Grid(
        algorithms=tuple(args.algorithms),
        datasets=tuple(args.datasets),
        n_hparams=args.n_hparams,
        n_trials=args.n_trials,
        hparams=read_hparams(args.hparams),
        **given_settings(args),
    )
    folder = Path(args.output_dir)
    with watch_sweep() as callback:
        sweep = launch_sweep(
            SweepSpec((grid,)),
            folder / VALIDATION_ARM,
            data_dir=args.data_dir,
            engine=LocalEngine(workers=args.workers),
            callback=callback,
            stack=StackOptions(size=1),  # as the other arm is trained
        )
        states = set()
        for outcome in (
            () if sweep.unfinished else train_with_validation(grid, args.data_dir, folder / TRAINING_ARM)
        ):
            states.add(outcome.status)
            if outcome.status == "failed":
                print(f"failed: {outcome.folder.name}: {outcome.message}")
            elif outcome.status == "interrupted":
                break
    for entry in sweep.failed:
        print(f"failed: {entry.run.folder}: {entry.message}")
    if sweep.unfinished or "interrupted" in states:
        return 130
    return 1 if "failed" in states else sweep.exit_code


def train_with_validation(grid: Grid, data_dir: str | Path | None, folder: Path) -> Iterator[RunOutcome]:
    """Run the second arm, run by run."""
    from plench.algorithms import find_algorithm
    from plench.sweeps.plan import DatasetCache
    from plench.training import configure_run, run_training
    from plench.training.data import prepare_split
    from plench.training.environment import choose_device

    datasets = DatasetCache(data_dir)
    candidates = dict.fromkeys(CANDIDATE_SETTINGS)  # the joined data have their candidate sets already
    for name in grid.datasets:
        for trial_seed in grid.trial_seeds:
            dataset, split, weights = join_validation(datasets.get(name), grid, trial_seed)
            prepared = prepare_split(dataset, split, choose_device(grid.device), weights)
            for algorithm in grid.algorithms:
                entry = find_algorithm(algorithm)
                seed = seed_hash(dataset.card.name, entry.name, 0, trial_seed)  # the default configuration
                settings = {**grid.values(), **candidates, "trial_seed": trial_seed, "seed": seed}
                config = configure_run(entry, dataset.card, hparams=grid.hparams, **settings)
                yield run_training(config, dataset, entry, folder, prepared=prepared)


def join_validation(
    dataset: Dataset, grid: Grid, trial_seed: int
) -> tuple[Dataset, Split, np.ndarray | None]:
    """Return the trial's data with validation examples as clean training examples, its split and weights.

    The validation part of the split stays as it is, so that records have their usual figures; they are
    measured on training examples here and choose nothing. The name marks the data as not the dataset itself.
    """
    if dataset.labels is None:
        raise DataError(
            f"{dataset.card.name} has no true labels: the pilot experiment needs those of validation"
        )
    from plench.training.data import draw_trial

    drawn, split, weights = draw_trial(dataset, grid, trial_seed)
    candidates = drawn.candidates.copy()
    candidates[split.validation] = np.eye(drawn.n_classes, dtype=bool)[dataset.labels[split.validation]]
    if weights is not None:
        weights[split.validation] = candidates[split.validation]
    card = replace(dataset.card, name=dataset.card.name + SUFFIX, candidates=CandidateSpec())
    joined = replace(drawn, candidates=candidates, card=card)
    return joined, replace(split, train=np.concatenate([split.train, split.validation])), weights


def gather_pilot(
    choosing_runs: Iterable[Run],
    training_runs: Iterable[Run],
    criterion: Criterion,
    plans: Mapping[Experiment, Plan] | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare both arms on the splits that both have, and name what has no split in common.

    A row is one algorithm on one dataset (and setting, where there are several); accuracies are fractions.
    Runs of other steps, another network or other fractions are other experiments and are not compared.
    """
    trained: dict[tuple[object, ...], dict[int, float]] = {}
    for run in training_runs:
        record = run.last_record if run.finished else None
        test = record.get("test_acc") if record is not None else None
        if test is not None:
            trained.setdefault(_identify(run.experiment), {})[run.trial_seed] = test
    rows, apart = [], []
    cells = select(choosing_runs, criterion, plans)
    tables = place_experiments(cell.experiment for cell in cells)
    labels = label_settings(dict.fromkeys(setting for settings in tables.values() for setting in settings))
    for cell in cells:
        dataset, algorithm = labels[tables[cell.experiment][0]], cell.experiment.algorithm
        chosen = {c.trial_seed: c.test_acc for c in cell.choices if c.test_acc is not None}
        other = trained.get(_identify(cell.experiment), {})
        common = sorted(chosen.keys() & other.keys())
        if not common:
            apart.append(f"{dataset}, {algorithm}: no split with a result in both arms")
            continue
        row: dict[str, Any] = {
            "dataset": dataset,
            "algorithm": algorithm,
            "n_splits": len(common),
            "planned_splits": len(cell.plan.trial_seeds),
            "note": describe_gaps(cell),
        }
        for arm, values in (("choosing", chosen), ("training", other)):
            own = [values[trial] for trial in common]
            row[f"{arm}_mean"] = fmean(own)
            row[f"{arm}_standard_error"] = stdev(own) / math.sqrt(len(own)) if len(own) > 1 else None
        rows.append({**row, "gain_of_training": row["training_mean"] - row["choosing_mean"]})
    return rows, apart


def _identify(experiment: Experiment) -> tuple[object, ...]:
    """Return what an experiment has in common with that of the other arm, which has other data."""
    details = experiment.details
    settings = (setting.cell for setting in declared().values() if setting.cell and not setting.block)
    shared = ("protocol", "model", *settings)
    return (experiment.dataset.removesuffix(SUFFIX), experiment.algorithm, *map(details.get, shared))


def pilot_tables(rows: Iterable[Mapping[str, Any]]) -> list[TableLayout]:
    """Return one table per dataset."""
    header = ("Algorithm", "choosing", "training", "training − choosing", "splits")
    legend = "Test accuracy in %, [standard error of the mean]; the difference in points."
    grids = []
    for dataset, group in group_by(rows, lambda row: row["dataset"]).items():
        notes = Notes()
        lines = []
        for row in group:
            choosing, training = (
                show_mean(row[f"{arm}_mean"], row[f"{arm}_standard_error"])
                for arm in ("choosing", "training")
            )
            gain, splits = (
                f"{100 * row['gain_of_training']:+.2f}",
                f"{row['n_splits']} of {row['planned_splits']}",
            )
            first = TableEntry(text=choosing, marks=notes.mark(row["note"]))
            lines.append((row["algorithm"], (first, *text_entries(training, gain, splits))))
        title = f"{dataset}: clean validation labels used for"
        grids.append(TableLayout(title, header, tuple(lines), notes.listed(), legend))
    return grids


def draw_pilot(rows: Sequence[Mapping[str, Any]], width: float = COLUMN) -> Figure:
    """Draw two points with standard errors per algorithm, one panel per dataset: the paper's first figure."""
    groups = group_by(rows, lambda row: row["dataset"])
    if not groups:
        raise UsageError("no algorithm has finished runs of both arms on a common split")
    figure = drawing.new_figure(width, sum(0.125 * len(group) + 0.45 for group in groups.values()))
    ratios = [len(group) + 2 for group in groups.values()]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=ratios).ravel()
    n_beyond = 0
    for axes, (dataset, group) in zip(panels, groups.items(), strict=True):
        # Mean and standard error of both arms of each row.
        arms = [
            [(row[f"{arm}_mean"], row[f"{arm}_standard_error"] or 0.0) for arm in ("choosing", "training")]
            for row in group
        ]
        scale = drawing.find_range(
            100 * (mean + sign * error) for both in arms for mean, error in both for sign in (-1, 1)
        )
        for place, both in enumerate(arms):
            means = [100 * mean for mean, _ in both]
            if not all(map(scale.holds, means)):
                text = f"{means[0]:.1f} → {means[1]:.1f}"
                drawing.write_beyond(axes, place, text, low=min(means) < scale.low)
                n_beyond += 1
                continue
            for (mean, error), shift, fill in zip(both, (-0.17, 0.17), ("white", DARK), strict=True):
                style: dict[str, Any] = {"marker": "o", "markersize": 3, "markerfacecolor": fill}
                style |= {"markeredgecolor": DARK, "markeredgewidth": 0.7, "linewidth": 0.7}
                style["color"] = GREY if fill == "white" else DARK
                axes.errorbar([100 * mean], [place + shift], xerr=[100 * error], **style)
        axes.set_title(label(dataset, 60))
        drawing.name_rows(axes, [label(row["algorithm"], 22) for row in group])
        axes.set_xlim(scale.padded(0.06))
        drawing.add_grid(axes, "x")
    panels[-1].set_xlabel("test accuracy (%)")
    splits = [row["n_splits"] for row in rows]
    n = str(max(splits)) if min(splits) == max(splits) else f"{min(splits)} to {max(splits)}"
    what = "Clean validation labels used for choosing and for training"
    drawing.add_title(figure, f"{what}: {counted(len(groups), 'dataset')}, n = {n} splits")
    legend = "Rings: for choosing; dots: for training; bars: ± one standard error of the mean."
    drawing.add_notes(figure, [legend, "◂ ▸ beyond the scale: choosing → training." if n_beyond else ""])
    return figure
