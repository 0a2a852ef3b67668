"""The functions of `import plench`: train, sweep, read results, list what there is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.callbacks import CALLBACKS, Callback, watch_run
from plench.criteria import CRITERIA, find_criterion
from plench.errors import DataError, UsageError
from plench.registry import NotSelfContainedError
from plench.report.leaderboard import choose_in_run, choose_run
from plench.report.results import Results, read_results
from plench.report.tables import Tables, build_tables
from plench.runs.folder import RESULTS, RunStore
from plench.runs.records import read_run
from plench.runs.sweep_spec import SweepSpec
from plench.settings import Settings, declared, read_settings
from plench.text import check_local

if TYPE_CHECKING:  # these import torch
    from plench.algorithms import Algorithm
    from plench.data import Dataset
    from plench.data.sources.base import Source
    from plench.sweeps.launch import SweepOutcome
    from plench.sweeps.progress import SweepCallback
    from plench.training import RunOutcome

Arrays = tuple[Any, ...]


def show_settings(function: Callable[..., Any], *, per_run: bool) -> None:
    """Show the settings as keywords in the signature of a function that takes them as `**settings`."""
    signature = inspect.signature(function)
    own = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    kind, hints = inspect.Parameter.KEYWORD_ONLY, Settings.__annotations__
    keywords = [
        inspect.Parameter(name, kind, default=setting.default, annotation=hints[name])
        for name, setting in declared().items()
        if per_run or not setting.per_run
    ]
    function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]


def name_parts(
    hparams: Mapping[str, Any] | None, settings: Mapping[str, Any], folder: Path | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return hyperparameters and settings with a network and criteria given as objects by their names.

    With a `folder`, other processes find them: their source is written there.
    """
    from plench.networks import NETWORKS

    values, settings = dict(hparams or {}), dict(settings)
    criteria = settings.get("more_criteria", "")
    if not isinstance(criteria, str):
        given = criteria if isinstance(criteria, list | tuple) else [criteria]
        settings["more_criteria"] = ",".join(
            CRITERIA.find(each).name if folder is None else CRITERIA.write_spec(each, folder)
            for each in given
        )
    if "model" in values and folder is not None:
        values["model"] = NETWORKS.write_spec(values["model"], folder)
    return values, settings


