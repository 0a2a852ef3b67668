"""Finds and copies whatever an algorithm object holds, ours or a third party's; `restore.py` puts it back.

Found and saved: parameters (with pending gradients), buffers and mode of every module, optimisers and other
objects with a `state_dict`, tensors, numpy arrays and numbers, plain values, enum members, random
generators, and lists, tuples, sets, dicts and plain objects of those. An object held in two places is saved
once. Names in a class's `transient` are left out. What cannot be saved is reported by its path.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.training.streams import encode_numpy, encode_python

MODULE_INTERNALS = frozenset(vars(nn.Module()))
# By exact type: a subclass (an enum, a number of numpy) is something else and would not be read back.
PLAIN = (type(None), bool, int, float, str, bytes)
# Parts of an object that hold no state of the run: code, types and settings of torch.
STATELESS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    torch.device,
    torch.dtype,
    logging.Logger,
)
CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "deque": deque}


class Snapshot:
    """What was found on an object: a tree of plain values and tensors, and the paths left out."""

    def __init__(self, tree: dict[str, Any], unsaved: list[str]) -> None:
        self.tree = tree
        self.unsaved = unsaved


def take_snapshot(owner: nn.Module, for_prediction: bool = False) -> Snapshot:
    """Copy all state of a module and of what it holds; for prediction without optimisers and example rows."""
    encoder = Encoder(for_prediction)
    tree = encoder.encode(owner, type(owner).__name__)
    return Snapshot(tree, encoder.unsaved)


class Encoder:
    """Walks an object once; a part met again refers to its first place by number."""

    def __init__(self, for_prediction: bool = False) -> None:
        self.for_prediction = for_prediction
        self.numbers: dict[int, int] = {}
        self.keep: list[object] = []
        self.unsaved: list[str] = []

    def encode(self, value: Any, path: str) -> dict[str, Any]:
        """Return the saved form of a value."""
        if type(value) in PLAIN:
            return {"kind": "plain", "value": value}
        if isinstance(value, np.generic) and value.dtype.kind in "biufcSU":
            return {"kind": "number", "dtype": value.dtype.str, "value": value.item()}
        if isinstance(value, Enum):
            return {"kind": "enum", "type": type(value).__qualname__, "value": value.name}
        if isinstance(value, STATELESS):
            return {"kind": "stateless"}
        # Equal tuples may or may not be one object, so each is saved where it stands: copies of a layer share
        # theirs until they are restored.
        if isinstance(value, tuple):
            return self.encode_content(value, path)
        if id(value) in self.numbers:
            return {"kind": "seen", "number": self.numbers[id(value)]}
        number = self.numbers[id(value)] = len(self.numbers)
        self.keep.append(value)  # an id stays unique only while its object lives
        return {"number": number, **self.encode_content(value, path)}

    def encode_content(self, value: Any, path: str) -> dict[str, Any]:
        """Return the saved form of a value that is met for the first time."""
        if isinstance(value, Tensor):
            return {"kind": "tensor", "value": value.detach().cpu().clone()}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            return {"kind": "array", "value": torch.from_numpy(value.copy())}
        if isinstance(value, nn.Module):
            return self.encode_module(value, path)
        if self.for_prediction and isinstance(value, torch.optim.Optimizer):
            return {"kind": "stateless"}
        generator = encode_generator(value)
        if generator is not None:
            return generator
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            inner = Encoder()
            state = inner.encode(value.state_dict(), path)
            self.unsaved += inner.unsaved
            return {"kind": "state_dict", "type": type(value).__qualname__, "value": state}
        return self.encode_container(value, path)

    def encode_module(self, module: nn.Module, path: str) -> dict[str, Any]:
        """Save parameters, buffers (persistent or not), submodules, mode and plain attributes."""
        left_out = getattr(module, "per_example_names", ()) if self.for_prediction else ()
        tensors = {**module._parameters, **module._buffers}
        saved = {
            name: self.encode(value, f"{path}.{name}")
            for name, value in tensors.items()
            if name not in left_out
        }
        modules = {name: self.encode(value, f"{path}.{name}") for name, value in module._modules.items()}
        names = [name for name in vars(module) if name not in MODULE_INTERNALS]
        return {
            "kind": "module",
            "type": type(module).__qualname__,
            "training": module.training,
            "tensors": saved,
            "gradients": {} if self.for_prediction else encode_gradients(module),
            "modules": modules,
            "attributes": self.encode_attributes(module, names, path),
        }

    def encode_attributes(self, owner: Any, names: list[str], path: str) -> dict[str, Any]:
        """Save the named attributes, transient ones aside."""
        transient = getattr(type(owner), "transient", ())
        kept = [name for name in names if name not in transient]
        return {name: self.encode(vars(owner)[name], f"{path}.{name}") for name in kept}

    def encode_container(self, value: Any, path: str) -> dict[str, Any]:
        """Save containers and plain objects; report the rest."""
        for kind, cls in CONTAINERS.items():
            if type(value) is cls:
                items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
                limit = value.maxlen if isinstance(value, deque) else None
                return {"kind": kind, "items": items, "limit": limit}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return {"kind": "named tuple", "type": type(value).__qualname__, "items": items}
        if isinstance(value, dict):
            return self.encode_dict(value, path)
        if has_plain_attributes(value):
            return {
                "kind": "frozen object" if is_frozen(value) else "object",
                "type": type(value).__qualname__,
                "attributes": self.encode_attributes(value, list(vars(value)), path),
            }
        self.unsaved.append(f"{path} ({type(value).__name__})")
        return {"kind": "stateless"}

    def encode_dict(self, value: dict[Any, Any], path: str) -> dict[str, Any]:
        """Save a dict whose keys are plain values; report entries under other keys."""
        pairs = []
        for key, item in value.items():
            if type(key) in PLAIN:
                pairs.append([{"kind": "plain", "value": key}, self.encode(item, f"{path}[{key!r}]")])
            else:
                self.unsaved.append(f"{path} (an entry under a key of type {type(key).__name__})")
        return {"kind": "dict", "type": type(value).__qualname__, "pairs": pairs}


def has_plain_attributes(value: Any) -> bool:
    """Say whether an object's state is its attributes; that of iterators and bound functions is not."""
    return hasattr(value, "__dict__") and not isinstance(value, Iterator | functools.partial)


