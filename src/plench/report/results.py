"""Folders of runs read as one: which runs count, what was planned, and what is wrong with single files."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from plench.criteria import Criterion, find_criterion
from plench.criteria import criteria as ALL_CRITERIA
from plench.data import choose_candidates, dataset_card
from plench.data.sources import keeps_name
from plench.errors import UsageError
from plench.hparams import SHARED, DataTraits
from plench.report.escape import clean
from plench.report.leaderboard import Leaderboard, build_leaderboard, flatten_details, show_detail
from plench.report.rows import Row, cell_rows, choice_rows, record_rows
from plench.runs import Experiment, Run, drop_copies, read_runs_with_notices
from plench.runs.gather import read_sweep_texts
from plench.runs.records import OF_A_FITTED_ROW, paused_garbage_collector
from plench.runs.select import Plan, infer_plans
from plench.runs.sweep_spec import MAX_PLACES, Grid, parse_sweep
from plench.settings import declared, describe_cell

Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class Results:
    """The runs of one or more folders, with what was planned and what was wrong with single files.

    `plans` are those of experiments that have a run; `n_absent` more runs were planned of others.

    `records()`, `cells()` and `chosen()` return rows (dictionaries); `frame("cells")` gives the same as a
    pandas or polars frame. Accuracies are fractions, not percent.
    """

    runs: list[Run]
    criteria: tuple[Criterion, ...]
    plans: dict[Experiment, Plan]
    notices: list[str]
    n_absent: int = 0

    def __repr__(self) -> str:
        return f"Results({len(self.runs)} runs of {len(self.plans)} experiments)"

    @cached_property
    def board(self) -> Leaderboard:
        """All cells: an experiment under a criterion each."""
        return build_leaderboard(self.runs, self.criteria, self.plans)

    def records(self) -> list[Row]:
        """Return one row per record of every run: identity, configuration, criteria, test accuracy."""
        return record_rows(self.runs)

    def cells(self) -> list[Row]:
        """Return one row per experiment and criterion: mean test accuracy, spread, what it rests on."""
        return cell_rows(self.board)

    def chosen(self) -> list[Row]:
        """Return one row per experiment, criterion and split: what was chosen, and what it scores."""
        return choice_rows(self.board)

    def frame(self, what: str = "cells", library: str | None = None) -> Any:
        """Return `records`, `cells` or `chosen` as a frame of pandas or polars (the first installed)."""
        if what not in ("records", "cells", "chosen"):
            raise UsageError(f"frame takes records, cells or chosen, not {what!r}")
        return make_frame(getattr(self, what)(), library)


def make_frame(rows: list[Row], library: str | None = None) -> Any:
    """Return rows as a frame of pandas, or of polars where only that is installed, or of the named one."""
    if library not in (None, "pandas", "polars"):
        raise UsageError(f"library must be pandas or polars, not {library!r}")
    for name in (library,) if library else ("pandas", "polars"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return module.DataFrame(rows)
    raise UsageError(f"a frame needs {library or 'pandas or polars'}, which is not installed")


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
    What was planned is what the folders' sweep files say; `planned_trials` and `planned_hparams` add to it.
    A run counts once however many copies the folders hold; with `folders_apart`, once in each folder.
    """
    given = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    runs: list[Run] = []
    notices: list[str] = []
    places = given if folders_apart else _name_once(given, notices)
    with paused_garbage_collector():
        for folder in places:
            found, said = read_runs_with_notices(folder)
            notices.extend(clean(f"{Path(folder).name}/{notice}", None) for notice in said)
            if folders_apart:
                found, copies = drop_copies(found)
                notices.extend(clean(notice, None) for notice in copies)
            runs.extend(found)
        if not folders_apart:
            runs, copies = drop_copies(runs)
            notices.extend(clean(notice, None) for notice in copies)
        # What was read stays until the end: looking through it for garbage takes a fifth of the time.
        gc.freeze()
    if not runs:
        raise UsageError(f"no runs in {', '.join(map(str, given))} (folders with results.jsonl)")
    kept = _keep(runs, datasets, "dataset")
    kept = _keep(kept, algorithms, "algorithm")
    kept = _keep_where(kept, where)
    chosen = tuple(dict.fromkeys(find_criterion(name) for name in criteria or ALL_CRITERIA))
    grids = _read_grids(places, notices)
    plans = _plans(kept, grids, planned_trials, planned_hparams)
    if not algorithms:
        notices.extend(dict.fromkeys(_name_absent(kept, grids, whole=not datasets)))
    n_absent = 0 if algorithms or datasets or where else _count_absent(kept, grids)
    return Results(kept, chosen, plans, notices, n_absent)


