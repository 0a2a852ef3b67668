"""The runs of sweeps, from files and folders alone: no third-party code is imported.

Our algorithms and datasets are known here, and with them the folder of each of their runs. The folder names
of third parties' runs only their code could tell, so these runs are found by their run.json.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from plench.algorithms.registry import ALGORITHMS
from plench.criteria import CRITERIA
from plench.data.sources import find_own_source
from plench.errors import PlenchError
from plench.networks import NETWORKS
from plench.plain_files import open_plain
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec, grid_settings
from plench.sweeps.plan import DataShelf, PlannedRun, expand, is_settled, settle
from plench.training.config import RunConfig


def look_at_runs(specs: Iterable[SweepSpec], shelf: DataShelf, output_dir: str | Path) -> list[PlannedRun]:
    """List the runs of sweeps, each once, without running third-party code.

    A run of a third party's that has no folder yet has an empty name for it.
    """
    runs: dict[str, PlannedRun] = {}
    missing: list[PlannedRun] = []
    descriptions = Descriptions(Path(output_dir))
    for spec in specs:
        for grid in spec.grids:
            ours, theirs = split_grid(grid)
            for part in ours:
                fingerprints = {n: f for n, f in spec.fingerprints.items() if n in part.datasets}
                known = SweepSpec((part,), fingerprints)
                for run in expand(known if is_settled(known) else settle(known, shelf)):
                    runs.setdefault(run.folder, run)
            for algorithm, dataset in theirs:
                for run in find_runs(algorithm, dataset, grid, spec, descriptions):
                    if run.folder:
                        runs.setdefault(run.folder, run)
                    else:
                        missing.append(run)
    return [*runs.values(), *missing]


def is_ours(run: PlannedRun) -> bool:
    """Say whether a run needs no third party's code."""
    named = ALGORITHMS.is_own(run.algorithm) and find_own_source(run.dataset) is not None
    config = run.config  # may come from a run.json that somebody else wrote
    asked, found = (run.network, run.criteria), (config.hparams.get("model"), config.more_criteria)
    return named and are_ours(*asked) and are_ours(*found)


def are_ours(network: object, more_criteria: str) -> bool:
    """Say whether a network and criteria, if any are named, are our own."""
    named = not network or (isinstance(network, str) and NETWORKS.is_own(network))
    return named and all(CRITERIA.is_own(spec) for spec in split_criteria(more_criteria))


def split_criteria(more_criteria: str) -> list[str]:
    """Return the criteria that a setting names."""
    return [spec.strip() for spec in more_criteria.split(",") if spec.strip()]


def split_grid(grid: Grid) -> tuple[list[Grid], list[tuple[str, str]]]:
    """Take a grid apart: the grid of what is ours, if any, and the pairs that have something of others."""
    ours_alone = are_ours(grid.hparams.get("model"), grid.more_criteria)
    algorithms = tuple(name for name in grid.algorithms if ours_alone and ALGORITHMS.is_own(name))
    datasets = tuple(name for name in grid.datasets if find_own_source(name) is not None)
    ours = [replace(grid, algorithms=algorithms, datasets=datasets)] if algorithms and datasets else []
    theirs = [
        (algorithm, dataset)
        for dataset, algorithm in product(grid.datasets, grid.algorithms)
        if algorithm not in algorithms or dataset not in datasets
    ]
    return ours, theirs


