"""Reads conformance vectors, finds what checks each case, and compares.

The vectors are in tests/conformance/vectors; PLENCH_CONFORMANCE names another folder of the same schema. A
file that such a folder lacks is skipped. A case is recognised by what it holds, not by its name: adapters say
by `@kind` which inputs they read and which values they compare.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plench.algorithms import Batch
from tests import probe

OUR_VECTORS = Path(__file__).parent / "vectors"
VECTORS = Path(os.environ.get("PLENCH_CONFORMANCE", OUR_VECTORS))
if not VECTORS.is_dir():
    raise FileNotFoundError(f"PLENCH_CONFORMANCE names {VECTORS}, which is not a folder")

# Inputs that name another case of the file, from which the inputs not listed are taken.
REFERENCES = ("same_as", "see_case")
# Logits beyond this are extreme: their exponentials overflow in single precision.
EXTREME = 100.0
# Values of other people's definitions that the vectors list in addition to ours.
NOT_OURS = {"loss_with_self_comparison"}


class Case:
    """One case: inputs as tensors where they are lists, and a comparison at the case's tolerance.

    `in_float32` gives the same case in single precision, at the tolerance the specifications name for it.
    `text` is all the words of the case; only what its inputs leave open is read from there.
    """

    def __init__(self, algorithm: str, raw: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> None:
        self.algorithm = algorithm
        self.name: str = raw["name"]
        self.raw = raw
        self.inputs: Mapping[str, Any] = raw["inputs"]
        self.expected: Mapping[str, Any] = raw["expected"]
        self.text = f"{self.name}: {raw.get('what', '')}"
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

    def pick(self, *names: str) -> dict[str, Any]:
        """Return the named inputs as they are."""
        return {name: self.inputs[name] for name in names}

    def check(self, **actual: Any) -> None:
        """Compare named results with what the case expects; results that it does not list are ignored."""
        for key, value in actual.items():
            if key not in self.expected:
                continue
            self.checked.add(key)
            expected = np.asarray(self.expected[key], dtype=np.float64)
            got = value.detach().double().numpy() if isinstance(value, Tensor) else np.asarray(value, float)
            assert got.shape == expected.shape, f"{self}: {key} has shape {got.shape}, not {expected.shape}"
            rtol, atol = self.raw["rtol"], self.raw.get("atol", 1e-10)
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=f"{self}: {key}")

    def is_extreme(self) -> bool:
        """Whether any logits of the case are extreme."""
        logits = [self[key] for key in ("z", "z_f", "z_g", "logits") if key in self.inputs]
        return any(values.abs().max() > EXTREME for values in logits)


Adapter = Callable[[Case], None]


@dataclass(frozen=True)
class Kind:
    """Cases of one kind, and what checks them.

    A case is of this kind if it has all these inputs and expects nothing beyond these values. Both are names
    with spaces between, or patterns of names as in `grad_*`.
    """

    check: Adapter
    inputs: str
    expected: str

    def fits(self, case: Case) -> bool:
        """Whether a case is of this kind."""
        ours = set(case.expected) - NOT_OURS
        given = all(any(fnmatchcase(key, name) for key in case.inputs) for name in self.inputs.split())
        return given and all(any(fnmatchcase(key, name) for name in self.expected.split()) for key in ours)


# By algorithm; by method for the classical ones, which share a file.
KINDS: dict[str, list[Kind]] = {}


def kind(algorithms: str, inputs: str, expected: str) -> Callable[[Adapter], Adapter]:
    """Let a function check cases of these algorithms that have these inputs and expect these values."""

    def add(check: Adapter) -> Adapter:
        for name in algorithms.split():
            KINDS.setdefault(name, []).append(Kind(check, inputs, expected))
        return check

    return add


def cases(algorithm: str, folder: Path) -> list[Case]:
    """Return every case of an algorithm's file, with what it takes from other cases filled in."""
    content = json.loads((folder / f"{algorithm}.json").read_text(encoding="utf-8"))
    by_name = {raw["name"]: raw for raw in content["cases"]}
    return [Case(algorithm, fill_in(raw, by_name)) for raw in content["cases"]]


