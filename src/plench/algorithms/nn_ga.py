"""NN and GA: the unbiased risk of complementary labels, clipped (NN) or corrected by gradient ascent (GA)."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import over_rows
from plench.hparams import Constant, Hyperparameter

WRONG_PRIOR = "the public code multiplies by the whole prior vector instead of by one class's prior"


class ClassRisks(NamedTuple):
    """The risk (…, K) of each class in a batch and the number (…, K) of pairs with that class."""

    risks: Tensor
    counts: Tensor


def class_risks(logits: Tensor, candidates: Tensor, prior: Tensor) -> ClassRisks:
    """Return r_k = Σ_j π_j A_jk − (K − 1) π_k A_kk, A_jk the mean of −log p_k over the pairs with label j.

    Each r_k is a sum over the batch of −log p_ik with constant coefficients, so A itself is never formed. A
    class without a pair has a row of zeros in A.
    """
    pairs = (~candidates).to(logits.dtype)
    counts = pairs.sum(-2)
    share = (prior / counts.clamp(min=1))[..., None, :]
    own = share * pairs
    coefficients = own.sum(-1, keepdim=True) - (logits.shape[-1] - 1) * own
    return ClassRisks(-(coefficients * logits.log_softmax(-1)).sum(-2), counts)


class Ascent(NamedTuple):
    """What GA minimises in a step, and whether the step is one of ascent."""

    objective: Tensor
    is_ascent: Tensor


def correct_by_ascent(risks: Tensor, counts: Tensor) -> Ascent:
    """Return Σ_k r_k if no class risk is negative, else −Σ_k n_k min(r_k, 0), which pushes those up."""
    is_ascent = (risks < 0).any(-1)
    pushed_up = -(counts * risks.clamp(max=0)).sum(-1)
    return Ascent(torch.where(is_ascent, pushed_up, risks.sum(-1)), is_ascent)


class ComplementaryRisk(LossAlgorithm):
    """What NN and GA share: the share of each class among the complementary labels."""

    prior: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Count the complementary labels of the training split, once; without any, all shares are 0."""
        counts = (~candidates).sum(-2).to(torch.get_default_dtype())
        self.register_buffer("prior", counts / counts.sum(-1, keepdim=True).clamp(min=1))


@register(
    "NN",
    stacked=True,
    family="vanilla CLL",
    venue="ICML 2019",
    state="prior K",
    hyperparameters=(
        Hyperparameter("beta", 0.0, "class risks are clipped from below at −beta", Constant(0.0), at_least=0),
    ),
    cite="ishida2019complementary",
    public_fault=WRONG_PRIOR,
)
class NN(ComplementaryRisk):
    """Estimate each class's risk without bias from complementary labels, and clip what is negative.

    Under uniform complementary labels a class's risk cannot be negative in expectation; where its estimate
    falls below zero the class has been overfitted, and it gives no gradient.

    Objective: Σ_k max(r_k, −β), r_k = Σ_j π_j A_jk − (K − 1) π_k A_kk, A_jk the batch mean of −log p_k over
    the examples with complementary label j, π the share of each class among complementary labels.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the sum of the clipped class risks."""
        risks, _ = class_risks(logits, batch.candidates, self.prior)
        return risks.clamp(min=-over_rows(self.hparams["beta"], 1)).sum(-1)


@register(
    "GA",
    stacked=True,
    family="vanilla CLL",
    venue="ICML 2019",
    state="prior K",
    logs={"ascent": "1 in a step that pushes negative class risks up; its mean is the share of such steps"},
    cite="ishida2019complementary",
    public_fault=WRONG_PRIOR,
)
class GA(ComplementaryRisk):
    """Estimate each class's risk without bias, and undo by gradient ascent what has become negative.

    A step in which some class's risk is negative raises the negative risks and ignores the others. On data
    whose candidate sets are far from uniform nearly every step is of this kind, and accuracy falls below
    chance: that is the method.

    Objective: Σ_k r_k if every r_k ≥ 0, else −Σ_k n_k min(r_k, 0); r as in NN, n_k the number of pairs with
    label k in the batch. The loss reported is Σ_k r_k in both cases.
    """

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return the risk, and as the objective what descent or ascent minimises, as the risks decide."""
        risks, counts = class_risks(logits, batch.candidates, self.prior)
        objective, is_ascent = correct_by_ascent(risks, counts)
        return {"loss": risks.sum(-1), "ascent": is_ascent.to(risks.dtype), "objective": objective}
