"""Folders of runs read together: which runs count, what was planned, and the results as flat rows."""

from __future__ import annotations

import csv
import gc
import importlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from plench.criteria import Criterion, find_criterion
from plench.criteria import criteria as ALL_CRITERIA
from plench.data import choose_candidates, dataset_card
from plench.data.sources import keeps_name
from plench.errors import UsageError
from plench.files import write_through
from plench.hparams import SHARED, DataTraits
from plench.report.leaderboard import (
    Leaderboard,
    build_leaderboard,
    flatten_details,
    offered,
    show_detail,
    split_by_truth,
)
from plench.report.tables import describe_gaps
from plench.runs import Experiment, Run, drop_copies, read_runs_with_warnings
from plench.runs.records import FIGURES, FITTED_ROW_KEYS
from plench.runs.results import import_pyarrow, paused_garbage_collector, read_sweep_texts
from plench.runs.select import Cell, Plan, infer_plans
from plench.runs.sweep_spec import MAX_PLACES, Grid, parse_sweep
from plench.settings import declared, describe_cell
from plench.text import clean, guard_formula

Folder = str | os.PathLike[str]
Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """The runs of one or more folders, with what was planned and what was wrong with single files.

    `records()`, `cells()` and `chosen()` return rows (dictionaries); `frame("cells")` gives the same as a
    frame. Accuracies are fractions, not percent.

    Parameters
    ----------
    runs : list of Run
        The runs that the filters left.
    criteria : tuple of Criterion
        The criteria to select by.
    plans : dict
        What was planned, for each experiment that has a run.
    warnings : list of str
        What was wrong with single files, and what was planned but has no run.
    n_absent : int
        The number of runs that were planned for experiments without any run.
    """

    runs: list[Run]
    criteria: tuple[Criterion, ...]
    plans: dict[Experiment, Plan]
    warnings: list[str]
    n_absent: int = 0

    def __repr__(self) -> str:
        return f"Results({len(self.runs)} runs of {len(self.plans)} experiments)"

    @cached_property
    def board(self) -> Leaderboard:
        """All cells: an experiment under a criterion each."""
        return build_leaderboard(self.runs, self.criteria, self.plans)

    def records(self) -> list[Row]:
        """Return one row per record of every run: identity, configuration, criteria, test accuracy."""
        return [
            {
                **_identify(run),
                "step": record.step,
                **{name: record.get(name) for name in FIGURES},
                "hparams": json.dumps(run.hparams, sort_keys=True),
                "folder": clean(run.path.name, None),
            }
            for run in self.runs
            for record in run.records
        ]

    def cells(self) -> list[Row]:
        """Return one row per experiment and criterion: mean test accuracy, spread, what it rests on."""
        return cell_rows(self.board)

    def chosen(self) -> list[Row]:
        """Return one row per experiment, criterion and split: what was chosen, and what it scores."""
        return choice_rows(self.board)

    def frame(self, what: str = "cells", library: str = "pandas") -> Any:
        """Return `records`, `cells` or `chosen` as a frame of pandas, or of polars."""
        if what not in ("records", "cells", "chosen"):
            raise UsageError(f"unknown rows {what!r}; expected one of records, cells, chosen")
        if library not in ("pandas", "polars"):
            raise UsageError(f"unknown library {library!r}; expected pandas or polars")
        try:
            module = importlib.import_module(library)
        except ImportError as error:
            raise UsageError(f"a frame needs {library}, which is not installed") from error
        return module.DataFrame(getattr(self, what)())


