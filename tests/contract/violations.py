"""Sound algorithms, one that violates each check of the contract, and ones with odd state."""

import copy
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms import Algorithm, Batch, FittedAlgorithm, LossAlgorithm, register
from plench.algorithms.base import build_adam, build_network
from plench.contract.under_test import make_examples
from plench.hparams import Hyperparameter


@register("Sound")
class Sound(LossAlgorithm):
    """The likelihood of the candidate set."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        inside = logits.masked_fill(~batch.candidates, float("-inf"))
        return (logits.logsumexp(-1) - inside.logsumexp(-1)).mean()


@register("SoundRounds", passes="none", hyperparameters=(Hyperparameter("rounds", 2, "rounds", at_least=1),))
class SoundRounds(FittedAlgorithm):
    """The mean of each class's inputs, weighted by the targets; the nearest mean wins."""

    def fit_round(self, number: int) -> float:
        weights = self.soft_targets / np.maximum(self.soft_targets.sum(0), 1)
        self.fitted = {"means": weights.T @ self.features}
        return 0.0

    def score(self, features: np.ndarray) -> np.ndarray:
        return -np.sqrt(np.square(features[:, None] - self.fitted["means"]).sum(2))


VIOLATIONS: dict[str, type[Algorithm]] = {}
SOUND: dict[str, type[Algorithm]] = {}
UNSOUND: dict[str, type[Algorithm]] = {}


def listed_in(table: dict[str, type[Algorithm]]) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Return a decorator that registers a class and lists it by its name."""

    def add(cls: type[Algorithm]) -> type[Algorithm]:
        if "card" not in vars(cls):
            register(cls.__name__)(cls)
        table[cls.__name__] = cls
        return cls

    return add


violates = listed_in(VIOLATIONS)  # the check of the class's name
passes = listed_in(SOUND)  # which the checks must let pass
fails = listed_in(UNSOUND)  # which the check of resuming must refuse


@violates
class trains_and_predicts(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return self.network(x).argmax(-1)


@violates
@register("trains_in_a_stack", stacked=True)
class trains_in_a_stack(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        inside = logits.masked_fill(~batch.candidates, float("-inf"))
        losses = (logits.logsumexp(-1) - inside.logsumexp(-1)).mean(-1)
        return losses if losses.dim() == 0 else losses.flip(0) / 2  # each run gets another's loss


@violates
class learns_weights(Sound):
    def update(self, minibatches: Batch) -> Mapping[str, Tensor]:
        return {"loss": self.loss(self.network(minibatches.weak), minibatches).detach()}


@violates
class predicts_each_example_alone(Sound):
    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits - logits.mean(0)


@violates
class trains_on_built_in_data(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits[:, :6], batch)


@violates
class trains_on_images(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.reshape(-1, 6))


@violates
@register("declares_hyperparameters", hyperparameters=(Hyperparameter("share", 2.0, "a share", at_most=1),))
class declares_hyperparameters(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.share = self.hparams["share"]


@violates
class leaves_arguments_alone(Sound):
    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        train_givenY /= train_givenY.sum(1, keepdims=True)


@violates
class prints_nothing(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        print("training")
        print("training", file=sys.stderr)
        return super().loss(logits, batch)


@violates
@register("uses_declared_views", views=("weak", "strong"))
class uses_declared_views(Sound):
    pass


@violates
class sees_no_true_label(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.notes = {"found": [make_examples(sets="ambiguous").labels]}


@violates
class seeds_nothing_global(Sound):
    def setup(self, candidates: Tensor) -> None:
        torch.manual_seed(0)


@violates
class trains_on_single_candidates(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (batch.candidates.sum(-1) - 1).sum()


@violates
class trains_on_full_sets(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (~batch.candidates).sum()


@violates
class trains_without_a_candidate(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.register_buffer("rarity", 1 / candidates.float().mean(0))


@violates
class trains_without_a_label(Sound):
    def setup(self, candidates: Tensor) -> None:
        known = candidates[candidates.sum(1) == 1].float()
        self.register_buffer("rarity", 1 / known.mean(0))


@violates
class trains_on_two_classes(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (logits.shape[1] - 2)


@violates
class trains_on_fewer_examples_than_a_batch(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.epochs = self.hparams["max_steps"] / (self.num_data // self.hparams["batch_size"])


@violates
class trains_on_short_batches(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.register_buffer("weights", torch.ones(min(self.hparams["batch_size"], self.num_data), 1))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits * self.weights, batch)


@violates
class survives_huge_logits(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -(logits.softmax(-1) * batch.candidates).sum(-1).log().mean()


@violates
class repeats_with_the_same_seed(Sound):
    def setup(self, candidates: Tensor) -> None:
        generator = torch.Generator()
        generator.seed()
        self.register_buffer("start", torch.rand(3, generator=generator))


@violates
class differs_with_another_seed(Sound):
    def setup(self, candidates: Tensor) -> None:
        for parameter in self.network.parameters():
            torch.nn.init.constant_(parameter, 0.01)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return sum((parameter.square().sum() for parameter in self.network.parameters()), torch.zeros(()))


@violates
class is_not_disturbed_by_evaluation(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.calls = 0

    def predict(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().predict(x)


@violates
class resumes_exactly(Sound):
    transient = ("done",)

    def setup(self, candidates: Tensor) -> None:
        self.done = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.done += 1
        return super().loss(logits, batch) * self.done


@violates
class holds_only_what_can_be_saved(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.numbers = itertools.count()


@violates
class lists_its_state(Sound):
    def setup(self, candidates: Tensor) -> None:
        kept = torch.zeros(len(candidates))
        self.read = lambda: kept


@violates
class optimizes_what_has_a_gradient(Sound):
    """Two networks that learn from each other's mean, of which one is forgotten."""

    def build_networks(self, input_shape: Sequence[int]) -> None:
        super().build_networks(input_shape)
        self.second = build_network(input_shape, self.num_classes, self.hparams)

    def build_optimizers(self) -> None:
        self.optimizer = build_adam(self.network.parameters(), self.hparams)

    def passes(self, batch: Batch) -> Tensor:
        return (self.network(batch.weak) + self.second(batch.weak)) / 2


