"""Checks of an algorithm's state: repeated and resumed exactly, saved, moved, and isolated from labels."""

from __future__ import annotations

import gc
import pickle
import random
import sys
import tempfile
import types
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from plench.contract.training import find_difference, snapshot, train_and_predict
from plench.contract.under_test import (
    AlgorithmUnderTest,
    NotChecked,
    Session,
    advised,
    ensure,
    make_examples,
    only_for,
    required,
)
from plench.data import Dataset, split_dataset
from plench.runs.folder import RunStore
from plench.training.checkpoint import list_state, read_checkpoints, take_snapshot
from plench.training.environment import capture_global
from plench.training.run import evaluate

# Where a walk ends: code and its surroundings lead to every module that is loaded, and plain values nowhere.
ENDS = (types.ModuleType, type, types.CodeType, str, bytes, int, float, complex, bool, type(None))


# Repeating and resuming ----------------------------------------------------------------------------------


def train_phases(tested: AlgorithmUnderTest, seed: int = 0, evaluating: bool = False) -> dict[str, Any]:
    """Train through every phase; return the whole final state and the losses."""
    session = tested.start(seed=seed)
    losses = []
    for _ in range(session.updates):
        losses += session.update(1)
        if evaluating:
            with session.run.streams.ambient("evaluation"):
                evaluate(session.algorithm, session.run.data)
    return {**snapshot(session.algorithm), "the losses": losses}


@required
def repeats_with_the_same_seed(tested: AlgorithmUnderTest) -> None:
    """Two runs with the same seed agree in every bit."""
    before = list_outside_state(tested.entry.cls)
    different = find_difference(train_phases(tested), train_phases(tested))
    outside = list_changed_outside(tested.entry.cls, before)
    reason = "draw from the default generators of torch, numpy or random, which the run seeds, not from one "
    reason += "that seeds itself, and keep all state on self"
    if outside:
        reason = f"{outside} changes in a run and affects the next one: keep state on self, made in __init__"
    ensure(different is None, f"two runs with the same seed differ (first in {different}): {reason}")


def list_outside_state(cls: type) -> dict[str, bytes]:
    """Return what the author's classes and their modules hold, pickled, by name."""
    held: dict[str, bytes] = {}
    for owner in (base for base in cls.__mro__ if base.__module__.split(".")[0] not in ("plench", "torch")):
        module = sys.modules.get(owner.__module__)
        for place, values in (
            (owner.__name__, vars(owner)),
            (owner.__module__, vars(module) if module else {}),
        ):
            for name, value in list(values.items()):
                if not name.startswith("__") and not isinstance(value, types.ModuleType | type):
                    with suppress(Exception):  # what cannot be pickled is passed over
                        held[f"{place}.{name}"] = pickle.dumps(value)
    return held


def list_changed_outside(cls: type, before: dict[str, bytes]) -> str:
    """Return the names of what `list_outside_state` finds changed since."""
    after = list_outside_state(cls)
    return ", ".join(name for name, value in after.items() if value != before.get(name))


@only_for("batches")
@required
def differs_with_another_seed(tested: AlgorithmUnderTest) -> None:
    """Two runs with different seeds differ."""
    different = find_difference(train_phases(tested, seed=0), train_phases(tested, seed=1))
    ensure(different, "runs with the seeds 0 and 1 are the same: is a fixed seed set somewhere?")


@required
def is_not_disturbed_by_evaluation(tested: AlgorithmUnderTest) -> None:
    """Evaluating after every update changes nothing in the training."""
    different = find_difference(train_phases(tested), train_phases(tested, evaluating=True))
    problem = f"a run that is evaluated more often ends with another {different}"
    ensure(different is None, f"{problem}: predict must not change state or count calls")


