"""The pilot experiment's results: accuracy with clean validation labels used in one way or the other."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from plench.criteria import Criterion
from plench.pilot import SUFFIX
from plench.report.layout import Notes, TableEntry, TableLayout, describe_gaps
from plench.report.leaderboard import label_settings
from plench.runs.records import Experiment, Run
from plench.runs.select import Plan, place_experiments, select
from plench.settings import declared


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

    `dataset` also says which setting where there are several. `gaps` says what the choosing arm lacks,
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
    """Put both arms side by side, on the splits that both have, and say what has no split in common.

    Runs of other steps, another network or other fractions are other experiments and never side by side.
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
    """Return what an experiment has in common with that of the other arm (the data have not)."""
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
    by_dataset: dict[str, list[PilotResult]] = {}
    for result in results:
        by_dataset.setdefault(result.dataset, []).append(result)
    notes = {dataset: Notes() for dataset in by_dataset}
    return [
        TableLayout(
            f"{dataset}: clean validation labels used for",
            ("Algorithm", "choosing", "training", "training − choosing", "splits"),
            tuple((r.algorithm, _entries(r, notes[dataset])) for r in group),
            notes[dataset].listed(),
            legend="Test accuracy in %, [standard error of the mean]; the difference in points.",
        )
        for dataset, group in by_dataset.items()
    ]


def _entries(result: PilotResult, notes: Notes) -> tuple[TableEntry, ...]:
    gain = 100 * (result.training.mean - result.choosing.mean)
    shown = [
        _show(result.training),
        f"{gain:+.2f}",
        f"{len(result.choosing.accuracies)} of {result.n_planned}",
    ]
    marks = (notes.mark(result.gaps),) if result.gaps else ()
    return (TableEntry(text=_show(result.choosing), marks=marks), *(TableEntry(text=text) for text in shown))


def _show(arm: Arm) -> str:
    error = "" if arm.stderr is None else f" [{100 * arm.stderr:.2f}]"
    return f"{100 * arm.mean:.2f}{error}"
