"""From what was asked to the single runs, each with configuration and folder, and which of them are stacked.

`plan_runs` loads whatever a sweep names, third-party code included. `scan_runs` lists the same runs without
importing third-party code: our own runs are planned, third-party runs are those of the last launch.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from plench.algorithms import AlgorithmCard, algorithms, find_algorithm
from plench.algorithms.base import LossAlgorithm
from plench.algorithms.registry import ALGORITHMS, PAPER
from plench.criteria import CRITERIA
from plench.data import Dataset, DatasetCard, choose_candidates, dataset_card, dataset_names, load_dataset
from plench.data.encoding import count_inputs
from plench.data.sources import answered_datasets, check_answers, find_own_source
from plench.data.tables import Table
from plench.errors import DataError, MissingDataError, UsageError
from plench.hparams import DataTraits, draw_hparams
from plench.networks import NETWORKS
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.settings import declared, seed_hash
from plench.sweeps.engines import Engine
from plench.sweeps.status import ListedRun, label_run, read_plan
from plench.text import find_name
from plench.training.config import RunConfig, configure_run
from plench.training.data import stays_in_shared_file
from plench.training.stack import StackError, choose_form

logger = logging.getLogger("plench")

# Splits per dataset in the protocol, by kind of data.
N_TRIALS = {"tabular": 5, "image": 3}
# More gained nothing further where it was measured, on a CPU.
LARGEST = 10
# Networks that are stacked: numbers per hidden unit besides the weights of its inputs, and those per hidden
# unit and example that a step keeps.
STACKED_NETWORKS = {"MLP": (1, 2), "MLP_BN": (5, 30)}
HIDDEN = 500
# A run in training has its weights, their gradients and Adam's two averages.
COPIES_OF_WEIGHTS = 4
# How often the process holds what a run has: in the stack, and in what the run was built or restored with,
# which is free again but not given back. State of examples is copied once more meanwhile.
TIMES_WEIGHTS = 2
TIMES_STATE = 3
# How often it holds what one run has while a checkpoint is written: as tensors, in a buffer and as bytes.
TIMES_SAVED = 3
# Numbers of state assumed per example and class, however little a method keeps.
LEAST_STATE = 4
BYTES = 4


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: how to find its algorithm and data, its configuration, and its folder's name.

    `network` and `criteria` say how to find third-party ones, which the configuration knows by name, and
    `callbacks` how to find the classes of its observers.
    """

    algorithm: str
    dataset: str
    config: RunConfig
    folder: str
    network: str = ""
    criteria: str = ""
    callbacks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """A short name for messages."""
        return label_run(self.config)


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
        self._widths: dict[str, int] = {}

    def get(self, name: str) -> Dataset:
        """Return a dataset by its name or path."""
        if name not in self._loaded:
            self._loaded[name] = load_dataset(name, self.data_dir)
        return self._loaded[name]

    def count_inputs(self, name: str) -> int:
        """Return how many inputs a network has; a table, whose categories have one each, is encoded once."""
        if name not in self._widths:
            data = self.get(name).features
            width = count_inputs(data) if isinstance(data, Table) else math.prod(data.shape[1:])
            self._widths[name] = width
        return self._widths[name]

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
        tables, images = (
            {source.card.name: source for source in answered_datasets() if source.card.kind == kind}
            for kind in ("tabular", "image")
        )
        known = tuple(each for each, source in tables.items() if not source.anonymous)
        votes = tuple(each for each, source in tables.items() if source.anonymous)
        return (
            replace(tabular, algorithms=own_algorithms(lambda card: not card.answers)),
            replace(tabular, algorithms=own_algorithms(lambda card: True), datasets=known),
            replace(tabular, algorithms=own_algorithms(lambda card: not card.annotators), datasets=votes),
            replace(
                image,
                algorithms=own_algorithms(lambda card: card.shared),
                datasets=(*image.datasets, *images),
            ),
        )
    return (tabular if name == "tabular" else image,)


