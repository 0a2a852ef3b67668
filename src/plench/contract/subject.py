"""The algorithm under check, and runs of it made of the training loop's own pieces."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from plench.algorithms import Algorithm, AlgorithmEntry
from plench.batch import Batch
from plench.contract.examples import answer_by_candidates, make_examples
from plench.data import Dataset
from plench.errors import UsageError
from plench.runs.folder import RunStore
from plench.training.batches import TrainingSet
from plench.training.callbacks import NoCallback
from plench.training.config import configure_run
from plench.training.evaluation import Totals
from plench.training.run import TrainingRun

BATCH_SIZE = 16
# The run's length by its configuration; no check makes more updates than this.
STEPS = 40
# What lengths of warm-ups and intervals are lowered to, so that a few updates reach every phase.
SHORT = 2
# What is lowered of a method that is fitted in rounds.
SMALL = {"rounds": 3, "n_estimators": 10}
# Updates made after the last phase has begun.
BEYOND = 6


class Session:
    """A run of the algorithm: the training loop's objects, driven update by update."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        run.build()

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm's object."""
        return self.run.algorithm

    @property
    def training_set(self) -> TrainingSet:
        """Where batches come from."""
        return self.run.training_set

    def update(self, count: int, training_set: TrainingSet | None = None) -> list[float]:
        """Make updates as the loop does; return their losses."""
        losses = []
        with self.run.streams.ambient("algorithm"):
            for _ in range(count):
                losses.append(self.update_once((training_set or self.training_set).next_batch()))
                self.run.updates += 1
        return losses

    def update_once(self, batch: Batch) -> float:
        """Make one update with a batch, in the algorithm's stream, and sum what it logs; return the loss."""
        try:
            logged = self.algorithm.update(batch)
            loss = read_loss(logged)
            self.run.totals.add(logged)
            return loss
        except Exception as error:
            error.add_note(f"This was update {self.run.updates} (counted from 0), {len(batch)} examples")
            raise

    def resize_batches(self, batch_size: int) -> TrainingSet:
        """Return batches of another size than `batch_size`, from the same examples."""
        return self.run.build_training_set(batch_size)


class Subject:
    """The algorithm under check. Its schedule is shortened so that a few updates reach every phase."""

    def __init__(self, entry: AlgorithmEntry, device: str = "cpu") -> None:
        self.entry = entry
        self.device = device
        self.file = inspect.getsourcefile(entry.cls)

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
        """Start a run on a dataset (ordinary examples if none is given)."""
        dataset = dataset or make_examples()
        values = dict(self.short_schedule if hparams is None else hparams)
        if not self.fitted:
            values["batch_size"] = batch_size
            if dataset.card.kind == "image":
                values["model"] = "CNN"
        config = configure_run(
            self.entry,
            dataset.card,
            hparams=values,
            steps=None if self.fitted else STEPS,
            seed=seed,
            pl_type="real",
            device=device or self.device,
        )
        store = store or RunStore(Path(os.devnull))
        run = TrainingRun(config, dataset, self.entry, store, NoCallback(), None)
        if self.entry.card.answers:
            run.data = replace(run.data, train_answers=answer_by_candidates(run.data.train_candidates))
        return Session(run)

    @cached_property
    def short_schedule(self) -> dict[str, Any]:
        """The whole-number hyperparameters that, lowered, let later phases begin earlier, lowered.

        For a method fitted in rounds, fewer rounds and smaller forests.
        """
        if self.fitted:
            names = [parameter.name for parameter in self.entry.card.hyperparameters]
            return {name: value for name, value in SMALL.items() if name in names}
        chosen: dict[str, Any] = {}
        begins = phase_starts(self.start(hparams=chosen).algorithm)
        left = list(self.entry.card.hyperparameters) if begins else []
        while left:
            lowered = None
            for parameter in left:
                try:
                    values = {**chosen, parameter.name: parameter.convert(SHORT)}
                    sooner = phase_starts(self.start(hparams=values).algorithm)
                except UsageError:
                    continue
                if sum(sooner) < sum(begins):
                    chosen, begins, lowered = values, sooner, parameter
            left = [parameter for parameter in left if lowered and parameter.name not in chosen]
        return chosen

    def count_updates(self, session: Session) -> int:
        """Return how many updates reach beyond every phase of a session's schedule, or are all rounds."""
        if self.fitted:
            return session.run.config.steps
        last = max(phase_starts(session.algorithm), default=0)
        return min(max(last, BEYOND) + BEYOND, STEPS)


def phase_starts(algorithm: Algorithm) -> list[int]:
    """Return the updates at which the later phases of an algorithm begin."""
    return list(algorithm.phases().values())


def read_loss(logged: Any) -> float:
    """Return the loss that an update reports; raise TypeError if the loop could not sum or record it."""
    try:
        alone = Totals()
        alone.add(logged)
    except (TypeError, ValueError, AttributeError) as error:
        raise TypeError(
            "update must return a mapping with the key 'loss' and single numbers to log, "
            f"not {logged!r} ({error})"
        ) from error
    for name, value in alone.sums.items():
        if isinstance(value, Tensor) and (value.numel() != 1 or value.is_complex()):
            raise TypeError(f"update must return single numbers to log, but {name!r} is {value!r}")
    return alone.means()["loss"]