def train(
    algorithm: str | type[Algorithm],
    dataset: str | Path | Dataset | Source | Arrays,
    output_dir: str | Path = "runs",
    *,
    hparams: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    text_encoder: str | None = None,
    image_encoder: str | None = None,
    progress: bool = True,
    callback: Callback | None = None,
    callbacks: Sequence[str | Callback | type[Callback]] = (),
    **settings: Any,
) -> RunOutcome:
    """Train an algorithm on a dataset.

    The same call resumes an interrupted run, and returns the outcome of a finished one.

    Parameters
    ----------
    algorithm : str or class
        A name (`plench.list_algorithms`), `path/to/file.py:ClassName`, or a class, also one of a notebook.
        The source of a class is stored with the run.
    dataset : str, path, Dataset, Source or tuple of arrays
        A name (`plench.list_datasets`), the path of a file or folder, a `plench.Dataset`, a `Source`, or
        arrays `(features, candidates)` or `(features, candidates, labels)`.
    output_dir : str or path, default "runs"
        Folder of runs, in which the run gets a folder of its own.
    hparams : mapping, optional
        Hyperparameters to set; the others have their defaults, or the values that `hparams_seed` draws.
        `model` may be a `Network`.
    data_dir : str or path, optional
        Folder with the files of named datasets; built-in ones need none.
    text_encoder, image_encoder : str, optional
        Pretrained encoders of texts and images (docs/encoders.md), also `?text_encoder=…` behind a name.
    progress : bool, default True
        Whether to show the progress on standard error or in the notebook.
    callback : Callback, optional
        Observer of the run, in place of the progress.
    callbacks : sequence of Callback, optional
        Further observers, such as experiment trackers (docs/callbacks.md): objects, classes, or
        `path/to/file.py:NAME`.
    **settings
        The settings of docs/settings.md, which are also flags of `plench train`: `steps`, `trial_seed`, ….
        `more_criteria` may be a `Criterion` or a list of them.

    Returns
    -------
    RunOutcome
        `status` (done, diverged, failed or interrupted), `folder` and `message`.

    Raises
    ------
    UsageError
        If a name or a value is not known or not allowed.
    DataError
        If the dataset cannot be used.

    Examples
    --------
    >>> outcome = plench.train("PRODEN", "Digits_FPS", steps=500, trial_seed=1, hparams={"lr": 0.01})
    >>> outcome = plench.train("CC", (features, candidates), "mine", steps=2000)
    >>> plench.load(outcome.folder).predict(features[:5])
    """
    from plench.algorithms import find_algorithm
    from plench.data import as_dataset
    from plench.training import configure_run, run_training
    from plench.training.run import Observers

    check_local(output_dir)
    hparams, settings = name_parts(hparams, settings)
    given = read_settings(settings, known=inspect.signature(train).parameters)
    entry = find_algorithm(algorithm)
    data = as_dataset(dataset, data_dir, text_encoder=text_encoder, image_encoder=image_encoder)
    config = configure_run(entry, data.card, hparams=hparams, **given)
    found = [CALLBACKS.find(each).member() if isinstance(each, str | type) else each for each in callbacks]
    with nullcontext(callback) if callback is not None or not progress else watch_run() as observer:
        if found or not isinstance(observer, Callback | None):
            observer = Observers([observer or Callback(), *found])
        return run_training(config, data, entry, output_dir, observer)


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
    """Retrain the configuration that a criterion chose on all data, for the chosen number of steps.

    Nothing is held out for validation or test.

    Parameters
    ----------
    folder : str or path
        Folder of a run, or of the runs of a sweep on one dataset, among which the criterion chooses.
    dataset : str, path, Dataset or tuple of arrays, optional
        The data of the run. Needed if they came by path or as arrays.
    output_dir : str or path, default "refit"
        Folder of runs to write to.
    criterion : str, default "CR"
        Name of the criterion.
    data_dir, progress, callback
        As in `plench.train`.

    Returns
    -------
    RunOutcome
        How the run ended, and its folder.

    Raises
    ------
    DataError
        If nothing can be chosen, or if these are not the data of the run.

    Examples
    --------
    >>> outcome = plench.refit("runs", "pets.csv", criterion="CR")
    >>> plench.load(outcome.folder).predict("new.csv")
    """
    from plench.data import as_dataset
    from plench.training.checkpoint import fitting
    from plench.training.config import configure_refit
    from plench.training.loop import run_training
    from plench.training.model import find_own_entry

    chooser, path = find_criterion(criterion), Path(folder).resolve()
    if (path / RESULTS).is_file():
        choice = choose_in_run(read_run(path), chooser)
    else:
        choice = choose_run(read_results(path).runs, folder, chooser)
    store = RunStore(choice.run.path)
    described = store.read_run()
    if described is None or "dataset" not in described:
        raise DataError(f"{store.folder} has no run.json that says what was computed")
    broken = f"the run.json of {store.folder} does not say what to train"
    with fitting(broken, DataError):
        name, wanted = str(described["config"]["dataset"]), str(described["dataset"]["fingerprint"])
    if dataset is None and "@" in name:
        raise DataError(
            f"{name} was given by path or as arrays: name it again (dataset=, on the command line -d)"
        )
    data = as_dataset(name if dataset is None else dataset, data_dir)
    if data.fingerprint != wanted:
        raise DataError(
            f"these are not the data of the run: {data.card.name} has the fingerprint "
            f"{data.fingerprint[:16]}…, the run was made on {wanted[:16]}… ({name})"
        )
    with fitting(broken, DataError):
        config, everything = configure_refit(described, choice.record.step, data)
        entry = find_own_entry(store, described)
    with nullcontext(callback) if callback is not None or not progress else watch_run() as observer:
        return run_training(config, everything, entry, output_dir, observer)


