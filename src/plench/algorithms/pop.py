"""POP: progressive purification of the candidate sets."""

from collections.abc import Mapping

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, register
from plench.algorithms.parts.targets import (
    masked_softmax,
    over_rows,
    restrict,
    soft_cross_entropy,
    uniform_over,
)
from plench.hparams import Choice, Hyperparameter, LogRange

# The threshold grows while it is below the first and a purification removes a smaller share than the second
# of the N·K entries; authors' constants.
THETA_CAP, FEW_REMOVED = 0.4, 1e-4
EPOCHS, SMALL = Choice(3, 4, 5, 6, 7), LogRange(-4.5, -2.5)


@register(
    "POP",
    stacked=True,
    family="vanilla PLL",
    venue="ICML 2023",
    cite="xu2023progressive",
    public_fault="in the public code purified labels return at the next visit, so purification has no effect",
    state="confidence, window N×K, purified candidates N×K bool",
    hyperparameters=(
        Hyperparameter(
            "rollWindow", 5, "epochs in a window of confidences and between purifications", EPOCHS, at_least=1
        ),
        Hyperparameter("warm_up", 20, "first epoch, from 0, that may purify", Choice(10, 15, 20), at_least=0),
        Hyperparameter(
            "theta", 1e-3, "first bound on a confidence relative to the best", SMALL, at_least=0, at_most=1
        ),
        Hyperparameter(
            "inc", 1e-3, "relative growth of theta when little was removed", SMALL, at_least=0, at_most=1.5
        ),
        Hyperparameter(
            "pop_interval",
            1000,
            "read by nothing: kept because the draws of the protocol include it",
            Choice(500, 1000, 1500, 2000),
        ),
    ),
    logs={
        "theta": "the removal threshold",
        "removed": "candidates removed so far, over the whole training split",
    },
)
class POP(LossAlgorithm):
    """Self-training as in PRODEN, with unlikely candidates removed for good every few epochs.

    A candidate goes when its confidence, summed over a window of epochs, falls below a threshold relative to
    the best candidate of its example; the threshold rises while little is removed.

    Objective: (1/b) Σ_i Σ_j −c_ij log p_ij, with c_i ← softmax of the logits over C_i after each visit, C ⊆ S
    the candidates that are left.
    """

    confidence: Tensor
    purified: Tensor
    window: Tensor
    theta: Tensor
    removed: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate and an empty window."""
        self.per_example("confidence", uniform_over(candidates))
        self.per_example("purified", candidates.clone())
        self.per_example("window", torch.zeros_like(self.confidence))
        self.register_buffer("theta", torch.tensor(float(self.hparams["theta"])))
        self.register_buffer("removed", torch.tensor(0))
        self.updates_per_epoch = max(1, self.num_data // self.hparams["batch_size"])  # the rest is dropped

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy against the stored confidence."""
        return soft_cross_entropy(logits, self.rows("confidence", batch.index))

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renormalise the pass's probabilities over the candidates left; close an epoch that ends."""
        left = self.rows("purified", batch.index)
        self.write_rows("confidence", batch.index, masked_softmax(logits, left))
        epoch, rest = divmod(self.steps_done + 1, self.updates_per_epoch)
        if rest == 0:
            # The confidences join the window; where it ends, it is purified by and emptied.
            epoch -= 1
            self.window += self.confidence
            ends = torch.as_tensor(epoch % self.hparams["rollWindow"] == 0, device=self.window.device)
            self.purify(ends & (epoch >= self.hparams["warm_up"]))
            self.window *= over_rows(~ends)

    def purify(self, due: Tensor) -> None:
        """Where `due`, remove candidates whose sum over the window is far below that of their row's best.

        The best candidate of a row always stays, because the threshold is at most 1.
        """
        due_rows = due[..., None, None]
        unlikely = self.window / self.window.amax(-1, keepdim=True) < over_rows(self.theta)
        dropped = self.purified & unlikely & due_rows
        self.purified &= ~dropped
        confidence = restrict(self.window, self.purified)
        self.confidence.copy_(torch.where(due_rows, confidence, self.confidence))
        removed = dropped.sum((-2, -1))
        few = removed < FEW_REMOVED * self.num_data * self.num_classes
        grown = self.theta * (1 + self.hparams["inc"])
        self.theta = torch.where(due & few & (self.theta < THETA_CAP), grown, self.theta)
        self.removed = self.removed + removed

    def more_to_log(self) -> Mapping[str, Tensor]:
        """Return how far purification has come."""
        return {"theta": self.theta, "removed": self.removed}

    def phases(self) -> Mapping[str, int]:
        """Return the update after which candidates may first be removed."""
        roll_window, warm_up = self.hparams["rollWindow"], self.hparams["warm_up"]
        first = -(-warm_up // roll_window) * roll_window  # a multiple of the window, not before warm_up
        return {"purification": (first + 1) * self.updates_per_epoch}
