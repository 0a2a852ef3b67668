"""Cells and choices as flat rows for CSV, JSON and Parquet. Accuracies are fractions, not percent."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plench.errors import missing_package
from plench.report.escape import clean, guard_formula
from plench.report.layout import describe_gaps
from plench.report.leaderboard import Leaderboard
from plench.report.unlabelled import split_by_truth
from plench.runs import Experiment, Run
from plench.runs.files import write_through
from plench.runs.lines import FIGURES
from plench.runs.select import Cell
from plench.settings import declared

Row = dict[str, Any]


def cell_rows(board: Leaderboard) -> list[Row]:
    """Return one row per cell, with its figures, what it rests on and its place among the algorithms."""
    ranks = {criterion.name: board.rank(criterion) for criterion in board.criteria}
    later = (setting.cell for setting in declared().values() if setting.cell and not setting.founding)
    young = [name for name in later if any(name in setting.details for setting in board.settings)]
    scored = split_by_truth(board)[1]
    return [
        {
            **_place(board, setting, algorithm, cell),
            "mean_test_accuracy": cell.mean,
            "sample_std": cell.std,
            "standard_error": cell.stderr,
            "n_splits": cell.n,
            "planned_splits": len(cell.plan.trial_seeds),
            "planned_runs": cell.plan.n_runs,
            "finished_runs": cell.n_finished,
            "unfinished_runs": cell.n_unfinished - cell.n_failed,
            "failed_runs": cell.n_failed,
            "diverged_runs": cell.n_diverged,
            "runs_without_checkpoint": cell.n_absent,
            "average_rank": ranks[cell.criterion.name].get(algorithm, (None, 0))[0],
            "ranked_settings": ranks[cell.criterion.name].get(algorithm, (None, 0))[1],
            "note": describe_gaps(cell),
            **_identity(cell, young),
            **({} if scored is None else _criterion_figures(scored.cell(setting, algorithm, cell.criterion))),
        }
        for setting, algorithm, cell in _cells(board)
    ]


def _criterion_figures(found: Cell | None) -> Row:
    """Return the figures of a cell without true labels: the criterion itself, which is no accuracy."""
    return {
        "mean_criterion": None if found is None else found.mean,
        "criterion_std": None if found is None else found.std,
        "criterion_standard_error": None if found is None else found.stderr,
    }


def choice_rows(board: Leaderboard) -> list[Row]:
    """Return one row per cell and split: the run, checkpoint and hyperparameters that were chosen.

    A planned split on which there was nothing to choose from has a row without them.
    """
    return [
        {
            **_place(board, setting, algorithm, cell),
            "trial_seed": trial,
            "hparams_seed": None if choice is None else choice.run.hparams_seed,
            "step": None if choice is None else choice.record.step,
            "criterion_value": None if choice is None else choice.score,
            "test_accuracy": None if choice is None else choice.test_acc,
            "hparams": None if choice is None else json.dumps(choice.run.hparams, sort_keys=True),
            "folder": None if choice is None else clean(choice.run.path.name, None),
            "note": describe_gaps(cell),
        }
        for setting, algorithm, cell in _cells(board)
        for trial, choice in cell.by_split()
    ]


def record_rows(runs: Iterable[Run]) -> list[Row]:
    """Return one row per record of every run, in the order of the runs and their steps."""
    return [
        {
            "dataset": clean(run.experiment.dataset, None),
            "algorithm": clean(run.experiment.algorithm, None),
            "trial_seed": run.trial_seed,
            "hparams_seed": run.hparams_seed,
            "seed": run.seed,
            "status": run.status,
            "step": record.step,
            **{name: record.get(name) for name in FIGURES},
            "hparams": json.dumps(run.hparams, sort_keys=True),
            "folder": clean(run.path.name, None),
        }
        for run in runs
        for record in run.records
    ]


def render_csv(rows: Sequence[Row]) -> str:
    """Return CSV with a header line; an absent figure is an empty field."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: guard_formula(v) if isinstance(v, str) else v for k, v in row.items()})
    return text.getvalue()


def render_json(board: Leaderboard, notices: Iterable[str]) -> str:
    """Return everything as one JSON object: cells, choices, meanings of the criteria, notices."""
    content = {
        "accuracy_unit": "fraction",
        "criteria": {c.name: c.meaning for c in board.criteria},
        "cells": cell_rows(board),
        "choices": choice_rows(board),
        "notices": list(notices),
    }
    return json.dumps(content, indent=2) + "\n"


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write rows as a Parquet file (needs pyarrow, from the extra `report`)."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_package("writing Parquet", "pyarrow", "report") from error
    table = pa.Table.from_pylist(list(rows))
    write_through(path, lambda temporary: pq.write_table(table, temporary))


def _cells(board: Leaderboard) -> Iterator[tuple[Experiment, str, Cell]]:
    for setting in board.settings:
        for algorithm in board.algorithms:
            for criterion in board.criteria:
                cell = board.cell(setting, algorithm, criterion)
                if cell is not None:
                    yield setting, algorithm, cell


def _place(board: Leaderboard, setting: Experiment, algorithm: str, cell: Cell) -> Row:
    place = {
        "setting": clean(board.labels[setting], None),
        "dataset": clean(setting.dataset, None),
        "algorithm": clean(algorithm, None),
        "criterion": cell.criterion.name,
    }
    if board.is_mixed:
        place |= {"family": clean(board.family(algorithm), None), "budget": cell.experiment.budget}
    return place


def _identity(cell: Cell, young: Sequence[str]) -> Row:
    """Return what else the experiment is, so that rows of different experiments can be told apart.

    `young` are settings that are named only where they differ from their default.
    """
    details: Mapping[str, Any] = cell.experiment.details
    keys = (
        "model",
        "steps",
        "dataset_fingerprint",
        "protocol",
        "test_fraction",
        "holdout_fraction",
        "precision",
        "origin",
        *young,
    )
    return {
        **{key: clean(v, None) if isinstance(v := details.get(key), str) else v for key in keys},
        "candidates": json.dumps(details.get("candidates"), sort_keys=True),
    }
