"""All runs as rows, for download."""

import json
from collections.abc import Sequence
from typing import Any

from plench.report.leaderboard import Leaderboard
from plench.runs.records import Experiment, Run
from plench.runs.select import choose_checkpoint
from plench.text import clean


def run_rows(runs: Sequence[Run], board: Leaderboard) -> list[dict[str, Any]]:
    """Return one row per run: what it is, how it ended, and what it offers to each criterion."""
    labels: dict[Experiment, dict[str, None]] = {}  # those of the tables in which an experiment has a row
    for (setting, _, _), cell in board.cells.items():
        labels.setdefault(cell.experiment, {})[clean(board.labels[setting], None)] = None
    rows = []
    for run in runs:
        row: dict[str, Any] = {
            "setting": "; ".join(labels[run.experiment]),
            "dataset": clean(run.experiment.dataset, None),
            "algorithm": clean(run.experiment.algorithm, None),
            "trial_seed": run.trial_seed,
            "hparams_seed": run.hparams_seed,
            "seed": run.seed,
            "status": run.status,
            "hparams": json.dumps(run.hparams, sort_keys=True),
            "folder": clean(run.path.name, None),
        }
        for criterion in board.criteria:
            offered = choose_checkpoint(run, criterion) if run.finished else None
            step, score = (None, None) if offered is None else (offered[0].step, offered[1])
            row[f"{criterion.name}_step"] = step
            row[f"{criterion.name}_value"] = score
            row[f"{criterion.name}_test_accuracy"] = None if offered is None else offered[0].get("test_acc")
        rows.append(row)
    return rows
