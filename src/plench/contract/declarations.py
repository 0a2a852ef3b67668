"""Checks of what an algorithm declares, and that it does not change its inputs."""

from __future__ import annotations

import copy
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from plench.batch import Batch
from plench.contract.base import BreachError, advised, needs_batches, required
from plench.contract.subject import Subject
from plench.errors import UsageError
from plench.hparams import DataTraits, Hyperparameter
from plench.seeds import seed_hash

DRAWS = 20


@required
def declares_hyperparameters(subject: Subject) -> None:
    """Declared hyperparameters have a meaning, a default within their own bounds, and draws that are allowed
    values and plain JSON."""
    declared = subject.entry.card.hyperparameters
    names = [parameter.name for parameter in declared]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise BreachError(f"hyperparameter {doubled[0]} is declared twice")
    for parameter in declared:
        if not parameter.meaning.strip():
            raise BreachError(f"hyperparameter {parameter.name} has no meaning: say in words what it does")
        for kind, noise_rate in product(("tabular", "image"), (None, 0.2)):
            check_values(parameter, DataTraits(kind, noise_rate))


def check_values(parameter: Hyperparameter, traits: DataTraits) -> None:
    """Demand that the default and the draws are values that a user might give."""
    try:
        values = [parameter.default_for(traits)]
        search = parameter.search_for(traits)
        values += [
            parameter.convert(search.draw(np.random.RandomState(seed_hash(seed, parameter.name))))
            for seed in range(DRAWS)
        ]
    except UsageError as error:
        raise BreachError(f"its default or a value drawn by its search is refused: {error}") from error
    for value in values:
        if type(json.loads(json.dumps(value))) is not type(value):
            raise BreachError(f"hyperparameter {parameter.name}: {value!r} is not a plain JSON value")


@required
def leaves_arguments_alone(subject: Subject) -> None:
    """Building and updating change neither the `hparams` nor the `train_givenY` that were passed in, nor the
    tensors of a batch."""
    session = subject.start()
    hparams = dict(session.run.config.hparams)
    candidates = session.run.data.train_candidates.astype(np.float32)
    given = copy.deepcopy((hparams, candidates))
    run = session.run
    with run.streams.ambient("init"):
        algorithm = subject.entry.cls(run.data.input_shape, candidates, hparams).to(run.device).train()
    run.attach(algorithm)
    run.algorithm = algorithm
    stored, sets = session.training_set.stored[:].clone(), session.training_set.candidates.clone()
    session.update(subject.count_updates(session))
    if hparams != given[0]:
        raise BreachError(
            "the hparams given to __init__ were changed; the base class keeps a copy, self.hparams"
        )
    if not np.array_equal(candidates, given[1]):
        raise BreachError(
            "the array train_givenY was changed; torch.from_numpy shares its memory, so clone before writing"
        )
    if not (stored.equal(session.training_set.stored[:]) and sets.equal(session.training_set.candidates)):
        raise BreachError("the training data behind the batches was changed")


@required
def prints_nothing(subject: Subject) -> None:
    """Nothing is printed; what an update has to tell it returns, to be logged."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        session = subject.start()
        session.update(subject.count_updates(session))
    if output.getvalue():
        raise BreachError(f"printed: {output.getvalue()[:200]!r}; return numbers from update instead")


class NotedViews(dict[str, Tensor]):
    """Views that remember which of them were asked for."""

    def __init__(self, views: dict[str, Tensor]) -> None:
        super().__init__(views)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a view, noted."""
        self.read.add(name)
        return super().get(name, default)


@advised
def uses_declared_views(subject: Subject) -> None:
    """Every view that is declared is used; making one that is not wastes time on images."""
    needs_batches(subject)
    session = subject.start()
    read: set[str] = set()
    views = subject.entry.card.views
    with session.run.streams.ambient("algorithm"):
        for _ in range(subject.count_updates(session)):
            batch = session.training_set.next_batch()
            noted = NotedViews({name: batch.view(name) for name in views})
            session.update_once(Batch(batch.index, batch.candidates, noted, batch.second))
            read |= noted.read
    unused = [name for name in views if name not in read]
    if unused:
        raise BreachError(f"declared but never used: {', '.join(unused)}; take them out of register(views=…)")
