"""Departures of the holistic algorithms and of those for noisy candidate sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from plench.algorithms import Batch, able, alim, dirk, pico_plus, valen
from plench.algorithms.able import ABLE
from plench.algorithms.alim import ALIM
from plench.algorithms.crdpll import CRDPLL
from plench.algorithms.dirk import DIRK
from plench.algorithms.fredis import FREDIS
from plench.algorithms.parts.contrast import BASE_TEMPERATURE, instance_contrast
from plench.algorithms.parts.views import pass_views
from plench.algorithms.pico import PiCO
from plench.algorithms.pico_plus import PiCOPlus
from plench.algorithms.valen import VALEN
from tests.departures.table import EpochLosses, SecondPass, departure, start_of_epoch


@departure("ABLE", "look up the anchor's confidences by its position")
class MisreadABLE(ABLE):
    """Weights of positives come from the confidences of the first examples of the training set."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Weigh by position in the batch instead of by example."""
        first = self.get_buffer("confidence")[: len(batch)]
        weigh = able.weigh_positives
        with patch.object(able, "weigh_positives", lambda _, *rest: weigh(first, *rest)):
            return super().losses(outputs, batch)


@departure("CRDPLL", "repeats all passes after the optimiser step")
class SecondPassCRDPLL(SecondPass, CRDPLL):
    """The confidence comes from passes after the step."""


@departure("CRDPLL", "two strong views, exponents 1/3")
class ThreeViewCRDPLL(CRDPLL):
    """One more view in the sum of divergences."""

    def passes(self, batch: Batch) -> Tensor:
        """Pass the strong view twice."""
        return pass_views(self.network, batch.weak, batch.strong, batch.strong)


@departure("CRDPLL", "λ per epoch")
class EpochCRDPLL(EpochLosses, CRDPLL):
    """The weight moves at the start of an epoch."""


@departure("PiCO", "`prot_start` in epochs, φ per epoch")
class EpochPiCO(PiCO):
    """φ moves at the start of an epoch."""

    def move_confidence(self, index: Tensor, targets: Tensor) -> Tensor:
        """Let the step be the first of its epoch."""
        with start_of_epoch(self):
            return super().move_confidence(index, targets)


@departure("DIRK", "random reals in the candidate rows and distributions")
class RandomQueueDIRK(DIRK):
    """Empty slots may be positives."""

    def setup(self, candidates: Tensor) -> None:
        """Draw what the empty queue holds."""
        super().setup(candidates)
        self.queue["distributions"].copy_(torch.rand_like(self.queue["distributions"]))
        self.queue["candidates"].copy_(torch.rand_like(self.queue["candidates"]))


