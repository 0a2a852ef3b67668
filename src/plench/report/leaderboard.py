"""All cells of a set of runs, by setting (table), algorithm (row) and criterion (column); the best run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from plench.criteria import Criterion, criteria
from plench.errors import DataError, UsageError
from plench.runs.folder import IGNORES_WEIGHTS
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
        n, datasets = len(self.settings), len({setting.dataset for setting in self.settings})
        named = counted(datasets, "dataset")
        return named if n == datasets else f"{n} settings of {named}"

    def rank(self, criterion: Criterion) -> dict[str, tuple[float, int]]:
        """Return each algorithm's average rank over the settings it has a figure in, and their number.

        Rank 1 is the highest mean test accuracy; equal means share the average of their ranks. A setting with
        a single algorithm does not count.
        """
        ranks: dict[str, list[float]] = {algorithm: [] for algorithm in self.algorithms}
        for setting in self.settings:
            means = self.means(setting, criterion)
            if len(means) < 2:
                continue
            for algorithm, rank in zip(means, rank_values(list(means.values())), strict=True):
                ranks[algorithm].append(rank)
        return {a: (sum(r) / len(r), len(r)) for a, r in ranks.items() if r}

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
        if run.experiment not in described or _has_card(run):
            described[run.experiment] = run
    answered = {experiment for experiment, run in described.items() if _sees_answers(run)}
    rounds: dict[str, set[int | None]] = {}
    for experiment in places:
        if experiment.fitted:
            rounds.setdefault(experiment.algorithm, set()).add(experiment.steps)
    names = {}
    for experiment in places:
        several = experiment.fitted and len(rounds[experiment.algorithm]) > 1
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
        cards={names[experiment]: _find_card(run) for experiment, run in described.items()},
        answered=frozenset(names[experiment] for experiment in answered),
    )


def _has_card(run: Run) -> bool:
    return isinstance(run.info.get("algorithm_card"), dict)


def _find_card(run: Run) -> Mapping[str, Any]:
    """Return the card of a run's algorithm, from the run itself or else from our algorithm of that name."""
    if _has_card(run):
        card: Mapping[str, Any] = run.info["algorithm_card"]
        return card
    if run.experiment.origin != "plench":
        return {}
    from plench.algorithms.registry import own_cards  # imports torch, and runs without a card are rare

    declared = own_cards().get(run.experiment.algorithm)
    return {} if declared is None else {"family": declared.family, "answers": declared.answers}


def _sees_answers(run: Run) -> bool:
    """Whether a run's method learned from annotators' answers, or from candidates weighted by votes."""
    votes = run.experiment.details.get("candidate_weights") == "votes"
    warnings = run.info.get("notices")
    ignored = isinstance(warnings, list) and any(str(text).endswith(IGNORES_WEIGHTS) for text in warnings)
    return _find_card(run).get("answers") is True or (votes and not ignored)


def label_settings(settings: Iterable[Experiment]) -> dict[Experiment, str]:
    """Name each setting by its dataset, and by the details in which settings of that dataset differ."""
    by_dataset: dict[str, list[Experiment]] = {}
    for setting in settings:
        by_dataset.setdefault(setting.dataset, []).append(setting)
    labels: dict[Experiment, str] = {}
    for dataset, group in by_dataset.items():
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


def rank_values(values: Sequence[float]) -> list[float]:
    """Rank values, 1 for the highest; equal ones share the average of their ranks.

    Values are compared to 12 digits, so that means of the same numbers in another order are equal.
    """
    rounded = [round(value, 12) for value in values]
    order = sorted(rounded, reverse=True)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in rounded]


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
    best: tuple[float, Cell] | None = None
    sign = 1 if criterion.higher_is_better else -1
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
    unlabelled = tuple(setting for setting in board.settings if lacks_labels(board, setting))
    if not unlabelled:
        return board, None
    shown = tuple(criterion for criterion in board.criteria if not criterion.needs_labels)
    labelled = tuple(setting for setting in board.settings if setting not in unlabelled)
    first, second = labelled or (() if shown else board.settings), unlabelled if shown else ()
    scored = {
        (setting, algorithm, criterion.name): score_cell(cell)
        for setting in second
        for algorithm in board.algorithms
        for criterion in shown
        if (cell := board.cell(setting, algorithm, criterion)) is not None
    }

    def keep(settings: tuple[Experiment, ...], names: set[str], **changes: Any) -> Leaderboard | None:
        algorithms = tuple(algorithm for algorithm in board.algorithms if algorithm in names)
        return replace(board, settings=settings, algorithms=algorithms, **changes) if settings else None

    return (
        keep(first, {name for setting, name, _ in board.cells if setting in first}),
        keep(second, {name for _, name, _ in scored}, criteria=shown, cells=scored, scored=True),
    )


def lacks_labels(board: Leaderboard, setting: Experiment) -> bool:
    """Whether something was chosen in a setting, and nothing of it has a test accuracy."""
    cells = [cell for (place, _, _), cell in board.cells.items() if place == setting]
    return any(cell.choices for cell in cells) and not any(cell.accuracies for cell in cells)


def score_cell(cell: Cell) -> Cell:
    """Return the same cell with its criterion's values as figures."""
    return replace(cell, choices=tuple(ScoredChoice(**vars(choice)) for choice in cell.choices))
