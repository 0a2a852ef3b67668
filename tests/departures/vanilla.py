"""Departures of the algorithms on partial and complementary labels with one network and one view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from plench.algorithms import Algorithm, Batch, LossAlgorithm, idgp, nn_ga
from plench.algorithms.abs import ABS_GCE
from plench.algorithms.cavl import CAVL, activation_value
from plench.algorithms.cc import CC
from plench.algorithms.forward import Forward
from plench.algorithms.idgp import IDGP
from plench.algorithms.l_w import L_W
from plench.algorithms.lws import LWS
from plench.algorithms.mcl import EXP, GCE_EXPONENT, MCL_GCE, MCL_MSE
from plench.algorithms.nn_ga import GA, NN
from plench.algorithms.op_w import OP_W
from plench.algorithms.parts.targets import (
    gce_of_classes,
    masked_softmax,
    mean_over_pairs,
    mse_of_classes,
    onehot_like,
)
from plench.algorithms.pc import PC
from plench.algorithms.pop import POP
from plench.algorithms.proden import PRODEN
from plench.algorithms.scl import SCL_EXP, SCL_NL
from tests.departures.table import SecondPass, departure


@departure("PRODEN", "revises the targets from a second forward pass")
class SecondPassPRODEN(SecondPass, PRODEN):
    """Targets come from a pass after the step, as in RC."""


def divide_by_sum(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return p restricted to the candidates over its sum, which may be 0/0."""
    kept = logits.softmax(-1) * candidates
    return kept / kept.sum(-1, keepdim=True)


@departure("PRODEN", "divides by a sum of probabilities")
class DividingPRODEN(PRODEN):
    """A row whose candidates underflow becomes NaN."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Divide by the sum."""
        self.write_rows("confidence", batch.index, divide_by_sum(logits, batch.candidates))


@departure("PRODEN", 'take the support from "target > 0"')
class ForgetfulPRODEN(PRODEN):
    """A candidate whose probability underflowed once is lost."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Keep to the labels that had a target."""
        support = self.rows("confidence", batch.index) > 0
        self.write_rows("confidence", batch.index, divide_by_sum(logits, support))


@departure("CAVL", "multiply $v$ by the 0/1 candidate vector")
class EscapingCAVL(CAVL):
    """A non-candidate has value 0, and wins where every candidate's is negative."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Choose among all labels by the product."""
        with torch.no_grad():
            values = activation_value(self.network(batch.weak)) * batch.candidates
        self.write_rows("confidence", batch.index, onehot_like(values.argmax(-1), values))


@departure("POP", "revises over the original candidates")
class UndonePOP(POP):
    """Revision brings removed candidates back."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renormalise over the original candidates."""
        super().revise(logits, batch)
        self.write_rows("confidence", batch.index, masked_softmax(logits, batch.candidates))


@departure("POP", "purifies after every epoch from `warm_up` on")
class HastyPOP(POP):
    """Purification comes every epoch, after its first update."""

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Close the epoch before at the first update of one; the window is emptied by its length alone."""
        left = self.rows("purified", batch.index)
        self.write_rows("confidence", batch.index, masked_softmax(logits, left))
        epoch, position = divmod(self.steps_done, self.updates_per_epoch)
        if position == 0:
            self.window += self.confidence
            self.purify(torch.tensor(epoch >= self.hparams["warm_up"]))
            self.window *= (epoch + 1) % self.hparams["rollWindow"] != 0


@departure("POP", "a second pass, and all N rows renormalised")
class SecondPassPOP(SecondPass, POP):
    """Targets come from a pass after the step."""


@departure("ABS_GCE", "takes the power directly")
class DirectABS_GCE(ABS_GCE):
    """The power's derivative is infinite where a probability underflows."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Average (1 − p^q)/q over the candidates."""
        q, mask = self.hparams["q"], batch.candidates
        return (((1 - logits.softmax(-1) ** q) / q * mask).sum(-1) / mask.sum(-1)).mean()


@departure("ABS_GCE", "sum over the batch")
class SummedABS_GCE(ABS_GCE):
    """The sum over the batch."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Multiply the mean by the number of rows."""
        return super().loss(logits, batch) * len(logits)


@departure("EXP", "divides by zero for a row with every label")
class DividingEXP(EXP):
    """The weight (K − 1)/0 of a row with every label is infinite."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Weigh without regard to such rows."""
        mass = (logits.softmax(-1) * batch.candidates).sum(-1)
        return ((logits.shape[-1] - 1) / (~batch.candidates).sum(-1) * (-mass).exp()).mean()


@departure("EXP", "factor 2K − 2, sum over the batch")
class DerivedEXP(EXP):
    """The factor of the derivation."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Multiply by 2 and by the number of rows."""
        return 2 * len(logits) * super().loss(logits, batch)


