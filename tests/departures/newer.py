"""Departures of the algorithms after the paper."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

from torch import Tensor, nn

from plench.algorithms import gfws, papi, records
from plench.algorithms.crosel import CroSel, Passes
from plench.algorithms.gfws import GFWS
from plench.algorithms.papi import Outputs, PaPi
from plench.algorithms.parts.targets import candidate_nll
from plench.algorithms.parts.views import pass_together
from plench.algorithms.records import RECORDS
from plench.algorithms.scarce import SCARCE
from plench.batch import Batch
from tests.departures.table import departure


def divide_by_mass(logits: Tensor, candidates: Tensor) -> Tensor:
    """Restrict probabilities to the candidates by a plain ratio."""
    kept = logits.softmax(-1) * candidates
    return kept / kept.sum(-1, keepdim=True)


@departure("PaPi", "the logarithm of a softmax, and a ratio of probabilities")
class PlainPaPi(PaPi):
    """Probabilities are divided and logarithms taken as they are."""

    def losses(self, outputs: Outputs, batch: Batch) -> Mapping[str, Tensor]:
        """Do without log space."""

        def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
            return -(targets * logits.softmax(-1).log()).sum(-1).mean(-1)

        with (
            patch.object(papi, "masked_softmax", divide_by_mass),
            patch.object(papi, "soft_cross_entropy", cross_entropy),
        ):
            return super().losses(outputs, batch)


@departure("PaPi", "φ, γ and α per epoch")
class EpochPaPi(PaPi):
    """Momenta and weight move at the start of an epoch."""

    def losses(self, outputs: Outputs, batch: Batch) -> Mapping[str, Tensor]:
        """Let the step be the first of its epoch."""
        step, per_epoch = self.steps_done, max(1, self.num_data // self.hparams["batch_size"])
        self.steps_done = step // per_epoch * per_epoch
        losses = super().losses(outputs, batch)
        self.steps_done = step
        return losses


@departure("GFWS", "three views, two of them strong")
class ThreeViewGFWS(GFWS):
    """The weak view's share of the cross entropy is a third."""

    def passes(self, batch: Batch) -> Tensor:
        """Pass the strong view twice."""
        return pass_together(self.network, batch.weak, batch.strong, batch.strong)


@departure("GFWS", "$y$ as a ratio of probabilities")
class RatioGFWS(GFWS):
    """The posterior is 0/0 where all candidates underflow."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Divide by the candidates' mass."""
        with patch.object(gfws, "masked_softmax", divide_by_mass):
            return super().losses(logits, batch)


@departure("GFWS", "its derivation gives")
class DerivedGFWS(GFWS):
    """The supervised part makes the set as a whole likely."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Take CC's loss instead of the push."""
        with patch.object(
            gfws, "push_non_candidates", lambda weak, candidates: candidate_nll(weak, candidates).mean(-1)
        ):
            return super().losses(logits, batch)


@departure("SCARCE", "take one complementary label of each example")
class SingleSCARCE(SCARCE):
    """Of the labels outside a set only the first is known to be wrong."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Let all other labels be candidates."""
        outside = ~batch.candidates
        first = outside & (outside.cumsum(-1) == 1)
        return super().loss(logits, Batch(batch.index, ~first, {}))


@departure("RECORDS", "push down the labels whose stored confidence is exactly 0")
class ZeroRECORDS(RECORDS):
    """A candidate whose confidence has underflowed is pushed down."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Tell candidates by their confidence."""
        believed = self.rows("confidence", batch.index) > 0
        return super().losses(outputs, Batch(batch.index, believed, {}))


@departure("RECORDS", "1e-9 in both normalisers of the revision")
class GuardedRECORDS(RECORDS):
    """A target sums to far less than 1 where the views nearly exclude all candidates."""

    def revise(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> None:
        """Divide by the candidates' mass plus a constant."""

        def agree(logits: Tensor, candidates: Tensor) -> Tensor:
            kept = logits.softmax(-1).prod(0) ** (1 / len(logits)) * candidates
            return kept / (kept.sum(-1, keepdim=True) + 1e-9)

        with patch.object(records, "agree_on_target", agree):
            super().revise(outputs, batch)


@departure("CroSel", "overwrite the sharpened targets")
class UnsharpenedCroSel(CroSel):
    """The temperature of the targets has no effect."""

    def pass_network(self, network: nn.Module, batch: Batch) -> Passes:
        """Take targets of temperature 1."""
        asked = self.hparams["sharpen_T"]
        self.hparams["sharpen_T"] = 1.0
        made = super().pass_network(network, batch)
        self.hparams["sharpen_T"] = asked
        return made
