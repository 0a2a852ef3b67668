"""Which runs of a sweep are trained as one: a function of plan and options alone, so that it repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch

from plench.algorithms import find_algorithm
from plench.algorithms.base import LossAlgorithm
from plench.algorithms.registry import ALGORITHMS
from plench.data import Dataset
from plench.data.encoding import TableEncoder
from plench.data.tables import Table
from plench.errors import UsageError
from plench.hparams import DataTraits, draw_hparams
from plench.settings import declared
from plench.sweeps.plan import DataShelf, PlannedRun
from plench.training.inputs import stays_in_shared_file
from plench.training.stack import StackError, choose_form

# More gained nothing further where it was measured, on a CPU.
LARGEST = 10
NETWORK = "MLP"
HIDDEN = 500
# What a run has while it is trained: its weights, their gradients and Adam's two averages.
COPIES_OF_WEIGHTS = 4
# How often the process has what a run has: in the stack, and in what the run was built or restored with,
# which is free again but not given back. State of examples is copied once more meanwhile.
TIMES_WEIGHTS = 2
TIMES_STATE = 3
# How often it has what one run has when a checkpoint is written: as tensors, in a buffer and as bytes.
TIMES_SAVED = 3
# Numbers of state that are reckoned with for each example and class, whatever little a method keeps.
LEAST_STATE = 4
BYTES = 4

Estimate = Callable[[Sequence[PlannedRun]], float]


@dataclass(frozen=True)
class FleetOptions:
    """How fleets are formed: runs in one at most (1: none are formed), and the memory one may take."""

    size: int = LARGEST
    memory_gb: float = 1.0
    # Whether every device may do: by default fleets are formed where they have been measured, on CPUs.
    any_device: bool = False


def read_fleet(word: str | int, memory_gb: float | None = None) -> FleetOptions:
    """Return what `--fleet off|auto|N` and `--fleet-memory-gb` ask for."""
    if memory_gb is not None and not memory_gb > 0:
        raise UsageError(f"fleet_memory_gb must be above 0, not {memory_gb}")
    memory = FleetOptions.memory_gb if memory_gb is None else memory_gb
    text = str(word)
    if text in ("off", "auto"):
        return FleetOptions(1 if text == "off" else LARGEST, memory)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"fleet must be off, auto or a number of runs, not {text!r}")
    return FleetOptions(int(text), memory, any_device=True)


def form_fleets(
    runs: Sequence[PlannedRun], shelf: DataShelf, options: FleetOptions, slots: int | None = None
) -> list[tuple[PlannedRun, ...]]:
    """Share runs out into fleets, in the order of the plan; a run that is trained alone is one by itself.

    `slots` is how many fleets can be trained at the same time: each slot is to get one.
    """
    size = options.size if not slots else min(options.size, math.ceil(len(runs) / slots))
    kinds: dict[tuple[object, ...], list[PlannedRun]] = {}
    classes = find_stackable(run.algorithm for run in runs) if size > 1 else {}
    for run in runs:
        key = kind_of(run, classes[run.algorithm], shelf, options) if run.algorithm in classes else None
        kinds.setdefault((run.folder,) if key is None else key, []).append(run)
    estimate = make_estimate(shelf)
    fleets = [
        fleet for alike in kinds.values() for fleet in share_out(alike, size, options.memory_gb, estimate)
    ]
    place = {run.folder: number for number, run in enumerate(runs)}
    return sorted(fleets, key=lambda fleet: place[fleet[0].folder])


def kind_of(
    run: PlannedRun, cls: type[LossAlgorithm], shelf: DataShelf, options: FleetOptions
) -> tuple[object, ...] | None:
    """Return what runs of one fleet have in common; None for a run that is trained alone.

    Long-tailed splits, and those of grouped examples, differ in size: there a fleet is of one split.
    """
    config = run.config
    if config.hparams.get("model") != NETWORK or config.precision != "float32" or config.compile:
        return None
    if not options.any_device and not on_cpu(config.device):
        return None
    dataset = shelf.get(run.dataset)
    if isinstance(dataset.features, np.ndarray) and stays_in_shared_file(dataset.features):
        return None
    uneven = config.imbalance is not None or dataset.groups is not None
    split = config.trial_seed if uneven else None
    shared = {name: getattr(config, name) for name, setting in declared().items() if not setting.per_run}
    alike = {name: config.hparams[name] for name in ("batch_size", *cls.must_match)}
    return run.algorithm, run.dataset, run.network, run.criteria, split, *shared.items(), *alike.items()


def find_stackable(names: Iterable[str]) -> dict[str, type[LossAlgorithm]]:
    """Return, by name, the algorithms whose runs can be trained as one."""
    found = {}
    for name in dict.fromkeys(names):
        cls = find_algorithm(name).cls
        try:
            choose_form(cls)
        except StackError:
            continue
        if issubclass(cls, LossAlgorithm):
            found[name] = cls
    return found


def on_cpu(device: str) -> bool:
    """Say whether a run on this device is computed by the CPU."""
    if device == "auto":
        return not torch.cuda.is_available() and not torch.backends.mps.is_available()
    return device == "cpu"


def share_out(
    runs: Sequence[PlannedRun], size: int, memory_gb: float, estimate: Estimate
) -> Iterable[tuple[PlannedRun, ...]]:
    """Divide runs that may be trained as one evenly into as few fleets as options allow."""
    for number in range(math.ceil(len(runs) / size), len(runs) + 1):
        bounds = [round(part * len(runs) / number) for part in range(number + 1)]
        fleets = [tuple(runs[start:stop]) for start, stop in pairwise(bounds)]
        if all(len(fleet) == 1 or estimate(fleet) <= memory_gb for fleet in fleets):
            return fleets
    return [(run,) for run in runs]


def find_largest_gb(fleets: Iterable[Sequence[PlannedRun]], shelf: DataShelf) -> float:
    """Return about how much memory the fleet takes that takes most; 0 if there is none."""
    return max(map(make_estimate(shelf), fleets), default=0.0)


def make_estimate(shelf: DataShelf) -> Estimate:
    """Return a function that says about how much memory a fleet takes; it counts inputs once a dataset."""
    width = cache(lambda name: count_inputs(shelf.get(name)))
    return lambda fleet: estimate_gb(fleet, shelf.get(fleet[0].dataset), width(fleet[0].dataset))


def count_inputs(dataset: Dataset) -> int:
    """Return how many inputs a network has; a table's categories have one each."""
    features = dataset.features
    return TableEncoder.fit(features).width if isinstance(features, Table) else math.prod(features.shape[1:])


