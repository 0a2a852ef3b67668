"""What checks are made of: example data, the algorithm under test, and runs of it that are driven by hand."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import Algorithm, AlgorithmEntry
from plench.algorithms.base import Batch
from plench.data import Dataset, DatasetCard
from plench.data.answers import Answers
from plench.errors import UsageError
from plench.runs.folder import RunStore
from plench.training.config import configure_run
from plench.training.data import TrainingSet
from plench.training.run import Totals, TrainingRun
from plench.training.stack import StackError, choose_form

FEATURES = 6
IMAGE_SHAPE = (3, 8, 8)
# Four batches of 16: an epoch of a few updates.
TRAIN_SIZE = 64
CLASSES = 5
BATCH_SIZE = 16
# The configured length of a run; no check makes more updates than this.
STEPS = 40
# What lengths of warm-ups and intervals are lowered to, so that a few updates reach every phase.
SHORT = 2
# What is lowered for a method that is fitted in rounds.
SMALL = {"rounds": 3, "n_estimators": 10}
# Updates made after the last phase has begun.
BEYOND = 6


class ContractViolation(Exception):
    """A check failed; the text says what was found and what to do about it."""


class NotChecked(Exception):
    """A check cannot be made on this machine or data; the text is the reason."""


def ensure(condition: object, problem: str) -> None:
    """Raise a violation unless the condition holds."""
    if not condition:
        raise ContractViolation(problem)


@dataclass(frozen=True)
class Check:
    """One demand on algorithms. A violation fails a required check and is advice for an advised one.

    Required is what correct results and exact resuming need; the paper's minimal contract is enough for it.
    Advised is what every algorithm of this package does as well, such as state that moves with the module.
    `only` says which methods it concerns: those that make steps on batches, those fitted in rounds, or those
    whose runs can be stacked.
    """

    name: str
    demand: str
    level: Literal["required", "advised"]
    function: Callable[[AlgorithmUnderTest], str | None]
    only: Literal["", "batches", "rounds", "stacks"] = ""

    def why_not_applicable(self, tested: AlgorithmUnderTest) -> str:
        """Return why the check does not concern an algorithm, or an empty text if it does."""
        if self.only in ("batches", "stacks") and tested.fitted:
            return "a method fitted in rounds makes no steps on batches"
        if self.only == "rounds" and not tested.fitted:
            return "it makes steps on batches"
        if self.only == "stacks":
            try:
                choose_form(tested.entry.cls)
            except StackError as reason:
                return f"its runs are not stacked: {reason}"
        return ""


@dataclass(frozen=True)
class Outcome:
    """How a check ended; `detail` says what was found if it did not pass, or adds to what passed."""

    check: Check
    status: Literal["passed", "failed", "advice", "skipped"]
    detail: str = ""


def required(function: Callable[[AlgorithmUnderTest], str | None]) -> Check:
    """Make a function a required check; its docstring is the demand."""
    return Check(function.__name__, " ".join((function.__doc__ or "").split()), "required", function)


def advised(function: Callable[[AlgorithmUnderTest], str | None]) -> Check:
    """Make a function an advised check; its docstring is the demand."""
    return replace(required(function), level="advised")


def only_for(methods: Literal["batches", "rounds", "stacks"]) -> Callable[[Check], Check]:
    """Return a decorator that limits a check to some methods (see `Check.only`)."""
    return lambda check: replace(check, only=methods)


# Example data --------------------------------------------------------------------------------------------


def make_examples(
    train_size: int = TRAIN_SIZE,
    num_classes: int = CLASSES,
    sets: Literal["mixed", "ambiguous", "single", "full"] = "mixed",
    *,
    images: bool = False,
    without_candidate: int | None = None,
    without_label: int | None = None,
) -> Dataset:
    """Make a dataset whose training split has `train_size` examples.

    `mixed` sets have single, full and ambiguous ones among them; `ambiguous` sets contain the label and at
    least one other. The class `without_candidate` is in no set, and no example has the label `without_label`.
    Labels are random, so that nothing learned within a few updates can equal them by merit.
    """
    random = np.random.default_rng(20)
    # The smallest dataset whose training split, by the protocol's fractions of 0.1, has this size.
    kept = {n: int(n * (1 - 0.1)) for n in range(train_size, 2 * train_size + 10)}
    n = next(n for n, m in kept.items() if int(m * 0.1) and m - int(m * 0.1) == train_size)
    absent = (without_candidate, without_label)
    labels = random.choice([k for k in range(num_classes) if k not in absent], n)
    single = labels[:, None] == np.arange(num_classes)
    other = (labels + random.integers(1, num_classes, n)) % num_classes
    ambiguous = single | (other[:, None] == np.arange(num_classes)) | (random.random((n, num_classes)) < 0.3)
    if sets == "mixed":
        kind = random.integers(0, 4, n)[:, None]
        candidates = np.where(kind == 0, single, np.where(kind == 1, True, ambiguous))
    else:
        candidates = {"single": single, "full": np.ones_like(single), "ambiguous": ambiguous}[sets]
    if without_candidate is not None:
        candidates[:, without_candidate] = False
    features: np.ndarray
    if images:
        features = random.integers(0, 256, (n, *IMAGE_SHAPE), dtype=np.uint8)
    else:
        features = random.normal(size=(n, FEATURES)).astype(np.float32)
    about = ("checks of the contract", "drawn at random", "none", "none")
    card = DatasetCard("Contract", "image" if images else "tabular", *about, default_steps=1)
    return Dataset(features, candidates, labels, card)


# Runs ----------------------------------------------------------------------------------------------------


class Session:
    """A run of the algorithm: the training loop's objects, driven update by update.

    `updates` reach beyond every phase of the schedule, or are all rounds of a fitted method.
    """

    def __init__(self, run: TrainingRun, fitted: bool) -> None:
        self.run = run
        run.build()
        last = max(self.algorithm.phases().values(), default=0)
        self.updates = run.config.steps if fitted else min(max(last, BEYOND) + BEYOND, STEPS)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm's object."""
        return self.run.algorithm

    @property
    def training_set(self) -> TrainingSet:
        """Where batches come from."""
        return self.run.training_set

    @property
    def test_inputs(self) -> Tensor:
        """The network inputs of the test split."""
        return self.run.data.inputs.original(self.run.data.test.stored[:])

    def predict(self, x: Tensor | None = None) -> Tensor:
        """Return predictions as evaluation makes them, by default for the test split."""
        self.algorithm.eval()
        with self.run.streams.ambient("evaluation"), torch.no_grad():
            logits = self.algorithm.predict(self.test_inputs if x is None else x)
        self.algorithm.train()
        return logits

    def update(self, count: int, training_set: TrainingSet | None = None) -> list[float]:
        """Make updates as the loop does; return their losses."""
        losses = []
        with self.run.streams.ambient("algorithm"):
            for _ in range(count):
                losses.append(self.update_once((training_set or self.training_set).next_batch()))
                self.run.updates += 1
        return losses

    def update_once(self, batch: Batch) -> float:
        """Make one update with a batch, in the algorithm's stream, and add up what it logs."""
        try:
            logged = self.algorithm.update(batch)
            loss = read_loss(logged)
            self.run.totals.add(logged)
            return loss
        except Exception as error:
            error.add_note(f"This was update {self.run.updates} (counted from 0), {len(batch)} examples")
            raise