@required
def resumes_exactly(tested: AlgorithmUnderTest) -> None:
    """Saved, loaded into a new object and resumed, a run ends as if it had never stopped, in every bit of
    weights, state and losses, wherever it is cut."""

    def describe(session: Session, losses: list[float]) -> dict[str, Any]:
        logged = session.run.totals.state()
        return {**snapshot(session.algorithm), "what update logs": logged, "the losses": losses}

    before = list_outside_state(tested.entry.cls)
    session = tested.start()
    updates = session.updates
    starts = (first for first in session.algorithm.phases().values() if 0 < first < updates)
    cuts = set(range(1, updates)) if tested.fitted else {1, updates // 2, updates - 2, *starts}
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for done in range(updates):
            if done in cuts:
                session.run.store = RunStore(Path(folder) / str(done))
                session.run.store.folder.mkdir()
                session.run.write_checkpoint()
            losses += session.update(1)
        for cut in sorted(cuts):
            resumed = resume(tested, RunStore(Path(folder) / str(cut)))
            again = resumed.update(updates - cut)
            different = find_difference(describe(session, losses[cut:]), describe(resumed, again))
            unsaved = ", ".join(take_snapshot(session.algorithm).unsaved)
            outside = list_changed_outside(tested.entry.cls, before)
            ensure(
                different is None,
                f"cut after update {cut} of {updates} and resumed, the run differs (first in {different}). "
                "Saved are tensors, arrays, numbers, optimisers, generators and containers of these found on "
                "the object: keep all state there, and create the objects that hold it in __init__"
                + (f". Not saved: {unsaved}" if unsaved else "")
                + (f". Changed outside the object: {outside}" if outside else ""),
            )


def resume(tested: AlgorithmUnderTest, store: RunStore) -> Session:
    """Build a fresh run and resume it from its checkpoint."""
    session = tested.start(store=store)
    checkpoint = next(read_checkpoints(store))
    with session.run.streams.ambient("algorithm"):
        session.run.restore(checkpoint)
    return session


@advised
def holds_only_what_can_be_saved(tested: AlgorithmUnderTest) -> None:
    """Everything on the object can be saved, or is named in the class's `transient`."""
    session = tested.start()
    session.update(1)
    unsaved = ", ".join(take_snapshot(session.algorithm).unsaved)
    ensure(not unsaved, f"cannot be saved: {unsaved}. Name what holds no state in `transient`")


# What can be reached from an object ----------------------------------------------------------------------


def walk(root: object, name: str, for_state: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) for all that is reachable from `root`, each object once.

    Modules, their namespaces and classes are not entered. With `for_state`, neither are optimisers, which
    hold the parameters again, and attributes that a class lists as transient.
    """
    # Objects are known by identity, so all of them are kept alive until the walk ends.
    met: list[object] = [getattr(module, "__dict__", None) for module in list(sys.modules.values())]
    seen = {id(namespace) for namespace in met}
    waiting: deque[tuple[str, Any]] = deque([(name, root)])
    while waiting:
        path, value = waiting.popleft()
        if id(value) in seen or isinstance(value, ENDS):
            continue
        seen.add(id(value))
        met.append(value)
        if for_state and isinstance(value, torch.optim.Optimizer):
            continue
        yield path, value
        waiting.extend(parts_of(path, value, for_state))


def parts_of(path: str, value: Any, for_state: bool) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds directly: by name where it has one, then what the collector knows of."""
    transient = getattr(type(value), "transient", ()) if for_state else ()
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{position}]", item) for position, item in enumerate(value))
    elif isinstance(value, Tensor):
        yield f"{path}.grad", value.grad if value.is_leaf else None
        yield f"{path} (base)", value._base
    elif isinstance(value, np.ndarray):
        yield f"{path} (base)", value.base
        yield path, value.tolist() if value.dtype == object else None
    names = vars(value) if hasattr(value, "__dict__") else {}
    named = dict(names)
    if isinstance(value, nn.Module):
        named = {**value._parameters, **value._buffers, **value._modules, **named}
    yield from ((f"{path}.{key}", item) for key, item in named.items() if key not in transient)
    if transient:
        return  # the collector does not know which of the values are transient
    skipped = (names, getattr(value, "__globals__", None))
    yield from (
        (f"{path} (…)", item) for item in gc.get_referents(value) if not any(item is s for s in skipped)
    )