def read_results(
    folders: Folder | Iterable[Folder],
    *,
    datasets: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    criteria: Sequence[str] | None = None,
    planned_trials: int | None = None,
    planned_hparams: int | None = None,
    folders_apart: bool = False,
) -> Results:
    """Read folders of runs and keep what the filters ask for.

    `datasets` and `algorithms` are names or patterns (`SCL_*`), `where` conditions such as `steps=10000`.
    The plan comes from the folders' sweep files; `planned_trials` and `planned_hparams` add to it.
    A run counts once however many copies the folders hold; with `folders_apart`, once in each folder.
    """
    given = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    found: list[list[Run]] = []  # by folder
    warnings: list[str] = []
    places = given
    if not folders_apart:
        named: dict[Path, Folder] = {}
        for folder in given:
            place = Path(folder).resolve()
            if place in named:
                warnings.append(f"{folder}: named more than once, read once")
            named.setdefault(place, folder)
        places = list(named.values())
    with paused_garbage_collector():
        for folder in places:
            own, said = read_runs_with_warnings(folder)
            found.append(own)
            warnings.extend(f"{Path(folder).name}/{text}" for text in said)
        runs: list[Run] = []
        for group in found if folders_apart else [list(chain.from_iterable(found))]:
            kept, copies = drop_copies(group)
            runs.extend(kept)
            warnings.extend(copies)
        # The records stay until the end: searching them for garbage takes a fifth of the time.
        gc.freeze()
    if not runs:
        raise UsageError(f"no runs in {', '.join(map(str, given))} (folders with results.jsonl)")
    runs = _keep_named(runs, datasets, "dataset")
    runs = _keep_named(runs, algorithms, "algorithm")
    runs = _keep_where(runs, where)
    chosen = tuple(dict.fromkeys(find_criterion(name) for name in criteria or ALL_CRITERIA))
    grids: list[Grid] = []
    for folder in places:
        for name, text in read_sweep_texts(Path(folder), warnings).items():
            try:
                grids.extend(parse_sweep(text, name).grids)
            except UsageError as error:
                warnings.append(str(error))
    plans = _find_plans(runs, grids, planned_trials, planned_hparams)
    said, n_absent = _find_absent(runs, grids, whole=not datasets)
    if not algorithms:
        warnings.extend(said)
    if algorithms or datasets or where:
        n_absent = 0
    return Results(runs, chosen, plans, [clean(text, None) for text in warnings], n_absent)


def _keep_named(runs: list[Run], patterns: Sequence[str] | None, what: str) -> list[Run]:
    """Keep the runs whose dataset or algorithm matches a pattern; each pattern must match something."""
    if not patterns:
        return runs
    names = {getattr(run.experiment, what) for run in runs}
    wanted: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(_fold(name), _fold(pattern))}
        if not matching:
            known = ", ".join(sorted(clean(name) for name in names))
            raise UsageError(f"no {what} matches {pattern!r}; expected one of {known}")
        wanted |= matching
    return [run for run in runs if getattr(run.experiment, what) in wanted]


def _fold(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "").replace("+", "_plus")


def _keep_where(runs: list[Run], conditions: Sequence[str] | None) -> list[Run]:
    """Keep the runs whose experiment has the given details, written as in titles of tables.

    A network or number of steps chooses among tables; methods fitted in rounds, which have neither, stay.
    """
    for condition in conditions or ():
        key, _, wanted = condition.partition("=")
        details = {run.experiment: flatten_details(run.experiment) for run in runs}
        shown = {experiment: show_detail(flat.get(key)) for experiment, flat in details.items()}
        known = {name for flat in details.values() for name in flat}
        if key not in known:
            listed = ", ".join(sorted(known))
            raise UsageError(f"--where takes KEY=VALUE with one of {listed}, not {condition!r}")
        if wanted not in shown.values():
            values = ", ".join(sorted({clean(value) for value in shown.values()}))
            raise UsageError(f"no experiment here has {condition!r}: {key} is {values}")
        kept = {experiment for experiment, value in shown.items() if value == wanted}
        if key in FITTED_ROW_KEYS and not all(experiment.fitted for experiment in kept):
            kept.update(experiment for experiment in shown if experiment.fitted)
        runs = [run for run in runs if run.experiment in kept]
    return runs