def reversed_risk(class_losses: Tensor, candidates: Tensor) -> Tensor:
    """Divide by the complementary losses where the paper multiplies by them (rows)."""
    inside = (class_losses * candidates).sum(-1)
    outside = (class_losses * ~candidates).sum(-1)
    return inside - (candidates.sum(-1) - 1) / ((~candidates).sum(-1) * outside + 1e-20)


def reversed_where_known(class_losses: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean of the reversed risk, 0 for rows with every label."""
    return torch.where(candidates.all(-1), 0.0, reversed_risk(class_losses, candidates)).mean(-1)


@departure("MCL_GCE", "divides by the sum of complementary losses")
class ReversedMCLGCE(MCL_GCE):
    """The complementary term's gradient is reversed."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk with generalised cross entropy."""
        return reversed_where_known(gce_of_classes(logits, GCE_EXPONENT), batch.candidates)


@departure("MCL_GCE", "a coefficient of (K−1)/1e-20")
class FullSetMCLGCE(MCL_GCE):
    """A row with every label has an enormous weight."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk, such rows included."""
        return reversed_risk(gce_of_classes(logits, GCE_EXPONENT), batch.candidates).mean(-1)


@departure("MCL_MSE", "divides by the sum of complementary losses")
class ReversedMCLMSE(MCL_MSE):
    """The complementary term's gradient is reversed."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk with squared error."""
        return reversed_where_known(mse_of_classes(logits), batch.candidates)


@departure("MCL_MSE", "a coefficient of (K−1)/1e-20")
class FullSetMCLMSE(MCL_MSE):
    """A row with every label has an enormous weight."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the reversed risk, such rows included."""
        return reversed_risk(mse_of_classes(logits), batch.candidates).mean(-1)


@departure("CC", "the logarithm of a sum of probabilities")
class PlainCC(CC):
    """The logarithm of a sum that may be 0."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return −log Σ p over the candidates."""
        return -(logits.softmax(-1) * batch.candidates).sum(-1).log().mean()


@departure("LWS", "masked exponentials in place of a sigmoid")
class MaskedLWS(LWS):
    """A sigmoid made of two exponentials, one for each sign: its derivative at 0 is 0."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Hold logits of exactly 0 constant."""
        return super().loss(torch.where(logits == 0, logits.detach(), logits), batch)


@departure("IDGP", "keeps the product of sigmoids and adds 1e-12")
class GuardedIDGP(IDGP):
    """Weights from the generator vanish for larger sets."""

    guard = 1e-12

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Weigh by products, with a constant in the denominator."""
        with patch.object(idgp, "weigh_by_generator", self.weigh):
            return super().losses(outputs, batch)

    def weigh(self, generator_logits: Tensor, confidence: Tensor, candidates: Tensor) -> Tensor:
        """Multiply the sigmoids of the added labels, the believed one and candidate j exchanged."""
        believed = onehot_like((confidence * candidates).argmax(-1), confidence) > 0
        added = generator_logits.sigmoid()
        present = torch.where(candidates & ~believed, added, 1).prod(-1, keepdim=True)
        own = torch.where(believed, added, 1 - added)
        other = torch.where(believed, 1 - added, added)
        products = torch.where(candidates, present * own / other, 0)
        return products / (products.sum(-1, keepdim=True) + self.guard)


@departure("IDGP", "the product without a guard")
class ProductIDGP(GuardedIDGP):
    """0/0 for sets whose product underflows."""

    guard = 0.0


@departure("IDGP", "log(p + 1e-12), log(1.0000001 − u)")
class ConstantsIDGP(IDGP):
    """Constants inside the logarithms."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Put log(p + 1e-12) and log(1.0000001 − u) in the place of the exact logarithms."""
        with (
            patch.object(Tensor, "log_softmax", lambda z, dim: (z.softmax(dim) + 1e-12).log()),
            patch.object(idgp.F, "logsigmoid", self.log_sigmoid),
        ):
            return super().losses(outputs, batch)

    @staticmethod
    def log_sigmoid(values: Tensor) -> Tensor:
        """Return log(1.0000001 − σ(−v)), which is near log σ(v)."""
        return (1.0000001 - (-values).sigmoid()).log()


@departure("IDGP", "λ counts from update 0")
class EarlyIDGP(IDGP):
    """λ has risen part of the way when the warm-up ends."""

    def losses(self, outputs: tuple[Tensor, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        """Count λ from the first update."""
        with patch.object(idgp, "kl_weight", lambda update, warm_up, ramp: min(update / ramp, 1.0)):
            return super().losses(outputs, batch)


# Complementary labels -------------------------------------------------------------------------------------


def without_guard(loss: Tensor, candidates: Tensor) -> Tensor:
    """Return a mean over pairs as if it were divided by their number even where that is 0."""
    pairs = (~candidates).sum()
    return loss / (pairs / pairs.clamp(min=1))


def divide_by_pairs(sound: type[LossAlgorithm]) -> type[Algorithm]:
    """Return an algorithm whose loss is 0/0 in a batch without pairs."""

    def loss(self: Any, logits: Tensor, batch: Batch) -> Tensor:
        return without_guard(sound.loss(self, logits, batch), batch.candidates)

    cls = type(f"Nan{sound.__name__}", (sound,), {"loss": loss, "__module__": __name__})
    return departure(sound.card.name, "NaN loss for a batch without pairs")(cls)


WITHOUT_PAIRS = [divide_by_pairs(sound) for sound in (PC, Forward, SCL_EXP, SCL_NL, L_W, OP_W)]


@departure("OP_W", "add 1 to 1/b before the softmax")
class ShiftedOP_W(OP_W):
    """A common shift, which a softmax ignores."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Add 1 to the reciprocals."""
        liked, disliked = logits.softmax(-1) + 1e-18, (-logits).softmax(-1) + 1e-18
        weights = liked * (1 + disliked.reciprocal()).softmax(-1) + 1e-6
        return mean_over_pairs(-weights * disliked.log(), batch.candidates)


@departure("PC", "compare a label with itself as well")
class SelfPC(PC):
    """The comparison of a label with itself adds (K − 1)/2."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Add (K − 1) σ(z_j − z_j) for each pair."""
        itself = (logits.shape[-1] - 1) * (logits - logits).sigmoid()
        return super().loss(logits, batch) + mean_over_pairs(itself, batch.candidates)


@departure("PC", "leaves out the factor K − 1 and the constants")
class BarePC(PC):
    """The sum of comparisons alone."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Take constants and factor away."""
        classes = logits.shape[-1]
        constant = classes - 1 - classes * (classes - 1) / 2
        return (super().loss(logits, batch) - constant) / (classes - 1)


@departure("Forward", "take the logarithm of a product that underflows")
class PlainForward(Forward):
    """The logarithm of a probability that may be 0."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return −log of the product with the uniform transition matrix."""
        classes = logits.shape[-1]
        transition = (1 - torch.eye(classes, dtype=logits.dtype)) / (classes - 1)
        return mean_over_pairs(-(logits.softmax(-1) @ transition).log(), batch.candidates)


@departure("L_W", "adds 1e-6 before the logarithm")
class GuardedL_W(L_W):
    """libcll's constant."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return −(1 + w) log(v + 1e-6)."""
        u = 1 - logits.softmax(-1)
        losses = -(1 + u / (logits.shape[-1] - 1)) * (u.softmax(-1) + 1e-6).log()
        return mean_over_pairs(losses, batch.candidates)


def risks_with_wrong_prior(logits: Tensor, candidates: Tensor, prior: Tensor) -> nn_ga.ClassRisks:
    """Return r_k = Σ_j π_k A_jk − (K − 1) π_k A_kk: the prior of k where that of j belongs."""
    pairs = (~candidates).to(logits.dtype)
    counts = pairs.sum(-2)
    means = pairs.mT @ -logits.log_softmax(-1) / counts.clamp(min=1)[..., None]
    own = means.diagonal(dim1=-2, dim2=-1)
    return nn_ga.ClassRisks(prior * means.sum(-2) - (logits.shape[-1] - 1) * prior * own, counts)


@departure("NN", "multiplies the whole mean vector of class j by the prior vector")
class WrongPriorNN(NN):
    """The prior of the other class."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Clip the risks with the wrong prior."""
        with patch.object(nn_ga, "class_risks", risks_with_wrong_prior):
            return super().loss(logits, batch)


@departure("GA", "the wrong prior factor of NN")
class WrongPriorGA(GA):
    """The prior of the other class."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Correct the risks with the wrong prior."""
        with patch.object(nn_ga, "class_risks", risks_with_wrong_prior):
            return super().losses(logits, batch)


@departure("GA", "reports the ascent objective as the loss")
class ReportingGA(GA):
    """What is minimised is what is logged."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Log the objective."""
        losses = super().losses(logits, batch)
        return {**losses, "loss": losses["objective"]}


@departure("GA", "no factor $n_k$")
class PaperGA(GA):
    """Ascent without the number of pairs."""

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Let every class count once."""
        risks, _ = nn_ga.class_risks(logits, batch.candidates, self.prior)
        objective = nn_ga.correct_by_ascent(risks, torch.ones_like(risks)).objective
        return {**super().losses(logits, batch), "objective": objective}
