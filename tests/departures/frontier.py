"""Departures of the methods of 2025 and 2026 from the authors' code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from plench.algorithms import cel, vipll
from plench.algorithms.base import Batch
from plench.algorithms.cel import CEL
from plench.algorithms.parts.contrast import to_unit_rows
from plench.algorithms.parts.targets import onehot_like
from plench.algorithms.vipll import EPSILON, VIPLL, Generator, Terms, concentrate
from tests.departures.table import departure
from tests.departures.vanilla import divide_by_sum

SAMPLES = 10


def sample_terms(logits: Tensor, weights: Tensor, likelihoods: Tensor, prior: Tensor) -> Terms:
    """Estimate the four expectations from samples of the label distribution."""
    sampled = Dirichlet(concentrate(logits), validate_args=False).rsample((SAMPLES,))
    logs = ((sampled + EPSILON).log(), (prior + EPSILON).log(), likelihoods, (weights + EPSILON).log())
    return Terms(*((sampled * log).sum(-1).mean() for log in logs))


@departure("VIPLL", "expectations by ten samples of the Dirichlet distribution")
class SampledVIPLL(VIPLL):
    """The label loss is an estimate."""

    def losses(self, outputs: tuple[Tensor, ...], batch: Batch) -> Mapping[str, Tensor]:
        """Draw samples."""
        with patch.object(vipll, "infer_terms", sample_terms):
            return super().losses(outputs, batch)


@departure("VIPLL", "the likelihood of all K labels")
class AllLabelsVIPLL(VIPLL):
    """Labels outside the set have a likelihood of their own."""

    def passes(self, batch: Batch) -> tuple[Tensor | None, ...]:
        """Let every label be a candidate of the likelihood."""
        ours: Any = Generator.log_likelihoods

        def of_all(generator: Generator, units: Tensor, candidates: Tensor, noise: Tensor, _: int) -> Tensor:
            everything = torch.ones_like(candidates)
            found: Tensor = ours(generator, units, everything, noise, everything.numel())
            return found

        with patch.object(Generator, "log_likelihoods", of_all):
            return super().passes(batch)


@departure("VIPLL", "start σ anew in the last epoch of the pre-training")
class LateSigmaVIPLL(VIPLL):
    """σ is the error of the last epoch alone."""

    def revise(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        """Forget σ when the last epoch starts."""
        per_epoch = self.num_data // self.hparams["batch_size"]
        step, last = self.steps_done, self.first_main_step - per_epoch
        self.steps_done = 0 if step == last else step
        super().revise(outputs, batch)
        self.steps_done = step


@departure("CEL", "write the sum of all examples to the prototype of every label predicted in the batch")
class OneVectorCEL(CEL):
    """The prototypes of all labels predicted become one vector."""

    def move_prototypes(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add the same sum to each."""
        chosen = onehot_like(labels, embeddings[..., 0])
        total = (chosen[..., None] * embeddings).sum((-3, -2))
        predicted = chosen.amax(-2)[..., None]
        self.prototypes.copy_(to_unit_rows((1 - predicted) * self.prototypes + predicted * total))


@departure("CEL", "take the largest of logits·S as the label")
class EscapingCEL(CEL):
    """A label outside the set is taken where all candidates are negative."""

    def losses(self, outputs: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Multiply by the set."""
        with patch.object(cel, "best_candidate", lambda scores, sets: (scores * sets).argmax(-1)):
            return super().losses(outputs, batch)


@departure("CEL", "targets as a ratio of probabilities")
class RatioCEL(CEL):
    """A row whose candidates underflow becomes NaN."""

    def revise(self, outputs: Tensor, batch: Batch) -> None:
        """Divide by the sum."""
        with patch.object(cel, "masked_softmax", divide_by_sum):
            super().revise(outputs, batch)
