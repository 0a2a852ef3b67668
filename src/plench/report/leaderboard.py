"""All cells of a set of runs, by setting (table), algorithm (row) and criterion (column); the best run."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.criteria import Criterion, criteria
from plench.errors import DataError, UsageError
from plench.runs.folder import IGNORES_WEIGHTS, WARNINGS
from plench.runs.records import Experiment, Run
from plench.runs.select import (
    Cell,
    ChosenRun,
    Plan,
    choose_checkpoint,
    infer_plans,
    place_experiments,
    select_by_each,
)
from plench.text import clean, counted

K = TypeVar("K")
T = TypeVar("T")
# Below so many splits (or datasets) a bootstrap gives little more than the least and the largest value.
FEWEST = 5
RESAMPLES = 2000


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their key; groups are in the order of their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class Leaderboard:
    """Cells in the order in which tables show them. Look cells up with `cell`.

    `algorithms` are the names of the rows. A method fitted in rounds has a row in the tables of the same
    data; if its runs differ in the number of rounds, each number has its own row. The name of a method that
    learned from annotators' answers, which the others cannot see, ends in "(answers)". `scored`: there are
    no true labels, and figures are the criteria themselves (`split_by_truth`).
    """

    settings: tuple[Experiment, ...]
    algorithms: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    cells: Mapping[tuple[Experiment, str, str], Cell]
    labels: Mapping[Experiment, str]
    cards: Mapping[str, Mapping[str, Any]]
    answered: frozenset[str] = frozenset()
    scored: bool = False

    def cell(self, setting: Experiment, algorithm: str, criterion: Criterion) -> Cell | None:
        """Return the cell, or None where the algorithm has no run in this setting."""
        return self.cells.get((setting, algorithm, criterion.name))

    def walk(self) -> Iterator[tuple[Experiment, str, Cell]]:
        """Yield every cell with its setting and algorithm, in the order of tables."""
        for setting, algorithm, criterion in product(self.settings, self.algorithms, self.criteria):
            cell = self.cell(setting, algorithm, criterion)
            if cell is not None:
                yield setting, algorithm, cell

    @cached_property
    def unlabelled(self) -> tuple[Experiment, ...]:
        """The settings in which something was chosen, and nothing of it has a test accuracy."""
        cells = group_by(self.cells.items(), lambda item: item[0][0])
        chosen, scored = (
            {setting for setting, own in cells.items() if any(getattr(cell, what) for _, cell in own)}
            for what in ("choices", "accuracies")
        )
        return tuple(setting for setting in self.settings if setting in chosen - scored)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether some methods are fitted in rounds or learn from answers: family and budget are shown."""
        return bool(self.answered) or any(cell.experiment.fitted for cell in self.cells.values())

    def family(self, algorithm: str) -> str:
        """Return the family of a row's algorithm, and whether it uses answers."""
        answers = ", uses answers" if algorithm in self.answered else ""
        return f"{self.cards.get(algorithm, {}).get('family', 'unknown')}{answers}"

    def budget(self, algorithm: str, settings: Iterable[Experiment]) -> str:
        """Return how long the runs behind a row of these settings train."""
        cells = (self.cell(setting, algorithm, self.criteria[0]) for setting in settings)
        return ", ".join(dict.fromkeys(cell.experiment.budget for cell in cells if cell is not None))

    @property
    def extent(self) -> str:
        """The number of datasets, and the number of settings if there are more of these."""
        return describe_extent(self.settings)

    def sign(self, criterion: Criterion) -> int:
        """Return −1 where figures are the criterion itself and lower is better, else 1."""
        return -1 if self.scored and not criterion.higher_is_better else 1

    @cached_property
    def datasets(self) -> dict[str, list[Experiment]]:
        """The settings of each dataset. Averages and tests over datasets count each of them once.

        The figure of an algorithm on a dataset is the mean of its figures in all settings of that dataset. An
        algorithm that lacks one of these has no figure on the dataset.
        """
        return group_by(self.settings, lambda setting: setting.dataset)

    @property
    def averaging(self) -> str:
        """The rule for datasets with several settings, with their names; empty if there are none."""
        several = [f"{clean(name)} {len(own)}" for name, own in self.datasets.items() if len(own) > 1]
        if not several:
            return ""
        return (
            f"Settings per dataset: {', '.join(several)}. A dataset counts once, with the mean over its "
            "settings, and only for algorithms that have a figure in all of them (choose one with --where)."
        )

    def dataset_means(self, dataset: str, criterion: Criterion) -> dict[str, float]:
        """Return the figure of every algorithm that has one on this dataset."""
        by_setting = [self.means(setting, criterion) for setting in self.datasets[dataset]]
        return {
            name: sum(means[name] for means in by_setting) / len(by_setting)
            for name in self.algorithms
            if all(name in means for means in by_setting)
        }

    def dataset_splits(self, dataset: str, algorithm: str, criterion: Criterion) -> dict[int, float]:
        """Return the figures by split: means over the settings, for the splits that all settings have."""
        found = [self.cell(setting, algorithm, criterion) for setting in self.datasets[dataset]]
        by_setting = [
            {} if cell is None else {c.trial_seed: c.test_acc for c in cell.choices if c.test_acc is not None}
            for cell in found
        ]
        shared = (trial for trial in by_setting[0] if all(trial in own for own in by_setting))
        return {trial: sum(own[trial] for own in by_setting) / len(by_setting) for trial in shared}

    def rank(self, criterion: Criterion) -> dict[str, tuple[float, int]]:
        """Return each algorithm's average rank over the datasets it has a figure on, and their number.

        Rank 1 is the best mean; equal means share the average of their ranks. A dataset with
        a single algorithm does not count.
        """
        ranked: dict[str, list[float]] = {}
        for dataset in self.datasets:
            means = self.dataset_means(dataset, criterion)
            if len(means) > 1:
                ranks = rank_values(self.sign(criterion) * np.array(list(means.values())))
                for name, rank in zip(means, ranks.tolist(), strict=True):
                    ranked.setdefault(name, []).append(rank)
        return {a: (sum(ranked[a]) / len(ranked[a]), len(ranked[a])) for a in self.algorithms if a in ranked}

    def means(self, setting: Experiment, criterion: Criterion) -> dict[str, float]:
        """Return the mean test accuracy of every algorithm that has one in this setting."""
        found = ((a, self.cell(setting, a, criterion)) for a in self.algorithms)
        return {a: cell.mean for a, cell in found if cell is not None and cell.mean is not None}