def reach_tensors(session: Session) -> dict[str, Tensor]:
    """Return all tensors of an algorithm by path, except optimisers and transient attributes."""
    root = session.algorithm
    reached = walk(root, type(root).__name__, for_state=True)
    return {path: value for path, value in reached if isinstance(value, Tensor)}


@required
def lists_its_state(tested: AlgorithmUnderTest) -> None:
    """All state kept in addition to the weights is found, so that run.json can list it with its memory."""
    session = tested.start()
    session.update(1)
    kept = {
        path: value.numel() * value.element_size()
        for path, value in reach_tensors(session).items()
        if not isinstance(value, nn.Parameter) and value._base is None and not path.endswith(".grad")
    }
    listed = sum(row["bytes"] for row in list_state(session.algorithm))
    largest = max(kept, key=lambda path: kept[path], default="")
    ensure(
        listed >= sum(kept.values()),
        f"{listed} bytes of state are found on the modules but {sum(kept.values())} are kept (the largest is "
        f"{largest}): keep tensors as buffers (register_buffer, self.per_example)",
    )


@only_for("batches")
@advised
def moves_with_the_module(tested: AlgorithmUnderTest) -> None:
    """`to(device)` moves all state: tensors are parameters or buffers (`register_buffer`, `per_example`), not
    plain attributes."""
    session = tested.start()
    session.algorithm.to("meta")
    reached = reach_tensors(session).items()
    left = ", ".join(path for path, tensor in reached if tensor.device.type != "meta")
    advice = "Keep them as buffers, e.g. self.per_example('confidence', values)"
    ensure(not left, f"after to('meta') these stayed behind: {left}. {advice}")


@only_for("batches")
@advised
def keeps_single_precision(tested: AlgorithmUnderTest) -> None:
    """State is float32 or smaller: float64 doubles the memory, slows the step, and MPS devices lack it."""
    session = tested.start()
    session.update(1)
    double = [path for path, tensor in reach_tensors(session).items() if tensor.dtype == torch.float64]
    ensure(not double, f"float64: {', '.join(double)}")


@required
def trains_on_accelerators(tested: AlgorithmUnderTest) -> None:
    """It trains on CUDA and MPS devices, where there are any."""
    kinds = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not any(kinds.values()):
        raise NotChecked("this machine has no CUDA or MPS device")
    for kind in (kind for kind, available in kinds.items() if available):
        session = tested.start(device=kind)
        train_and_predict(session, session.updates)


@only_for("batches")
@required
def optimizes_what_has_a_gradient(tested: AlgorithmUnderTest) -> None:
    """A parameter that receives a gradient, or that `predict` uses, belongs to an optimiser, unless it is
    frozen (`requires_grad_(False)`) or `update` changes it in another way."""
    session = tested.start()
    algorithm, root = session.algorithm, type(session.algorithm).__name__
    reached = walk(algorithm, root, for_state=True)  # also what a plain list holds
    learning = {
        path.removeprefix(f"{root}."): value
        for path, value in reached
        if isinstance(value, nn.Parameter) and value.requires_grad
    }
    before = {name: value.detach().clone() for name, value in learning.items()}
    received: set[str] = set()

    def note(gradient: Tensor, name: str) -> None:
        if gradient.any():
            received.add(name)

    for name, parameter in learning.items():
        parameter.register_hook(partial(note, name=name))
    with session.run.streams.ambient("evaluation"):
        logits = algorithm.predict(session.test_inputs)
        if learning and logits.requires_grad:
            torch.autograd.grad(logits.square().sum(), list(learning.values()), allow_unused=True)
    session.update(session.updates)
    optimizers = (value for _, value in walk(algorithm, "") if isinstance(value, torch.optim.Optimizer))
    trained = {id(value) for each in optimizers for group in each.param_groups for value in group["params"]}
    forgotten = [
        name
        for name in learning
        if name in received
        and id(learning[name]) not in trained
        and learning[name].detach().equal(before[name])
    ]
    ensure(
        not forgotten,
        f"{', '.join(forgotten[:4])}{', …' if len(forgotten) > 4 else ''} received gradients or are "
        "used by predict, but never changed, since no optimiser holds them: give them to one in __init__ "
        "(LossAlgorithm: build_optimizers; it finds attributes and nn.ModuleList, not networks in a plain "
        "list), or freeze what must not be trained with requires_grad_(False)",
    )


