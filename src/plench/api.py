"""The functions of `import plench`: train, sweep, read results, list what there is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from plench.plain_files import is_plain
from plench.report.results import Results, read_results
from plench.report.tables import Tables, build_tables
from plench.runs.sweep_spec import DEFAULT_FLEET
from plench.settings import Settings, declared, read_settings

if TYPE_CHECKING:  # these import torch
    from plench.data import Dataset
    from plench.runs.select import ChosenRun
    from plench.sweeps.engines.base import SweepCallback
    from plench.sweeps.launch import SweepOutcome
    from plench.training import RunOutcome
    from plench.training.callbacks import Callback

Arrays = tuple[Any, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


def takes_settings(*, per_run: bool) -> Callable[[Function], Function]:
    """Show the settings as keywords in the signature of a function that takes them as `**settings`."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
        hints = Settings.__annotations__
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=setting.default, annotation=hints[name]
            )
            for name, setting in declared().items()
            if per_run or not setting.per_run
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return function

    return decorate


@takes_settings(per_run=True)
def train(
    algorithm: str,
    dataset: str | Path | Dataset | Arrays,
    output_dir: str | Path = "runs",
    *,
    hparams: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    progress: bool = True,
    callback: Callback | None = None,
    **settings: Any,
) -> RunOutcome:
    """Train an algorithm on a dataset; the same call continues an interrupted run and returns a finished one.

    `algorithm` is a name or `path/to/file.py:ClassName`; `dataset` a name, a path, a `plench.Dataset`, or
    arrays `(features, candidates)` or `(features, candidates, labels)`. The other keywords are the settings
    of docs/runs.md, the same as the flags of `plench train`. The outcome says how the run ended and where
    it is.

    >>> outcome = plench.train("PRODEN", "Digits_FPS", steps=500, trial_seed=1, hparams={"lr": 0.01})
    >>> outcome = plench.train("CC", (features, candidates), "mine", steps=2000)
    >>> plench.load(outcome.folder).predict(features[:5])
    """
    from plench.algorithms import find_algorithm
    from plench.data import as_dataset
    from plench.progress import watch_run
    from plench.training import configure_run, run_training

    given = read_settings(settings, known=_keywords(train))
    entry = find_algorithm(algorithm)
    data = as_dataset(dataset, data_dir)
    config = configure_run(entry, data.card, hparams=hparams, **given)
    shown = nullcontext(callback) if callback is not None or not progress else watch_run()
    with shown as told:
        return run_training(config, data, entry, output_dir, told)


def refit(
    folder: str | Path,
    dataset: str | Path | Dataset | Arrays | None = None,
    output_dir: str | Path = "refit",
    *,
    criterion: str = "CR",
    data_dir: str | Path | None = None,
    progress: bool = True,
    callback: Callback | None = None,
) -> RunOutcome:
    """Retrain the configuration that a criterion chose on all data: nothing is held out.

    `folder` is that of a run, or of the runs of a sweep, among which the criterion chooses. The configuration
    is trained for the chosen number of steps. `dataset` is needed where the data came by path or as arrays;
    it must be the data of the run.

    >>> outcome = plench.refit("runs", "pets.csv", criterion="CR")
    >>> plench.load(outcome.folder).predict("new.csv")
    """
    from plench.data import as_dataset
    from plench.errors import DataError
    from plench.progress import watch_run
    from plench.runs.folder import RunStore
    from plench.training.checkpoint import fitting
    from plench.training.config import configure_refit
    from plench.training.loop import run_training
    from plench.training.model import find_own_entry

    choice = _choose(folder, criterion)
    store = RunStore(choice.run.path)
    described = store.read_run()
    if described is None or "dataset" not in described:
        raise DataError(f"{store.folder} has no run.json that says what was computed")
    broken = f"the run.json of {store.folder} does not say what is to be trained"
    with fitting(broken, DataError):
        name, wanted = str(described["config"]["dataset"]), str(described["dataset"]["fingerprint"])
    if dataset is None and "@" in name:
        raise DataError(
            f"{name} was given by path or as arrays: give it again, on the command line with -d, in Python "
            "with dataset="
        )
    data = as_dataset(name if dataset is None else dataset, data_dir)
    if data.fingerprint != wanted:
        raise DataError(
            f"{data.card.name} has the fingerprint {data.fingerprint[:16]}…, the run was made on "
            f"{wanted[:16]}… "
            f"({name}): these are other data"
        )
    with fitting(broken, DataError):
        config, everything = configure_refit(described, choice.record.step, data)
        entry = find_own_entry(store, described)
    shown = nullcontext(callback) if callback is not None or not progress else watch_run()
    with shown as told:
        return run_training(config, everything, entry, output_dir, told)