def sweep(
    algorithms: str | type[Algorithm] | Sequence[str | type[Algorithm]],
    datasets: str | Source | Sequence[str | Source],
    output_dir: str | Path = "runs",
    *,
    n_hparams: int = 20,
    n_trials: int | None = None,
    n_hparams_from: int = 0,
    n_trials_from: int = 0,
    hparams: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    stack: str | int = "auto",
    stack_memory_gb: float | None = None,
    retry: bool = False,
    extend: str | Path | Sequence[str | Path] = (),
    progress: bool = True,
    callback: SweepCallback | None = None,
    callbacks: Sequence[str | type[Callback]] = (),
    **settings: Any,
) -> SweepOutcome:
    """Train every algorithm on every dataset, for several configurations and splits, on this machine.

    Finished runs are skipped, so the same call resumes an interrupted sweep.

    Parameters
    ----------
    algorithms, datasets : str, class, Source, or a sequence of these
        Names, paths or objects, as in `plench.train`. Runs are trained in other processes, so the source of
        an object is written to the folder `code` of the output folder; an object that uses what cannot be
        written there is refused.
    output_dir : str or path, default "runs"
        Folder of runs.
    n_hparams, n_hparams_from : int, default 20 and 0
        Configurations `n_hparams_from` … `n_hparams` − 1; 0 has all hyperparameters at their defaults.
    n_trials, n_trials_from : int, default None and 0
        Splits `n_trials_from` … `n_trials` − 1. By default 5 on tabular data and 3 on images.
    hparams : mapping, optional
        Hyperparameters to set in every configuration.
    data_dir : str or path, optional
        Folder with the files of named datasets.
    workers : int, optional
        Parallel runs; one per GPU or core by default.
    stack : "auto", "off" or int, default "auto"
        How many runs are stacked and trained together.
    stack_memory_gb : float, optional
        Memory that a stack may take; 1 by default.
    retry : bool, default False
        Whether to repeat failed runs.
    extend : path or sequence of paths, optional
        Results files whose done and diverged runs count as finished.
    progress, callback
        As in `plench.train`.
    callbacks : sequence of classes, optional
        Observers of the runs (docs/callbacks.md): every run has an instance of each, in its own process.
    **settings
        The settings of docs/settings.md that hold for all runs: `steps`, `device`, ….

    Returns
    -------
    SweepOutcome
        The state of every run, and what failed.

    Examples
    --------
    >>> plench.sweep(["PRODEN", "CC"], "Digits_FPS", "runs", n_hparams=4, n_trials=2, steps=1000)
    >>> plench.collect("runs")
    """
    from plench.algorithms.registry import ALGORITHMS
    from plench.data.sources import DATASETS
    from plench.sweeps.engines.local import LocalEngine
    from plench.sweeps.launch import launch_sweep
    from plench.sweeps.plan import make_grids, read_stack_options
    from plench.sweeps.progress import watch_sweep

    check_local(output_dir)
    folder = Path(output_dir) / "code"
    try:
        observers = [CALLBACKS.write_spec(each, folder) for each in callbacks]
        hparams, settings = name_parts(hparams, settings, folder)
        listed = [
            [
                registry.write_spec(name, folder)
                for name in (given if isinstance(given, list | tuple) else [given])
            ]
            for registry, given in ((ALGORITHMS, algorithms), (DATASETS, datasets))
        ]
    except NotSelfContainedError as error:
        raise UsageError(
            f"a sweep runs in other processes, which need the source of its arguments: {error}. Let it "
            "use only functions, classes, imports and plain values of the top level, or write it to a file "
            "and name it as path/to/file.py:NAME"
        ) from error
    stack = settings.pop("fleet", stack)  # earlier names
    stack_memory_gb = settings.pop("fleet_memory_gb", stack_memory_gb)
    changes: dict[str, Any] = {
        "n_hparams": n_hparams,
        "n_hparams_from": n_hparams_from,
        "n_trials_from": n_trials_from,
        "hparams": hparams,
        **({} if n_trials is None else {"n_trials": n_trials}),
        **read_settings(settings, known=inspect.signature(sweep).parameters),
    }
    grids = make_grids(*listed, **changes)
    with nullcontext(callback) if callback is not None or not progress else watch_sweep() as observer:
        return launch_sweep(
            SweepSpec(grids),
            output_dir,
            data_dir=data_dir,
            engine=LocalEngine(workers=workers),
            callback=observer,
            retry=retry,
            stack=read_stack_options(stack, stack_memory_gb),
            extend=[extend] if isinstance(extend, str | Path) else extend,
            callbacks=observers,
        )


show_settings(train, per_run=True)
show_settings(sweep, per_run=False)


def results(folders: str | Path | Iterable[str | Path], **filters: Any) -> Results:
    """Read folders of runs, or results files.

    Parameters
    ----------
    folders : path or iterable of paths
        Folders of runs (ours or the public benchmark's), or results files (`plench results export`).
    **filters
        `datasets`, `algorithms` and `criteria` (lists of names or patterns), `where` (list of `"key=value"`),
        `planned_trials` and `planned_hparams` (numbers), as in `plench collect`.

    Returns
    -------
    Results
        Records, cells and chosen runs as rows (`cells()`, `chosen()`, …), or as a frame (`frame("cells")`).

    Examples
    --------
    >>> found = plench.results("runs", algorithms=["SCL_*", "CC"])
    >>> found.cells()[0]["mean_test_accuracy"]
    >>> found.frame("chosen")
    """
    return read_results(folders, **filters)


def collect(folders: str | Path | Iterable[str | Path], *, by: str = "dataset", **filters: Any) -> Tables:
    """Select by every criterion and return the tables, which a notebook displays.

    Parameters
    ----------
    folders : path or iterable of paths
        As in `plench.results`.
    by : "dataset" or "criterion", default "dataset"
        One table per dataset (columns: criteria) or per criterion (columns: datasets).
    **filters
        As in `plench.results`.

    Returns
    -------
    Tables
        `str()` gives what `plench collect` prints; `markdown()` and `latex()` give other forms.

    Examples
    --------
    >>> plench.collect("runs", criteria=["CR", "AA"])
    >>> print(plench.collect("runs", by="criterion").latex())
    """
    found = read_results(folders, **filters)
    return Tables(build_tables(found.board, by), found.warnings)


def list_algorithms() -> list[dict[str, Any]]:
    """Return every algorithm with family, venue, views and cost.

    Returns
    -------
    list of dict
        One row per algorithm, sorted by family and name.

    Examples
    --------
    >>> [row["name"] for row in plench.list_algorithms()]
    """
    from plench.algorithms import describe_algorithms

    return describe_algorithms()


def list_datasets() -> list[dict[str, Any]]:
    """Return every named dataset with its sizes and where its files come from.

    Returns
    -------
    list of dict
        One row per dataset, sorted by name.

    Examples
    --------
    >>> [row["name"] for row in plench.list_datasets() if row["data"] == "built in"]
    """
    from plench.data import describe_datasets

    return describe_datasets()
