"""What the page needs to open: criteria, settings, algorithms, and every cell of the leaderboard."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from plench.report.criterion_quality import REFERENCE, CriterionQuality
from plench.report.grids import describe_gaps, describe_plans
from plench.report.leaderboard import Leaderboard, title_criterion
from plench.report.site.scripts import distinct
from plench.selection import Cell
from plench.storage.lines import is_finite
from plench.storage.records import Experiment, Run

CLASSICAL = "classical"  # the family of methods that are fitted rather than trained step by step
Content = dict[str, Any]


def describe_criteria(board: Leaderboard) -> list[Content]:
    """Return what the page says of each criterion."""
    return [
        {
            "name": criterion.name,
            "title": title_criterion(criterion, board.settings),
            "meaning": criterion.meaning,
            "labels": criterion.needs_labels,
            "key": criterion.record_key,
            "higher": criterion.higher_is_better,
            "reference": criterion.name == REFERENCE,
        }
        for criterion in board.criteria
    ]


def describe_settings(board: Leaderboard, first_runs: Mapping[Experiment, Run]) -> list[Content]:
    """Return the columns: a label, the dataset, the number of classes, and whether test labels are there."""
    labels = distinct([board.labels[setting] for setting in board.settings])
    described = []
    for label, setting in zip(labels, board.settings, strict=True):
        n_classes = count_classes(first_runs[setting])
        described.append(
            {
                "label": label,
                "dataset": setting.dataset,
                "chance": None if n_classes is None else 1 / n_classes,
                "labelled": any(board.means(setting, criterion) for criterion in board.criteria),
                "plan": describe_plans(board, [setting]),
                "model": setting.model,
                "steps": setting.steps,
            }
        )
    return described


def count_classes(run: Run) -> int | None:
    """Return the number of classes that a run's record gives."""
    dataset = run.info.get("dataset")
    number = dataset.get("n_classes") if isinstance(dataset, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def describe_algorithms(board: Leaderboard) -> list[Content]:
    """Return the rows: a name, its family and venue, and whether the method is classical."""
    described = []
    for name, algorithm in zip(distinct(list(board.algorithms)), board.algorithms, strict=True):
        card = board.cards.get(algorithm, {})
        family = card.get("family")
        venue = card.get("venue")
        described.append(
            {
                "name": name,
                "family": family if isinstance(family, str) and family else "unknown",
                "venue": venue if isinstance(venue, str) else "",
                "classical": family == CLASSICAL,
            }
        )
    return described


def describe_cells(board: Leaderboard, judged: Sequence[CriterionQuality]) -> list[Content]:
    """Return every cell with its place (setting, algorithm, criterion) and all that a table shows of it."""
    regrets = {(q.experiment, q.criterion.name): q.regret for q in judged}
    cells = []
    for s, setting in enumerate(board.settings):
        labelled = any(board.means(setting, criterion) for criterion in board.criteria)
        for a, algorithm in enumerate(board.algorithms):
            for c, criterion in enumerate(board.criteria):
                cell = board.cell(setting, algorithm, criterion)
                if cell is not None:
                    regret = regrets.get((cell.experiment, criterion.name))
                    cells.append({"at": [s, a, c], **describe_cell(cell, labelled, regret)})
    return cells


def describe_cell(cell: Cell, labelled: bool, regret: float | None) -> Content:
    """Return a cell's figures: of test accuracy or, without test labels, of the criterion itself."""
    splits = [(trial, _figure(cell, trial, labelled)) for trial, _ in cell.by_split()]
    content: Content = {
        "mean": cell.mean,
        "std": cell.std,
        "se": cell.stderr,
        "n": cell.n,
        "splits": [list(split) for split in splits],
        "regret": regret,
        "planned": cell.plan.n_runs,
        "finished": cell.n_finished,
        "diverged": cell.n_diverged,
        "lacking": not cell.complete,
        "note": describe_gaps(cell),
    }
    if not labelled:
        scores = [score for _, score in splits if score is not None]
        n = len(scores)
        std = stdev(scores) if n > 1 else None
        content.update(
            mean=fmean(scores) if n else None,
            std=std,
            se=None if std is None else std / n**0.5,
            n=n,
            lacking=cell.n_missing > 0 or cell.n_absent > 0,
            # Without accuracies a cell "rests on 0 splits": only what else is to be known of it is true here.
            note="; ".join(part for part in content["note"].split("; ") if not part.startswith("rests on")),
        )
    return content


def _figure(cell: Cell, trial: int, labelled: bool) -> float | None:
    choice = next((choice for choice in cell.choices if choice.trial_seed == trial), None)
    if choice is None:
        return None
    figure = choice.test_acc if labelled else choice.score
    return figure if is_finite(figure) else None


def find_first_runs(runs: Sequence[Run]) -> dict[Experiment, Run]:
    """Return a run of every setting that says most of its data: one with run.json if there is one."""
    first: dict[Experiment, Run] = {}
    for run in runs:
        held = first.get(run.experiment.setting)
        if held is None or (not isinstance(held.info.get("dataset"), dict) and run.info.get("dataset")):
            first[run.experiment.setting] = run
    return first
