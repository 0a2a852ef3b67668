"""From what was asked to the single runs, each with its configuration and the name of its folder.

`plan_runs` loads whatever a sweep names, third-party code included. `scan_runs` lists the same runs without
importing third-party code: our own runs are planned, third-party runs are found by their run.json.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from plench.algorithms import AlgorithmCard, algorithms, find_algorithm
from plench.algorithms.registry import ALGORITHMS, PAPER
from plench.criteria import CRITERIA
from plench.data import Dataset, DatasetCard, choose_candidates, dataset_card, dataset_names, load_dataset
from plench.data.sources import find_own_source
from plench.data.sources.crowd import RELEASES, explain_missing_answers
from plench.errors import DataError, MissingDataError, PlenchError, UsageError
from plench.networks import NETWORKS
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec, grid_settings
from plench.settings import seed_hash
from plench.text import find_name
from plench.training.config import RunConfig, configure_run

logger = logging.getLogger("plench")

# Splits per dataset in the protocol, by kind of data.
N_TRIALS = {"tabular": 5, "image": 3}


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: how to find its algorithm and data, its configuration, and its folder's name.

    `network` and `criteria` say how to find third-party ones, which the configuration knows by name.
    """

    algorithm: str
    dataset: str
    config: RunConfig
    folder: str
    network: str = ""
    criteria: str = ""

    @property
    def label(self) -> str:
        """A short name for messages."""
        config = self.config
        return f"{config.algorithm} on {config.dataset}, h{config.hparams_seed} t{config.trial_seed}"


# What one process runs at a time: a stack, or a single run.
Task = tuple[PlannedRun, ...]


class DatasetCache:
    """The datasets of a sweep, each loaded once, on first use.

    With `skip_missing`, datasets whose files do not exist are skipped with a warning.
    """

    def __init__(self, data_dir: str | Path | None, *, skip_missing: bool = False) -> None:
        self.data_dir = data_dir
        self.skip_missing = skip_missing
        self._loaded: dict[str, Dataset] = {}

    def get(self, name: str) -> Dataset:
        """Return a dataset by its name or path."""
        if name not in self._loaded:
            self._loaded[name] = load_dataset(name, self.data_dir)
        return self._loaded[name]

    def load_all(self, names: Iterable[str]) -> list[str]:
        """Load datasets and return the available names; one error reports all that cannot be loaded."""
        errors: list[DataError] = []
        missing: dict[str, DataError] = {}
        names = list(names)
        for name in names:
            try:
                self.get(name)
            except MissingDataError as error:
                missing[name] = error
            except DataError as error:
                errors.append(error)
        if not self.skip_missing or len(missing) == len(names):
            errors = [*missing.values(), *errors]
            missing = {}
        if len(errors) == 1:
            raise errors[0]
        if errors:
            listed = "\n".join(f"- {error}" for error in errors)
            raise DataError(f"{len(errors)} datasets cannot be loaded:\n{listed}")
        for reason in missing.values():
            logger.warning("skipped: %s", reason)
        return [name for name in names if name not in missing]


def make_grids(algorithms: Sequence[str], datasets: Sequence[str], **changes: Any) -> tuple[Grid, ...]:
    """Return the grids of the protocol for these datasets, one per kind of data.

    `changes` replace fields of every grid.
    """
    kinds = {name: dataset_card(name).kind for name in datasets}
    return tuple(
        Grid(
            tuple(algorithms),
            tuple(name for name in datasets if kinds[name] == kind),
            **{"n_trials": n_trials, **changes},
        )
        for kind, n_trials in N_TRIALS.items()
        if kind in kinds.values()
    )


def own_algorithms(wanted: Callable[[AlgorithmCard], bool]) -> tuple[str, ...]:
    """Return the names of the package's own algorithms whose card is wanted."""
    return tuple(name for name, entry in algorithms().items() if entry.source is None and wanted(entry.card))


