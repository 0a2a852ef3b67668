"""Which run a criterion chooses among all algorithms, without true labels."""

from pathlib import Path

from plench.criteria import Criterion
from plench.errors import DataError, UsageError
from plench.report.leaderboard import Leaderboard, build_leaderboard
from plench.runs.records import Experiment, Run
from plench.runs.select import Cell, ChosenRun, choose_checkpoint


def find_best(board: Leaderboard, setting: Experiment, criterion: Criterion) -> ChosenRun | None:
    """Return the run that a criterion chooses in a setting, among all algorithms.

    The algorithm with the best mean over splits wins, the first by name of equals, and of its choices the one
    that scores best, on the first split of equals.
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
    """Name a chosen run and say how to load its model."""
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
