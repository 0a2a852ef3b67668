"""Reads conformance vectors and runs algorithms on the linear models they describe.

The vectors lie in tests/conformance/vectors; PLENCH_CONFORMANCE names another folder of the same schema.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
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
    """One case: inputs as float64 tensors where they are lists, and a comparison at the case's tolerance.

    `in_float32` gives the same case in single precision, at the tolerance the specifications name for it.
    """

    def __init__(self, algorithm: str, raw: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> None:
        self.algorithm = algorithm
        self.name: str = raw["name"]
        self.raw = raw
        self.inputs: Mapping[str, Any] = raw["inputs"]
        self.expected: Mapping[str, Any] = raw["expected"]
        self.dtype = dtype
        self.checked: set[str] = set()

    def in_float32(self) -> "Case":
        """Return the case in single precision."""
        return Case(self.algorithm, {**self.raw, "rtol": 2e-4, "atol": 1e-6}, torch.float32)

    def __repr__(self) -> str:
        return f"{self.algorithm}:{self.name}"

    def __getitem__(self, key: str) -> Tensor:
        """Return an input as a tensor of the case's precision."""
        return torch.tensor(self.inputs[key], dtype=self.dtype)

    def mask(self, key: str) -> Tensor:
        """Return an input as a bool tensor."""
        return self[key] != 0

    def check(self, **actual: Any) -> None:
        """Compare named results with what the case expects."""
        for key, value in actual.items():
            self.checked.add(key)
            expected = np.asarray(self.expected[key], dtype=np.float64)
            got = (
                value.detach().double().numpy()
                if isinstance(value, Tensor)
                else np.asarray(value, dtype=np.float64)
            )
            assert got.shape == expected.shape, f"{self}: {key} has shape {got.shape}, not {expected.shape}"
            np.testing.assert_allclose(
                got,
                expected,
                rtol=self.raw["rtol"],
                atol=self.raw.get("atol", 1e-10),
                err_msg=f"{self}: {key}",
            )


# Checks one case. Adapters are listed by patterns of case names, as in `*_updates*`.
Adapter = Callable[[Case], None]

# Values of other people's definitions that the vectors list beside ours.
NOT_OURS = {"loss_with_self_comparison"}


def cases(algorithm: str) -> list[Case]:
    """Return every case of an algorithm's file."""
    content = json.loads((VECTORS / f"{algorithm}.json").read_text(encoding="utf-8"))
    return [Case(algorithm, raw) for raw in content["cases"]]


def run_adapter(adapters: Mapping[str, Adapter], case: Case) -> None:
    """Run the first adapter whose pattern fits the case's name.

    A case without an adapter fails, and so does an expected value that nothing was compared with.
    """
    fitting = [adapter for pattern, adapter in adapters.items() if fnmatchcase(case.name, pattern)]
    assert fitting, f"{case} has no adapter: the vector would go unchecked"
    fitting[0](case)
    unchecked = set(case.expected) - case.checked - NOT_OURS
    assert not unchecked, f"{case}: nothing was compared with {sorted(unchecked)}"


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


def replace_network(algorithm: LossAlgorithm, model: nn.Module) -> None:
    """Give an algorithm another network, and a new optimiser for it."""
    algorithm.network = model  # type: ignore[assignment]
    algorithm.optimizer = build_adam(model.parameters(), algorithm.hparams)


def build_linear_algorithm(
    name: str,
    case: Case,
    hparams: Mapping[str, Any],
    max_steps: int = 1000,
    weight: str = "W",
    bias: str = "b",
) -> LossAlgorithm:
    """Build an algorithm in float64 with its network replaced by the case's linear model."""
    entry = find_algorithm(name)
    values = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, hparams)
    algorithm = entry.cls(case["X"].shape, case["S"].numpy(), {**values, "max_steps": max_steps}).double()
    assert isinstance(algorithm, LossAlgorithm)
    replace_network(algorithm, linear(case[weight], case[bias]))
    return algorithm


def build_on_logits(name: str, case: Case, candidates: Tensor, **hparams: Any) -> LossAlgorithm:
    """Build an algorithm for these candidates whose inputs are logits: its network is the identity."""
    entry = find_algorithm(name)
    values = draw_hparams(entry.card.hyperparameters, DataTraits("tabular"), 0, 0, hparams)
    shape = tuple(candidates.shape)
    algorithm = entry.cls(shape, candidates.numpy(), {**values, "max_steps": 1000}).to(case.dtype)
    assert isinstance(algorithm, LossAlgorithm)
    algorithm.network = nn.Sequential()
    return algorithm


def logits_batch(logits: Tensor, candidates: Tensor) -> Batch:
    """Return the batch of all examples, its views being logits."""
    return Batch(torch.arange(len(candidates)), candidates, dict.fromkeys(VIEWS, logits))


def batch_of(features: Tensor, candidates: Tensor, index: Sequence[int]) -> Batch:
    """Return the batch of the listed examples, every view the same."""
    rows = torch.tensor(index)
    return Batch(rows, candidates[rows], dict.fromkeys(VIEWS, features[rows]))
