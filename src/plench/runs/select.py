"""From records to numbers: choose a checkpoint and a configuration per split, by one criterion.

Per configuration the best checkpoint by the criterion is taken (or the last, for a criterion without early
stopping), then the best configuration of the split; its test accuracy is what is reported. The record with
step 0 never counts. Ties go to the earlier checkpoint, then to the lower `hparams_seed`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import attrgetter
from statistics import fmean, stdev

from plench.criteria import Criterion
from plench.runs.records import Experiment, Record, Run, read_figures


@dataclass(frozen=True)
class ChosenRun:
    """What a criterion chose on one split: a run, one of its checkpoints, and the score there."""

    trial_seed: int
    run: Run
    record: Record
    score: float

    @property
    def test_acc(self) -> float | None:
        """Test accuracy of the chosen checkpoint; None if the test set has no labels."""
        return self.record.get("test_acc")


@dataclass(frozen=True)
class Plan:
    """The runs that an experiment was meant to have, as pairs of split and configuration."""

    places: frozenset[tuple[int, int]]

    @property
    def trial_seeds(self) -> frozenset[int]:
        """The splits."""
        return frozenset(trial for trial, _ in self.places)

    @property
    def hparams_seeds(self) -> frozenset[int]:
        """The configurations."""
        return frozenset(configuration for _, configuration in self.places)

    @property
    def n_runs(self) -> int:
        """How many runs that is."""
        return len(self.places)


@dataclass(frozen=True)
class Cell:
    """One cell of a table: an experiment under one criterion, with the numbers of runs behind it.

    `n_absent` finished runs have no usable record; failed runs are among the unfinished ones.
    """

    experiment: Experiment
    criterion: Criterion
    choices: tuple[ChosenRun, ...]
    plan: Plan
    n_finished: int
    n_diverged: int
    n_unfinished: int
    n_absent: int
    n_failed: int = 0
    warnings: tuple[str, ...] = ()

    @cached_property
    def accuracies(self) -> list[float]:
        """Test accuracies of the chosen checkpoints, one per split that has one."""
        return [choice.test_acc for choice in self.choices if choice.test_acc is not None]

    @property
    def n(self) -> int:
        """The number of splits behind the mean."""
        return len(self.accuracies)

    @cached_property
    def mean(self) -> float | None:
        """Mean test accuracy over the splits."""
        return fmean(self.accuracies) if self.accuracies else None

    @cached_property
    def std(self) -> float | None:
        """Sample standard deviation over the splits (divisor n − 1); None for fewer than two."""
        return stdev(self.accuracies) if self.n > 1 else None

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean: the sample standard deviation over √n."""
        return None if self.std is None else self.std / math.sqrt(self.n)

    @property
    def n_missing(self) -> int:
        """How many planned runs have no finished folder."""
        return max(self.plan.n_runs - self.n_finished, 0)

    def by_split(self) -> list[tuple[int, ChosenRun | None]]:
        """Return every split that was planned or has a choice, with None where nothing could be chosen."""
        chosen = {choice.trial_seed: choice for choice in self.choices}
        return [(trial, chosen.get(trial)) for trial in sorted(self.plan.trial_seeds | chosen.keys())]

    @property
    def complete(self) -> bool:
        """Whether every planned run is there and counts."""
        return self.n_missing == 0 and self.n_absent == 0 and self.n == len(self.plan.trial_seeds)


def choose_checkpoint(run: Run, criterion: Criterion) -> tuple[Record, float] | None:
    """Return the run's checkpoint by this criterion and its score, or None without a usable record."""
    if criterion.early_stopping:
        records: Sequence[Record] = run.usable_records
    else:
        last = run.last_record
        records = () if last is None else (last,)
    scores = read_figures(records, criterion.record_key)
    known = [score for score in scores if score is not None]
    if not known:
        return None
    best = max(known) if criterion.higher_is_better else min(known)
    return records[scores.index(best)], best  # the earliest of equals