@takes_settings(per_run=False)
def sweep(
    algorithms: str | Sequence[str],
    datasets: str | Sequence[str],
    output_dir: str | Path = "runs",
    *,
    n_hparams: int = 20,
    n_trials: int | None = None,
    n_hparams_from: int = 0,
    n_trials_from: int = 0,
    hparams: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    fleet: str | int = DEFAULT_FLEET,
    fleet_memory_gb: float | None = None,
    retry: bool = False,
    extend: str | Path | Sequence[str | Path] = (),
    progress: bool = True,
    callback: SweepCallback | None = None,
    **settings: Any,
) -> SweepOutcome:
    """Train every algorithm on every dataset, for several configurations and splits, on this machine.

    Configurations `n_hparams_from` … `n_hparams` − 1 (0 is the default one) and splits `n_trials_from` …
    `n_trials` − 1 (5 for tabular data and 3 for images, as in the protocol) are run; what is finished
    stays, so the same call continues an interrupted sweep. Failed runs are repeated with `retry`.
    `datasets` are names or paths. `fleet` says how many runs are trained as one (off, auto or a number),
    `fleet_memory_gb` how much memory these may take (1 by default). Runs that are done or diverged in one
    of the results files `extend` count as finished.

    >>> plench.sweep(["PRODEN", "CC"], "Digits_FPS", "runs", n_hparams=4, n_trials=2, steps=1000)
    >>> plench.collect("runs")
    """
    from plench.runs.sweep_spec import Grid, SweepSpec
    from plench.sweeps.engines.local import LocalEngine
    from plench.sweeps.fleets import read_fleet
    from plench.sweeps.launch import launch_sweep
    from plench.sweeps.progress import watch_sweep
    from plench.sweeps.suites import make_grids

    shared = read_settings(settings, known=_keywords(sweep))
    changes: dict[str, Any] = {
        "n_hparams": n_hparams,
        "n_hparams_from": n_hparams_from,
        "n_trials_from": n_trials_from,
        "hparams": dict(hparams or {}),
        **({} if n_trials is None else {"n_trials": n_trials}),
        **shared,
    }
    grids: tuple[Grid, ...] = make_grids(_listed(algorithms), _listed(datasets), **changes)
    shown = nullcontext(callback) if callback is not None or not progress else watch_sweep()
    with shown as told:
        return launch_sweep(
            SweepSpec(grids),
            output_dir,
            data_dir=data_dir,
            engine=LocalEngine(workers=workers),
            callback=told,
            retry=retry,
            fleet=read_fleet(fleet, fleet_memory_gb),
            extend=[extend] if isinstance(extend, str | Path) else extend,
        )


def results(folders: str | Path | Iterable[str | Path], **filters: Any) -> Results:
    """Read folders of runs: records, cells and chosen runs as rows, or as a pandas or polars frame.

    `filters` are those of `plench collect`: `datasets`, `algorithms`, `criteria`, `where`, `planned_trials`,
    `planned_hparams`.

    >>> found = plench.results("runs", algorithms=["SCL_*", "CC"])
    >>> found.cells()[0]["mean_test_accuracy"]
    >>> found.frame("chosen")
    """
    return read_results(folders, **filters)


def collect(folders: str | Path | Iterable[str | Path], *, by: str = "dataset", **filters: Any) -> Tables:
    """Select by every criterion and return the tables, which show themselves in a notebook.

    One table per dataset (columns: criteria), or with `by="criterion"` one per criterion (columns: datasets).
    `filters` are those of `plench.results`. `str()` gives what `plench collect` prints.

    >>> plench.collect("runs", criteria=["CR", "AA"])
    >>> print(plench.collect("runs", by="criterion").latex())
    """
    found = read_results(folders, **filters)
    return Tables(build_tables(found.board, by), found.warnings)


def list_algorithms() -> list[dict[str, Any]]:
    """Return every algorithm with family, venue, views and cost, as rows.

    >>> [row["name"] for row in plench.list_algorithms()]
    """
    from plench.algorithms import describe_algorithms

    return describe_algorithms()


def list_datasets() -> list[dict[str, Any]]:
    """Return every dataset that is known by name, with its sizes and where its files come from, as rows.

    >>> [row["name"] for row in plench.list_datasets() if row["data"] == "built in"]
    """
    from plench.data import describe_datasets

    return describe_datasets()


def _choose(folder: str | Path, criterion: str) -> ChosenRun:
    """Return what a criterion chooses, in a run's folder or among the runs of a folder."""
    from plench.criteria import find_criterion
    from plench.errors import DataError
    from plench.report.leaderboard import choose_in_run, choose_run
    from plench.runs.ended import RESULTS
    from plench.runs.records import read_runs_with_notices

    chooser, path = find_criterion(criterion), Path(folder).resolve()
    if not is_plain(path / RESULTS):
        return choose_run(read_results(path).runs, folder, chooser)
    runs, notices = read_runs_with_notices(path.parent)
    found = [run for run in runs if run.path.name == path.name]
    if not found:
        reasons = "; ".join(notice for notice in notices if notice.startswith(f"{path.name}/"))
        raise DataError(f"{folder} holds no run that can be read" + (f": {reasons}" if reasons else ""))
    return choose_in_run(found[0], chooser)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _keywords(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's own parameters."""
    return list(inspect.signature(function).parameters)