def make_suite(name: str) -> tuple[Grid, ...]:
    """Return the grids of a named suite: lite, tabular, image, full or extended."""
    name = find_name(name, ("lite", "tabular", "image", "full", "extended"), "suite")

    def datasets(wanted: Callable[[DatasetCard], bool]) -> tuple[str, ...]:
        return tuple(each for each in dataset_names(own_only=True) if wanted(dataset_card(each)))

    paper = own_algorithms(lambda card: card.name in PAPER)
    if name == "lite":  # minutes on a laptop; id fits a classifier first, which takes too long
        small = datasets(lambda card: card.kind == "tabular" and card.candidates.pl_type in ("uss", "fps"))
        return (Grid(paper, small, n_hparams=2, n_trials=2, steps=1000, checkpoint_freq=100),)
    grids = make_grids(paper, datasets(lambda card: card.published is not None))
    if name == "full":
        return grids
    tabular, image = grids
    if name == "extended":
        crowd = tuple(release.name for release in RELEASES)
        return (
            replace(tabular, algorithms=own_algorithms(lambda card: not card.answers)),
            replace(tabular, algorithms=own_algorithms(lambda card: True), datasets=crowd),
            replace(image, algorithms=own_algorithms(lambda card: card.shared)),
        )
    return (tabular if name == "tabular" else image,)


def resolve_names(spec: SweepSpec, datasets: DatasetCache) -> SweepSpec:
    """Return a sweep with canonical names, absolute paths and the fingerprints of the data.

    Raises DataError if data differ from a fingerprint in the sweep file: they would give another table.
    """
    grids = tuple(map(_resolve_grid, spec.grids))
    names = datasets.load_all(dict.fromkeys(name for grid in grids for name in grid.datasets))
    kept = []
    for grid in grids:
        available = tuple(name for name in grid.datasets if name in names)
        if not available:
            continue
        kept.append(replace(grid, datasets=available))
        taught = [name for name in grid.algorithms if find_algorithm(name).card.answers]
        without = [name for name in available if taught and datasets.get(name).answers is None]
        if without:
            raise UsageError(explain_missing_answers(taught[0], without[0]))
    fingerprints = {name: datasets.get(name).fingerprint for name in names}
    for name, found in fingerprints.items():
        wanted = spec.fingerprints.get(name, found)
        if found != wanted:
            raise DataError(
                f"{name} has the fingerprint {found[:16]}…, the sweep file names {wanted[:16]}…: these are "
                "other data; remove the line from [fingerprints] to run on the data found here"
            )
    return SweepSpec(tuple(kept), fingerprints)


def _resolve_grid(grid: Grid) -> Grid:
    entries = {entry.name: entry.spec for entry in map(find_algorithm, grid.algorithms)}
    named = set(dataset_names())
    cards = {dataset_card(name).name: name for name in grid.datasets}
    network = grid.hparams.get("model")
    return replace(
        grid,
        algorithms=tuple(spec if spec in entries else _make_absolute(spec) for spec in entries.values()),
        datasets=tuple(name if name in named else _make_absolute(given) for name, given in cards.items()),
        hparams={**grid.hparams, "model": _make_absolute(network)}
        if isinstance(network, str)
        else grid.hparams,
        more_criteria=",".join(_make_absolute(spec.strip()) for spec in grid.more_criteria.split(",")),
    )


def _make_absolute(spec: str) -> str:
    """Return a path or `path/to/file.py:NAME` with its full path, anything else unchanged."""
    location, colon, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    return os.path.abspath(location) + colon + name if os.path.exists(location) else spec


def plan_runs(specs: Iterable[SweepSpec], datasets: DatasetCache) -> list[PlannedRun]:
    """List the runs of sweeps, each once; data are loaded only where a sweep lacks their fingerprints."""
    runs: dict[str, PlannedRun] = {}
    for spec in specs:
        if any(name not in spec.fingerprints for grid in spec.grids for name in grid.datasets):
            spec = resolve_names(spec, datasets)
        runs |= {run.folder: run for run in expand(spec)}
    return list(runs.values())