def resolve_names(spec: SweepSpec, datasets: DatasetCache) -> SweepSpec:
    """Return a sweep with canonical names, absolute paths and the fingerprints of the data.

    Raises DataError if data differ from a fingerprint in the sweep file: they would give another table.
    """
    named, grids = set(dataset_names()), []
    for grid in spec.grids:
        entries = {entry.name: entry.spec for entry in map(find_algorithm, grid.algorithms)}
        cards = {dataset_card(name).name: name for name in grid.datasets}
        network = grid.hparams.get("model")
        changed = {"model": make_absolute(network)} if isinstance(network, str) else {}
        resolved = replace(
            grid,
            algorithms=tuple(spec if spec in entries else make_absolute(spec) for spec in entries.values()),
            datasets=tuple(name if name in named else make_absolute(path) for name, path in cards.items()),
            hparams={**grid.hparams, **changed},
            more_criteria=",".join(make_absolute(spec.strip()) for spec in grid.more_criteria.split(",")),
        )
        grids.append(resolved)
    names = datasets.load_all(dict.fromkeys(name for grid in grids for name in grid.datasets))
    kept = []
    for grid in grids:
        available = tuple(name for name in grid.datasets if name in names)
        if not available:
            continue
        kept.append(replace(grid, datasets=available))
        for entry in map(find_algorithm, grid.algorithms):
            for name in available if entry.card.answers else ():
                check_answers(entry.name, entry.card.annotators, name, datasets.get(name).answers)
    fingerprints = {name: datasets.get(name).fingerprint for name in names}
    for name, found in fingerprints.items():
        wanted = spec.fingerprints.get(name, found)
        if found != wanted:
            raise DataError(
                f"{name} has the fingerprint {found[:16]}…, the sweep file names {wanted[:16]}…: these are "
                "other data; remove the line from [fingerprints] to run on the data found here"
            )
    return SweepSpec(tuple(kept), fingerprints)


