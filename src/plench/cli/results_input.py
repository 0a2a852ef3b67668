"""What all commands that read results share: which folders, which datasets, algorithms and criteria."""

import argparse
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from plench.criteria import Criterion, criteria, find_criterion
from plench.data import dataset_card
from plench.data.sources import keeps_name
from plench.errors import UsageError
from plench.hparams import SHARED, DataTraits
from plench.report.escape import clean
from plench.report.leaderboard import flatten_details, show_detail
from plench.storage import Experiment, Run, drop_copies, read_runs_with_notices
from plench.selection import Plan, infer_plans
from plench.sweeps.spec import FILE_PATTERN, Grid, read_sweep


@dataclass(frozen=True)
class ResultsInput:
    """The runs that a command works on, with what was planned and what was wrong with single files."""

    runs: list[Run]
    criteria: tuple[Criterion, ...]
    plans: dict[Experiment, Plan]
    notices: list[str]


def add_input_options(parser: argparse.ArgumentParser, *, folder_option: bool = False) -> None:
    """Add the folders (as arguments, or as the public benchmark's --input_dir) and the filters."""
    if folder_option:
        parser.add_argument(
            "--input_dir",
            dest="folders",
            action="append",
            required=True,
            metavar="DIR",
            help="folder of runs",
        )
    else:
        parser.add_argument("folders", nargs="+", metavar="DIR", help="folder that holds run folders")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="only these (patterns like 'Digits_*')")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="only these (patterns like 'SCL_*')")
    parser.add_argument(
        "--where",
        nargs="+",
        metavar="KEY=VALUE",
        help="only experiments with these, such as steps=10000 model=ResNet (tables name what differs)",
    )
    parser.add_argument("--criteria", nargs="+", metavar="NAME", help=f"only these of {', '.join(criteria)}")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add what was planned, for commands that say what cells lack."""
    parser.add_argument("--planned_trials", type=int, metavar="N", help="how many splits were planned")
    parser.add_argument(
        "--planned_hparams", type=int, metavar="N", help="how many configurations were planned"
    )


def read_input(args: argparse.Namespace, *, folders_apart: bool = False) -> ResultsInput:
    """Read the folders a command was given and keep what its filters ask for.

    A run counts once however many copies the folders hold; with `folders_apart`, once in each folder.
    """
    runs: list[Run] = []
    notices: list[str] = []
    folders = list(args.folders) if folders_apart else _name_once(args.folders, notices)
    for folder in folders:
        found, said = read_runs_with_notices(folder)
        notices.extend(clean(f"{Path(folder).name}/{notice}", None) for notice in said)
        if folders_apart:
            found, copies = drop_copies(found)
            notices.extend(clean(notice, None) for notice in copies)
        runs.extend(found)
    if not folders_apart:
        runs, copies = drop_copies(runs)
        notices.extend(clean(notice, None) for notice in copies)
    gc.freeze()  # what was read stays until the end: looking through it for garbage takes a fifth of the time
    if not runs:
        raise UsageError(f"no runs in {', '.join(map(str, args.folders))} (folders with results.jsonl)")
    kept = _keep(runs, args.datasets, "dataset")
    kept = _keep(kept, args.algorithms, "algorithm")
    kept = _keep_where(kept, args.where)
    chosen = [find_criterion(name) for name in args.criteria or criteria]
    unique = tuple(dict.fromkeys(chosen))
    grids = _read_grids(folders, notices)
    n_trials, n_hparams = (getattr(args, name, None) for name in ("planned_trials", "planned_hparams"))
    plans = _plans(kept, grids, n_trials, n_hparams)
    if not args.algorithms:
        notices.extend(dict.fromkeys(_name_absent(kept, grids, whole=not args.datasets)))
    return ResultsInput(kept, unique, plans, notices)


def _name_once(folders: Iterable[str], notices: list[str]) -> list[str]:
    """Return the folders without those that were already named, perhaps by another path."""
    named: dict[Path, str] = {}
    for folder in folders:
        place = Path(folder).resolve()
        if place in named:
            notices.append(clean(f"{folder}: named more than once, read once", None))
        named.setdefault(place, folder)
    return list(named.values())


def _read_grids(folders: Iterable[str], notices: list[str]) -> list[Grid]:
    """Read what the sweeps of these folders were asked to do; a file that cannot be read is a notice."""
    grids: list[Grid] = []
    for folder in folders:
        for path in sorted(Path(folder).glob(FILE_PATTERN)):
            try:
                grids.extend(read_sweep(path).grids)
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
    """Keep the runs whose experiment has the given details, each written as tables' titles show it."""
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
        if value is not None and value < 1:
            raise UsageError(f"{option} must be at least 1, not {value}")
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
    try:
        card = dataset_card(experiment.dataset, own_only=True)  # viewing runs nobody's code
        candidates = grid.choose_candidates(card)
    except UsageError:  # a dataset that is not known here: only what the grid says can be compared
        return grid.steps in (None, experiment.steps)
    (model,) = (entry.default_for(DataTraits(card.kind)) for entry in SHARED if entry.name == "model")
    asked = {
        "steps": card.default_steps if grid.steps is None else grid.steps,
        "model": grid.hparams.get("model", model),
        "candidates": asdict(candidates),
        "test_fraction": grid.tabular_test_fraction,
        "holdout_fraction": grid.holdout_fraction,
        "precision": grid.precision,
    }
    found = {"precision": "float32", **experiment.details}  # older records do not name it
    return all(found.get(name) == value for name, value in asked.items())