@cache
def count_holdings(algorithm: str, classes: int) -> tuple[int, int]:
    """Return how many networks a run has, and how many bytes of state for each example.

    A small one is built for that; but a third party's is not built in this process, and is taken for one with
    one network.
    """
    if not ALGORITHMS.is_own(algorithm):
        return 1, 0
    entry = find_algorithm(algorithm)
    hparams = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, {"model": NETWORK})
    with torch.random.fork_rng(devices=[]):
        run = entry.cls((classes, 1), np.eye(classes, dtype=np.float32), {**hparams, "max_steps": 1})
    state = sum(getattr(run, name).nbytes for name in run.per_example_names)
    return len(list(run.children())), state // classes


def estimate_gb(fleet: Sequence[PlannedRun], dataset: Dataset, width: int) -> float:
    """Return about how much memory a fleet whose networks have `width` inputs takes beside the process.

    It is to be more than what is measured, of a fleet that is continued too.
    """
    rows, classes = dataset.candidates.shape
    splits = len({run.config.trial_seed for run in fleet})
    batch = int(fleet[0].config.hparams["batch_size"])
    networks, bytes_of_example = count_holdings(fleet[0].algorithm, classes)
    # Several splits are joined to one tensor beside their own.
    data = splits * rows * (width + classes) * BYTES * (2 if splits > 1 else 1)
    weights = COPIES_OF_WEIGHTS * networks * ((width + 1) * HIDDEN + (HIDDEN + 1) * classes) * BYTES
    state = rows * bytes_of_example
    step = batch * (width + 2 * HIDDEN) * BYTES
    of_run = TIMES_WEIGHTS * weights + max(TIMES_STATE * state, LEAST_STATE * rows * classes * BYTES) + step
    return float(data + len(fleet) * of_run + TIMES_SAVED * (weights + state)) / 2**30