def build_leaderboard(
    runs: Iterable[Run],
    chosen_criteria: Sequence[Criterion] | None = None,
    plans: Mapping[Experiment, Plan] | None = None,
) -> Leaderboard:
    """Select by every criterion (or the given ones) and arrange the cells."""
    runs = list(runs)
    shown = tuple(chosen_criteria or criteria.values())
    places = place_experiments(run.experiment for run in runs)
    described: dict[Experiment, Run] = {}  # a run of each experiment, with a card if one has it
    for run in runs:
        if run.experiment not in described or isinstance(run.info.get("algorithm_card"), dict):
            described[run.experiment] = run
    cards = {experiment: _find_card(run) for experiment, run in described.items()}
    answered = {e for e, run in described.items() if cards[e].get("answers") is True or _sees_votes(run)}
    fitted = group_by((e for e in places if e.fitted), lambda experiment: experiment.algorithm)
    names = {}
    for experiment in places:
        several = experiment.fitted and len({e.steps for e in fitted[experiment.algorithm]}) > 1
        more = [*([experiment.budget] if several else ()), *(["answers"] if experiment in answered else ())]
        names[experiment] = experiment.algorithm + (f" ({', '.join(more)})" if more else "")
    cells = {
        (setting, names[cell.experiment], criterion.name): cell
        for criterion, found in select_by_each(runs, shown, plans or infer_plans(runs)).items()
        for cell in found
        for setting in places[cell.experiment]
    }
    settings = sorted({setting for setting, _, _ in cells}, key=lambda s: (s.dataset.lower(), s.identity))
    return Leaderboard(
        settings=tuple(settings),
        algorithms=tuple(sorted({algorithm for _, algorithm, _ in cells}, key=str.lower)),
        criteria=shown,
        cells=cells,
        labels=label_settings(settings),
        cards={names[experiment]: card for experiment, card in cards.items()},
        answered=frozenset(names[experiment] for experiment in answered),
    )


