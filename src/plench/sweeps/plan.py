"""From what was asked to the single runs, each with its configuration and its folder's name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plench.algorithms import AlgorithmEntry, find_algorithm
from plench.data import Dataset, DatasetCard, choose_candidates, dataset_card, dataset_names, load_dataset
from plench.data.sources.crowd import explain_lack
from plench.errors import DataError, MissingDataError, UsageError
from plench.hparams import DataTraits
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import seed_hash
from plench.training.config import RunConfig, configure_run

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: how to find its algorithm and data, its configuration, and its folder's name.

    `network` and `criteria` say how to find third parties', which the configuration knows by name.
    """

    algorithm: str
    dataset: str
    config: RunConfig
    folder: str
    network: str = ""
    criteria: str = ""

    @property
    def label(self) -> str:
        """A short name for people."""
        config = self.config
        return f"{config.algorithm} on {config.dataset}, h{config.hparams_seed} t{config.trial_seed}"


class DataShelf:
    """The datasets of a sweep, each loaded once, when it is first asked for.

    With `skip_missing` a sweep leaves out the datasets whose files are not there.
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

    def fill(self, names: Iterable[str]) -> list[str]:
        """Load datasets and return the names of those that are left out, with a notice.

        The error names all that cannot be loaded, not only the first.
        """
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
            logger.warning("left out: %s", reason)
        return list(missing)


def settle(spec: SweepSpec, shelf: DataShelf) -> SweepSpec:
    """Return what was asked with canonical names and the fingerprints of the data.

    Data that differ from the fingerprints in a sweep file would give another table, so they are refused.
    """
    grids = tuple(_settle_grid(grid) for grid in spec.grids)
    names = dict.fromkeys(name for grid in grids for name in grid.datasets)
    left_out = set(shelf.fill(names))
    if left_out:
        names = {name: None for name in names if name not in left_out}
        kept = [tuple(name for name in grid.datasets if name in names) for grid in grids]
        grids = tuple(
            replace(grid, datasets=kept_of) for grid, kept_of in zip(grids, kept, strict=True) if kept_of
        )
    _check_answers(grids, shelf)
    fingerprints = {}
    for name in names:
        found = fingerprints[name] = shelf.get(name).fingerprint
        wanted = spec.fingerprints.get(name, found)
        if found != wanted:
            raise DataError(
                f"{name} has the fingerprint {found[:16]}…, the sweep file names {wanted[:16]}…: these are "
                "other data; take the line out of [fingerprints] to run on the data that are here"
            )
    return SweepSpec(grids, fingerprints)


def _check_answers(grids: Iterable[Grid], shelf: DataShelf) -> None:
    """Refuse a grid in which a method that learns from answers would meet data without any."""
    for grid in grids:
        taught = [name for name in grid.algorithms if find_algorithm(name).card.answers]
        without = [name for name in grid.datasets if taught and shelf.get(name).answers is None]
        if without:
            raise UsageError(explain_lack(taught[0], without[0]))


def is_settled(spec: SweepSpec) -> bool:
    """Say whether a sweep names the fingerprints of all its data, so that nothing has to be loaded."""
    return all(name in spec.fingerprints for grid in spec.grids for name in grid.datasets)


def expand(spec: SweepSpec) -> list[PlannedRun]:
    """List the runs of a settled sweep, each once: by dataset, then split, configuration and algorithm.

    Runs of one split of one dataset stand together, so that a worker prepares the data once for many runs.
    """
    runs: dict[str, PlannedRun] = {}
    draw = ConfigurationDrawer()
    for grid in spec.grids:
        for run in _expand_grid(grid, spec, draw):
            runs.setdefault(run.folder, run)
    return list(runs.values())


def expand_all(specs: Iterable[SweepSpec]) -> list[PlannedRun]:
    """List the runs of several settled sweeps, each once."""
    return list({run.folder: run for spec in specs for run in expand(spec)}.values())


def plan_runs(specs: Iterable[SweepSpec], shelf: DataShelf) -> list[PlannedRun]:
    """List the runs of sweeps; data are loaded only for a sweep that does not name their fingerprints."""
    return expand_all(spec if is_settled(spec) else settle(spec, shelf) for spec in specs)


class ConfigurationDrawer:
    """Draws configurations. Datasets of the same traits share them, so each is drawn once."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[object, ...], RunConfig] = {}

    def __call__(
        self, grid: Grid, entry: AlgorithmEntry, card: DatasetCard, hparams_seed: int, trial_seed: int
    ) -> RunConfig:
        """Return the configuration of one run of a grid, but for what belongs to the dataset alone."""
        traits = DataTraits(card.kind, card.protocol_noise_rate)
        steps = card.default_steps if grid.steps is None else grid.steps
        key = (id(grid), entry.name, traits, steps, hparams_seed, trial_seed)
        if key not in self._drawn:
            self._drawn[key] = configure_run(
                entry,
                card,
                hparams=grid.hparams,
                **{
                    **grid.values(),
                    "hparams_seed": hparams_seed,
                    "trial_seed": trial_seed,
                },
            )
        return self._drawn[key]


def _settle_grid(grid: Grid) -> Grid:
    """Give names their canonical form, and paths their full one, to be found from any directory."""
    entries = {entry.name: entry.spec for entry in map(find_algorithm, grid.algorithms)}
    named = set(dataset_names())
    cards = {dataset_card(name).name: name for name in grid.datasets}
    datasets = (name if name in named else given for name, given in cards.items())
    return replace(
        grid,
        algorithms=tuple(spec if spec in entries else make_absolute(spec) for spec in entries.values()),
        datasets=tuple(name if name in named else make_absolute(name) for name in datasets),
        hparams={
            name: make_absolute(value) if name == "model" and isinstance(value, str) else value
            for name, value in grid.hparams.items()
        },
        more_criteria=",".join(make_absolute(spec.strip()) for spec in grid.more_criteria.split(",")),
    )


def make_absolute(spec: str) -> str:
    """Return a path, or `path/to/file.py:NAME`, with its full path; what is no path stays as it is."""
    location, colon, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    return os.path.abspath(location) + colon + name if os.path.exists(location) else spec


def _expand_grid(grid: Grid, spec: SweepSpec, draw: Callable[..., RunConfig]) -> Iterator[PlannedRun]:
    entries = [find_algorithm(name) for name in grid.algorithms]
    network = str(grid.hparams.get("model", ""))
    for name in grid.datasets:
        card = dataset_card(name)
        candidates = vars(choose_candidates(card.candidates, grid))
        fingerprint = spec.fingerprints[name]
        for trial_seed in grid.trial_seeds:
            for hparams_seed in grid.hparams_seeds:
                for entry in entries:
                    config = draw(grid, entry, card, hparams_seed, trial_seed).changed(
                        dataset=card.name,
                        **candidates,
                        seed=seed_hash(card.name, entry.name, hparams_seed, trial_seed),
                    )
                    folder = config.folder_name(fingerprint)
                    yield PlannedRun(entry.spec, name, config, folder, network, grid.more_criteria)