def _name_once(folders: Iterable[Folder], notices: list[str]) -> list[Folder]:
    """Return the folders without those that were already named, perhaps by another path."""
    named: dict[Path, Folder] = {}
    for folder in folders:
        place = Path(folder).resolve()
        if place in named:
            notices.append(clean(f"{folder}: named more than once, read once", None))
        named.setdefault(place, folder)
    return list(named.values())


def _read_grids(folders: Iterable[Folder], notices: list[str]) -> list[Grid]:
    """Read what the sweeps of these folders were asked to do; a file that cannot be read is a notice."""
    grids: list[Grid] = []
    for folder in folders:
        unread: list[str] = []
        texts = read_sweep_texts(Path(folder), unread)
        notices.extend(clean(notice, None) for notice in unread)
        for name, text in texts.items():
            try:
                grids.extend(parse_sweep(text, name).grids)
            except UsageError as error:
                notices.append(clean(str(error), None))
    return grids


def _name_absent(runs: Iterable[Run], grids: Iterable[Grid], whole: bool) -> Iterator[str]:
    """Say which planned algorithms have no run at all on a planned dataset: no table has a row for them.

    With `whole`, datasets that have no run of any algorithm are named as well: they have no table.
    """
    there: dict[str, set[str]] = {}
    for run in runs:
        there.setdefault(run.experiment.dataset, set()).add(run.experiment.algorithm)
    for grid in grids:
        for dataset in grid.datasets:
            if dataset in there:
                absent = [name for name in grid.algorithms if not _has_run(name, there[dataset])]
                if absent:
                    yield clean(f"{dataset}: planned, but without any run: {', '.join(absent)}", None)
            elif whole and keeps_name(dataset):  # what is given by path has a name of its own in its runs
                yield clean(f"{dataset}: planned, but without any run of any algorithm", None)


def _count_absent(runs: Iterable[Run], grids: Iterable[Grid]) -> int:
    """Count the planned runs of algorithms and datasets that have no run together."""
    there: dict[str, set[str]] = {}
    for run in runs:
        there.setdefault(run.experiment.dataset, set()).add(run.experiment.algorithm)
    absent: set[tuple[str, str, int, int]] = set()
    for grid in grids:
        for dataset in grid.datasets:
            for name in grid.algorithms:
                # What is given by path has a name of its own in its runs: whether it has any is not known.
                if keeps_name(dataset) and not _has_run(name, there.get(dataset, set())):
                    absent.update(product([dataset], [name], grid.trial_seeds, grid.hparams_seeds))
    return len(absent)


def _has_run(planned: str, algorithms: set[str]) -> bool:
    """Whether a planned algorithm is among those that ran; one given by path has a hash in its name there."""
    _, given_by_path, class_name = planned.rpartition(":")
    if given_by_path:
        return any(name.startswith(f"{class_name}@") for name in algorithms)
    return planned in algorithms


