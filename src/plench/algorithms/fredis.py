"""FREDIS: fusion of refinement and disambiguation for unreliable candidate sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, build_adam, build_network, descend, register
from plench.algorithms.parts.consistency import agree_on_target, divergence_from_target, push_non_candidates
from plench.algorithms.parts.passes import pass_views
from plench.algorithms.parts.precision import device_with_doubles
from plench.algorithms.parts.targets import uniform_over
from plench.batch import Batch
from plench.hparams import Choice, Hyperparameter

SMALL_TO_LARGE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# Beyond these the thresholds are no longer relaxed; the authors' constants.
LARGEST_THETA, SMALLEST_DELTA = 0.9, 0.1
# Ten times what the smallest step of the search space takes; half a second.
MOST_SUBTRACTIONS = 10**7

DrawEntries = Callable[[int, int], Tensor]


def fredis_losses(logits: Tensor, targets: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return consistency and complementary loss of logits (V, B, K), each summed over the views."""
    consistency = divergence_from_target(logits, targets).sum(0)
    return consistency, push_non_candidates(logits, candidates).sum(0)


def correction_interval(update_interval: int, num_data: int, batch_size: int) -> int:
    """Return the steps between two corrections: so many epochs, rounded down, at least 1."""
    return max(1, update_interval * num_data // batch_size)


def corrects(step: int, interval: int) -> bool:
    """Say whether the candidate sets are corrected at the end of a step."""
    return step > 0 and step % interval == 0


def lower_delta(delta: float, dec: float, needed_gap: float) -> float:
    """Lower δ in steps of `dec` until it is below the needed gap, but never below 0.

    Repeated subtraction, as the specification says: a closed form rounds differently. It stands in where
    subtracting would take minutes or, for steps that vanish beside δ, for ever.
    """
    if not needed_gap > delta and delta > MOST_SUBTRACTIONS * dec:
        steps = min((delta - max(needed_gap, 0.0)) // dec + 1, delta // dec)
        return max(0.0, delta - steps * dec)
    while not needed_gap > delta and delta >= dec:
        delta -= dec
    return delta


def draw_without_replacement(available: int, count: int) -> Tensor:
    """Draw positions among `available` entries, uniformly and without replacement."""
    return torch.randperm(available)[:count]


@dataclass(frozen=True)
class CorrectionRule:
    """The constants of a correction of the candidate sets."""

    inc: float
    dec: float
    times: int
    change_size: int


@dataclass(frozen=True)
class Correction:
    """Corrected candidates and targets, thresholds after it, and what was counted on the way."""

    candidates: Tensor
    targets: Tensor
    theta: float
    delta: float
    changed: int
    added: int
    removable: int
    put_back: Tensor


def correct_candidates(
    posterior: Tensor,
    candidates: Tensor,
    targets: Tensor,
    visited: Tensor,
    theta: float,
    delta: float,
    rule: CorrectionRule,
    draw: DrawEntries = draw_without_replacement,
) -> Correction:
    """Add labels whose probability is almost the highest, remove candidates whose is far below it.

    `posterior`, `candidates` and `targets` are (N, K), `visited` (N,) marks the rows that take part. Above
    the caps, the entries to change are drawn from all near (or far) ones, whether they would change or not.
    """
    gaps = posterior.double()
    gaps = gaps.amax(-1, keepdim=True) - gaps
    active = visited[:, None]
    near = (gaps < theta) & active
    added = int((near & ~candidates).sum())
    if added > rule.change_size:
        added = rule.change_size
        near = draw_among(near, added, draw)
    of_candidates = gaps[candidates & active]
    delta = lower_delta(delta, rule.dec, largest_but(of_candidates, added * rule.times))
    far = (gaps > delta) & active
    removable = int((of_candidates > delta).sum())
    if removable > rule.change_size * rule.times:
        far = draw_among(far, rule.change_size * rule.times, draw)
    corrected = (candidates | near) & ~far
    empty = ~corrected.any(-1)
    corrected = torch.where(empty[:, None], candidates, corrected)
    changed = int((corrected != candidates).sum())
    if theta < LARGEST_THETA and delta > SMALLEST_DELTA and changed < rule.change_size:
        theta, delta = theta + rule.inc, max(0.0, delta - rule.dec)
    renewed = torch.where(active, restrict(posterior, corrected), targets)
    return Correction(corrected, renewed, theta, delta, changed, added, removable, empty.nonzero().flatten())


def draw_among(entries: Tensor, count: int, draw: DrawEntries) -> Tensor:
    """Keep `count` drawn entries of a mask (N, K)."""
    positions = entries.flatten().nonzero().flatten()
    drawn = positions[draw(len(positions), count).to(positions.device)]
    kept = torch.zeros_like(entries)
    kept.view(-1)[drawn] = True
    return kept


def largest_but(values: Tensor, rank: int) -> float:
    """Return the value of the given rank in descending order: +∞ for rank 0, −∞ past the end."""
    if rank == 0:
        return float("inf")
    if rank > len(values):
        return float("-inf")
    return float(values.sort(descending=True).values[rank - 1])  # not kthvalue, which MPS lacks


def restrict(posterior: Tensor, candidates: Tensor) -> Tensor:
    """Return the posterior restricted to the candidates and normalised; uniform where nothing is left."""
    kept = posterior * candidates
    total = kept.sum(-1, keepdim=True)
    return torch.where(total > 0, kept / total, uniform_over(candidates).to(kept.dtype))


VIEWS_USED = ("weak", "strong", "distill")


@register(
    "FREDIS",
    family="noisy PLL",
    venue="ICML 2023",
    views=VIEWS_USED,
    passes="3 (weak, strong, distill)",
    state="corrected candidates N×K, targets N×K, posterior N×K",
    hyperparameters=(
        Hyperparameter("theta", 1e-6, "first gap below which a label becomes a candidate", at_least=0),
        Hyperparameter("inc", 1e-6, "increment of theta", Choice(*SMALL_TO_LARGE), at_least=0),
        Hyperparameter("delta", 1.0, "first gap above which a candidate is removed", at_least=0),
        Hyperparameter("dec", 1e-6, "decrement of delta", Choice(*SMALL_TO_LARGE), above=0),
        Hyperparameter("times", 2, "removals sought per addition", Choice(1, 2, 3, 4, 5), at_least=0),
        Hyperparameter(
            "change_size",
            500,
            "cap on the additions of a correction",
            Choice(50, 100, 500, 300, 800, 1000),
            at_least=0,
        ),
        Hyperparameter("update_interval", 20, "epochs between corrections", Choice(10, 20), at_least=1),
        Hyperparameter("lam", 10, "weight of the consistency", Choice(1, 10), type=float, at_least=0),
        Hyperparameter(
            "alpha", 1.0, "weight of the complementary loss", Choice(1e-3, 1e-2, 1e-1, 1), at_least=0
        ),
        Hyperparameter("views", 3, "views used: weak, strong and distill, or weak alone", one_of=(1, 3)),
    ),
    logs={
        "loss_cons": "consistency with the targets, unweighted",
        "loss_comp": "complementary loss, unweighted",
        "theta": "gap below which a label becomes a candidate",
        "delta": "gap above which a candidate is removed",
        "changed": "entries of the candidate sets that the latest correction changed",
    },
    bibtex="""
@inproceedings{qiao2023fredis,
  title     = {{FREDIS}: A Fusion Framework of Refinement and Disambiguation for Unreliable Partial Label
               Learning},
  author    = {Qiao, Congyu and Xu, Ning and Lv, Jiaqi and Ren, Yi and Geng, Xin},
  booktitle = {International Conference on Machine Learning},
  pages     = {28321--28336},
  year      = {2023}
}""",
)
class FREDIS(Algorithm):
    """Correct the candidate sets while learning from them.

    Every few epochs labels that the model finds almost as probable as its favourite become candidates, and
    candidates far below the favourite are removed. In between it learns by a complementary loss on the
    current sets and by consistency of all views with targets restricted to them.

    Objective: λ Σ_v KL(c_i ‖ p_vi) − α Σ_v Σ_{k∉C_i} log(1 − p_vik), averaged over the batch, with C the
    corrected candidates; c_i ← softmax over C_i of the views' mean logits, from before the step.

    Departures: losses read the corrected sets, as the authors' do (in the public benchmark they read the
    original ones, so the correction has almost no effect); the first correction comes after
    `update_interval` epochs, since there is no pre-trained network; a set that would become empty is put
    back, and δ stays at or above 0 (both missing in the authors' code).
    """

    candidates: Tensor
    targets: Tensor
    posterior: Tensor
    visited: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        candidates = torch.from_numpy(np.asarray(train_givenY) != 0)
        self.network = build_network(input_shape, self.num_classes, self.hparams)
        self.per_example("candidates", candidates)
        self.per_example("targets", uniform_over(candidates))
        self.per_example("posterior", torch.full(candidates.shape, 1 / self.num_classes))
        self.per_example("visited", torch.zeros(self.num_data, dtype=torch.bool))
        self.optimizer = build_adam(self.network.parameters(), self.hparams)
        self.theta: float = self.hparams["theta"]
        self.delta: float = self.hparams["delta"]
        self.changed = 0
        self.interval = correction_interval(
            self.hparams["update_interval"], self.num_data, self.hparams["batch_size"]
        )
        self.steps_done = 0

    @classmethod
    def choose_views(cls, declared: tuple[str, ...], hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the first `views` of them: no view is made that is not used."""
        return declared[: hparams["views"]]

    def phases(self) -> Mapping[str, int]:
        """Return when the candidate sets are first corrected."""
        return {"correction of candidate sets (update_interval)": self.interval}

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch, and correct the candidate sets where one is due."""
        index = minibatches.index
        candidates = self.candidates.index_select(0, index)
        names = self.choose_views(VIEWS_USED, self.hparams)
        logits = pass_views(self.network, *(minibatches.view(name) for name in names))
        targets = self.targets.index_select(0, index)
        consistency, complementary = fredis_losses(logits, targets, candidates)
        loss = self.hparams["lam"] * consistency + self.hparams["alpha"] * complementary
        descend(self.optimizer, loss)
        before_step = logits.detach()
        self.targets.index_copy_(0, index, agree_on_target(before_step, candidates))
        self.posterior.index_copy_(0, index, before_step[0].softmax(-1))
        self.visited.index_fill_(0, index, True)
        if corrects(self.steps_done, self.interval):
            self.correct()
        self.steps_done += 1
        return {
            "loss": loss.detach(),
            "loss_cons": consistency.detach(),
            "loss_comp": complementary.detach(),
            "theta": self.theta,
            "delta": self.delta,
            "changed": float(self.changed),
        }

    def correct(self) -> None:
        """Correct the candidate sets of all examples visited so far."""
        rule = CorrectionRule(**{name: self.hparams[name] for name in ("inc", "dec", "times", "change_size")})
        place = device_with_doubles(self.posterior.device)
        state = (self.posterior, self.candidates, self.targets, self.visited)
        posterior, candidates, targets, visited = (rows.to(place) for rows in state)
        correction = correct_candidates(posterior, candidates, targets, visited, self.theta, self.delta, rule)
        self.candidates.copy_(correction.candidates)
        self.targets.copy_(correction.targets)
        self.theta, self.delta, self.changed = correction.theta, correction.delta, correction.changed

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        logits: Tensor = self.network(x)
        return logits