def _find_card(run: Run) -> Mapping[str, Any]:
    """Return the card of a run's algorithm, from the run itself or else from our algorithm of that name."""
    card = run.info.get("algorithm_card")
    if isinstance(card, dict):
        return card
    if run.experiment.origin != "plench":
        return {}
    from plench.algorithms.registry import own_cards  # imports torch, and runs without a card are rare

    declared = own_cards().get(run.experiment.algorithm)
    return {} if declared is None else {"family": declared.family, "answers": declared.answers}


def _sees_votes(run: Run) -> bool:
    """Whether a run's method learned from candidates weighted by annotators' votes."""
    said = run.info.get(WARNINGS)
    ignored = isinstance(said, list) and any(str(text).endswith(IGNORES_WEIGHTS) for text in said)
    return run.experiment.details.get("candidate_weights") == "votes" and not ignored


def describe_extent(settings: Collection[Experiment]) -> str:
    """Count datasets, and their settings if there are more of these."""
    n_datasets = len({setting.dataset for setting in settings})
    named = counted(n_datasets, "dataset")
    return named if len(settings) == n_datasets else f"{len(settings)} settings of {named}"


def label_settings(settings: Iterable[Experiment]) -> dict[Experiment, str]:
    """Name each setting by its dataset, and by the details in which settings of that dataset differ."""
    labels: dict[Experiment, str] = {}
    for dataset, group in group_by(settings, lambda setting: setting.dataset).items():
        flat = {setting: flatten_details(setting) for setting in group}
        keys = sorted({key for details in flat.values() for key in details})
        differing = [key for key in keys if len({str(flat[s].get(key)) for s in group}) > 1]
        for setting in group:
            parts = [f"{key} {show_detail(flat[setting].get(key))}" for key in differing]
            labels[setting] = dataset + (f" ({', '.join(parts)})" if parts else "")
    return labels


def flatten_details(experiment: Experiment) -> dict[str, Any]:
    """Lift the entries of inner dictionaries to the top: {"candidates": {"pl_type": …}} → {"pl_type": …}."""
    flat: dict[str, Any] = {}
    for key, value in experiment.details.items():
        flat.update(value if isinstance(value, dict) else {key: value})
    return flat


def show_detail(value: object) -> str:
    """Show a detail as labels do; a fingerprint is cut to its first digits."""
    return "none" if value is None else str(value)[:12]


def rank_values(values: ArrayLike) -> NDArray[np.float64]:
    """Rank along the last axis, 1 for the highest; equal values share their average rank, NaN has no rank.

    Values are compared to 12 digits, so that means of the same numbers in another order are equal.
    """
    rounded = np.round(np.asarray(values, dtype=float), 12)
    higher = (rounded[..., None, :] > rounded[..., :, None]).sum(axis=-1)
    equal = (rounded[..., None, :] == rounded[..., :, None]).sum(axis=-1)
    ranks: NDArray[np.float64] = np.where(np.isnan(rounded), np.nan, higher + (equal + 1) / 2)
    return ranks


@dataclass(frozen=True)
class RankIntervals:
    """95 % intervals of average ranks, by algorithm: with splits drawn again, and with datasets as well.

    None where there are too few to draw from; `reasons` says so. An algorithm that has a figure on too few of
    the datasets has no interval over them.
    """

    over_splits: dict[str, tuple[float, float]] | None
    over_datasets: dict[str, tuple[float, float]] | None
    reasons: tuple[str, ...]

    @property
    def widest(self) -> dict[str, tuple[float, float]]:
        """The intervals over datasets or else over splits; empty without either."""
        return self.over_datasets or self.over_splits or {}

    @property
    def over(self) -> str:
        """What was drawn again for these."""
        if not self.over_datasets:
            return "splits"
        return "datasets" if self.over_splits is None else "datasets and splits"


