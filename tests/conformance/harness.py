"""Reads conformance vectors and runs algorithms on the linear models they describe.

The vectors lie in tests/conformance/vectors; PLENCH_CONFORMANCE names another folder of the same schema.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.algorithms import LossAlgorithm, find_algorithm
from plench.algorithms.base import build_adam
from plench.batch import VIEWS, Batch
from plench.hparams import DataTraits, draw_hparams

VECTORS = Path(os.environ.get("PLENCH_CONFORMANCE", Path(__file__).parent / "vectors"))


class Case:
    """One case: inputs as float64 tensors where they are lists, and a comparison at the case's tolerance."""

    def __init__(self, algorithm: str, raw: Mapping[str, Any]) -> None:
        self.algorithm = algorithm
        self.name: str = raw["name"]
        self.raw = raw
        self.inputs: Mapping[str, Any] = raw["inputs"]
        self.expected: Mapping[str, Any] = raw["expected"]

    def __repr__(self) -> str:
        return f"{self.algorithm}:{self.name}"

    def __getitem__(self, key: str) -> Tensor:
        """Return an input as a float64 tensor."""
        return torch.tensor(self.inputs[key], dtype=torch.float64)

    def mask(self, key: str) -> Tensor:
        """Return an input as a bool tensor."""
        return self[key] != 0

    def check(self, **actual: Any) -> None:
        """Compare named results with what the case expects."""
        for key, value in actual.items():
            expected = np.asarray(self.expected[key], dtype=np.float64)
            got = (
                value.detach().double().numpy()
                if isinstance(value, Tensor)
                else np.asarray(value, dtype=np.float64)
            )
            np.testing.assert_allclose(
                got, expected, rtol=self.raw["rtol"], atol=self.raw["atol"], err_msg=f"{self}: {key}"
            )


def cases(algorithm: str) -> list[Case]:
    """Return every case of an algorithm's file."""
    content = json.loads((VECTORS / f"{algorithm}.json").read_text(encoding="utf-8"))
    return [Case(algorithm, raw) for raw in content["cases"]]


def with_gradient(values: Tensor) -> Tensor:
    """Return a leaf that collects a gradient."""
    return values.clone().requires_grad_()


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return the linear model z = X Wᵀ + b in float64."""
    model = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(weight)
        if bias is not None:
            model.bias.copy_(bias)
    return model


def build_linear_algorithm(
    name: str, case: Case, hparams: Mapping[str, Any], max_steps: int = 1000
) -> LossAlgorithm:
    """Build an algorithm in float64 with its network replaced by the case's linear model."""
    entry = find_algorithm(name)
    values = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, hparams)
    algorithm = entry.cls(case["X"].shape, case["S"].numpy(), {**values, "max_steps": max_steps}).double()
    assert isinstance(algorithm, LossAlgorithm)
    algorithm.network = linear(case["W"], case["b"])
    algorithm.optimizer = build_adam(algorithm.network.parameters(), values)
    return algorithm


def batch_of(features: Tensor, candidates: Tensor, index: Sequence[int]) -> Batch:
    """Return the batch of the listed examples, every view the same."""
    rows = torch.tensor(index)
    return Batch(rows, candidates[rows], dict.fromkeys(VIEWS, features[rows]))