# Isolation -----------------------------------------------------------------------------------------------


@required
def sees_no_true_label(tested: AlgorithmUnderTest) -> None:
    """Nothing that can be reached from the algorithm or its batches holds true labels of any split."""
    search_labels(tested, make_examples(sets="ambiguous"))


def search_labels(tested: AlgorithmUnderTest, dataset: Dataset) -> None:
    """Raise a violation if labels of a dataset can be reached before or between updates."""
    assert dataset.labels is not None
    session = tested.start(dataset)
    split = split_dataset(dataset, session.run.config.trial_seed)
    assert split.test is not None
    secrets = {
        "the whole dataset": dataset.labels,
        "the training split": dataset.labels[split.train],
        "the validation split": dataset.labels[split.validation],
        "the test split": dataset.labels[split.test],
    }
    for _ in range(2):
        find_labels(session.algorithm, type(session.algorithm).__name__, secrets)
        with session.run.streams.ambient("algorithm"):
            batch = session.training_set.next_batch()
            in_batch = dataset.labels[split.train][batch.index.cpu().numpy()]
            find_labels(batch, "minibatches", {**secrets, "the batch": in_batch})
            session.update_once(batch)


def find_labels(root: object, name: str, secrets: dict[str, np.ndarray]) -> None:
    """Raise a violation if labels are found on the way from a root."""
    for path, value in walk(root, name):
        for which, labels in secrets.items():
            found = any(np.array_equal(column, labels) for column in columns(value, len(labels)))
            ensure(not found, f"{path} holds the true labels of {which}, which no algorithm may see")


def columns(value: Any, n: int) -> Iterator[np.ndarray]:
    """Yield what could be labels of n examples: the values, a column, or the classes of one-hot rows."""
    if isinstance(value, Tensor):
        if value.device.type == "meta" or value.is_sparse:
            return
        value = value.detach().cpu().float().numpy()
    elif isinstance(value, list | tuple) and len(value) == n:
        value = np.asarray(value) if all(isinstance(item, int | float) for item in value) else None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.size == 0:
        return
    if value.size == n:
        yield value.reshape(n)
    elif value.ndim == 2:
        table = value if len(value) == n else value.T
        if len(table) == n:
            yield from table.T
            if ((table != 0).sum(1) == 1).all():
                yield (table != 0).argmax(1)


@required
def seeds_nothing_global(tested: AlgorithmUnderTest) -> None:
    """It seeds no global generator, and the generators outside the run are as they were."""
    before = capture_global(torch.device("cpu"))
    called: list[str] = []
    with ExitStack() as patches:  # seeding is recorded and has no effect
        for owner, name in ((torch, "manual_seed"), (torch, "seed"), (np.random, "seed"), (random, "seed")):
            title = f"{owner.__name__}.{name}"
            patches.enter_context(patch.object(owner, name, lambda *_, title=title: called.append(title)))
        tested.train()
    ensure(not called, f"{', '.join(called)} was called: the run is seeded, and another seed repeats draws")
    different = find_difference(before, capture_global(torch.device("cpu")))
    ensure(different is None, f"the global generator of {different} was moved outside the run")
