"""The contract of an algorithm, and the short form in which most of them are written.

`Algorithm` is the contract of the paper: built from `(input_shape, train_givenY, hparams)`, it has
`update(minibatches)` and `predict(x)`. `LossAlgorithm` adds the network, the optimiser and the order of a
step, so that a method which is one loss (and perhaps a revision of per-example state) is one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from plench.batch import VIEWS, Batch
from plench.errors import UsageError
from plench.hparams import Hyperparameter
from plench.networks import Classifier, Featurizer

FAMILIES = ("vanilla PLL", "vanilla CLL", "holistic PLL", "noisy PLL", "third party")


@dataclass(frozen=True)
class AlgorithmCard:
    """What is known of an algorithm without running it. Lists, pages, records and reports read it."""

    name: str
    family: str
    venue: str = ""
    bibtex: str = ""
    views: tuple[str, ...] = ("weak",)
    second_batch: bool = False
    passes: str = "1"
    state: str = "none"
    hyperparameters: tuple[Hyperparameter, ...] = ()
    aliases: tuple[str, ...] = ()
    logs: Mapping[str, str] | None = None
    idea: str = ""


AnyAlgorithm = TypeVar("AnyAlgorithm", bound="type[Algorithm]")


def register(
    name: str,
    *,
    family: str = "third party",
    venue: str = "",
    bibtex: str = "",
    views: Sequence[str] = ("weak",),
    second_batch: bool = False,
    passes: str = "1",
    state: str = "none",
    hyperparameters: Sequence[Hyperparameter] = (),
    aliases: Sequence[str] = (),
    logs: Mapping[str, str] | None = None,
) -> Callable[[AnyAlgorithm], AnyAlgorithm]:
    """Attach a card to an algorithm class; the registry finds classes with a card by itself.

    `views` are the views its batches carry, `second_batch` asks for a second, independent batch per step,
    `passes` and `state` say in words what a step costs and keeps, `aliases` are other names with a notice,
    `logs` explains the numbers that `update` returns beside the loss.
    """
    for view in views:
        if view not in VIEWS:
            raise UsageError(f"algorithm {name}: unknown view {view!r}, known are {', '.join(VIEWS)}")
    if family not in FAMILIES:
        raise UsageError(f"algorithm {name}: unknown family {family!r}, known are {', '.join(FAMILIES)}")

    def attach(cls: AnyAlgorithm) -> AnyAlgorithm:
        idea = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        cls.card = AlgorithmCard(
            name=name,
            family=family,
            venue=venue,
            bibtex=bibtex.strip(),
            views=tuple(views),
            second_batch=second_batch,
            passes=passes,
            state=state,
            hyperparameters=tuple(hyperparameters),
            aliases=tuple(aliases),
            logs=logs,
            idea=idea,
        )
        return cls

    return attach


class TrainingInputs(Protocol):
    """All training inputs in order, without labels."""

    def __len__(self) -> int: ...

    def original(self, start: int, stop: int) -> Tensor:
        """Return the original view of the rows start … stop−1."""


class Algorithm(nn.Module):
    """The contract that the training loop relies on, as the paper shows it.

    `input_shape` is the shape (N, …) of the training features, `train_givenY` the candidate matrix (N, K) of
    the training split, `hparams` the configuration, which also holds `max_steps`. True labels never get here.
    """

    card: ClassVar[AlgorithmCard]
    transient: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.hparams = dict(hparams)
        self.num_data = int(input_shape[0])
        self.num_classes = int(train_givenY.shape[1])
        self.per_example_names: list[str] = []

    def per_example(self, name: str, values: Tensor) -> None:
        """Keep state with one row per training example as the attribute `name`.

        It is a buffer: it moves with the module and is in the checkpoint and in the memory figure. Models
        saved for prediction leave it out.
        """
        if values.shape[0] != self.num_data:
            raise ValueError(f"per-example state needs {self.num_data} rows, not {values.shape[0]}")
        self.register_buffer(name, values)
        self.per_example_names.append(name)

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch; return what to log, with the key `loss` among it."""
        raise NotImplementedError(f"{type(self).__name__} has no update(minibatches)")

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        raise NotImplementedError(f"{type(self).__name__} has no predict(x)")

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the declared views that a run with these hyperparameters needs: all, unless overridden."""
        return declared

    def attach_inputs(self, inputs: TrainingInputs) -> None:
        """Receive access to the training inputs, before the first update of a new or resumed run.

        Only for a method that needs a pass over all of them. Keep it under an attribute named in the class's
        `transient`, which checkpoints leave out.
        """

    def phases(self) -> Mapping[str, int]:
        """Return, by name, the update at which each later phase of the schedule starts (for notices)."""
        return {}


class LossAlgorithm(Algorithm):
    """One network, one Adam, one pass: a subclass says what the loss is and, if need be, what to revise.

    A step is: logits of the weak view, `loss`, backward, Adam, then `revise` with the logits of the same
    pass (those before the step).
    """

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.network = build_network(input_shape, self.num_classes, self.hparams)
        self.setup(torch.from_numpy(np.asarray(train_givenY) != 0))
        self.optimizer = build_adam(self.network.parameters(), self.hparams)

    def setup(self, candidates: Tensor) -> None:
        """Make the state, from the candidates (N, K) of the training split."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the scalar that the step minimises."""
        raise NotImplementedError(f"{type(self).__name__} has no loss(logits, batch)")

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Revise the state of the batch's examples after the step; `logits` are those from before it."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        logits = self.network(minibatches.weak)
        loss = self.loss(logits, minibatches)
        descend(self.optimizer, loss)
        self.revise(logits.detach(), minibatches)
        return {"loss": loss.detach()}

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        logits: Tensor = self.network(x)
        return logits


def build_network(input_shape: Sequence[int], num_classes: int, hparams: Mapping[str, Any]) -> nn.Sequential:
    """Build the featurizer that `hparams["model"]` names, with a linear classifier on top."""
    featurizer = Featurizer(input_shape, hparams)
    return nn.Sequential(featurizer, Classifier(featurizer.n_outputs, num_classes))


def build_adam(parameters: Iterable[nn.Parameter], hparams: Mapping[str, Any]) -> torch.optim.Adam:
    """Build the benchmark's optimiser: Adam with the weight decay added to the gradient."""
    return torch.optim.Adam(parameters, lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one optimiser step on a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