def _find_absent(runs: Iterable[Run], grids: Iterable[Grid], whole: bool) -> tuple[list[str], int]:
    """Return warnings about planned algorithms without any run on a dataset, and count their planned runs.

    No table has a row for them. With `whole`, datasets without a run of any algorithm are named as well.
    """
    there: dict[str, set[str]] = {}
    for run in runs:
        there.setdefault(run.experiment.dataset, set()).add(run.experiment.algorithm)
    warnings: dict[str, None] = {}
    absent: set[tuple[str, str, int, int]] = set()
    for grid in grids:
        for dataset in grid.datasets:
            names = [name for name in grid.algorithms if not _has_run(name, there.get(dataset, set()))]
            is_known = keeps_name(dataset)  # a dataset given by path has another name in its runs
            if is_known:
                absent.update(product([dataset], names, grid.trial_seeds, grid.hparams_seeds))
            if dataset in there and names:
                warnings[f"{dataset}: planned, but without any run: {', '.join(names)}"] = None
            elif dataset not in there and whole and is_known:
                warnings[f"{dataset}: planned, but without any run of any algorithm"] = None
    return list(warnings), len(absent)


def _has_run(planned: str, algorithms: set[str]) -> bool:
    """Whether a planned algorithm is among those that ran, where one given by path has a hash in its name."""
    _, given_by_path, class_name = planned.rpartition(":")
    if given_by_path:
        return any(name.startswith(f"{class_name}@") for name in algorithms)
    return planned in algorithms


def _find_plans(
    runs: Iterable[Run], grids: Iterable[Grid], n_trials: int | None, n_hparams: int | None
) -> dict[Experiment, Plan]:
    """Return the plan of each experiment: what sweep files ask for, what exists, and what the options add.

    The plan of an experiment without a sweep file is inferred from its setting (see `infer_plans`).
    """
    runs, grids = list(runs), list(grids)
    for option, value in (("--planned-trials", n_trials), ("--planned-hparams", n_hparams)):
        if value is not None and not 1 <= value <= MAX_PLACES:
            raise UsageError(f"{option} must be from 1 to {MAX_PLACES:,}, not {value}")
    if (n_trials or 1) * (n_hparams or 1) > MAX_PLACES:
        raise UsageError(f"--planned-trials times --planned-hparams must be at most {MAX_PLACES:,}")
    there: dict[Experiment, set[tuple[int, int]]] = {}
    for run in runs:
        there.setdefault(run.experiment, set()).add((run.trial_seed, run.hparams_seed))
    plans = {}
    for experiment, plan in infer_plans(runs).items():
        asking = [grid for grid in grids if _asks_for(grid, experiment)]
        if asking:
            asked = [place for grid in asking for place in product(grid.trial_seeds, grid.hparams_seeds)]
            plan = Plan(frozenset(there[experiment].union(asked)))
        if n_trials or n_hparams:
            trials = range(n_trials) if n_trials else plan.trial_seeds
            configurations = range(n_hparams) if n_hparams else plan.hparams_seeds
            plan = Plan(plan.places.union(product(trials, configurations)))
        plans[experiment] = plan
    return plans


def _asks_for(grid: Grid, experiment: Experiment) -> bool:
    """Whether a grid plans runs of an experiment; defaults come from the dataset's card."""
    if experiment.dataset not in grid.datasets or experiment.origin != "plench":
        return False
    if not any(_has_run(name, {experiment.algorithm}) for name in grid.algorithms):
        return False
    rounds = grid.hparams.get("rounds")
    if experiment.fitted and isinstance(rounds, int) and experiment.steps != rounds + 1:
        return False
    try:
        card = dataset_card(experiment.dataset, own_only=True)  # never third-party code
        candidates = choose_candidates(card.candidates, grid)
    except UsageError:  # an unknown dataset: compare only what the grid sets
        return experiment.fitted or grid.steps in (None, experiment.steps)
    (model,) = (entry.default_for(DataTraits(card.kind)) for entry in SHARED if entry.name == "model")
    steps = card.default_steps if grid.steps is None else grid.steps
    asked: Mapping[str, Any] = {
        **describe_cell({**vars(grid), **vars(candidates), "steps": steps}),
        "model": grid.hparams.get("model", model),
    }
    found: Mapping[str, Any] = experiment.details
    if experiment.fitted:
        asked, found = (
            {name: value for name, value in details.items() if name not in FITTED_ROW_KEYS}
            for details in (asked, found)
        )
    # Settings that are newer than the records have their defaults there.
    defaults = {setting.cell: setting.default for setting in declared().values() if not setting.block}
    return all(found.get(name, defaults.get(name)) == value for name, value in asked.items()) and all(
        name in asked or found.get(name, value) == value for name, value in defaults.items() if name
    )