def place_experiments(experiments: Iterable[Experiment]) -> dict[Experiment, tuple[Experiment, ...]]:
    """Return the settings, that is tables, in which each experiment has a row: usually its own.

    A method fitted in rounds is compared with all others on the same data, whatever their steps and network,
    so it may have a row in several tables, or a table of its own if there are no others.
    """
    experiments = list(dict.fromkeys(experiments))
    tables: dict[Experiment, dict[Experiment, None]] = {}
    for experiment in experiments:
        if not experiment.fitted:
            tables.setdefault(experiment.comparison_key, {})[experiment.setting] = None
    return {
        experiment: tuple(tables.get(experiment.comparison_key, (experiment.setting,)))
        if experiment.fitted
        else (experiment.setting,)
        for experiment in experiments
    }


def select(
    runs: Iterable[Run], criterion: Criterion, plans: Mapping[Experiment, Plan] | None = None
) -> list[Cell]:
    """Return one cell per experiment, ordered by dataset, setting and algorithm.

    `plans` gives what was planned of each experiment; without it, what any algorithm of the same setting has
    run counts as planned for all of them.
    """
    return select_by_each(runs, (criterion,), plans)[criterion]


def select_by_each(
    runs: Iterable[Run], criteria: Iterable[Criterion], plans: Mapping[Experiment, Plan] | None = None
) -> dict[Criterion, list[Cell]]:
    """Return the cells of `select` for each criterion.

    Experiments are the outer loop, so that records are in the processor's cache for all criteria.
    """
    runs, criteria = list(runs), tuple(dict.fromkeys(criteria))
    plans = plans or infer_plans(runs)
    by_experiment: dict[Experiment, list[Run]] = {}
    for run in runs:
        by_experiment.setdefault(run.experiment, []).append(run)
    cells: dict[Criterion, list[Cell]] = {criterion: [] for criterion in criteria}
    for experiment in sorted(by_experiment, key=lambda e: (e.dataset, e.setting.identity, e.algorithm)):
        found = by_experiment[experiment]
        finished = sorted((run for run in found if run.finished), key=attrgetter("order"))
        places = {(run.trial_seed, run.hparams_seed) for run in finished}
        shared = len(finished) - len(places)
        warnings = (f"{shared} runs share split and configuration with another; all count",) if shared else ()
        for criterion in criteria:
            sign = 1 if criterion.higher_is_better else -1
            best: dict[int, ChosenRun] = {}
            n_absent = 0
            for run in finished:
                chosen = choose_checkpoint(run, criterion)
                if chosen is None:
                    n_absent += 1
                    continue
                held = best.get(run.trial_seed)
                # Runs are ordered by hparams_seed, so a strict comparison leaves ties to the lower one.
                if held is None or sign * chosen[1] > sign * held.score:
                    best[run.trial_seed] = ChosenRun(run.trial_seed, run, *chosen)
            cell = Cell(
                experiment,
                criterion,
                tuple(best[trial] for trial in sorted(best)),
                plans[experiment],
                n_finished=len(places),
                n_diverged=sum(run.diverged for run in finished),
                n_unfinished=len(found) - len(finished),
                n_absent=n_absent,
                n_failed=sum(run.status == "failed" for run in found),
                warnings=warnings,
            )
            cells[criterion].append(cell)
    return cells


def infer_plans(runs: Iterable[Run]) -> dict[Experiment, Plan]:
    """Return as plan of each experiment every split with every configuration that its setting has."""
    runs = list(runs)
    seeds: dict[Experiment, tuple[set[int], set[int]]] = {}
    places = place_experiments(run.experiment for run in runs)
    for run in runs:
        for setting in places[run.experiment]:
            trials, configurations = seeds.setdefault(setting, (set(), set()))
            trials.add(run.trial_seed)
            configurations.add(run.hparams_seed)
    plans = {setting: frozenset(product(*both)) for setting, both in seeds.items()}
    return {
        experiment: Plan(frozenset().union(*(plans[setting] for setting in settings)))
        for experiment, settings in places.items()
    }