def expand(spec: SweepSpec) -> list[PlannedRun]:
    """List the runs of a resolved sweep, each once: by dataset, then split, configuration and algorithm.

    Runs of one split of one dataset are neighbours, so that a worker prepares the data once for many runs.
    """
    runs: dict[str, PlannedRun] = {}
    drawn: dict[tuple[object, ...], RunConfig] = {}  # datasets of the same traits share configurations
    for grid in spec.grids:
        entries = [find_algorithm(name) for name in grid.algorithms]
        network = str(grid.hparams.get("model", ""))
        for name in grid.datasets:
            card = dataset_card(name)
            candidates = vars(choose_candidates(card.candidates, grid))
            traits = card.kind, card.protocol_noise_rate, grid.steps or card.default_steps
            places = product(grid.trial_seeds, grid.hparams_seeds, entries)
            for trial_seed, hparams_seed, entry in places:
                key = (id(grid), entry.name, traits, hparams_seed, trial_seed)
                if key not in drawn:
                    seeds = {"hparams_seed": hparams_seed, "trial_seed": trial_seed}
                    drawn[key] = configure_run(
                        entry, card, hparams=grid.hparams, **{**grid.values(), **seeds}
                    )
                config = drawn[key].changed(
                    dataset=card.name,
                    **candidates,
                    seed=seed_hash(card.name, entry.name, hparams_seed, trial_seed),
                )
                folder = config.folder_name(spec.fingerprints[name])
                run = PlannedRun(entry.spec, name, config, folder, network, grid.more_criteria)
                runs.setdefault(folder, run)
    return list(runs.values())


def scan_runs(specs: Iterable[SweepSpec], datasets: DatasetCache, output_dir: str | Path) -> list[PlannedRun]:
    """List the runs of sweeps, each once, without importing third-party code.

    Only third-party code knows the folders of its runs, so existing runs are matched by their run.json. A
    third-party run without a folder gets an empty folder name.
    """
    runs: dict[str, PlannedRun] = {}
    missing: list[PlannedRun] = []
    described: list[_Description] | None = None
    for spec, grid in [(each, grid) for each in specs for grid in each.grids]:
        own, third_party = _split_grid(grid)
        if own is not None:
            part = SweepSpec((own,), {n: f for n, f in spec.fingerprints.items() if n in own.datasets})
            for run in plan_runs([part], datasets):
                runs.setdefault(run.folder, run)
        for algorithm, dataset in third_party:
            if described is None:
                described = list(_read_descriptions(Path(output_dir)))
            for run in _find_runs(algorithm, dataset, grid, spec, described):
                if run.folder:
                    runs.setdefault(run.folder, run)
                else:
                    missing.append(run)
    return [*runs.values(), *missing]


def is_own(run: PlannedRun) -> bool:
    """Return True if a run needs no third-party code."""
    own = ALGORITHMS.is_own(run.algorithm) and find_own_source(run.dataset) is not None
    config = run.config  # may come from a run.json that somebody else wrote
    asked, found = (run.network, run.criteria), (config.hparams.get("model"), config.more_criteria)
    return own and _are_own(*asked) and _are_own(*found)


def _are_own(network: object, more_criteria: str) -> bool:
    own = not network or (isinstance(network, str) and NETWORKS.is_own(network))
    return own and all(map(CRITERIA.is_own, _split_criteria(more_criteria)))


def _split_criteria(more_criteria: str) -> list[str]:
    return [spec.strip() for spec in more_criteria.split(",") if spec.strip()]


def _split_grid(grid: Grid) -> tuple[Grid | None, list[tuple[str, str]]]:
    """Split a grid into the grid of what is our own, and the pairs that involve third-party code."""
    own_parts = _are_own(grid.hparams.get("model"), grid.more_criteria)
    algorithms = tuple(name for name in grid.algorithms if own_parts and ALGORITHMS.is_own(name))
    datasets = tuple(name for name in grid.datasets if find_own_source(name) is not None)
    own = replace(grid, algorithms=algorithms, datasets=datasets) if algorithms and datasets else None
    third_party = [
        (algorithm, dataset)
        for dataset, algorithm in product(grid.datasets, grid.algorithms)
        if algorithm not in algorithms or dataset not in datasets
    ]
    return own, third_party


@dataclass(frozen=True)
class _Description:
    """The run.json of a folder, and the configuration in it."""

    folder: str
    info: dict[str, Any]
    config: RunConfig