def bootstrap_ranks(board: Leaderboard, criterion: Criterion, names: Sequence[str]) -> RankIntervals:
    """Return percentile bootstrap intervals of the average ranks among these algorithms.

    The same splits are drawn for all algorithms, of those that all have. Drawing again adds noise, which
    moves ranks to the middle; an interval is widened where it would not hold the average rank itself.
    """
    rng = np.random.default_rng(0)
    plain, drawn, fewest = [], [], FEWEST
    for dataset in board.datasets:
        means = board.dataset_means(dataset, criterion)
        there = [name for name in names if name in means]
        if len(there) < 2:
            continue
        places = [names.index(name) for name in there]
        splits = [board.dataset_splits(dataset, name, criterion) for name in there]
        shared = sorted(set.intersection(*map(set, splits)))
        fewest = min(fewest, len(shared))
        row, rows = np.full(len(names), np.nan), np.full((RESAMPLES, len(names)), np.nan)
        row[places] = [means[name] for name in there]
        if shared:
            table = np.array([[own[trial] for own in splits] for trial in shared])
            chosen = rng.integers(len(shared), size=(RESAMPLES, len(shared)))
            rows[:, places] = table[chosen].mean(axis=1)
        plain.append(rank_values(board.sign(criterion) * row))
        drawn.append(rank_values(board.sign(criterion) * rows))
    if not plain:
        return RankIntervals(None, None, ("no dataset has figures of two algorithms",))

    def find_limits(resampled: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
        low, high = np.nanquantile(resampled, (0.025, 0.975), axis=0)
        limits = zip(names, np.fmin(low, held), np.fmax(high, held), strict=True)
        return {name: (float(low), float(high)) for name, low, high in limits if not np.isnan(low)}

    n, reasons = len(plain), []
    over_splits = over_datasets = None
    by_dataset = np.stack(drawn, axis=1)  # (resamples, datasets, algorithms)
    with warnings.catch_warnings():  # of an algorithm without any dataset, here or in a resample
        warnings.simplefilter("ignore", RuntimeWarning)
        held = np.nanmean(plain, axis=0)
        if fewest >= FEWEST:
            over_splits = find_limits(np.nanmean(by_dataset, axis=1))
        else:
            shared_by = f"a dataset has only {counted(fewest, 'split')} that all algorithms share"
            reasons.append(f"no rank intervals over splits: {shared_by}, and {FEWEST} are needed")
            by_dataset = np.broadcast_to(np.array(plain), by_dataset.shape)
        if n >= FEWEST:
            chosen = rng.integers(n, size=(RESAMPLES, n))
            found = find_limits(np.nanmean(by_dataset[np.arange(RESAMPLES)[:, None], chosen], axis=1))
            counts = dict(zip(names, np.sum(~np.isnan(plain), axis=0), strict=True))
            over_datasets = {name: limits for name, limits in found.items() if counts[name] >= FEWEST}
        else:
            reasons.append(f"no rank intervals over datasets: there are {n}, and {FEWEST} are needed")
    return RankIntervals(over_splits, over_datasets, tuple(reasons))


def title_criterion(criterion: Criterion, experiments: Iterable[Experiment]) -> str:
    """Return a criterion's title, with a warning where it has the public code's defect."""
    public = criterion.public_defect and any(experiment.origin == "public" for experiment in experiments)
    return f"{criterion.title} (public code's, defective)" if public else criterion.title


def warn_of_defects(board: Leaderboard) -> list[str]:
    """Return a warning for each criterion that is defective in records of the public benchmark."""
    public = (setting for setting in board.settings if setting.origin == "public")
    named = ", ".join(clean(board.labels[setting]) for setting in public)
    return [f"{named}: {c.public_defect}" for c in board.criteria if named and c.public_defect]


def find_best(board: Leaderboard, setting: Experiment, criterion: Criterion) -> ChosenRun | None:
    """Return the run that a criterion chooses in a setting, among all algorithms.

    The algorithm with the best mean over splits wins (of equal ones the first by name), and of its choices
    the one that scores best (of equal ones the first split).
    """
    sign = 1 if criterion.higher_is_better else -1
    best: tuple[float, Cell] | None = None
    for algorithm in board.algorithms:
        cell = board.cell(setting, algorithm, criterion)
        if cell is None or not cell.choices:
            continue
        mean = sign * sum(choice.score for choice in cell.choices) / len(cell.choices)
        if best is None or mean > best[0] + 1e-12:
            best = (mean, cell)
    return None if best is None else max(best[1].choices, key=lambda choice: sign * choice.score)


def describe_choice(choice: ChosenRun, criterion: Criterion) -> str:
    """Name a chosen run and how to load its model."""
    run = choice.run
    model = "last" if not criterion.early_stopping else criterion.name
    return (
        f"{criterion.name} chooses {run.experiment.algorithm}, configuration {run.hparams_seed} of split "
        f"{choice.trial_seed} at step {choice.record.step}: plench.load({str(run.path)!r}, "
        f"criterion={model!r})"
    )


def choose_run(runs: list[Run], folder: str | Path, criterion: Criterion) -> ChosenRun:
    """Return the run and checkpoint that a criterion chooses among the runs of a folder, of one setting."""
    board = build_leaderboard(runs, [criterion])
    if len(board.settings) > 1:
        named = ", ".join(board.labels[setting] for setting in board.settings)
        raise UsageError(f"{folder} has runs of several settings ({named}): name the folder of one run")
    best = find_best(board, board.settings[0], criterion) if board.settings else None
    if best is None:
        raise DataError(f"{folder}: no finished run has a checkpoint that {criterion.name} could choose")
    return best


def choose_in_run(run: Run, criterion: Criterion) -> ChosenRun:
    """Return the checkpoint that a criterion chooses in one run."""
    chosen = choose_checkpoint(run, criterion) if run.finished else None
    if chosen is None:
        raise DataError(f"{run.path}: the run has no checkpoint that {criterion.name} could choose")
    return ChosenRun(run.trial_seed, run, *chosen)


class ScoredChoice(ChosenRun):
    """A choice on data without true labels: its figure is its criterion, not an accuracy."""

    @property
    def test_acc(self) -> float | None:
        """The criterion's value, in the place of a test accuracy."""
        return self.score


def split_by_truth(board: Leaderboard) -> tuple[Leaderboard | None, Leaderboard | None]:
    """Return the part of a leaderboard whose figures are accuracies, and the part without true labels.

    The second has only criteria that need no labels, and their values as figures. A setting in which nothing
    could be chosen is in the first.
    """
    if not board.unlabelled:
        return board, None
    shown = tuple(criterion for criterion in board.criteria if not criterion.needs_labels)
    labelled = tuple(setting for setting in board.settings if setting not in board.unlabelled)
    first, second = labelled or (() if shown else board.settings), board.unlabelled if shown else ()
    scored = {
        (setting, algorithm, cell.criterion.name): score_cell(cell)
        for setting, algorithm, cell in replace(board, settings=second, criteria=shown).walk()
    }

    def keep(settings: tuple[Experiment, ...], names: set[str], **changes: Any) -> Leaderboard | None:
        algorithms = tuple(algorithm for algorithm in board.algorithms if algorithm in names)
        return replace(board, settings=settings, algorithms=algorithms, **changes) if settings else None

    return (
        keep(first, {name for setting, name, _ in board.cells if setting in first}),
        keep(second, {name for _, name, _ in scored}, criteria=shown, cells=scored, scored=True),
    )


def score_cell(cell: Cell) -> Cell:
    """Return the same cell with its criterion's values as figures."""
    return replace(cell, choices=tuple(ScoredChoice(**vars(choice)) for choice in cell.choices))


def part_of(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an entry that should be an object; records are not trusted, so anything else is empty."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def offered(run: Run, criterion: Criterion) -> tuple[int, float, float | None] | None:
    """Return step, score and test accuracy of the checkpoint that a criterion chooses in a finished run."""
    chosen = choose_checkpoint(run, criterion) if run.finished else None
    return None if chosen is None else (chosen[0].step, chosen[1], chosen[0].get("test_acc"))
