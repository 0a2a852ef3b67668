"""How tests reach an algorithm: by what `LossAlgorithm` documents, never by a helper of its file.

`build` makes one for given candidates, `answer` sets what its networks give, `set_state` and `get_state`
reach its state by name, `at_step` sets its clock, `evaluate` gives losses with their gradient, and `stack`
makes one algorithm of several runs. `start` begins a run that is driven update by update; `build_fitted`,
`fit` and `predict` do the same for methods fitted in rounds. Single formulas of the vectors are named in
`tests/formulas.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms import Algorithm, AlgorithmEntry, find_algorithm
from plench.algorithms.base import VIEWS, Batch
from plench.algorithms.fitted import FittedAlgorithm
from plench.algorithms.registry import ALGORITHMS, add_card
from plench.contract import AlgorithmUnderTest
from plench.contract.under_test import Session, make_examples
from plench.data.answers import Answers
from plench.hparams import DataTraits, draw_hparams


def entry_of(cls: type[Algorithm]) -> AlgorithmEntry:
    """Return a class of a test as a third-party algorithm."""
    return add_card(ALGORITHMS.adopt(cls.__name__, cls, f"tests:{cls.__name__}"))


class GivenInputs:
    """Training inputs as they are given, in the form that `attach_inputs` receives."""

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def original(self, start: int, stop: int) -> Tensor:
        return self.features[start:stop]


def build(
    name: str,
    candidates: Tensor,
    *,
    dtype: torch.dtype = torch.float64,
    width: int = 2,
    max_steps: int = 1000,
    **hparams: Any,
) -> Any:
    """Build an algorithm for candidates (N, K); hyperparameters that are not given have their defaults."""
    entry = find_algorithm(name)
    values = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, hparams)
    shape = (len(candidates), width)
    return entry.cls(shape, candidates.numpy(), {**values, "max_steps": max_steps}).to(dtype)


def own_hparams(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are hyperparameters of an algorithm."""
    known = {parameter.name for parameter in find_algorithm(name).card.hyperparameters}
    return {key: value for key, value in values.items() if key in known}


def answer(algorithm: Any, *, learns: bool = False, **networks: nn.Module) -> None:
    """Put other networks in the place of those named; they learn by Adam or, as stand-ins, not at all."""
    for name, network in networks.items():
        setattr(algorithm, name, network)
    if learns:
        algorithm.build_optimizers()
    else:
        algorithm.descend = lambda loss: loss.backward()


def set_state(algorithm: Any, **values: Tensor | float) -> None:
    """Copy values into state by name; `queue__labels` is the queue's `labels`. Plain numbers are set."""
    for name, value in values.items():
        owner, _, last = name.rpartition("__")
        holder = getattr(algorithm, owner) if owner else algorithm
        place = getattr(holder, last)
        if isinstance(place, Tensor):
            place.copy_(torch.as_tensor(value))
        else:
            setattr(holder, last, value)


def get_state(algorithm: Any, name: str) -> Any:
    """Return state by name, as `set_state` names it."""
    for part in name.split("__"):
        algorithm = getattr(algorithm, part)
    return algorithm


def at_step(algorithm: Any, step: int) -> None:
    """Let the next update be step number `step`, counted from 0."""
    algorithm.steps_done = step


def batch_of(
    candidates: Tensor,
    views: Mapping[str, Tensor] | Tensor,
    index: Tensor | None = None,
    second: Batch | None = None,
) -> Batch:
    """Return a batch; one tensor is every view, and without an index its rows are the first examples."""
    given = dict.fromkeys(VIEWS, views) if isinstance(views, Tensor) else views
    rows = torch.arange(len(candidates)) if index is None else index
    return Batch(rows, candidates, given, second)


def evaluate(algorithm: Any, outputs: Any, batch: Batch) -> tuple[dict[str, Tensor], Any]:
    """Return the losses for given outputs of the passes, and the gradient of what the step would minimise."""
    several = isinstance(outputs, tuple)
    leaves = [part.detach().clone().requires_grad_() for part in (outputs if several else (outputs,))]
    losses = dict(algorithm.losses(tuple(leaves) if several else leaves[0], batch))
    objective = losses.get("objective", losses["loss"])
    gradients = torch.autograd.grad(objective.sum(), leaves, allow_unused=True)
    return losses, gradients if several else gradients[0]


def loss_of(algorithm: Any, logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the loss of a batch with these logits."""
    return algorithm.losses(logits, batch_of(candidates, logits))["loss"]


def losses_of_rows(algorithm: Any, logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the loss of each row, as a batch of its own (B,)."""
    rows = [loss_of(algorithm, logits[[i]], candidates[[i]]) for i in range(len(logits))]
    return torch.stack(rows)


# Small networks and queues, so that a test takes a moment.
SMALL = {"feat_dim": 8, "moco_queue": 40}


def start(
    name: str, *, batch_size: int = 16, train_size: int = 64, images: bool = False, **hparams: Any
) -> Session:
    """Start a run on random examples, tabular or images: 64 of them make an epoch of four updates."""
    dataset = make_examples(train_size, sets="ambiguous", images=images)
    tested = AlgorithmUnderTest(find_algorithm(name))
    return tested.start(
        dataset, batch_size=batch_size, hparams={**own_hparams(tested.entry.name, SMALL), **hparams}
    )


def answer_by_labels(item: Any, annotator: Any, label: Any, n_items: int, n_classes: int) -> Answers:
    """Return answers of one class each."""
    sets = np.asarray(label)[:, None] == np.arange(n_classes)
    return Answers(np.asarray(item), np.asarray(annotator), sets, n_items)


def build_fitted(
    cls: type[FittedAlgorithm],
    features: np.ndarray,
    candidates: np.ndarray,
    seed: int = 0,
    answers: Answers | None = None,
    **hparams: Any,
) -> Any:
    """Build a method fitted in rounds, with defaults for the hyperparameters that are not given."""
    own = {parameter.name: parameter.default for parameter in cls.card.hyperparameters}
    assert set(hparams) <= set(own)
    algorithm = cls(np.shape(features), np.asarray(candidates), {**own, **hparams})
    algorithm.seed = seed
    algorithm.attach_inputs(GivenInputs(torch.from_numpy(np.asarray(features, dtype=np.float64))))
    if answers is not None:
        algorithm.attach_answers(answers)
    return algorithm


def rounds(algorithm: FittedAlgorithm) -> Iterator[float]:
    """Prepare, then make the rounds; yield the loss of each."""
    algorithm.update()
    for _ in range(algorithm.rounds):
        yield float(algorithm.update()["loss"])


def fit(algorithm: FittedAlgorithm) -> FittedAlgorithm:
    """Make all rounds."""
    assert np.isfinite(list(rounds(algorithm))).all()
    return algorithm


def predict(algorithm: FittedAlgorithm, features: np.ndarray) -> np.ndarray:
    """Return logits as an array."""
    return algorithm.predict(torch.from_numpy(np.asarray(features, dtype=np.float64))).numpy()
