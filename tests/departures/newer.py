"""Departures of the algorithms that the public benchmark does not have: from the authors' code or paper."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

from torch import Tensor

from plench.algorithms import Batch, gfws, papi
from plench.algorithms.cc import candidate_nll
from plench.algorithms.crosel import CroSel
from plench.algorithms.gfws import GFWS
from plench.algorithms.papi import PaPi
from plench.algorithms.parts.views import pass_together
from plench.algorithms.records import RECORDS
from plench.algorithms.scarce import SCARCE
from tests.departures.table import EpochLosses, departure
from tests.departures.vanilla import divide_by_sum


def with_candidates(batch: Batch, candidates: Tensor) -> Batch:
    """Return a batch without views that has other candidates."""
    return Batch(batch.index, candidates, {}, batch.second)


@departure("PaPi", "and a ratio of probabilities")
class RatioPaPi(PaPi):
    """A row whose candidates underflow becomes NaN."""

    def move_confidence(self, batch: Batch, logits: Tensor) -> Tensor:
        """Divide by the sum."""
        with patch.object(papi, "masked_softmax", divide_by_sum):
            return super().move_confidence(batch, logits)


@departure("PaPi", "φ, γ and α per epoch")
class EpochPaPi(EpochLosses, PaPi):
    """The schedules move at the start of an epoch."""


@departure("GFWS", "three views, two of them strong")
class ThreeViewGFWS(GFWS):
    """One more view in the mean."""

    def passes(self, batch: Batch) -> Tensor:
        """Pass the strong view twice."""
        return pass_together(self.network, batch.weak, batch.strong, batch.strong)


@departure("GFWS", "$y$ as a ratio of probabilities")
class RatioGFWS(GFWS):
    """A row whose candidates underflow becomes NaN."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Divide by the sum."""
        with patch.object(gfws, "masked_softmax", divide_by_sum):
            return super().losses(logits, batch)


@departure("GFWS", r"its derivation gives $-\log\sum_{k\in S}p_k$")
class PaperGFWS(GFWS):
    """The supervised part is that of CC."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Put CC's loss in the place of the push."""
        with patch.object(gfws, "push_non_candidates", lambda z, sets: candidate_nll(z, sets).mean(-1)):
            return super().losses(logits, batch)


@departure("SCARCE", "take one complementary label of each example")
class OneLabelSCARCE(SCARCE):
    """All labels but one count as candidates."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Keep the first complementary label of each example."""
        wrong = ~batch.candidates
        first = wrong & (wrong.cumsum(-1) == 1)
        return super().loss(logits, with_candidates(batch, ~first))


@departure("RECORDS", "push down the labels whose stored confidence is exactly 0")
class UnderflowRECORDS(RECORDS):
    """A candidate whose confidence underflowed is pushed down."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Read the sets off the confidence."""
        support = self.rows("confidence", batch.index) > 0
        return super().losses(outputs, with_candidates(batch, support))


@departure("RECORDS", "1e-9 in both normalisers of the revision")
class GuardedRECORDS(RECORDS):
    """A target may sum to less than 1."""

    def revise(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> None:
        """Normalise with the constant, over all labels and then over the candidates."""
        super().revise(outputs, batch)
        logits, prior = outputs
        kept = (logits - prior).mean(0).softmax(-1) * batch.candidates
        self.write_rows("confidence", batch.index, kept / (kept.sum(-1, keepdim=True) + 1e-9))


@departure("CroSel", "overwrite the sharpened targets by unsharpened ones")
class UnsharpenedCroSel(CroSel):
    """`sharpen_T` has no effect."""

    def setup(self, candidates: Tensor) -> None:
        """Let the temperature be 1."""
        super().setup(candidates)
        self.hparams["sharpen_T"] = 1.0
