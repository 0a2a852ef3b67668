"""Reads conformance vectors, finds what checks each case, and compares.

The vectors lie in tests/conformance/vectors; PLENCH_CONFORMANCE names another folder of the same schema. A
file that such a folder lacks is skipped. A case is told by what it holds, not by its name.
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

OUR_VECTORS = Path(__file__).parent / "vectors"
VECTORS = Path(os.environ.get("PLENCH_CONFORMANCE", OUR_VECTORS))
if not VECTORS.is_dir():
    raise FileNotFoundError(f"PLENCH_CONFORMANCE names {VECTORS}, which is no folder")

# Inputs that name another case of the file, from which the inputs not listed are taken.
REFERENCES = ("same_as", "see_case")
# Logits beyond this are extreme: their exponentials overflow in single precision.
EXTREME = 100.0


class Case:
    """One case: inputs as float64 tensors where they are lists, and a comparison at the case's tolerance.

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

    def check(self, **actual: Any) -> None:
        """Compare named results with what the case expects; results that it does not list are left alone."""
        for key, value in actual.items():
            if key not in self.expected:
                continue
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

    def is_extreme(self) -> bool:
        """Say whether any logits of the case are extreme."""
        logits = [self[key] for key in ("z", "z_f", "z_g", "logits") if key in self.inputs]
        return any(values.abs().max() > EXTREME for values in logits)


Adapter = Callable[[Case], None]

# Values of other people's definitions that the vectors list beside ours.
NOT_OURS = {"loss_with_self_comparison"}


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
        """Say whether a case is of this kind."""
        ours = set(case.expected) - NOT_OURS
        given = all(any(fnmatchcase(key, name) for key in case.inputs) for name in self.inputs.split())
        return given and all(any(fnmatchcase(key, name) for name in self.expected.split()) for key in ours)


def cases(algorithm: str, folder: Path = VECTORS) -> list[Case]:
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


def list_cases(algorithms: Iterable[str], folder: Path = VECTORS) -> list[Any]:
    """Return the parameters of a test over all cases of these algorithms; an absent file is one skip."""
    parameters = []
    for name in algorithms:
        path = folder / f"{name}.json"
        if path.exists():
            parameters += [pytest.param(case, id=repr(case)) for case in cases(name, folder)]
        else:
            skip = pytest.mark.skip(reason=f"the folder of vectors has no {path.name}")
            parameters.append(pytest.param(None, id=f"{name}:absent", marks=skip))
    return parameters


def present_cases(algorithms: Iterable[str], folder: Path = VECTORS) -> list[Case]:
    """Return all cases of these algorithms, as far as there are files."""
    return [case for name in algorithms if (folder / f"{name}.json").exists() for case in cases(name, folder)]


def run_adapter(kinds: Sequence[Kind], case: Case) -> None:
    """Check a case by its kind; of several that fit, the one that reads most inputs.

    A case of no kind fails, and so does an expected value that nothing was compared with.
    """
    fitting = [kind for kind in kinds if kind.fits(case)]
    assert fitting, (
        f"{case} fits no adapter, the vector would go unchecked: its inputs are {sorted(case.inputs)}, "
        f"it expects {sorted(case.expected)}; known are "
        + "; ".join(f"({kind.inputs}) -> ({kind.expected})" for kind in kinds)
    )
    max(fitting, key=lambda kind: len(kind.inputs.split())).check(case)
    unchecked = set(case.expected) - case.checked - NOT_OURS
    assert not unchecked, f"{case}: nothing was compared with {sorted(unchecked)}"
    assert case.checked, f"{case}: nothing was compared; it expects {sorted(case.expected)}"


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