# The results as flat rows for CSV, JSON and Parquet.


def cell_rows(board: Leaderboard) -> list[Row]:
    """Return one row per cell, with its figures, what it rests on and its place among the algorithms."""
    ranks = {criterion.name: board.rank(criterion) for criterion in board.criteria}
    # Settings that are named only where they differ from their default.
    later = (setting.cell for setting in declared().values() if setting.cell and not setting.always_recorded)
    young = [name for name in later if any(name in setting.details for setting in board.settings)]
    scored = split_by_truth(board)[1]
    rows = []
    for setting, algorithm, cell in board.walk():
        rank, n_ranked = ranks[cell.criterion.name].get(algorithm, (None, 0))
        details: Mapping[str, Any] = cell.experiment.details
        identity = ("model", "steps", "dataset_fingerprint", "protocol", "test_fraction", "holdout_fraction")
        row = {
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
            "average_rank": rank,
            "ranked_settings": n_ranked,
            "note": describe_gaps(cell),
        }
        for key in (*identity, "precision", "origin", *young):
            value = details.get(key)
            row[key] = clean(value, None) if isinstance(value, str) else value
        row["candidates"] = json.dumps(details.get("candidates"), sort_keys=True)
        if scored is not None:
            found = scored.cell(setting, algorithm, cell.criterion)
            row["mean_criterion"] = None if found is None else found.mean
            row["criterion_std"] = None if found is None else found.std
            row["criterion_standard_error"] = None if found is None else found.stderr
        rows.append(row)
    return rows


def choice_rows(board: Leaderboard) -> list[Row]:
    """Return one row per cell and split: the run, checkpoint and hyperparameters that were chosen.

    A planned split without a checkpoint to choose from has a row without them.
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
        for setting, algorithm, cell in board.walk()
        for trial, choice in cell.by_split()
    ]


def run_rows(runs: Sequence[Run], board: Leaderboard) -> list[Row]:
    """Return one row per run: what it is, how it ended, and what it offers to each criterion."""
    labels: dict[Experiment, dict[str, None]] = {}  # those of the tables in which an experiment has a row
    for (setting, _, _), cell in board.cells.items():
        labels.setdefault(cell.experiment, {})[clean(board.labels[setting], None)] = None
    rows = []
    for run in runs:
        row: Row = {
            "setting": "; ".join(labels[run.experiment]),
            **_identify(run),
            "hparams": json.dumps(run.hparams, sort_keys=True),
            "folder": clean(run.path.name, None),
        }
        for criterion in board.criteria:
            step, score, test = offered(run, criterion) or (None, None, None)
            row[f"{criterion.name}_step"] = step
            row[f"{criterion.name}_value"] = score
            row[f"{criterion.name}_test_accuracy"] = test
        rows.append(row)
    return rows


def _identify(run: Run) -> Row:
    return {
        "dataset": clean(run.experiment.dataset, None),
        "algorithm": clean(run.experiment.algorithm, None),
        "trial_seed": run.trial_seed,
        "hparams_seed": run.hparams_seed,
        "seed": run.seed,
        "status": run.status,
    }


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


def render_csv(rows: Sequence[Row]) -> str:
    """Return CSV with a header line; an absent figure is an empty field."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: guard_formula(v) if isinstance(v, str) else v for k, v in row.items()})
    return text.getvalue()


def render_json(board: Leaderboard, warnings: Iterable[str]) -> str:
    """Return everything as one JSON object: cells, choices, meanings of the criteria, warnings."""
    content = {
        "accuracy_unit": "fraction",
        "criteria": {c.name: c.meaning for c in board.criteria},
        "cells": cell_rows(board),
        "choices": choice_rows(board),
        "notices": list(warnings),
    }
    return json.dumps(content, indent=2) + "\n"


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write rows as a Parquet file (needs pyarrow, from the extra `report`)."""
    pa, pq = import_pyarrow()
    table = pa.Table.from_pylist(list(rows))
    write_through(path, lambda temporary: pq.write_table(table, temporary))
