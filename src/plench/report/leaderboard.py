"""All cells of a set of runs, by setting (table), algorithm (row) and criterion (column)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plench.criteria import Criterion, criteria
from plench.report.escape import clean
from plench.runs.description import IGNORES_WEIGHTS
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell, Plan, infer_plans, place_experiments, select_by_each


@dataclass(frozen=True)
class Leaderboard:
    """Cells with the order in which tables show them. Look cells up with `cell`.

    `algorithms` name the rows. A method fitted in rounds has a row beside the others of the same data;
    where there are runs of several numbers of rounds, each number has its own row. A method that learned from
    annotators' answers, which the others cannot see, has that behind its name wherever it is shown or ranked.
    `scored`: there are no true labels, and figures are the criteria themselves (`plench.report.unlabelled`).
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
        """Whether methods fitted in rounds or taught by answers have rows: family and budget are shown."""
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
        """How many datasets the leaderboard is over, and in how many settings if those are more."""
        n, datasets = len(self.settings), len({setting.dataset for setting in self.settings})
        counted = f"{datasets} dataset{'' if datasets == 1 else 's'}"
        return counted if n == datasets else f"{n} settings of {counted}"

    def rank(self, criterion: Criterion) -> dict[str, tuple[float, int]]:
        """Return each algorithm's average rank over the settings it has a figure in, and their number.

        Rank 1 is the highest mean test accuracy; equal means share the average of their ranks. A setting with
        a single algorithm ranks nothing and does not count.
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
    plans = plans or infer_plans(runs)
    places = place_experiments(run.experiment for run in runs)
    described: dict[Experiment, Run] = {}  # the run of each that tells most
    for run in runs:
        if run.experiment not in described or has_card(run):
            described[run.experiment] = run
    answered = {experiment for experiment, run in described.items() if sees_answers(run)}
    names = name_rows(places, answered)
    cells = {
        (setting, names[cell.experiment], criterion.name): cell
        for criterion, found in select_by_each(runs, shown, plans).items()
        for cell in found
        for setting in places[cell.experiment]
    }
    settings = sorted({setting for setting, _, _ in cells}, key=lambda s: (s.dataset.lower(), s.identity))
    algorithms = sorted({algorithm for _, algorithm, _ in cells}, key=str.lower)
    cards = {names[experiment]: find_card(run) for experiment, run in described.items()}
    return Leaderboard(
        settings=tuple(settings),
        algorithms=tuple(algorithms),
        criteria=shown,
        cells=cells,
        labels=label_settings(settings),
        cards=cards,
        answered=frozenset(names[experiment] for experiment in answered),
    )


def find_card(run: Run) -> Mapping[str, Any]:
    """Return the description of its algorithm that a run carries; if it lost it, ours of that name."""
    if has_card(run):
        card: Mapping[str, Any] = run.info["algorithm_card"]
        return card
    if run.experiment.origin != "plench":
        return {}
    from plench.algorithms.registry import own_cards  # imports torch, and runs without a card are rare

    declared = own_cards().get(run.experiment.algorithm)
    return {} if declared is None else {"family": declared.family, "answers": declared.answers}


def sees_answers(run: Run) -> bool:
    """Say whether a run's method learned from annotators' answers, or from candidates weighted by votes."""
    votes = run.experiment.details.get("candidate_weights") == "votes"
    notices = run.info.get("notices")
    ignored = isinstance(notices, list) and any(str(text).endswith(IGNORES_WEIGHTS) for text in notices)
    return find_card(run).get("answers") is True or (votes and not ignored)


def name_rows(experiments: Iterable[Experiment], answered: Collection[Experiment]) -> dict[Experiment, str]:
    """Name the row of each experiment: algorithm, rounds where these differ, whether it saw answers."""
    rounds: dict[str, set[int | None]] = {}
    experiments = list(experiments)
    for experiment in experiments:
        if experiment.fitted:
            rounds.setdefault(experiment.algorithm, set()).add(experiment.steps)
    names = {}
    for experiment in experiments:
        several = experiment.fitted and len(rounds[experiment.algorithm]) > 1
        more = [*([experiment.budget] if several else ()), *(["answers"] if experiment in answered else ())]
        names[experiment] = experiment.algorithm + (f" ({', '.join(more)})" if more else "")
    return names


def title_criterion(criterion: Criterion, experiments: Iterable[Experiment]) -> str:
    """Return a criterion's title, with a warning where the public code's defect is in what is shown of it."""
    public = criterion.public_defect and any(experiment.origin == "public" for experiment in experiments)
    return f"{criterion.title} (public code's, defective)" if public else criterion.title


def warn_of_defects(board: Leaderboard) -> list[str]:
    """Say of each criterion shown what is wrong with it in the public benchmark's records that are here."""
    public = (setting for setting in board.settings if setting.origin == "public")
    named = ", ".join(clean(board.labels[setting]) for setting in public)
    return [f"{named}: {c.public_defect}" for c in board.criteria if named and c.public_defect]


def rank_values(values: Sequence[float]) -> list[float]:
    """Rank values, 1 for the highest; equal ones share the average of their ranks.

    Values are compared to 12 digits, so that means of the same numbers in another order are equal.
    """
    rounded = [round(value, 12) for value in values]
    order = sorted(rounded, reverse=True)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in rounded]


def has_card(run: Run) -> bool:
    """Whether the run carries a description of its algorithm."""
    return isinstance(run.info.get("algorithm_card"), dict)


def label_settings(settings: Iterable[Experiment]) -> dict[Experiment, str]:
    """Name each setting by its dataset, and by whatever else tells it from others of the same dataset."""
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
    """Show a detail as labels do, a long fingerprint by its first digits."""
    text = "none" if value is None else str(value)
    return text[:12]
