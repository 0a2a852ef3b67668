"""What the page needs to open: criteria, settings, algorithms, and every cell of the leaderboard."""

from collections.abc import Mapping, Sequence
from typing import Any

from plench.report.criteria_quality import REFERENCE, CriterionQuality
from plench.report.leaderboard import Leaderboard, lacks_labels, score_cell, title_criterion
from plench.report.site.scripts import distinct
from plench.report.tables import describe_gaps, describe_plans
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell

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


def describe_columns(board: Leaderboard, first_runs: Mapping[Experiment, Run]) -> list[Content]:
    """Return the columns: a label, the dataset, the number of classes, and whether true labels are there."""
    labels = distinct([board.labels[setting] for setting in board.settings])
    described = []
    for label, setting in zip(labels, board.settings, strict=True):
        n_classes = count_classes(first_runs[setting])
        model = setting.details.get("model")
        described.append(
            {
                "label": label,
                "dataset": setting.dataset,
                "chance": None if n_classes is None else 1 / n_classes,
                "labelled": not lacks_labels(board, setting),
                "plan": describe_plans(board, [setting]),
                "model": model if isinstance(model, str) else "–",
                "steps": setting.steps,
            }
        )
    return described


def count_classes(run: Run) -> int | None:
    """Return the number of classes that a run's record gives."""
    dataset = run.info.get("dataset")
    number = dataset.get("n_classes") if isinstance(dataset, dict) else None
    return number if isinstance(number, int) and number > 0 else None


def describe_rows(board: Leaderboard) -> list[Content]:
    """Return the rows: a name, family, venue and budget, and whether the method is fitted in rounds."""
    fitted = {algorithm for (_, algorithm, _), cell in board.cells.items() if cell.experiment.fitted}
    described = []
    for name, algorithm in zip(distinct(list(board.algorithms)), board.algorithms, strict=True):
        card = board.cards.get(algorithm, {})
        venue = card.get("venue")
        described.append(
            {
                "name": name,
                "family": board.family(algorithm),
                "venue": venue if isinstance(venue, str) else "",
                "classical": algorithm in fitted,
                "budget": board.budget(algorithm, board.settings),
            }
        )
    return described


def describe_cells(board: Leaderboard, judged: Sequence[CriterionQuality]) -> list[Content]:
    """Return every cell with its place (setting, algorithm, criterion) and all that a table shows of it."""
    regrets = {(q.experiment, q.criterion.name): q.regret for q in judged}
    cells = []
    for s, setting in enumerate(board.settings):
        labelled = not lacks_labels(board, setting)
        for a, algorithm in enumerate(board.algorithms):
            for c, criterion in enumerate(board.criteria):
                cell = board.cell(setting, algorithm, criterion)
                if cell is not None:
                    regret = regrets.get((cell.experiment, criterion.name))
                    cells.append({"at": [s, a, c], **describe_figures(cell, labelled, regret)})
    return cells


def describe_figures(cell: Cell, labelled: bool, regret: float | None) -> Content:
    """Return a cell's figures: of test accuracy or, without true labels, of the criterion itself."""
    shown = cell if labelled else score_cell(cell)
    splits = [[trial, None if choice is None else choice.test_acc] for trial, choice in shown.by_split()]
    needs_labels = cell.criterion.needs_labels and not labelled
    return {
        "mean": shown.mean,
        "std": shown.std,
        "se": shown.stderr,
        "n": shown.n,
        "splits": splits,
        "regret": regret,
        "planned": cell.plan.n_runs,
        "finished": cell.n_finished,
        "diverged": cell.n_diverged,
        "lacking": not shown.complete and not needs_labels,
        "note": "" if needs_labels else describe_gaps(shown),
    }


def group_runs(board: Leaderboard, runs: Sequence[Run]) -> dict[tuple[Experiment, str], list[Run]]:
    """Return the runs behind each row of each setting; those of a fitted method may stand in several."""
    by_experiment: dict[Experiment, list[Run]] = {}
    for run in runs:
        by_experiment.setdefault(run.experiment, []).append(run)
    return {
        (setting, algorithm): by_experiment.get(cell.experiment, [])
        for (setting, algorithm, _), cell in board.cells.items()
    }


def find_first_runs(groups: Mapping[tuple[Experiment, str], Sequence[Run]]) -> dict[Experiment, Run]:
    """Return a run of every setting that says most of its data: one with run.json if there is one."""
    first: dict[Experiment, Run] = {}
    for (setting, _), runs in groups.items():
        for run in runs:
            held = first.get(setting)
            if held is None or (not isinstance(held.info.get("dataset"), dict) and run.info.get("dataset")):
                first[setting] = run
    return first
