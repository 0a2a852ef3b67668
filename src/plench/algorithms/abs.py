"""ABS_MAE and ABS_GCE: the average of a bounded loss over the candidates."""

from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import gce_of_classes, mae_of_classes
from plench.hparams import Constant, Hyperparameter


def average_over_candidates(class_losses: Tensor, candidates: Tensor) -> Tensor:
    """Return, for each row, the mean of the class losses (…, B, K) over the candidates."""
    mask = candidates.to(class_losses.dtype)
    return (class_losses * mask).sum(-1) / mask.sum(-1)


@register("ABS_MAE", stacked=True, family="vanilla PLL", venue="TPAMI 2024", cite="lv2024on")
class ABS_MAE(LossAlgorithm):
    """Average the mean absolute error over the candidates.

    All candidates count equally and for ever; since the loss is bounded, the wrong ones among them do little
    harm, and the label that the sets of similar examples share prevails.

    Objective: (1/b) Σ_i (1/|S_i|) Σ_{j∈S_i} (2 − 2 p_ij).
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows of the average absolute error."""
        return average_over_candidates(mae_of_classes(logits), batch.candidates).mean(-1)


@register(
    "ABS_GCE",
    stacked=True,
    family="vanilla PLL",
    venue="TPAMI 2024",
    hyperparameters=(
        Hyperparameter(
            "q", 0.7, "exponent: towards 0 cross entropy, 1 half of MAE", Constant(0.7), above=0, at_most=1
        ),
    ),
    cite="lv2024on",
)
class ABS_GCE(LossAlgorithm):
    """Average the generalised cross entropy over the candidates.

    The exponent q sets the loss between cross entropy, which learns fast, and absolute error, which bears
    wrong candidates.

    Objective: (1/b) Σ_i (1/|S_i|) Σ_{j∈S_i} (1 − p_ij^q)/q.
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows of the average generalised cross entropy."""
        class_losses = gce_of_classes(logits, self.hparams["q"])
        return average_over_candidates(class_losses, batch.candidates).mean(-1)
