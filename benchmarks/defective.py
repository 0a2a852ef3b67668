"""Our algorithms with one defect of the public benchmark's code put in, each a line or two, for defects.py.

None of this is part of the package.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from plench.algorithms import Algorithm, able
from plench.algorithms.able import ABLE
from plench.algorithms.alim import ALIM
from plench.algorithms.base import build_adam
from plench.algorithms.fredis import FREDIS
from plench.algorithms.mcl import GCE_EXPONENT, MCL_GCE, MCL_MSE
from plench.algorithms.parts.targets import gce_of_classes, masked_softmax, mse_of_classes
from plench.algorithms.pico_plus import PiCOPlus
from plench.algorithms.pop import POP
from plench.algorithms.valen import VALEN
from plench.batch import Batch


def variant(cls: type[Algorithm]) -> type[Algorithm]:
    """Give a variant the card of the sound algorithm it derives from, under its own name."""
    cls.card = dataclasses.replace(cls.card, name=cls.__name__, aliases=())
    return cls


@variant
class StoppedALIM(ALIM):
    """The step counter never moves."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take the first step, again and again."""
        logged = super().update(minibatches)
        self.steps_done = 0
        self.margin_count = 0
        return logged


@variant
class StoppedPiCOPlus(PiCOPlus):
    """The step counter never moves."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take the first step, again and again."""
        logged = super().update(minibatches)
        self.steps_done = 0
        return logged


@variant
class UnusedFREDIS(FREDIS):
    """Corrected candidate sets are computed, but losses and revisions read the original ones."""

    def correct(self) -> None:
        """Correct the sets, and forget all but the targets."""
        original = self.candidates.clone()
        super().correct()
        self.candidates.copy_(original)


@variant
class FrozenVALEN(VALEN):
    """The optimiser does not hold the encoder's parameters."""

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        trained = [*self.network.parameters(), *self.decoder.parameters()]
        self.optimizer = build_adam(trained, self.hparams)


@variant
class MisreadABLE(ABLE):
    """Weights of positives come from the confidences of the first examples of the training set."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Weigh by position in the batch instead of by example."""
        weigh = able.weigh_positives

        def misread(confidence: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
            return weigh(self.confidence[: len(labels)], candidates, labels)

        with patch.object(able, "weigh_positives", misread):
            return super().update(minibatches)


def reversed_risk(class_losses: Tensor, candidates: Tensor) -> Tensor:
    """Divide by the complementary losses where the paper multiplies by them."""
    inside = (class_losses * candidates).sum(-1)
    outside = (class_losses * ~candidates).sum(-1)
    others = (~candidates).sum(-1)
    term = (candidates.sum(-1) - 1) / (others * outside + 1e-20)
    return torch.where(others > 0, inside - term, 0.0).mean(-1)


@variant
class ReversedMCLGCE(MCL_GCE):
    """The complementary term's gradient is reversed."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk with generalised cross entropy."""
        return reversed_risk(gce_of_classes(logits, GCE_EXPONENT), batch.candidates)


@variant
class ReversedMCLMSE(MCL_MSE):
    """The complementary term's gradient is reversed."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk with squared error."""
        return reversed_risk(mse_of_classes(logits), batch.candidates)


@variant
class UndonePOP(POP):
    """Revision brings removed candidates back."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renormalise over the original candidates."""
        super().revise(logits, batch)
        self.confidence.index_copy_(0, batch.index, masked_softmax(logits, batch.candidates))