def make_absolute(spec: str) -> str:
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

    Only third-party code knows the folders of its runs, so these are as the last launch has listed them
    (`ListedRun`). Without such a list they count as missing, with a warning.
    """
    runs: dict[str, PlannedRun] = {}
    missing: list[ListedRun] = []
    for spec in specs:
        unknown = []
        for grid in spec.grids:
            network = str(grid.hparams.get("model", ""))
            criteria = [name.strip() for name in grid.more_criteria.split(",") if name.strip()]
            own_parts = (not network or NETWORKS.is_own(network)) and all(map(CRITERIA.is_own, criteria))
            names = tuple(name for name in grid.algorithms if own_parts and ALGORITHMS.is_own(name))
            data = tuple(name for name in grid.datasets if find_own_source(name) is not None)
            if names and data:
                own = SweepSpec(
                    (replace(grid, algorithms=names, datasets=data),),
                    {name: value for name, value in spec.fingerprints.items() if name in data},
                )
                for run in plan_runs([own], datasets):
                    runs.setdefault(run.folder, run)
            for dataset, algorithm in product(grid.datasets, grid.algorithms):
                if algorithm not in names or dataset not in data:
                    pair = algorithm.rpartition(":")[2], dataset.rpartition(":")[2]
                    places = product(grid.hparams_seeds, grid.trial_seeds)
                    unknown += [ListedRun("", *pair, *place, grid.steps or 1, True) for place in places]
        listed = read_plan(spec, output_dir) if unknown else []
        if listed is None:
            missing += unknown
            logger.warning(
                "%d runs of third-party code count as missing: no launch has listed them here", len(unknown)
            )
        for listed_run in listed or ():
            if listed_run.third_party:
                runs.setdefault(listed_run.folder, cast("PlannedRun", listed_run))
    return [*runs.values(), *cast("list[PlannedRun]", missing)]


@dataclass(frozen=True)
class StackOptions:
    """How runs are stacked: the largest stack (1: no stacks), and the memory that one may take."""

    size: int = LARGEST
    memory_gb: float = 1.0
    # Whether to stack on every device: by default only on CPUs, where stacks have been measured.
    any_device: bool = False

    @property
    def word(self) -> str | int:
        """What `--stack` was given."""
        return self.size if self.any_device else "off" if self.size == 1 else "auto"


def read_stack_options(word: str | int, memory_gb: float | None = None) -> StackOptions:
    """Parse `--stack off|auto|N` and `--stack-memory-gb`."""
    if memory_gb is not None and not memory_gb > 0:
        raise UsageError(f"stack_memory_gb must be above 0, not {memory_gb}")
    memory = StackOptions.memory_gb if memory_gb is None else memory_gb
    text = str(word)
    if text in ("off", "auto"):
        return StackOptions(1 if text == "off" else LARGEST, memory)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"stack must be off, auto or a number of runs, not {text!r}")
    return StackOptions(int(text), memory, any_device=True)


def group_runs(
    runs: Sequence[PlannedRun], datasets: DatasetCache, options: StackOptions, engine: Engine | None = None
) -> list[Task]:
    """Group runs into stacks, in the order of the plan; a run that is trained separately is its own group.

    The runs include finished ones, so that every launch forms the same stacks. Each slot of the engine gets
    a stack. Without `any_device`, an engine that assigns GPUs to runs gets no stacks.
    """
    size = options.size
    if runs and engine is not None:
        config = runs[0].config
        if config.device == "auto" and engine.gpus_per_run and not options.any_device:
            size = 1
        slots = engine.count_slots(config)
        size = min(size, math.ceil(len(runs) / slots)) if slots else size
    kinds: dict[tuple[object, ...], list[PlannedRun]] = {}
    for run in runs:
        key = stack_key(run, datasets, options) if size > 1 else None
        kinds.setdefault((run.folder,) if key is None else key, []).append(run)
    stacks: list[Task] = []
    for group in kinds.values():  # evenly into as few stacks as size and memory allow
        for number in range(math.ceil(len(group) / size), len(group) + 1):
            bounds = [round(part * len(group) / number) for part in range(number + 1)]
            parts = [tuple(group[start:stop]) for start, stop in pairwise(bounds)]
            if all(len(part) == 1 or estimate_gb(part, datasets) <= options.memory_gb for part in parts):
                stacks += parts
                break
    place = {run.folder: number for number, run in enumerate(runs)}
    return sorted(stacks, key=lambda stack: place[stack[0].folder])


def stack_key(run: PlannedRun, datasets: DatasetCache, options: StackOptions) -> tuple[object, ...] | None:
    """Return what the runs of one stack must share; None for a run that is trained separately.

    Where splits differ in size (`Setting.same_sizes`, or data in groups), a stack has runs of one split.
    """
    config, cls = run.config, find_algorithm(run.algorithm).cls
    if config.hparams.get("model") not in STACKED_NETWORKS or config.precision != "float32" or config.compile:
        return None
    if not options.any_device and not runs_on_cpu(config.device):
        return None
    try:
        choose_form(cls)
    except StackError:
        return None
    dataset = datasets.get(run.dataset)
    if isinstance(dataset.features, np.ndarray) and stays_in_shared_file(dataset.features):
        return None
    values = {name: getattr(config, name) for name in declared()}
    uneven = dataset.groups is not None or any(
        setting.affects_data and not setting.same_sizes and values[name] != setting.default
        for name, setting in declared().items()
    )
    shared = {
        name: value
        for name, value in values.items()
        if not declared()[name].per_run or (uneven and declared()[name].affects_data)
    }
    must_match = cls.must_match if issubclass(cls, LossAlgorithm) else ()
    alike = {name: config.hparams[name] for name in ("batch_size", "model", *must_match)}
    return run.algorithm, run.dataset, run.network, run.criteria, *shared.items(), *alike.items()


def runs_on_cpu(device: str) -> bool:
    """Return True if the CPU computes a run on this device."""
    if device == "auto":
        return not torch.cuda.is_available() and not torch.backends.mps.is_available()
    return device == "cpu"


@cache
def count_holdings(algorithm: str, classes: int) -> tuple[int, int]:
    """Return how many networks a run has, and its bytes of state per example, from a small instance.

    Third-party algorithms are not built in this process and count as one network.
    """
    if not ALGORITHMS.is_own(algorithm):
        return 1, 0
    entry = find_algorithm(algorithm)
    hparams = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, {"model": "MLP"})
    with torch.random.fork_rng(devices=[]):
        run = entry.cls((classes, 1), np.eye(classes, dtype=np.float32), {**hparams, "max_steps": 1})
    state = sum(getattr(run, name).nbytes for name in run.per_example_names)
    return len(list(run.children())), state // classes


def estimate_gb(stack: Sequence[PlannedRun], datasets: DatasetCache) -> float:
    """Estimate the memory of a stack, in addition to the process.

    The estimate is an upper bound of what was measured, also for a resumed stack.
    """
    dataset, width = datasets.get(stack[0].dataset), datasets.count_inputs(stack[0].dataset)
    rows, classes = dataset.candidates.shape
    splits = len({run.config.trial_seed for run in stack})
    batch = int(stack[0].config.hparams["batch_size"])
    networks, bytes_of_example = count_holdings(stack[0].algorithm, classes)
    # Several splits are joined into one tensor in addition to their own.
    data = splits * rows * (width + classes) * BYTES * (2 if splits > 1 else 1)
    hidden, features = STACKED_NETWORKS[str(stack[0].config.hparams["model"])]
    numbers = (width + hidden) * HIDDEN + (HIDDEN + 1) * classes
    weights = COPIES_OF_WEIGHTS * networks * numbers * BYTES
    state = rows * bytes_of_example
    step = batch * (width + features * HIDDEN) * BYTES
    of_run = TIMES_WEIGHTS * weights + max(TIMES_STATE * state, LEAST_STATE * rows * classes * BYTES) + step
    return float(data + len(stack) * of_run + TIMES_SAVED * (weights + state)) / 2**30