def read_loss(logged: Any) -> float:
    """Return the loss that an update reports. Raises TypeError if the loop could not add it up."""
    totals = Totals()
    try:
        totals.add(logged)
        return totals.means()["loss"]
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(logged, Mapping):  # the values of a long tensor would hide its shape
            shapes = {
                name: f"tensor of shape {tuple(v.shape)}"
                for name, v in logged.items()
                if isinstance(v, Tensor) and v.dim()
            }
            logged = {**logged, **shapes}
        demand = "update must return a mapping with the key 'loss' and single numbers to log"
        raise TypeError(f"{demand}, not {logged!r}") from error


class AlgorithmUnderTest:
    """The algorithm under test. Its schedule is shortened so that a few updates reach every phase."""

    def __init__(self, entry: AlgorithmEntry, device: str = "cpu") -> None:
        self.entry = entry
        self.device = device
        try:
            self.file = inspect.getsourcefile(entry.cls)
        except TypeError:  # a class of a notebook
            self.file = None

    @property
    def fitted(self) -> bool:
        """Whether the algorithm is fitted in rounds, without batches."""
        return not self.entry.card.shared

    def start(
        self,
        dataset: Dataset | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        seed: int = 0,
        store: RunStore | None = None,
        device: str | None = None,
        hparams: Mapping[str, Any] | None = None,
    ) -> Session:
        """Start a run on a dataset (ordinary examples by default)."""
        dataset = dataset or make_examples()
        values = dict(self.short_schedule if hparams is None else hparams)
        if not self.fitted:
            values["batch_size"] = batch_size
            if dataset.card.kind == "image":
                values["model"] = "CNN"
        steps = None if self.fitted else STEPS
        settings: dict[str, Any] = {"seed": seed, "pl_type": "real", "device": device or self.device}
        config = configure_run(self.entry, dataset.card, hparams=values, steps=steps, **settings)
        store = store or RunStore(Path(os.devnull))
        run = TrainingRun(config, dataset, self.entry, store)
        if self.entry.card.answers:  # an annotator for each class names it where it is a candidate
            candidates = run.data.train_candidates
            item, label = np.nonzero(candidates)
            sets = label[:, None] == np.arange(candidates.shape[1])
            run.data = replace(run.data, train_answers=Answers(item, label, sets, len(candidates)))
        return Session(run, self.fitted)

    def train(self, dataset: Dataset | None = None, **options: Any) -> Session:
        """Start a run and train through every phase."""
        session = self.start(dataset, **options)
        session.update(session.updates)
        return session

    @cached_property
    def short_schedule(self) -> dict[str, Any]:
        """The whole-number hyperparameters that let later phases begin earlier, lowered.

        For a method fitted in rounds, fewer rounds and smaller forests.
        """
        declared = self.entry.card.hyperparameters
        if self.fitted:
            return {each.name: SMALL[each.name] for each in declared if each.name in SMALL}

        def latest(values: Mapping[str, Any]) -> int:
            return sum(self.start(hparams=values).algorithm.phases().values())

        chosen: dict[str, Any] = {}
        begin = latest(chosen)
        for parameter in [*declared, *declared] if begin else []:  # one may matter once another is lowered
            try:
                values = {**chosen, parameter.name: parameter.convert(SHORT)}
                sooner = latest(values)
            except UsageError:
                continue
            if sooner < begin:
                chosen, begin = values, sooner
        return chosen
