"""Which runs of a sweep are stacked: a function of plan and options alone, so that it repeats."""

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
from plench.sweeps.engines import Engine
from plench.sweeps.plan import DatasetCache, PlannedRun, Task
from plench.training.inputs import stays_in_shared_file
from plench.training.stack import StackError, choose_form

# More gained nothing further where it was measured, on a CPU.
LARGEST = 10
NETWORK = "MLP"
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
class StackOptions:
    """How runs are stacked: the largest stack (1: no stacks), and the memory that one may take."""

    size: int = LARGEST
    memory_gb: float = 1.0
    # Whether to stack on every device: by default only on CPUs, where stacks have been measured.
    any_device: bool = False


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
    classes = _find_stackable(run.algorithm for run in runs) if size > 1 else {}
    for run in runs:
        key = _stack_key(run, classes[run.algorithm], datasets, options) if run.algorithm in classes else None
        kinds.setdefault((run.folder,) if key is None else key, []).append(run)
    estimate = make_estimate(datasets)
    stacks = [
        stack for group in kinds.values() for stack in _divide(group, size, options.memory_gb, estimate)
    ]
    place = {run.folder: number for number, run in enumerate(runs)}
    return sorted(stacks, key=lambda stack: place[stack[0].folder])


def _stack_key(
    run: PlannedRun, cls: type[LossAlgorithm], datasets: DatasetCache, options: StackOptions
) -> tuple[object, ...] | None:
    """Return what the runs of one stack must share; None for a run that is trained separately.

    Long-tailed and grouped splits differ in size, so their stacks have runs of one split.
    """
    config = run.config
    if config.hparams.get("model") != NETWORK or config.precision != "float32" or config.compile:
        return None
    if not options.any_device and not runs_on_cpu(config.device):
        return None
    dataset = datasets.get(run.dataset)
    if isinstance(dataset.features, np.ndarray) and stays_in_shared_file(dataset.features):
        return None
    uneven = config.imbalance is not None or dataset.groups is not None
    split = config.trial_seed if uneven else None
    shared = {name: getattr(config, name) for name, setting in declared().items() if not setting.per_run}
    alike = {name: config.hparams[name] for name in ("batch_size", *cls.must_match)}
    return run.algorithm, run.dataset, run.network, run.criteria, split, *shared.items(), *alike.items()


def _find_stackable(names: Iterable[str]) -> dict[str, type[LossAlgorithm]]:
    """Return the algorithms whose runs can be stacked, by name."""
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


def runs_on_cpu(device: str) -> bool:
    """Return True if the CPU computes a run on this device."""
    if device == "auto":
        return not torch.cuda.is_available() and not torch.backends.mps.is_available()
    return device == "cpu"


def _divide(
    runs: Sequence[PlannedRun], size: int, memory_gb: float, estimate: Callable[[Task], float]
) -> list[Task]:
    """Divide runs that can be stacked evenly into as few stacks as size and memory allow."""
    for number in range(math.ceil(len(runs) / size), len(runs) + 1):
        bounds = [round(part * len(runs) / number) for part in range(number + 1)]
        stacks = [tuple(runs[start:stop]) for start, stop in pairwise(bounds)]
        if all(len(stack) == 1 or estimate(stack) <= memory_gb for stack in stacks):
            return stacks
    return [(run,) for run in runs]


def make_estimate(datasets: DatasetCache) -> Callable[[Sequence[PlannedRun]], float]:
    """Return a function that estimates a stack's gigabytes; inputs are counted once per dataset."""
    width = cache(lambda name: count_inputs(datasets.get(name)))
    return lambda stack: estimate_gb(stack, datasets.get(stack[0].dataset), width(stack[0].dataset))


def count_inputs(dataset: Dataset) -> int:
    """Return how many inputs a network has; a table's categories have one each."""
    features = dataset.features
    return TableEncoder.fit(features).width if isinstance(features, Table) else math.prod(features.shape[1:])


@cache
def _count_holdings(algorithm: str, classes: int) -> tuple[int, int]:
    """Return how many networks a run has, and its bytes of state per example, from a small instance.

    Third-party algorithms are not built in this process and count as one network.
    """
    if not ALGORITHMS.is_own(algorithm):
        return 1, 0
    entry = find_algorithm(algorithm)
    hparams = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, {"model": NETWORK})
    with torch.random.fork_rng(devices=[]):
        run = entry.cls((classes, 1), np.eye(classes, dtype=np.float32), {**hparams, "max_steps": 1})
    state = sum(getattr(run, name).nbytes for name in run.per_example_names)
    return len(list(run.children())), state // classes


def estimate_gb(stack: Sequence[PlannedRun], dataset: Dataset, width: int) -> float:
    """Estimate the memory of a stack whose networks have `width` inputs, in addition to the process.

    The estimate is an upper bound of what was measured, also for a resumed stack.
    """
    rows, classes = dataset.candidates.shape
    splits = len({run.config.trial_seed for run in stack})
    batch = int(stack[0].config.hparams["batch_size"])
    networks, bytes_of_example = _count_holdings(stack[0].algorithm, classes)
    # Several splits are joined into one tensor in addition to their own.
    data = splits * rows * (width + classes) * BYTES * (2 if splits > 1 else 1)
    weights = COPIES_OF_WEIGHTS * networks * ((width + 1) * HIDDEN + (HIDDEN + 1) * classes) * BYTES
    state = rows * bytes_of_example
    step = batch * (width + 2 * HIDDEN) * BYTES
    of_run = TIMES_WEIGHTS * weights + max(TIMES_STATE * state, LEAST_STATE * rows * classes * BYTES) + step
    return float(data + len(stack) * of_run + TIMES_SAVED * (weights + state)) / 2**30