class Descriptions:
    """What the run.json of every folder says, read when it is first asked for."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir

    @cached_property
    def found(self) -> list[tuple[str, dict[str, Any], RunConfig]]:
        """The folders that hold a run, with its description and configuration."""
        return list(self._read())

    def _read(self) -> Iterator[tuple[str, dict[str, Any], RunConfig]]:
        try:
            names = sorted(os.listdir(self.output_dir))
        except OSError:
            return
        for name in names:
            info = RunStore(self.output_dir / name).read_run()
            config = None if info is None else info.get("config")
            if info is None or not isinstance(config, dict):
                continue
            try:
                yield name, info, RunConfig.from_json(config)
            except (PlenchError, TypeError, ValueError):  # forged, or of a version with other settings
                continue


def find_runs(
    algorithm: str, dataset: str, grid: Grid, spec: SweepSpec, descriptions: Descriptions
) -> Iterator[PlannedRun]:
    """Yield the runs of a pair that have something of third parties, those without a folder last."""
    there = set()
    named = str(grid.hparams.get("model", "")), grid.more_criteria
    for folder, info, config in descriptions.found:
        place = (config.trial_seed, config.hparams_seed)
        if (
            place[0] in grid.trial_seeds
            and place[1] in grid.hparams_seeds
            and names_algorithm(algorithm, config.algorithm)
            and names_class(algorithm, info)
            and names_dataset(dataset, config.dataset, info, spec.fingerprints.get(dataset))
            and has_settings(config, grid)
        ):
            there.add(place)
            yield PlannedRun(algorithm, dataset, config, folder, *named)
    for trial_seed, hparams_seed in product(grid.trial_seeds, grid.hparams_seeds):
        if (trial_seed, hparams_seed) not in there:
            config = RunConfig(
                algorithm=algorithm.rpartition(":")[2],
                dataset=dataset.rpartition(":")[2],
                hparams={},
                steps=grid.steps or 1,
                trial_seed=trial_seed,
                hparams_seed=hparams_seed,
            )
            yield PlannedRun(algorithm, dataset, config, "", *named)


def names_algorithm(asked: str, name: str) -> bool:
    """Say whether a name in records is that of an algorithm as it was asked for.

    A third party's carries a hash of its file, which is compared with the file where that is there.
    """
    if ALGORITHMS.is_own(asked):
        return name == ALGORITHMS.find(asked).name
    return names_third_party(asked, name)


def names_class(asked: str, info: dict[str, Any]) -> bool:
    """Say whether a run is of the class that was asked for: one file may declare several."""
    file, _, class_name = asked.rpartition(":")
    return not file or info.get("algorithm_class") in (None, class_name)


def names_third_party(asked: str, name: str) -> bool:
    """Say whether a name in records is that of a third party's member as it was asked for."""
    base, _, digest = name.rpartition("@")
    location, _, class_name = asked.rpartition(":")
    current = hash_file(location)
    return digest == current if current is not None else base == class_name


def hash_file(location: str) -> str | None:
    """Return the hash that a file gives to the names of what it declares; None where there is no file."""
    try:
        with open_plain(location) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:8]
    except OSError:
        return None


def names_dataset(asked: str, name: str, info: dict[str, Any], fingerprint: str | None) -> bool:
    """Say whether a run is on a dataset: by the fingerprint of the data, or by name where that is unknown."""
    experiment = info.get("experiment")
    if fingerprint is not None:
        return isinstance(experiment, dict) and experiment.get("dataset_fingerprint") == fingerprint
    return name == asked or name.partition("@")[0] == asked.rpartition(":")[2]


def has_settings(config: RunConfig, grid: Grid) -> bool:
    """Say whether a run has the settings that a grid decides."""
    # Steps of a method fitted in rounds are its own, and each is evaluated.
    elsewhere = {"more_criteria", *(("steps", "checkpoint_freq") if config.fitted else ())}
    return all(
        getattr(grid, name) == getattr(config, name)
        for name in grid_settings()
        if getattr(grid, name) is not None and name not in elsewhere
    ) and (has_criteria(config, grid) and has_hparams(config, grid))


def has_hparams(config: RunConfig, grid: Grid) -> bool:
    """Say whether a run has the hyperparameters that a grid sets: numbers by value, a network by name."""
    asked = dict(grid.hparams)
    network, own = str(asked.pop("model", "")), str(config.hparams.get("model", ""))
    if network and not NETWORKS.is_own(network) and not names_third_party(network, own):
        return False
    return all(
        config.hparams.get(name) == value for name, value in asked.items() if isinstance(value, int | float)
    )


def has_criteria(config: RunConfig, grid: Grid) -> bool:
    """Say whether a run measures the criteria that a grid names."""
    asked, named = split_criteria(grid.more_criteria), split_criteria(config.more_criteria)
    return len(asked) == len(named) and all(
        one == other or names_third_party(one, other) for one, other in zip(asked, named, strict=True)
    )