def _read_descriptions(output_dir: Path) -> Iterator[_Description]:
    try:
        names = sorted(os.listdir(output_dir))
    except OSError:
        return
    for name in names:
        info = RunStore(output_dir / name).read_run()
        config = None if info is None else info.get("config")
        if info is None or not isinstance(config, dict):
            continue
        try:
            yield _Description(name, info, RunConfig.from_json(config))
        except (PlenchError, TypeError, ValueError):  # forged, or of a version with other settings
            continue


def _find_runs(
    algorithm: str, dataset: str, grid: Grid, spec: SweepSpec, described: Iterable[_Description]
) -> Iterator[PlannedRun]:
    """Yield the runs of a pair that involves third-party code, those without a folder last."""
    found = set()
    named = str(grid.hparams.get("model", "")), grid.more_criteria
    fingerprint = spec.fingerprints.get(dataset)
    for entry in described:
        place = (entry.config.trial_seed, entry.config.hparams_seed)
        if (
            place[0] in grid.trial_seeds
            and place[1] in grid.hparams_seeds
            and _has_algorithm(entry, algorithm)
            and _has_dataset(entry, dataset, fingerprint)
            and _has_settings(entry.config, grid)
        ):
            found.add(place)
            yield PlannedRun(algorithm, dataset, entry.config, entry.folder, *named)
    for trial_seed, hparams_seed in product(grid.trial_seeds, grid.hparams_seeds):
        if (trial_seed, hparams_seed) not in found:
            config = RunConfig(
                algorithm=algorithm.rpartition(":")[2],
                dataset=dataset.rpartition(":")[2],
                hparams={},
                steps=grid.steps or 1,
                trial_seed=trial_seed,
                hparams_seed=hparams_seed,
            )
            yield PlannedRun(algorithm, dataset, config, "", *named)


def _has_algorithm(entry: _Description, asked: str) -> bool:
    if ALGORITHMS.is_own(asked):
        return entry.config.algorithm == ALGORITHMS.find(asked).name
    file, _, class_name = asked.rpartition(":")
    same_class = not file or entry.info.get("algorithm_class") in (
        None,
        class_name,
    )  # a file may have several
    return same_class and _is_third_party(asked, entry.config.algorithm)


def _is_third_party(asked: str, name: str) -> bool:
    """Return True if a name in records is that of a third-party member as it was asked for.

    The name carries a hash of the member's file, which is compared with the file if that still exists.
    """
    base, _, digest = name.rpartition("@")
    location, _, class_name = asked.rpartition(":")
    try:
        with open(location, "rb") as file:
            return digest == hashlib.file_digest(file, "sha256").hexdigest()[:8]
    except (OSError, ValueError):
        return base == class_name


def _has_dataset(entry: _Description, asked: str, fingerprint: str | None) -> bool:
    if fingerprint is not None:
        experiment = entry.info.get("experiment")
        return isinstance(experiment, dict) and experiment.get("dataset_fingerprint") == fingerprint
    name = entry.config.dataset
    return name == asked or name.partition("@")[0] == asked.rpartition(":")[2]


def _has_settings(config: RunConfig, grid: Grid) -> bool:
    """Return True if a run has the settings, hyperparameters and criteria that a grid sets."""
    # Steps of a method fitted in rounds are its own, and each is evaluated.
    elsewhere = {"more_criteria", *(("steps", "checkpoint_freq") if config.fitted else ())}
    for name in grid_settings():
        wanted = getattr(grid, name)
        if wanted is not None and name not in elsewhere and wanted != getattr(config, name):
            return False
    asked, named = _split_criteria(grid.more_criteria), _split_criteria(config.more_criteria)
    if len(asked) != len(named) or not all(
        one == other or _is_third_party(one, other) for one, other in zip(asked, named, strict=True)
    ):
        return False
    network, found = str(grid.hparams.get("model", "")), str(config.hparams.get("model", ""))
    if network and not NETWORKS.is_own(network) and not _is_third_party(network, found):
        return False
    numbers = {name: value for name, value in grid.hparams.items() if isinstance(value, int | float)}
    return all(config.hparams.get(name) == value for name, value in numbers.items())