def fill_in(raw: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a case with the inputs and the words of the case that it refers to, if it does."""
    for key in REFERENCES:
        if key in raw["inputs"]:
            base = fill_in(by_name[raw["inputs"][key]], by_name)
            own = {name: value for name, value in raw["inputs"].items() if name != key}
            words = f"{raw.get('what', '')} [{base['name']}: {base.get('what', '')}]"
            return {**raw, "inputs": {**base["inputs"], **own}, "what": words}
    return raw


def list_cases(algorithms: Iterable[str]) -> list[Any]:
    """Return the parameters of a test over all cases of these algorithms; an absent file is one skip."""
    parameters = []
    for name in algorithms:
        if (VECTORS / f"{name}.json").exists():
            parameters += [pytest.param(case, id=repr(case)) for case in cases(name, VECTORS)]
        else:
            skip = pytest.mark.skip(reason=f"the folder of vectors has no {name}.json")
            parameters.append(pytest.param(None, id=f"{name}:absent", marks=skip))
    return parameters


def run_adapter(kinds: Sequence[Kind], case: Case) -> None:
    """Check a case by its kind; of several that fit, the one that reads most inputs.

    A case of no kind fails, and so does an expected value that nothing was compared with.
    """
    fitting = [kind for kind in kinds if kind.fits(case)]
    assert fitting, (
        f"{case} fits no adapter, the vector would go unchecked: its inputs are {sorted(case.inputs)}, "
        f"it expects {sorted(case.expected)}; expected one of "
        + "; ".join(f"({kind.inputs}) -> ({kind.expected})" for kind in kinds)
    )
    max(fitting, key=lambda kind: len(kind.inputs.split())).check(case)
    unchecked = set(case.expected) - case.checked - NOT_OURS
    assert not unchecked, f"{case}: nothing was compared with {sorted(unchecked)}"
    assert case.checked, f"{case}: nothing was compared; it expects {sorted(case.expected)}"


# What adapters share --------------------------------------------------------------------------------------


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
    return {
        name: torch.zeros(rows, 2, dtype=case.dtype) for name in ("original", "weak", "strong", "distill")
    }


def precedes(case: Case, phase: str) -> bool | None:
    """Whether the case's words put its step before a phase such as `prot_start`; None if they are silent.

    Steps before and after it have the same inputs, so only the words tell them apart.
    """
    return None if phase not in case.text else f"step < {phase}" in case.text


def unit(values: Tensor) -> Tensor:
    """Normalise raw projections, as the network does."""
    return nn.functional.normalize(values, dim=-1)


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


def updates_hparams(case: Case) -> dict[str, Any]:
    """Return the hyperparameters of a sequence of updates; the longest batch is the size if none is given."""
    longest = max(len(rows) for rows in case.inputs["batches"])
    optimiser = {key: case.inputs[key] for key in ("lr", "weight_decay") if key in case.inputs}
    return {"batch_size": case.inputs.get("batch_size", longest), **optimiser, **own_hparams(case)}


def build_linear(case: Case, max_steps: int = 1000, **networks: nn.Module) -> Any:
    """Build the case's algorithm with other networks, which learn; by default the case's linear model."""
    width = case["X"].shape[1]
    algorithm = build(case, case.mask("S"), width=width, max_steps=max_steps, **updates_hparams(case))
    probe.answer(algorithm, learns=True, **(networks or {"network": linear(case["W"], case["b"])}))
    return algorithm


def batch_in(case: Case, rows: Sequence[int], second: Sequence[int] | None = None) -> Batch:
    """Return the batch of the listed examples, every view the same."""
    index = torch.tensor(rows)
    other = None if second is None else batch_in(case, second)
    return probe.batch_of(case.mask("S")[index], case["X"][index], index, other)


def make_updates(case: Case, algorithm: Any) -> list[dict[str, Any]]:
    """Make an update with each batch of the case; return what they log."""
    return [dict(algorithm.update(batch_in(case, rows))) for rows in case.inputs["batches"]]
