"""POP: progressive purification of the candidate sets."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from plench.algorithms.base import LossAlgorithm, register
from plench.algorithms.parts.targets import (
    masked_softmax,
    read_rows,
    soft_cross_entropy,
    uniform_over,
    write_rows,
)
from plench.batch import Batch
from plench.hparams import Choice, Hyperparameter, LogRange

# From here on the threshold grows no further (authors' constant).
THETA_CAP = 0.4
# The threshold grows only if a smaller share than this of the N·K entries was removed (authors' constant).
FEW_REMOVED = 1e-4


def updates_per_epoch(num_data: int, batch_size: int) -> int:
    """Return the number of updates in one pass over the data; the short last batch is dropped."""
    return max(1, num_data // batch_size)


def ended_epoch(updates: int, per_epoch: int) -> int | None:
    """Return the epoch, counted from 0, that ends with update number `updates` (counted from 1), or None."""
    return updates // per_epoch - 1 if updates % per_epoch == 0 else None


def window_ends(epoch: int, roll_window: int) -> bool:
    """Say whether the window of summed confidences starts anew after this epoch."""
    return epoch % roll_window == 0


def purification_due(epoch: int, roll_window: int, warm_up: int) -> bool:
    """Say whether candidates are removed at the end of this epoch."""
    return epoch >= warm_up and window_ends(epoch, roll_window)


class Purified(NamedTuple):
    """What a purification gives: candidates, confidence, how many were removed, and the next threshold."""

    candidates: Tensor
    confidence: Tensor
    removed: Tensor
    theta: Tensor


def purify(
    window: Tensor, confidence: Tensor, candidates: Tensor, theta: Tensor, inc: Tensor | float, due: Tensor
) -> Purified:
    """Remove candidates whose confidence, summed over a window (…, N, K), is small beside their row's best.

    The best candidate of a row always stays, because the threshold is at most 1. Where purification is not
    `due`, nothing changes: runs in a stack may have different schedules.
    """
    due_rows = due[..., None, None]
    unlikely = window / window.amax(-1, keepdim=True) < theta[..., None, None]
    dropped = candidates & unlikely & due_rows
    kept = candidates & ~dropped
    weights = torch.where(kept, window, 0.0)
    confidence = torch.where(due_rows, weights / weights.sum(-1, keepdim=True), confidence)
    removed = dropped.sum((-2, -1))
    few = FEW_REMOVED * window.shape[-2] * window.shape[-1]
    grows = due & (theta < THETA_CAP) & (removed < few)
    return Purified(kept, confidence, removed, torch.where(grows, theta * (1 + inc), theta))


@register(
    "POP",
    family="vanilla PLL",
    venue="ICML 2023",
    state="confidence, window N×K, purified candidates N×K bool",
    hyperparameters=(
        Hyperparameter(
            "rollWindow",
            5,
            "epochs in a window of confidences and between purifications",
            Choice(3, 4, 5, 6, 7),
            at_least=1,
        ),
        Hyperparameter("warm_up", 20, "first epoch, from 0, that may purify", Choice(10, 15, 20), at_least=0),
        Hyperparameter(
            "theta",
            1e-3,
            "threshold on a candidate's confidence relative to the best one, at first",
            LogRange(-4.5, -2.5),
            at_least=0,
            at_most=1,
        ),
        Hyperparameter(
            "inc",
            1e-3,
            "relative growth of theta after a purification that removed little",
            LogRange(-4.5, -2.5),
            at_least=0,
            at_most=1.5,
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
    bibtex="""
@inproceedings{xu2023progressive,
  title     = {Progressive Purification for Instance-Dependent Partial Label Learning},
  author    = {Xu, Ning and Liu, Biao and Lv, Jiaqi and Qiao, Congyu and Geng, Xin},
  booktitle = {International Conference on Machine Learning},
  pages     = {38551--38565},
  year      = {2023}
}""",
)
class POP(LossAlgorithm):
    """Self-training as in PRODEN, with unlikely candidates removed for good every few epochs.

    A candidate goes when its confidence, summed over a window of epochs, falls below a threshold relative to
    the best candidate of its example; the threshold rises while little is removed.

    Objective: (1/b) Σ_i Σ_j −c_ij log p_ij, with c_i ← softmax of the logits over C_i after each visit, C ⊆ S
    the candidates that are left.

    Departures: the public benchmark revises over S, which brings removed candidates back at the next visit,
    purifies after the first update of each epoch, and makes a second pass; here, as in the authors' code, a
    removed candidate stays away, and purification comes every `rollWindow` epochs. The authors' three views
    are the benchmark's one, and their ring of epoch-end confidences is a running sum with the same result.
    """

    confidence: Tensor
    purified: Tensor
    window: Tensor
    theta: Tensor
    removed: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start from equal confidence in each candidate, an empty window and no update made."""
        self.per_example("confidence", uniform_over(candidates))
        self.per_example("purified", candidates.clone())
        self.per_example("window", torch.zeros_like(self.confidence))
        self.register_buffer("theta", torch.tensor(float(self.hparams["theta"])))
        self.register_buffer("removed", torch.tensor(0))
        self.updates = 0
        self.updates_per_epoch = updates_per_epoch(self.num_data, self.hparams["batch_size"])

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy against the stored confidence."""
        return soft_cross_entropy(logits, read_rows(self.confidence, batch.index))

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renormalise the pass's probabilities over the candidates left; close an epoch that ends."""
        purified = read_rows(self.purified, batch.index)
        write_rows(self.confidence, batch.index, masked_softmax(logits, purified))
        self.updates += 1
        epoch = ended_epoch(self.updates, self.updates_per_epoch)
        if epoch is not None:
            self.close_epoch(epoch)

    def close_epoch(self, epoch: int) -> None:
        """Add the confidences to the window; purify when that is due, and empty the window when it ends."""
        self.window += self.confidence
        roll_window = self.hparams["rollWindow"]
        due = purification_due(epoch, roll_window, self.hparams["warm_up"])
        result = purify(
            self.window,
            self.confidence,
            self.purified,
            self.theta,
            self.hparams["inc"],
            torch.tensor(due, device=self.window.device),
        )
        self.purified.copy_(result.candidates)
        self.confidence.copy_(result.confidence)
        self.theta = result.theta
        self.removed = self.removed + result.removed
        self.window *= not window_ends(epoch, roll_window)

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch; log how far purification has come."""
        return {**super().update(minibatches), "theta": self.theta, "removed": self.removed}

    def phases(self) -> Mapping[str, int]:
        """Return the update after which candidates may first be removed."""
        roll_window, warm_up = self.hparams["rollWindow"], self.hparams["warm_up"]
        first = next(
            epoch for epoch in range(warm_up, warm_up + roll_window) if window_ends(epoch, roll_window)
        )
        return {"purification": (first + 1) * self.updates_per_epoch}
