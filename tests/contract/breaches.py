"""One sound algorithm, and for each check of the contract one that breaks it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import Algorithm, FittedAlgorithm, LossAlgorithm, register
from plench.batch import Batch
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


BREACHES: dict[str, type[Algorithm]] = {}


def breaks(cls: type[Algorithm]) -> type[Algorithm]:
    """Register a class as breaking the check of its name."""
    if "card" not in vars(cls):
        register(cls.__name__)(cls)
    BREACHES[cls.__name__] = cls
    return cls


@breaks
class trains_and_predicts(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return self.network(x).argmax(-1)


@breaks
@register("trains_in_a_stack", stacked=True)
class trains_in_a_stack(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        inside = logits.masked_fill(~batch.candidates, float("-inf"))
        losses = (logits.logsumexp(-1) - inside.logsumexp(-1)).mean(-1)
        return losses if losses.dim() == 0 else losses.flip(0) / 2  # each run gets another's loss


@breaks
class learns_weights(Sound):
    def update(self, minibatches: Batch) -> Mapping[str, Tensor]:
        return {"loss": self.loss(self.network(minibatches.weak), minibatches).detach()}


@breaks
class predicts_each_example_alone(Sound):
    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits - logits.mean(0)


@breaks
class trains_on_built_in_data(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits[:, :6], batch)


@breaks
class trains_on_images(Sound):
    def predict(self, x: Tensor) -> Tensor:
        return super().predict(x.reshape(-1, 6))


@breaks
@register("declares_hyperparameters", hyperparameters=(Hyperparameter("share", 2.0, "a share", at_most=1),))
class declares_hyperparameters(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.share = self.hparams["share"]


@breaks
class leaves_arguments_alone(Sound):
    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        train_givenY /= train_givenY.sum(1, keepdims=True)


@breaks
class prints_nothing(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        print("training")
        return super().loss(logits, batch)


@breaks
@register("uses_declared_views", views=("weak", "strong"))
class uses_declared_views(Sound):
    pass


@breaks
class sees_no_true_label(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.notes = {"found": [make_examples(sets="ambiguous").labels]}


@breaks
class seeds_nothing_global(Sound):
    def setup(self, candidates: Tensor) -> None:
        torch.manual_seed(0)


@breaks
class trains_on_single_candidates(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (batch.candidates.sum(-1) - 1).sum()


@breaks
class trains_on_full_sets(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (~batch.candidates).sum()


@breaks
class trains_without_a_candidate(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.register_buffer("rarity", 1 / candidates.float().mean(0))


@breaks
class trains_without_a_label(Sound):
    def setup(self, candidates: Tensor) -> None:
        known = candidates[candidates.sum(1) == 1].float()
        self.register_buffer("rarity", 1 / known.mean(0))


@breaks
class trains_on_two_classes(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits, batch) / (logits.shape[1] - 2)


@breaks
class trains_on_fewer_examples_than_a_batch(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.epochs = self.hparams["max_steps"] / (self.num_data // self.hparams["batch_size"])


@breaks
class trains_on_short_batches(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.register_buffer("weights", torch.ones(min(self.hparams["batch_size"], self.num_data), 1))

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().loss(logits * self.weights, batch)


@breaks
class survives_huge_logits(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -(logits.softmax(-1) * batch.candidates).sum(-1).log().mean()


@breaks
class repeats_with_the_same_seed(Sound):
    def setup(self, candidates: Tensor) -> None:
        generator = torch.Generator()
        generator.seed()
        self.register_buffer("start", torch.rand(3, generator=generator))


@breaks
class differs_with_another_seed(Sound):
    def setup(self, candidates: Tensor) -> None:
        for parameter in self.network.parameters():
            torch.nn.init.constant_(parameter, 0.01)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return sum((parameter.square().sum() for parameter in self.network.parameters()), torch.zeros(()))


@breaks
class is_not_disturbed_by_evaluation(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.calls = 0

    def predict(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().predict(x)


@breaks
class resumes_exactly(Sound):
    transient = ("done",)

    def setup(self, candidates: Tensor) -> None:
        self.done = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        self.done += 1
        return super().loss(logits, batch) * self.done


@breaks
class holds_only_what_can_be_saved(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.numbers = itertools.count()


@breaks
class lists_its_state(Sound):
    def setup(self, candidates: Tensor) -> None:
        kept = torch.zeros(len(candidates))
        self.read = lambda: kept


@breaks
class moves_with_the_module(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.confidence = {"now": [candidates.float()]}


@breaks
class keeps_single_precision(Sound):
    def setup(self, candidates: Tensor) -> None:
        self.per_example("confidence", candidates.double())


@breaks
class does_not_loop_over_examples(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        penalty = torch.stack([row.square().mean() for row in logits]).mean()
        return super().loss(logits, batch) + penalty


@breaks
class does_not_loop_over_classes(Sound):
    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        penalty = sum((logits[:, k].square().mean() for k in range(logits.shape[1])), torch.zeros(()))
        return super().loss(logits, batch) + penalty


@breaks
class does_not_wait_for_the_device(Sound):
    def update(self, minibatches: Batch) -> Mapping[str, float]:
        return {"loss": super().update(minibatches)["loss"].item()}


def register_rounds(name: str) -> Any:
    """Return the decorator that registers a method of two rounds."""
    return register(name, passes="none", hyperparameters=SoundRounds.card.hyperparameters)


@breaks
@register_rounds("leaves_single_candidates_alone")
class leaves_single_candidates_alone(SoundRounds):
    def fit_round(self, number: int) -> float:
        self.set_targets(np.full_like(self.soft_targets, 1 / self.num_classes))
        return super().fit_round(number)


@breaks
@register_rounds("predicts_any_input")
class predicts_any_input(SoundRounds):
    def score(self, features: np.ndarray) -> np.ndarray:
        return super().score(features / np.linalg.norm(features, axis=1, keepdims=True))


@breaks
@register_rounds("repeats_every_round")
class repeats_every_round(SoundRounds):
    def fit_round(self, number: int) -> float:
        super().fit_round(number)
        self.fitted["means"] += torch.rand(self.fitted["means"].shape).double().numpy()
        return 0.0
