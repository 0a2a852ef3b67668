"""FREDIS: fusion of refinement and disambiguation for unreliable candidate sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plench.algorithms.base import Batch, LossAlgorithm, device_with_doubles, register
from plench.algorithms.parts.targets import (
    agree_on_target,
    divergence_from_target,
    push_non_candidates,
    restrict,
    uniform_over,
)
from plench.algorithms.parts.views import pass_views
from plench.hparams import Choice, Hyperparameter

SMALL_TO_LARGE = Choice(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
WEIGHTS = Choice(1e-3, 1e-2, 1e-1, 1)
SIZES = Choice(50, 100, 500, 300, 800, 1000)
# Beyond these the thresholds are no longer relaxed; the authors' constants.
LARGEST_THETA, SMALLEST_DELTA = 0.9, 0.1
# Ten times what the smallest step of the search space takes; half a second.
MOST_SUBTRACTIONS = 10**7


@register(
    "FREDIS",
    stacked=True,
    family="noisy PLL",
    venue="ICML 2023",
    cite="qiao2023fredis",
    public_fault="the public code computes corrected candidates and then does not use them",
    views=("weak", "strong", "distill"),
    passes="3 (weak, strong, distill)",
    state="corrected candidates N×K, targets N×K, posterior N×K",
    hyperparameters=(
        Hyperparameter("theta", 1e-6, "first gap below which a label becomes a candidate", at_least=0),
        Hyperparameter("inc", 1e-6, "increment of theta", SMALL_TO_LARGE, at_least=0),
        Hyperparameter("delta", 1.0, "first gap above which a candidate is removed", at_least=0),
        Hyperparameter("dec", 1e-6, "decrement of delta", SMALL_TO_LARGE, above=0),
        Hyperparameter("times", 2, "removals sought per addition", Choice(1, 2, 3, 4, 5), at_least=0),
        Hyperparameter("change_size", 500, "cap on the additions of a correction", SIZES, at_least=0),
        Hyperparameter("update_interval", 20, "epochs between corrections", Choice(10, 20), at_least=1),
        Hyperparameter("lam", 10, "weight of the consistency", Choice(1, 10), type=float, at_least=0),
        Hyperparameter("alpha", 1.0, "weight of the complementary loss", WEIGHTS, at_least=0),
        Hyperparameter("views", 3, "views used: weak, strong and distill, or weak alone", one_of=(1, 3)),
    ),
    logs={
        "loss_cons": "consistency with the targets, unweighted",
        "loss_comp": "complementary loss, unweighted",
        "theta": "gap below which a label becomes a candidate",
        "delta": "gap above which a candidate is removed",
        "changed": "entries of the candidate sets that the latest correction changed",
    },
)
class FREDIS(LossAlgorithm):
    """Correct the candidate sets while learning from them.

    Every few epochs labels that the model finds almost as probable as its favourite become candidates, and
    candidates far below the favourite are removed. In between it learns by a complementary loss on the
    current sets and by consistency of all views with targets restricted to them.

    Objective: λ Σ_v KL(c_i ‖ p_vi) − α Σ_v Σ_{k∉C_i} log(1 − p_vik), averaged over the batch, with C the
    corrected candidates; c_i ← softmax over C_i of the views' mean logits, from before the step.
    """

    must_match = ("views",)
    per_run_state = ("theta", "delta", "changed", "interval")

    candidates: Tensor
    targets: Tensor
    posterior: Tensor
    visited: Tensor

    def setup(self, candidates: Tensor) -> None:
        """Start from equal targets on each candidate, with no example visited."""
        self.per_example("candidates", candidates)
        self.per_example("targets", uniform_over(candidates))
        self.per_example("posterior", torch.full(candidates.shape, 1 / self.num_classes))
        self.per_example("visited", torch.zeros(self.num_data, dtype=torch.bool))
        self.theta: float = self.hparams["theta"]
        self.delta: float = self.hparams["delta"]
        self.changed = 0
        # Steps between two corrections: so many epochs, rounded down.
        self.interval = max(1, self.hparams["update_interval"] * self.num_data // self.hparams["batch_size"])

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the first `views` of them: no view is made that is not used."""
        return declared[: hparams["views"]]

    def passes(self, batch: Batch) -> Tensor:
        """Return the logits (V, B, K) of the views in use."""
        views = self.choose_views(self.card.views, self.hparams)
        return pass_views(self.network, *(batch.view(view) for view in views))

    def losses(self, logits: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Return consistency and complementary loss on the corrected sets, each summed over the views."""
        consistency = divergence_from_target(logits, self.rows("targets", batch.index)).sum(0)
        complementary = push_non_candidates(logits, self.rows("candidates", batch.index)).sum(0)
        loss = self.hparams["lam"] * consistency + self.hparams["alpha"] * complementary
        return {"loss": loss, "loss_cons": consistency, "loss_comp": complementary}

    def revise(self, logits: Tensor, batch: Batch) -> None:
        """Renew targets and posterior of the batch; correct the candidate sets where that is due."""
        targets = agree_on_target(logits, self.rows("candidates", batch.index))
        self.write_rows("targets", batch.index, targets)
        self.write_rows("posterior", batch.index, logits[0].softmax(-1))
        self.write_rows("visited", batch.index, torch.ones_like(batch.index, dtype=torch.bool))
        for run in self.runs_due(lambda run: run.steps_done > 0 and run.steps_done % run.interval == 0):
            run.correct()

    def correct(self) -> Correction:
        """Add labels whose gap to the highest probability is below θ; remove candidates whose gap is above δ.

        δ first falls until `times` removals per addition are found. Above the caps, the entries to change are
        drawn from all near (or far) ones, whether they would change or not. A set that would become empty is
        put back. Examples not visited so far keep their sets; the targets of the others are restricted anew.
        """
        place = device_with_doubles(self.posterior.device)
        probs, old = self.posterior.to(place).double(), self.candidates.to(place)
        visited, most_added = self.visited.to(place)[:, None], self.hparams["change_size"]
        gaps = probs.amax(-1, keepdim=True) - probs
        near = (gaps < self.theta) & visited
        added = int((near & ~old).sum())
        if added > most_added:
            near, added = draw_among(near, most_added), most_added
        of_candidates, times, dec = gaps[old & visited], self.hparams["times"], self.hparams["dec"]
        self.delta = lower_delta(self.delta, dec, largest_but(of_candidates, added * times))
        far = (gaps > self.delta) & visited
        removable = int((of_candidates > self.delta).sum())
        if removable > most_added * times:
            far = draw_among(far, most_added * times)
        new = (old | near) & ~far
        empty = ~new.any(-1)
        new = torch.where(empty[:, None], old, new)
        self.changed = int((new != old).sum())
        if self.theta < LARGEST_THETA and self.delta > SMALLEST_DELTA and self.changed < most_added:
            self.theta, self.delta = self.theta + self.hparams["inc"], max(0.0, self.delta - dec)
        self.candidates.copy_(new)
        targets = restrict(self.posterior, self.candidates)
        self.targets.copy_(torch.where(self.visited[:, None], targets, self.targets))
        return Correction(added, removable, empty.nonzero().flatten())

    def more_to_log(self) -> Mapping[str, float]:
        """Return the thresholds and what the latest correction changed."""
        return {"theta": self.theta, "delta": self.delta, "changed": float(self.changed)}

    def phases(self) -> Mapping[str, int]:
        """Return when the candidate sets are first corrected."""
        return {"correction of candidate sets (update_interval)": self.interval}


class Correction(NamedTuple):
    """What a correction counted: labels added, candidates with a gap above δ; and the rows put back."""

    added: int
    removable: int
    put_back: Tensor


def draw_among(entries: Tensor, count: int) -> Tensor:
    """Keep `count` entries of a mask (N, K), drawn without replacement."""
    positions = entries.flatten().nonzero().flatten()
    drawn = positions[torch.randperm(len(positions))[:count].to(positions.device)]
    return torch.zeros_like(entries).view(-1).index_fill_(0, drawn, True).view_as(entries)


def largest_but(values: Tensor, rank: int) -> float:
    """Return the value of the given rank in descending order: +∞ for rank 0, −∞ past the end."""
    if rank == 0 or rank > len(values):
        return float("-inf") if rank else float("inf")
    return float(values.sort(descending=True).values[rank - 1])  # not kthvalue, which MPS lacks


def lower_delta(delta: float, dec: float, needed_gap: float) -> float:
    """Lower δ in steps of `dec` until it is below the needed gap, but never below 0.

    Repeated subtraction, as the specification says: a closed form rounds differently. It stands in where
    subtracting would take minutes or, for steps that vanish compared with δ, for ever.
    """
    if not needed_gap > delta and delta > MOST_SUBTRACTIONS * dec:
        steps = min((delta - max(needed_gap, 0.0)) // dec + 1, delta // dec)
        return max(0.0, delta - steps * dec)
    while not needed_gap > delta and delta >= dec:
        delta -= dec
    return delta