@violates
class moves_with_the_module(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.confidence = {"now": [candidates.float()]}


@violates
class keeps_single_precision(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.per_example("confidence", candidates.double())


@violates
class does_not_loop_over_examples(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        penalty = torch.stack([row.square().mean() for row in logits]).mean()
        return super().loss(logits, batch) + penalty


@violates
class does_not_loop_over_classes(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        penalty = sum((logits[:, k].square().mean() for k in range(logits.shape[1])), torch.zeros(()))
        return super().loss(logits, batch) + penalty


@violates
class does_not_wait_for_the_device(Sound):
    def update(self, minibatches: Batch) -> Mapping[str, float]:
        return {"loss": super().update(minibatches)["loss"].item()}


def register_rounds(name: str) -> Any:
    """Return the decorator that registers a method of two rounds."""
    return register(name, passes="none", hyperparameters=SoundRounds.card.hyperparameters)


@violates
@register_rounds("leaves_single_candidates_alone")
class leaves_single_candidates_alone(SoundRounds):
    def fit_round(self, number: int) -> float:
        self.set_targets(np.full_like(self.soft_targets, 1 / self.num_classes))
        return super().fit_round(number)


@violates
@register_rounds("predicts_any_input")
class predicts_any_input(SoundRounds):
    def score(self, features: np.ndarray) -> np.ndarray:
        return super().score(features / np.linalg.norm(features, axis=1, keepdims=True))


@violates
@register_rounds("repeats_every_round")
class repeats_every_round(SoundRounds):
    def fit_round(self, number: int) -> float:
        super().fit_round(number)
        self.fitted["means"] += torch.rand(self.fitted["means"].shape).double().numpy()
        return 0.0


# Odd ways to keep state ------------------------------------------------------------------------------------

# Updates after which the odd thing happens: between the cuts of the check.
LATER = 4


class Counting(Sound):
    """Counts its updates, and changes in an odd way after some of them."""

    def setup(self, candidates: Tensor) -> None:
        self.done = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.done += 1
        if self.done == LATER:
            self.change()
        return super().loss(logits, batch)

    def change(self) -> None:
        """Happens once."""


class Phase(Enum):
    """What the algorithm is doing."""

    WARM_UP = "warm-up"
    MAIN = "main"


@passes
class EnumPhase(Counting):
    """Keeps its phase as a member of an enum, and compares it by identity."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.phase = Phase.WARM_UP

    def change(self) -> None:
        self.phase = Phase.MAIN

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) * (2.0 if self.phase is Phase.MAIN else 1.0)


@passes
class NumpyNumbers(Counting):
    """Keeps numbers of numpy, whose type decides how they are rounded."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.scale, self.coarse, self.steps = np.float64(1), np.float32(1), np.int64(0)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.scale = self.scale * np.float64(0.9)
        self.coarse = self.coarse * np.float32(0.9)
        self.steps += 1
        return super().loss(logits, batch) * float(self.scale + self.coarse + self.steps / np.int64(7))


@passes
class LateAlias(Counting):
    """Gives a buffer a second name in the middle of training, and changes it by that name."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.register_buffer("weight", torch.ones(()))
        self.register_buffer("spare", torch.ones(()))
        self.current = self.spare

    def change(self) -> None:
        self.current = self.weight
        self.body = self.network

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        loss = super().loss(logits, batch)
        if self.done > LATER:
            assert self.body is self.network
        self.current.mul_(0.8)
        return loss * self.weight


@passes
class QuietDropout(Counting):
    """Puts its dropout to evaluation mode in the middle of training."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.dropout = nn.Dropout(0.5)

    def change(self) -> None:
        self.dropout.eval()

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(self.dropout(logits), batch)


@passes
class NumpyLosses(Counting):
    """Logs numbers of numpy, some of them not in every update."""

    def update(self, minibatches: Batch) -> Mapping[str, Any]:
        loss = super().update(minibatches)["loss"].numpy()
        logged = {"loss": np.float32(loss), "twice": np.float64(2 * loss), "array": loss.copy()}
        return {**logged, "count": np.int64(self.done)} if self.done % 2 else logged


@fails
class LazyTeacher(Counting):
    """Makes a part of itself in the middle of training."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.teacher: nn.Module | None = None

    def change(self) -> None:
        self.teacher = copy.deepcopy(self.network)


@fails
class CountsOutside(Counting):
    """Keeps its schedule in an iterator, which nobody can save."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.numbers = itertools.count(1)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / next(self.numbers)


class Labelled(Tensor):
    """A tensor of its author's own type."""


@register("OwnTensors")
class OwnTensors(Counting):
    """Keeps a tensor of its own type, which a safe file cannot hold."""

    def setup(self, candidates: Tensor) -> None:
        super().setup(candidates)
        self.marks = torch.zeros(3).as_subclass(Labelled)


class Quitter(Sound):
    """Ends the process."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor]:
        raise SystemExit("enough")


class Broken(Algorithm):
    """Cannot be built."""

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.width = hparams["widht"]


LOGGED: dict[str, Any] = {
    "nothing": None,
    "a number": 0.5,
    "no loss": {"accuracy": 1.0},
    "a word": {"loss": "low"},
    "several numbers": {"loss": torch.zeros(()), "per_class": torch.zeros(3)},
    "a list": {"loss": 1.0, "history": [1.0, 2.0]},
}


def logging_of(logged: Any) -> type[LossAlgorithm]:
    """Return a class whose updates return this."""

    @register("Logging")
    class Logging(Sound):
        def update(self, minibatches: Batch) -> Any:
            super().update(minibatches)
            return logged

    return Logging
