"""The paper's pilot experiment: what is a clean validation set better used for, choosing or training?

Two arms with the same splits and the same number of steps. In the first, true labels of the validation split
choose among configurations, as in the protocol: an ordinary sweep. In the second, the validation examples
join the training split with their true label as the only candidate, and the default configuration is
trained, with nothing chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.algorithms import find_algorithm
from plench.criteria import Criterion
from plench.data import CandidateSpec, Dataset, Split, choose_candidates, draw_candidates, split_dataset
from plench.errors import DataError, UsageError
from plench.report import drawing
from plench.report.drawing import COLUMN, DARK, GREY, Range, label
from plench.report.leaderboard import label_settings
from plench.report.tables import Notes, TableEntry, TableLayout, describe_gaps, show_mean, text_entries
from plench.runs.records import Experiment, Run
from plench.runs.select import Plan, place_experiments, select
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import declared, seed_hash
from plench.sweeps.engines import Engine
from plench.sweeps.launch import SweepOutcome, launch_sweep
from plench.sweeps.plan import DatasetCache
from plench.sweeps.progress import SweepCallback
from plench.sweeps.stacks import StackOptions
from plench.text import counted
from plench.training.config import RunOutcome, configure_run
from plench.training.data import prepare_split
from plench.training.environment import choose_device
from plench.training.loop import run_training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Folders of the two arms below the pilot's own.
VALIDATION_ARM = "validation"
TRAINING_ARM = "training"
# Ends the name of data whose validation examples have joined the training split.
SUFFIX = "+validation"


@dataclass(frozen=True)
class PilotOutcome:
    """How the two arms ended: the sweep's outcome, and the outcomes of the second arm's runs."""

    sweep: SweepOutcome
    training: list[RunOutcome]

    @property
    def exit_code(self) -> int:
        """0: all is finished; 1: something failed; 130: interrupted."""
        states = {outcome.status for outcome in self.training}
        if self.sweep.unfinished or "interrupted" in states:
            return 130
        return 1 if "failed" in states else self.sweep.exit_code


def run_pilot(
    grid: Grid,
    output_dir: str | Path,
    *,
    data_dir: str | Path | None = None,
    engine: Engine | None = None,
    callback: SweepCallback | None = None,
) -> PilotOutcome:
    """Run both arms, or what is missing of them."""
    folder = Path(output_dir)
    sweep = launch_sweep(
        SweepSpec((grid,)),
        folder / VALIDATION_ARM,
        data_dir=data_dir,
        engine=engine,
        callback=callback,
        stack=StackOptions(size=1),  # as the other arm is trained
    )
    trained: list[RunOutcome] = []
    if not sweep.unfinished:
        for outcome in train_with_validation(grid, data_dir, folder / TRAINING_ARM):
            trained.append(outcome)
            if outcome.status == "interrupted":
                break
    return PilotOutcome(sweep, trained)


def train_with_validation(grid: Grid, data_dir: str | Path | None, folder: Path) -> Iterator[RunOutcome]:
    """Run the second arm, run by run."""
    datasets = DatasetCache(data_dir)
    # The joined data have their candidate sets already.
    candidates = {name: None for name, setting in declared().items() if setting.block == "candidates"}
    for name in grid.datasets:
        for trial_seed in grid.trial_seeds:
            dataset, split = join_validation(datasets.get(name), grid, trial_seed)
            prepared = prepare_split(dataset, split, choose_device(grid.device))
            for algorithm in grid.algorithms:
                entry = find_algorithm(algorithm)
                seed = seed_hash(dataset.card.name, entry.name, 0, trial_seed)  # the default configuration
                settings = {**grid.values(), **candidates, "trial_seed": trial_seed, "seed": seed}
                config = configure_run(entry, dataset.card, hparams=grid.hparams, **settings)
                yield run_training(config, dataset, entry, folder, prepared=prepared)


def join_validation(dataset: Dataset, grid: Grid, trial_seed: int) -> tuple[Dataset, Split]:
    """Return the trial's data with validation examples as clean training examples, and the split for it.

    The validation part of the split stays as it is, so that records have their usual figures; they are
    measured on training examples here and choose nothing. The name marks the data as not the dataset itself.
    """
    if dataset.labels is None:
        raise DataError(
            f"{dataset.card.name} has no true labels: the pilot experiment needs those of validation"
        )
    drawn = draw_candidates(dataset, choose_candidates(dataset.card.candidates, grid), trial_seed)
    split = split_dataset(
        drawn,
        trial_seed,
        test_fraction=grid.tabular_test_fraction,
        holdout_fraction=grid.holdout_fraction,
        imbalance=grid.imbalance,
    )
    candidates = drawn.candidates.copy()
    candidates[split.validation] = np.eye(drawn.n_classes, dtype=bool)[dataset.labels[split.validation]]
    card = replace(dataset.card, name=dataset.card.name + SUFFIX, candidates=CandidateSpec())
    joined = replace(drawn, candidates=candidates, card=card)
    return joined, replace(split, train=np.concatenate([split.train, split.validation]))


@dataclass(frozen=True)
class Arm:
    """Test accuracies over splits of one use of the validation set."""

    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean test accuracy."""
        return fmean(self.accuracies)

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean; None for a single split."""
        n = len(self.accuracies)
        return stdev(self.accuracies) / math.sqrt(n) if n > 1 else None


@dataclass(frozen=True)
class PilotResult:
    """One algorithm on one dataset: validation labels used for choosing, and used for training.

    `dataset` also names the setting where there are several. `gaps` is what the choosing arm lacks,
    `n_planned` how many splits there should be.
    """

    dataset: str
    algorithm: str
    choosing: Arm
    training: Arm
    n_planned: int
    gaps: str


def gather_pilot(
    choosing_runs: Iterable[Run],
    training_runs: Iterable[Run],
    criterion: Criterion,
    plans: Mapping[Experiment, Plan] | None = None,
) -> tuple[list[PilotResult], list[str]]:
    """Compare both arms on the splits that both have, and name what has no split in common.

    Runs of other steps, another network or other fractions are other experiments and are not compared.
    """
    trained: dict[tuple[object, ...], dict[int, float]] = {}
    for run in training_runs:
        record = run.last_record if run.finished else None
        test = record.get("test_acc") if record is not None else None
        if test is not None:
            trained.setdefault(_identify(run.experiment), {})[run.trial_seed] = test
    results, apart = [], []
    cells = select(choosing_runs, criterion, plans)
    tables = place_experiments(cell.experiment for cell in cells)
    labels = label_settings(dict.fromkeys(setting for settings in tables.values() for setting in settings))
    for cell in cells:
        named = (labels[tables[cell.experiment][0]], cell.experiment.algorithm)
        chosen = {c.trial_seed: c.test_acc for c in cell.choices if c.test_acc is not None}
        other = trained.get(_identify(cell.experiment), {})
        common = sorted(chosen.keys() & other.keys())
        if common:
            choosing, training = (Arm(tuple(values[trial] for trial in common)) for values in (chosen, other))
            n_planned = len(cell.plan.trial_seeds)
            results.append(PilotResult(*named, choosing, training, n_planned, describe_gaps(cell)))
        else:
            apart.append(f"{named[0]}, {named[1]}: no split with a result in both arms")
    return results, apart


def _identify(experiment: Experiment) -> tuple[object, ...]:
    """Return what an experiment has in common with that of the other arm, which has other data."""
    details = experiment.details
    settings = (setting.cell for setting in declared().values() if setting.cell and not setting.block)
    shared = ("protocol", "model", *settings)
    return (experiment.dataset.removesuffix(SUFFIX), experiment.algorithm, *map(details.get, shared))


def pilot_rows(results: Iterable[PilotResult]) -> list[dict[str, Any]]:
    """Return the results as flat rows; accuracies are fractions."""
    return [
        {
            "dataset": result.dataset,
            "algorithm": result.algorithm,
            "n_splits": len(result.choosing.accuracies),
            "planned_splits": result.n_planned,
            "note": result.gaps,
            "choosing_mean": result.choosing.mean,
            "choosing_standard_error": result.choosing.stderr,
            "training_mean": result.training.mean,
            "training_standard_error": result.training.stderr,
            "gain_of_training": result.training.mean - result.choosing.mean,
        }
        for result in results
    ]


def pilot_tables(results: Iterable[PilotResult]) -> list[TableLayout]:
    """Return one table per dataset."""
    header = ("Algorithm", "choosing", "training", "training − choosing", "splits")
    legend = "Test accuracy in %, [standard error of the mean]; the difference in points."
    grids = []
    for dataset, group in _by_dataset(results).items():
        notes = Notes()
        rows = []
        for result in group:
            choosing, training = result.choosing, result.training
            texts = [
                show_mean(training.mean, training.stderr),
                f"{100 * (training.mean - choosing.mean):+.2f}",
                f"{len(choosing.accuracies)} of {result.n_planned}",
            ]
            shown = show_mean(choosing.mean, choosing.stderr)
            first = TableEntry(text=shown, marks=notes.mark(result.gaps))
            rows.append((result.algorithm, (first, *text_entries(*texts))))
        title = f"{dataset}: clean validation labels used for"
        grids.append(TableLayout(title, header, tuple(rows), notes.listed(), legend))
    return grids


def _by_dataset(results: Iterable[PilotResult]) -> dict[str, list[PilotResult]]:
    groups: dict[str, list[PilotResult]] = {}
    for result in results:
        groups.setdefault(result.dataset, []).append(result)
    return groups


def draw_pilot(results: Sequence[PilotResult], width: float = COLUMN) -> Figure:
    """Draw two points with standard errors per algorithm, one panel per dataset: the paper's first figure."""
    groups = _by_dataset(results)
    if not groups:
        raise UsageError("no algorithm has finished runs of both arms on a common split")
    figure = drawing.new_figure(width, sum(0.125 * len(group) + 0.45 for group in groups.values()))
    ratios = [len(group) + 2 for group in groups.values()]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=ratios).ravel()
    n_beyond = 0
    for axes, (dataset, group) in zip(panels, groups.items(), strict=True):
        arms = [arm for result in group for arm in (result.choosing, result.training)]
        ends = [100 * (arm.mean + sign * (arm.stderr or 0.0)) for arm in arms for sign in (-1, 1)]
        scale = drawing.find_range(ends)
        n_beyond += _draw_panel(axes, group, scale)
        axes.set_title(label(dataset, 60))
        drawing.name_rows(axes, [label(result.algorithm, 22) for result in group])
        axes.set_xlim(scale.padded(0.06))
        drawing.add_grid(axes, "x")
    panels[-1].set_xlabel("test accuracy (%)")
    splits = [len(result.choosing.accuracies) for result in results]
    n = str(max(splits)) if min(splits) == max(splits) else f"{min(splits)} to {max(splits)}"
    what = "Clean validation labels used for choosing and for training"
    drawing.add_title(figure, f"{what}: {counted(len(groups), 'dataset')}, n = {n} splits")
    legend = "Rings: for choosing; dots: for training; bars: ± one standard error of the mean."
    drawing.add_notes(figure, [legend, "◂ ▸ beyond the scale: choosing → training." if n_beyond else ""])
    return figure


def _draw_panel(axes: Axes, group: Sequence[PilotResult], scale: Range) -> int:
    """Draw one dataset, and return how many algorithms lie beyond the scale, which are written as text."""
    n_beyond = 0
    for place, result in enumerate(group):
        means = [100 * arm.mean for arm in (result.choosing, result.training)]
        if not all(map(scale.holds, means)):
            text = f"{means[0]:.1f} → {means[1]:.1f}"
            drawing.write_beyond(axes, place, text, low=min(means) < scale.low)
            n_beyond += 1
            continue
        for arm, shift, fill in ((result.choosing, -0.17, "white"), (result.training, 0.17, DARK)):
            axes.errorbar(
                [100 * arm.mean],
                [place + shift],
                xerr=[100 * (arm.stderr or 0.0)],
                marker="o",
                markersize=3,
                markerfacecolor=fill,
                markeredgecolor=DARK,
                markeredgewidth=0.7,
                color=GREY if fill == "white" else DARK,
                linewidth=0.7,
            )
    return n_beyond
