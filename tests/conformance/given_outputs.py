"""Algorithms on given outputs: the conformance cases say what the networks answer, not what they are."""

from typing import Any

import torch
from torch import Tensor, nn

from tests import probe
from tests.conformance.harness import Case


class GivenOutputs(nn.Module):
    """Stands in for a two-headed network: its answers are given tensors, whatever the input.

    `alone` is what the classifier answers when asked alone, if that differs. `weight` is its one parameter.
    """

    def __init__(
        self, logits: Tensor, features: Tensor, alone: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        super().__init__()
        self.answers = {"logits": logits, "features": features, "alone": logits if alone is None else alone}
        self.weight = nn.Parameter(torch.zeros(1, dtype=logits.dtype) if weight is None else weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.answers["logits"], self.answers["features"]

    def classify(self, x: Tensor) -> Tensor:
        return self.answers["alone"]

    def project(self, x: Tensor) -> Tensor:
        return self.answers["features"]


class InTurn(nn.Module):
    """Stands in for a plain network: answers with the given logits in turn."""

    def __init__(self, *answers: Tensor) -> None:
        super().__init__()
        self.answers = answers
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.answers[(self.calls - 1) % len(self.answers)]


def build(case: Case, candidates: Tensor, **settings: Any) -> Any:
    """Build the case's algorithm for these candidates, in the case's precision."""
    return probe.build(case.algorithm, candidates, dtype=case.dtype, **settings)


def own_hparams(case: Case) -> dict[str, Any]:
    """Return the case's inputs that are hyperparameters of its algorithm."""
    return probe.own_hparams(case.algorithm, case.inputs)


def distinct_views(case: Case, rows: int) -> dict[str, Tensor]:
    """Return views whose content nothing reads, each a tensor of its own as on images."""
    return {name: torch.zeros(rows, 2, dtype=case.dtype) for name in ("weak", "strong", "distill")}


def precedes(case: Case, phase: str) -> bool | None:
    """Say whether the case's words put its step before a phase such as `prot_start`; None if they are silent.

    Steps before and after it have the same inputs, so only the words tell them apart.
    """
    if phase not in case.text:
        return None
    return f"step < {phase}" in case.text


def unit(values: Tensor) -> Tensor:
    """Normalise raw projections, as the network does."""
    return nn.functional.normalize(values, dim=-1)