def is_frozen(value: Any) -> bool:
    """Say whether an object is of a frozen dataclass, whose attributes cannot be set."""
    return dataclasses.is_dataclass(value) and bool(vars(type(value))["__dataclass_params__"].frozen)


def encode_gradients(module: nn.Module) -> dict[str, Any]:
    """Save which parameters learn, and gradients that wait for a step, by name."""
    return {
        name: {
            "learns": parameter.requires_grad,
            "gradient": None if parameter.grad is None else parameter.grad.detach().cpu().clone(),
        }
        for name, parameter in module._parameters.items()
        if parameter is not None
    }


def encode_generator(value: Any) -> dict[str, Any] | None:
    """Save a random generator of torch, numpy or Python; None for anything else."""
    if isinstance(value, torch.Generator):
        return {"kind": "torch generator", "device": str(value.device), "value": value.get_state()}
    if isinstance(value, np.random.RandomState):
        return {"kind": "numpy state", "value": encode_numpy(value.get_state(legacy=False))}
    if isinstance(value, np.random.Generator):
        return {"kind": "numpy generator", "value": Encoder().encode(value.bit_generator.state, "")}
    if isinstance(value, random.Random):
        return {"kind": "python generator", "value": encode_python(value.getstate())}
    return None


def saved_values(node: Mapping[str, Any], path: str, optimisers: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the values of a saved tree with their paths, those of optimisers only if wanted."""
    kind = node["kind"]
    parts: dict[str, Any] = {}
    if kind == "module":
        named = {**node["tensors"], **node["modules"], **node["attributes"]}
        parts = {f"{path}.{name}": part for name, part in named.items()}
    elif "attributes" in node:
        parts = {f"{path}.{name}": part for name, part in node["attributes"].items()}
    elif kind == "dict":
        parts = {f"{path}[{key.get('value')!r}]": part for key, part in node["pairs"]}
    elif "items" in node:
        parts = {f"{path}[{i}]": part for i, part in enumerate(node["items"])}
    elif kind == "state_dict":
        parts = {path: node["value"]} if optimisers else {}
    elif "value" in node:
        yield path, node["value"]
    for name, part in parts.items():
        yield from saved_values(part, name, optimisers)


def list_state(owner: nn.Module) -> list[dict[str, Any]]:
    """List the tensors a module keeps beside its parameters: name, shape, dtype and bytes of each."""
    weights = {name for name, _ in owner.named_parameters(remove_duplicate=False)}
    rows = []
    for path, value in saved_values(take_snapshot(owner).tree, "", optimisers=False):
        name = path.removeprefix(".")
        if isinstance(value, Tensor) and name not in weights:
            rows.append(
                {
                    "name": name,
                    "shape": list(value.shape),
                    "dtype": str(value.dtype).removeprefix("torch."),
                    "bytes": value.numel() * value.element_size(),
                }
            )
    return rows
