"""IDGP: a decompositional generation process of candidate sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, build_adam, build_network, first_step_of, register
from plench.algorithms.parts.targets import masked_softmax, uniform_over
from plench.hparams import Choice, Hyperparameter


class Terms(NamedTuple):
    """The terms of a network's loss: fit to its own state, fit given the other network, KL from its state."""

    fit: Tensor
    given_other: Tensor
    divergence: Tensor

    def total(self, after_warm_up: Tensor | float, kl_weight: Tensor | float) -> Tensor:
        """Return fit + given_other + λ·divergence, or the fit alone while `after_warm_up` is 0."""
        return self.fit + after_warm_up * (self.given_other + kl_weight * self.divergence)


def classifier_terms(logits: Tensor, confidence: Tensor, generator_weights: Tensor) -> Terms:
    """Return the terms of the classifier f; confidence and weights are constants."""
    log_probs = logits.log_softmax(-1)
    fit = -sum_over_batch(confidence * log_probs)
    return Terms(
        fit=fit,
        given_other=-sum_over_batch(generator_weights * log_probs),
        divergence=sum_over_batch(torch.xlogy(confidence, confidence)) + fit,
    )


def generator_terms(
    logits: Tensor, addition: Tensor, candidates: Tensor, classifier_weights: Tensor
) -> Terms:
    """Return the terms of the generator g, one sigmoid per class; addition and weights are constants."""
    log_added, log_left_out = F.logsigmoid(logits), F.logsigmoid(-logits)
    fit = -sum_over_batch(addition * log_added + (1 - addition) * log_left_out)
    of_set = torch.where(candidates, log_added, log_left_out)
    return Terms(
        fit=fit,
        given_other=-sum_over_batch(classifier_weights * log_left_out + of_set),
        divergence=sum_over_batch(torch.xlogy(addition, addition) - addition * log_added),
    )


@register(
    "IDGP",
    stacked=True,
    family="vanilla PLL",
    venue="ICLR 2023",
    passes="1 of each of two networks",
    state="confidence, addition N×K; second network",
    hyperparameters=(
        Hyperparameter(
            "warm_up_epoch",
            10,
            "length of the warm-up in epochs of n/B updates",
            Choice(5, 10, 15, 20),
            at_least=0,
        ),
    ),
    logs={"generator_loss": "the loss of the second network, which models the added labels"},
    public_fault="an epsilon in the public code silently switches off one of the method's losses",
    cite="qiao2023decompositional",
)
class IDGP(LossAlgorithm):
    """Model how a candidate set comes about: a classifier draws the true label, a generator adds wrong ones.

    The classifier f (softmax) and the generator g (one sigmoid per class) have networks of their own; after
    a warm-up on their stored beliefs, each is also fitted with weights that it gets from the other.

    Objective: L_f + L_f|g + λ·KL_f for f, L_g + L_g|f + λ·KL_g for g (L_f and L_g alone during warm-up). L_f
    and L_f|g are cross entropies of f against its confidence d and against the weights that g gives to the
    candidates, L_g and L_g|f binary cross entropies of g; λ rises from 0 to 1 over a fifth of the run.
    """

    def build_networks(self, input_shape: Sequence[int]) -> None:
        """Build the classifier f as `network`, and the generator g."""
        super().build_networks(input_shape)
        self.generator = build_network(input_shape, self.num_classes, self.hparams)

    def build_optimizers(self) -> None:
        """Build an Adam for each network."""
        self.optimizer = build_adam(self.network.parameters(), self.hparams)
        self.generator_optimizer = build_adam(self.generator.parameters(), self.hparams)

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate, and from the candidates as the labels added."""
        self.per_example("confidence", uniform_over(candidates))
        self.per_example("addition", candidates.to(torch.get_default_dtype()))
        batch_size, epochs = self.hparams["batch_size"], self.hparams["warm_up_epoch"]
        self.warm_up = warm_up_updates(self.num_data, batch_size, epochs)
        self.ramp = max(1, self.hparams["max_steps"] // 5)  # updates in which the KL terms gain weight

    def passes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits (B, K) of the classifier and of the generator."""
        return self.network(batch.weak), self.generator(batch.weak)

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Return both networks' losses; their sum is minimised."""
        confidence, addition = self.rows("confidence", batch.index), self.rows("addition", batch.index)
        of_classifier, of_generator = both_terms(*outputs, confidence, addition, batch.candidates)
        after_warm_up = self.steps_done >= self.warm_up
        weight = kl_weight(self.steps_done, self.warm_up, self.ramp)
        loss = of_classifier.total(after_warm_up, weight)
        generator_loss = of_generator.total(after_warm_up, weight)
        return {"loss": loss, "generator_loss": generator_loss, "objective": loss + generator_loss}

    def descend(self, loss: Tensor) -> None:
        """Take a step of each network on the sum; neither's loss has a gradient in the other's parameters."""
        self.generator_optimizer.zero_grad(set_to_none=True)
        super().descend(loss)
        self.generator_optimizer.step()

    def revise(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> None:
        """Renew what the two networks believe of the batch's candidates."""
        logits, generator_logits = outputs
        self.write_rows("confidence", batch.index, masked_softmax(logits, batch.candidates))
        self.write_rows("addition", batch.index, generator_logits.sigmoid() * batch.candidates)

    def phases(self) -> Mapping[str, int]:
        """Return the update at which the networks start to teach each other."""
        return {"end of warm-up": self.warm_up}


def both_terms(
    logits: Tensor, generator_logits: Tensor, confidence: Tensor, addition: Tensor, candidates: Tensor
) -> tuple[Terms, Terms]:
    """Return the terms of f and of g; each sees the other's outputs as constants."""
    with torch.no_grad():
        generator_weights = weigh_by_generator(generator_logits, confidence, candidates)
        classifier_weights = masked_softmax(logits, candidates)
    return (
        classifier_terms(logits, confidence, generator_weights),
        generator_terms(generator_logits, addition, candidates, classifier_weights),
    )


def weigh_by_generator(generator_logits: Tensor, confidence: Tensor, candidates: Tensor) -> Tensor:
    """Return how likely each candidate is the true one by the generator g.

    The candidate of the highest confidence is taken for true and the others for added: flipping one of them
    turns its odds around, so the weights are a masked softmax of +z at the former and −z at the others.
    """
    believed = believed_label(confidence, candidates)
    signed = (-generator_logits).scatter(-1, believed, generator_logits.gather(-1, believed))
    return masked_softmax(signed, candidates)


def believed_label(confidence: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidate (…, B, 1) of the highest confidence, the first of equals."""
    return (confidence * candidates).argmax(-1, keepdim=True)


def sum_over_batch(values: Tensor) -> Tensor:
    """Return the sum over classes, averaged over rows: (…, B, K) → (…)."""
    return values.sum((-2, -1)) / values.shape[-2]


def warm_up_updates(num_data: int, batch_size: int, warm_up_epochs: int) -> int:
    """Return the length of the warm-up, ⌈warm_up_epochs·n/B⌉ updates; B is at most n."""
    return first_step_of(warm_up_epochs, num_data, min(batch_size, num_data))


def kl_weight(update: int, warm_up: Tensor | int, ramp: int) -> Tensor | float:
    """Return λ at an update counted from 0; the ramp starts where the warm-up ends, for runs (R,) theirs."""
    risen = (update - warm_up) / ramp
    return risen.clamp(0, 1) if isinstance(risen, Tensor) else min(max(risen, 0.0), 1.0)