@departure("DIRK", "adds 1e-20 to the non-candidates' mass")
class GuardedDIRK(DIRK):
    """The target of non-candidates vanishes where their mass is tiny."""

    def losses(self, outputs: tuple[Tensor, Tensor, Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Rectify with the constant."""
        with patch.object(dirk, "masked_softmax", self.restrict):
            return super().losses(outputs, batch)

    @staticmethod
    def restrict(logits: Tensor, mask: Tensor) -> Tensor:
        """Return p restricted to the mask, over its mass and the constant."""
        kept = logits.softmax(-1) * mask
        return kept / (kept.sum(-1, keepdim=True) + 1e-20)


@departure("VALEN", "replaces the encoder by a copy of the network")
class FrozenVALEN(VALEN):
    """The optimiser does not hold the encoder's parameters."""

    def build_optimizers(self) -> None:
        """Let Adam train network and decoder."""
        super().build_optimizers()
        trained = [*self.network.parameters(), *self.decoder.parameters()]
        self.optimizer = valen.build_adam(trained, self.hparams)


@departure("VALEN", "features with batch norm in training mode")
class TrainingModeVALEN(VALEN):
    """A feature depends on the rows that pass with it."""

    def end_warm_up(self) -> None:
        """Leave the mode as it is, and the running averages as they were."""
        with patch.object(valen.nn.Module, "eval", lambda module: module):
            super().end_warm_up()


@departure("VALEN", "SGD in the main phase")
class SgdVALEN(VALEN):
    """One kind of optimiser for both phases."""

    def build_optimizers(self) -> None:
        """Train all networks by SGD."""
        super().build_optimizers()
        (group,) = self.warm_up_optimizer.param_groups
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.optimizer = torch.optim.SGD(trained, lr=group["lr"], momentum=0.9)  # type: ignore[assignment]


@departure("VALEN", "a separately initialised encoder on tables")
class OwnEncoderVALEN(VALEN):
    """The encoder starts from weights of its own."""

    def end_warm_up(self) -> None:
        """Put the encoder's own weights back."""
        own = {name: value.clone() for name, value in self.encoder.state_dict().items()}
        super().end_warm_up()
        self.encoder.load_state_dict(own)


@departure("VALEN", "the graph of a table from its raw features")
class RawGraphVALEN(VALEN):
    """Neighbours by the inputs themselves."""

    @torch.no_grad()
    def end_warm_up(self) -> None:
        """Find the neighbours among the inputs."""
        super().end_warm_up()
        assert self.inputs is not None
        rows = self.inputs.original(0, len(self.inputs)).flatten(1)
        self.neighbours.copy_(valen.find_nearest_rows(rows, self.hparams["knn"]))


@departure("VALEN", "weight 1 on the reconstruction of inputs on small tables")
class FullReconstructionVALEN(VALEN):
    """The inputs' term has the weight 1 instead of 0.01."""

    def losses(self, outputs: tuple[Tensor, ...], batch: Batch) -> Mapping[str, Tensor]:
        """Multiply the term."""
        reconstruct = valen.reconstruct

        def weigh(*args: Tensor) -> valen.Reconstruction:
            terms = reconstruct(*args)
            return terms._replace(inputs=terms.inputs / valen.SMALL)

        with patch.object(valen, "reconstruct", weigh):
            return super().losses(outputs, batch)


# Noisy ----------------------------------------------------------------------------------------------------


@departure("ALIM", "never moves its step counter")
class StoppedALIM(ALIM):
    """The step counter never moves."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take the first step, again and again."""
        logged = super().update(minibatches)
        self.steps_done = 0
        self.margin_count = 0
        return logged


@departure("ALIM", "finds epochs by a remainder of a fraction")
class FractionALIM(ALIM):
    """An epoch starts only where a whole number of steps has made it."""

    def renew_importance(self) -> None:
        """Look for a remainder of 0."""
        with patch.object(alim, "starts_epoch", lambda step, n, size: step >= 1 and step % (n / size) == 0):
            super().renew_importance()

    def remember_margins(self, scores: Tensor, candidates: Tensor) -> None:
        """Make room for an epoch that does not end."""
        self.margins = torch.cat([self.margins, torch.zeros_like(scores[:, 0])])
        super().remember_margins(scores, candidates)


@departure("ALIM", "λ without a cap")
class UncappedALIM(ALIM):
    """λ may exceed 1: labels outside then weigh more than candidates."""

    def renew_importance(self) -> None:
        """Choose the quantile itself."""

        def quantile(margins: Tensor, noise_rate: float) -> float:
            return float(margins.sort().values[min(int(len(margins) * noise_rate), len(margins) - 1)])

        with patch.object(alim, "choose_importance", quantile):
            super().renew_importance()


@departure("ALIM", "pseudo-labels without λ")
class ClosedALIM(ALIM):
    """Pseudo-labels are always candidates."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor | float]:
        """Weigh logits as if λ were 0, prototype scores as they are."""
        weigh, calls = alim.weigh_labels, []

        def closed(scores: Tensor, candidates: Tensor, importance: float) -> Tensor:
            calls.append(importance)
            return weigh(scores, candidates, importance if len(calls) > 1 else 0.0)

        with patch.object(alim, "weigh_labels", closed):
            return super().losses(outputs, batch)


@departure("ALIM", "scores without temperature")
class LukewarmALIM(ALIM):
    """Prototype scores are the cosines themselves."""

    def compare_with_prototypes(self, queries: Tensor) -> Tensor:
        """Take the temperature out beforehand."""
        return super().compare_with_prototypes(queries) * BASE_TEMPERATURE


@departure("ALIM", "instance contrast before `prot_start`")
class InstanceALIM(ALIM):
    """The contrast starts as PiCO's."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor | float]:
        """Contrast by instance in the first steps."""
        if self.steps_done >= self.hparams["prot_start"]:
            return super().losses(outputs, batch)

        def by_instance(queries: Tensor, keys: Tensor, _: Tensor, queue: Tensor, *rest: Any) -> Tensor:
            return instance_contrast(queries, keys, queue, BASE_TEMPERATURE)

        with patch.object(alim, "supervised_contrast", by_instance):
            return super().losses(outputs, batch)


@departure("ALIM", "`noise_rate` 0 picks the smallest margin")
class SmallestMarginALIM(ALIM):
    """λ opens the sets although no noise is assumed."""

    def renew_importance(self) -> None:
        """Let 0 be the smallest rate that is not 0."""
        self.hparams["noise_rate"] = self.hparams["noise_rate"] or 1e-12
        super().renew_importance()


@departure("PiCO_plus", "never moves its step counter")
class StoppedPiCOPlus(PiCOPlus):
    """The step counter never moves."""

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take the first step, again and again."""
        logged = super().update(minibatches)
        self.steps_done = 0
        return logged


@departure("PiCO_plus", "would select at every step")
class RestlessPiCOPlus(PiCOPlus):
    """Selection at every step after the warm-up."""

    def selects_now(self) -> bool:
        """Select whenever there are main losses."""
        return bool(self.steps_done >= self.hparams["prot_start"])


@departure("PiCO_plus", "the mean over an empty set of examples is not a number")
class NanPiCOPlus(PiCOPlus):
    """0/0 where no example is of a kind."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Divide by the number of examples."""
        with patch.object(pico_plus, "mean_over", lambda v, chosen: (v * chosen).sum(-1) / chosen.sum(-1)):
            return super().losses(outputs, batch)


@departure("FREDIS", "computes corrected sets, and lets losses and targets read the original ones")
class UnusedFREDIS(FREDIS):
    """Corrected candidate sets are computed, but losses and revisions read the original ones."""

    def correct(self) -> Any:
        """Correct the sets, and forget all but the targets."""
        original = self.candidates.clone()
        done = super().correct()
        self.candidates.copy_(original)
        return done


@departure("FREDIS", "corrects at the end of the first step")
class HastyFREDIS(FREDIS):
    """The first step ends with a correction in which all rows take part."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Correct after step 0 too."""
        super().revise(logits, batch)
        if self.steps_done == 0:
            self.visited.fill_(True)
            self.correct()


@departure("FREDIS", "the test for an empty row compares a method with 0")
class EmptyFREDIS(FREDIS):
    """A set that becomes empty stays so, and its targets are 0/0."""

    def correct(self) -> Any:
        """Empty again what was put back."""
        done = super().correct()
        self.candidates[done.put_back] = False
        self.targets[done.put_back] = torch.nan
        return done


@departure("FREDIS", "one view; two more passes after the step")
class OneViewFREDIS(SecondPass, FREDIS):
    """The weak view alone; targets and posterior from a pass after the step."""

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the weak view."""
        return declared[:1]
