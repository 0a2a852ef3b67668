"""CRDPLL: consistency regularisation, revisited for partial labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plench.algorithms.base import Algorithm, build_adam, build_network, descend, register
from plench.algorithms.parts.consistency import agree_on_target, divergence_from_target, push_non_candidates
from plench.algorithms.parts.passes import pass_views
from plench.algorithms.parts.targets import uniform_over
from plench.batch import Batch


def consistency_weight(step: int, max_steps: int) -> float:
    """Return λ: from 0 to 1 in a straight line over the first half of the run, then 1."""
    return min(2 * step / max_steps, 1.0)


def consistency_losses(logits: Tensor, confidence: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the consistency of all views (V, B, K) with c, and the weak view's push on non-candidates."""
    return divergence_from_target(logits, confidence).sum(0), push_non_candidates(logits[0], candidates)


@register(
    "CRDPLL",
    family="holistic PLL",
    venue="ICML 2022",
    views=("weak", "strong"),
    passes="2 (weak, strong)",
    state="confidence N×K",
    logs={
        "loss_cons": "consistency of the views with the confidence, unweighted",
        "loss_sup": "push on non-candidates",
    },
    bibtex="""
@inproceedings{wu2022revisiting,
  title     = {Revisiting Consistency Regularization for Deep Partial Label Learning},
  author    = {Wu, Dong-Dong and Wang, Deng-Bao and Zhang, Min-Ling},
  booktitle = {International Conference on Machine Learning},
  pages     = {24212--24225},
  year      = {2022}
}""",
)
class CRDPLL(Algorithm):
    """Push non-candidates down, and pull all views of an example to one common label distribution.

    The common distribution is what the views agree on: the geometric mean of their probabilities, restricted
    to the candidates. Its pull grows from nothing over the first half of the run.

    Objective: λ_t Σ_v (1/b) Σ_i KL(c_i ‖ p_vi) − (1/b) Σ_i Σ_{k∉S_i} log(1 − p_0ik), λ_t = min(2t/T, 1);
    c_i ← softmax over S_i of the views' mean logits, from before the step.

    Departures: as the authors, c comes from the step's own passes; the public benchmark repeats all passes
    after the step. As the public benchmark, one strong view (the authors draw two) and λ per step.
    """

    confidence: Tensor

    def __init__(
        self, input_shape: Sequence[int], train_givenY: np.ndarray, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, train_givenY, hparams)
        self.network = build_network(input_shape, self.num_classes, self.hparams)
        self.per_example("confidence", uniform_over(torch.from_numpy(np.asarray(train_givenY) != 0)))
        self.optimizer = build_adam(self.network.parameters(), self.hparams)
        self.steps_done = 0

    def update(self, minibatches: Batch) -> Mapping[str, Tensor | float]:
        """Take one step on a batch."""
        index, candidates = minibatches.index, minibatches.candidates
        logits = pass_views(self.network, minibatches.weak, minibatches.strong)
        confidence = self.confidence.index_select(0, index)
        consistency, supervised = consistency_losses(logits, confidence, candidates)
        loss = consistency_weight(self.steps_done, self.hparams["max_steps"]) * consistency + supervised
        descend(self.optimizer, loss)
        self.confidence.index_copy_(0, index, agree_on_target(logits.detach(), candidates))
        self.steps_done += 1
        return {"loss": loss.detach(), "loss_cons": consistency.detach(), "loss_sup": supervised.detach()}

    def predict(self, x: Tensor) -> Tensor:
        """Return logits (B, K) for network inputs x."""
        logits: Tensor = self.network(x)
        return logits
