"""Settings whose data have no true labels: algorithms are ranked by the criteria themselves.

A criterion is a figure of the validation split's candidate sets, not an accuracy; tables say so.
"""

from dataclasses import fields, replace

from plench.report.leaderboard import Leaderboard
from plench.runs.records import Experiment
from plench.runs.select import Cell, ChosenRun

LEGEND = (
    "There are no true labels: figures are the criteria themselves, in % of the validation split, mean ± "
    "sample "
    "standard deviation over splits (divisor n − 1), [standard error of the mean], n = number of splits. "
    "They "
    "say how well predictions agree with candidate sets and are not accuracies."
)


class ScoredChoice(ChosenRun):
    """A choice whose figure is its criterion."""

    @property
    def test_acc(self) -> float | None:
        """The criterion's value, in the place of a test accuracy."""
        return self.score


class ScoredCell(Cell):
    """A cell whose figures are its criterion's values."""


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
    scored = None
    if shown:
        cells = {
            (setting, algorithm, criterion.name): score_cell(cell)
            for setting in unlabelled
            for algorithm in board.algorithms
            for criterion in shown
            if (cell := board.cell(setting, algorithm, criterion)) is not None
        }
        scored = replace(
            board,
            settings=unlabelled,
            algorithms=tuple(a for a in board.algorithms if any(a == name for _, name, _ in cells)),
            criteria=shown,
            cells=cells,
            scored=True,
        )
    first = None
    if labelled or scored is None:
        kept = labelled or board.settings
        present = {a for setting, a, _ in board.cells if setting in kept}
        first = replace(board, settings=kept, algorithms=tuple(a for a in board.algorithms if a in present))
    return first, scored


def lacks_labels(board: Leaderboard, setting: Experiment) -> bool:
    """Say whether something was chosen in a setting, and nothing of it has a test accuracy."""
    cells = [cell for (place, _, _), cell in board.cells.items() if place == setting]
    return any(cell.choices for cell in cells) and not any(cell.accuracies for cell in cells)


def score_cell(cell: Cell) -> ScoredCell:
    """Return the same cell with its criterion's values as figures."""
    values = {entry.name: getattr(cell, entry.name) for entry in fields(cell)}
    values["choices"] = tuple(
        ScoredChoice(choice.trial_seed, choice.run, choice.record, choice.score) for choice in cell.choices
    )
    return ScoredCell(**values)