def _keep(runs: list[Run], patterns: Sequence[str] | None, what: str) -> list[Run]:
    """Keep the runs whose dataset or algorithm matches a pattern; each pattern must match something."""
    if not patterns:
        return runs
    names = {getattr(run.experiment, what) for run in runs}
    wanted: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(_fold(name), _fold(pattern))}
        if not matching:
            known = ", ".join(sorted(clean(name) for name in names))
            raise UsageError(f"no {what} here matches {pattern!r}: there are {known}")
        wanted |= matching
    return [run for run in runs if getattr(run.experiment, what) in wanted]


def _keep_where(runs: list[Run], conditions: Sequence[str] | None) -> list[Run]:
    """Keep the runs whose experiment has the given details, written as in titles of tables."""
    for condition in conditions or ():
        key, _, wanted = condition.partition("=")
        shown = {run.experiment: show_detail(flatten_details(run.experiment).get(key)) for run in runs}
        if not any(key in flatten_details(experiment) for experiment in shown):
            known = sorted({name for experiment in shown for name in flatten_details(experiment)})
            raise UsageError(f"--where takes KEY=VALUE with one of {', '.join(known)}, not {condition!r}")
        if wanted not in shown.values():
            values = ", ".join(sorted({clean(value) for value in shown.values()}))
            raise UsageError(f"no experiment here has {condition!r}: {key} is {values}")
        runs = [run for run in runs if shown[run.experiment] == wanted]
    return runs


def _fold(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "").replace("+", "_plus")


def _plans(
    runs: Iterable[Run], grids: Iterable[Grid], n_trials: int | None, n_hparams: int | None
) -> dict[Experiment, Plan]:
    """Take as planned what the sweeps' files say, and what is there or the options say on top of it.

    For an experiment that no file asks for, what is there is what its whole setting has (see `infer_plans`).
    """
    runs, grids = list(runs), list(grids)
    for option, value in (("--planned_trials", n_trials), ("--planned_hparams", n_hparams)):
        if value is not None and not 1 <= value <= MAX_PLACES:
            raise UsageError(f"{option} must be from 1 to {MAX_PLACES:,}, not {value}")
    if (n_trials or 1) * (n_hparams or 1) > MAX_PLACES:
        raise UsageError(f"--planned_trials times --planned_hparams must be at most {MAX_PLACES:,}")
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
    """Whether a grid asks for runs of an experiment; what it leaves open is on the dataset's card."""
    if experiment.dataset not in grid.datasets or experiment.origin != "plench":
        return False
    if not any(_has_run(name, {experiment.algorithm}) for name in grid.algorithms):
        return False
    if experiment.fitted and not _leaves_rounds(grid, experiment):
        return False
    try:
        card = dataset_card(experiment.dataset, own_only=True)  # viewing runs no third-party code
        candidates = choose_candidates(card.candidates, grid)
    except UsageError:  # a dataset that is not known here: only what the grid says can be compared
        return experiment.fitted or grid.steps in (None, experiment.steps)
    (model,) = (entry.default_for(DataTraits(card.kind)) for entry in SHARED if entry.name == "model")
    steps = card.default_steps if grid.steps is None else grid.steps
    asked = {
        **describe_cell({**vars(grid), **vars(candidates), "steps": steps}),
        "model": grid.hparams.get("model", model),
    }
    found = experiment.details
    if experiment.fitted:
        asked, found = (_leave_out_row(details) for details in (asked, found))
    # What records do not name is at its default: settings that are younger than they.
    defaults = {setting.cell: setting.default for setting in declared().values() if not setting.block}
    return all(found.get(name, defaults.get(name)) == value for name, value in asked.items()) and all(
        name in asked or found.get(name, value) == value for name, value in defaults.items() if name
    )


def _leaves_rounds(grid: Grid, experiment: Experiment) -> bool:
    """Whether a fitted method may have its rounds: they are its steps, whatever a grid says of steps."""
    rounds = grid.hparams.get("rounds")
    return not isinstance(rounds, int) or experiment.steps == rounds + 1


def _leave_out_row(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name not in OF_A_FITTED_ROW}
