"""Puts a snapshot back into an object that was built the same way."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.errors import ResumeError
from plench.training.state import CONTAINERS
from plench.training.streams import decode_numpy, decode_python

Saved = Mapping[str, Any]


def restore_snapshot(owner: nn.Module, tree: Saved) -> None:
    """Bring an object to the saved state; raise ResumeError, naming the place, where it cannot take it."""
    parameter = next(owner.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    Decoder(device).restore(owner, tree, type(owner).__name__)


PARTS = ("tensors", "modules", "attributes")


def check_names(built: Saved, saved: Saved, path: str, extra: bool = True) -> None:
    """Raise ResumeError, naming the place, where a checkpoint's state has other names than the algorithm's.

    `built` is a snapshot of the algorithm as it was just built. What that has and the checkpoint lacks is
    always refused; what the checkpoint has besides, unless `extra`: the same code may make it after __init__.
    """
    if built["kind"] != saved["kind"]:
        return  # is refused, with its types, where it is restored, or is a value of another type
    now, before = named_parts(built), named_parts(saved)
    missing = [name for name in now if name not in before]
    unknown = [name for name in before if name not in now]
    if missing or (unknown and not extra):
        found = f"it lacks {path}.{missing[0]}" if missing else f"it has {path}.{unknown[0]} besides"
        raise ResumeError(
            f"the checkpoint's state is not that of the algorithm: {found}; continue with the version that "
            "began the run, or delete its folder to start over"
        )
    for name, part in now.items():
        check_names(part, before[name], f"{path}.{name}", extra)


def named_parts(node: Saved) -> dict[str, Saved]:
    """Return what a saved module or object holds by name; one that is None at first may change its group."""
    return {name: part for group in PARTS for name, part in node.get(group, {}).items()}


class Decoder:
    """Walks a saved tree beside the object: in place where that can be, else with new values.

    `places` holds what was restored by the number of its first place, for parts that are held twice.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.places: dict[int, Any] = {}

    def restore(self, current: Any, saved: Saved, path: str) -> Any:
        """Bring `current` to the saved state; return what is to stand in its place."""
        kind = saved["kind"]
        if kind == "seen":
            return self.places.get(saved["number"], current)
        if "number" in saved and current is not None:
            self.places[saved["number"]] = current  # for what lies inside and points back
        restored = self.restore_content(kind, current, saved, path)
        if "number" in saved:
            self.places[saved["number"]] = restored
        return restored

    def restore_content(self, kind: str, current: Any, saved: Saved, path: str) -> Any:
        """Restore one value by its kind."""
        if kind == "stateless":
            return current
        if kind == "plain":
            return saved["value"]
        if kind == "number":
            return restore_number(saved)
        if kind == "tensor":
            return self.restore_tensor(current, saved["value"])
        if kind == "array":
            return saved["value"].numpy().copy()
        if kind == "dict":
            return self.restore_dict(current, saved, path)
        if kind in CONTAINERS:
            return self.restore_container(current, saved, path)
        if kind in GENERATORS:
            return restore_generator(current, saved)
        return self.restore_typed(kind, current, saved, path)

    def restore_typed(self, kind: str, current: Any, saved: Saved, path: str) -> Any:
        """Restore what needs an object of its type to be there."""
        if type(current).__qualname__ != saved["type"]:
            raise ResumeError(
                f"{path} holds a {saved['type']} in the checkpoint, but a {type(current).__name__} after the "
                "algorithm is built: an algorithm must make all its parts in __init__ to be resumable"
            )
        if kind == "enum":
            return type(current)[saved["value"]]
        if kind == "module":
            return self.restore_module(current, saved, path)
        if kind == "state_dict":
            current.load_state_dict(Decoder(self.device).restore(None, saved["value"], path))
            return current
        if kind == "object":
            return self.restore_attributes(current, saved["attributes"], path)
        if kind == "frozen object":
            values = {
                name: self.restore(vars(current).get(name), value, f"{path}.{name}")
                for name, value in saved["attributes"].items()
            }
            return dataclasses.replace(current, **values)
        if kind == "named tuple":
            pairs = zip(current, saved["items"], strict=True)
            return type(current)(*(self.restore(now, item, path) for now, item in pairs))
        raise ValueError(f"unknown kind of saved state {kind!r}")

    def restore_tensor(self, current: Any, value: Tensor) -> Tensor:
        """Copy into the tensor that is there if it fits, else return the saved one on the run's device."""
        if isinstance(current, Tensor) and current.shape == value.shape and current.dtype == value.dtype:
            with torch.no_grad():
                current.copy_(value)
            return current
        return value.to(current.device if isinstance(current, Tensor) else self.device, copy=True)

    def restore_module(self, module: nn.Module, saved: Saved, path: str) -> nn.Module:
        """Restore a module and what it holds."""
        for name, value in saved["tensors"].items():
            current = getattr(module, name, None)
            replaced = self.restore(current, value, f"{path}.{name}")
            if not hasattr(module, name):  # a buffer that was registered after __init__
                module.register_buffer(name, replaced)
            elif replaced is not current:
                setattr(module, name, replaced)
        for name, entry in saved["gradients"].items():
            parameter = getattr(module, name)
            parameter.requires_grad_(entry["learns"])
            gradient = entry["gradient"]
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        for name, value in saved["modules"].items():
            current = getattr(module, name, None)
            replaced = self.restore(current, value, f"{path}.{name}")
            if replaced is not current:
                setattr(module, name, replaced)
        self.restore_attributes(module, saved["attributes"], path)
        module.training = saved["training"]
        return module

    def restore_attributes(self, owner: Any, attributes: Saved, path: str) -> Any:
        """Restore plain attributes by name."""
        for name, value in attributes.items():
            current = vars(owner).get(name)
            replaced = self.restore(current, value, f"{path}.{name}")
            if replaced is not current or name not in vars(owner):
                setattr(owner, name, replaced)
        return owner

    def restore_dict(self, current: Any, saved: Saved, path: str) -> dict[Any, Any]:
        """Restore a dict, keeping the object that is there."""
        if current is None and saved["type"] in ("dict", "OrderedDict"):
            current = {}
        if type(current).__qualname__ != saved["type"] and type(current) is not dict:
            raise ResumeError(
                f"{path} holds a {saved['type']} in the checkpoint, but a {type(current).__name__} after the "
                "algorithm is built: make it in __init__"
            )
        if "number" in saved:
            self.places[saved["number"]] = current
        values = {}
        for key, value in saved["pairs"]:
            name = key["value"]
            values[name] = self.restore(current.get(name), value, f"{path}[{name!r}]")
        current.clear()
        current.update(values)
        kept: dict[Any, Any] = current
        return kept

    def restore_container(self, current: Any, saved: Saved, path: str) -> Any:
        """Restore a list, tuple, set or deque element by element."""
        cls = CONTAINERS[saved["kind"]]
        present = list(current) if type(current) is cls and len(current) == len(saved["items"]) else None
        items = [
            self.restore(present[i] if present else None, item, f"{path}[{i}]")
            for i, item in enumerate(saved["items"])
        ]
        if cls is list and type(current) is list:
            current[:] = items
            return current
        return deque(items, maxlen=saved["limit"]) if cls is deque else cls(items)


BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
GENERATORS = ("torch generator", "numpy state", "numpy generator", "python generator")


def restore_number(saved: Saved) -> Any:
    """Restore a number of numpy; of other types a value may stand for as much memory as it says."""
    dtype = np.dtype(saved["dtype"])
    if dtype.kind not in "biufcSU":
        raise ValueError(f"a number of type {dtype}")
    return dtype.type(saved["value"])


def restore_generator(current: Any, saved: Saved) -> Any:
    """Restore a random generator, making one if there is none."""
    kind = saved["kind"]
    if kind == "torch generator":
        generator = current if isinstance(current, torch.Generator) else torch.Generator(saved["device"])
        generator.set_state(saved["value"])
        return generator
    if kind == "numpy state":
        state = current if isinstance(current, np.random.RandomState) else np.random.RandomState()
        state.set_state(decode_numpy(saved["value"]))
        return state
    if kind == "numpy generator":
        value = Decoder(torch.device("cpu")).restore(None, saved["value"], "")
        if not isinstance(current, np.random.Generator):
            name = value["bit_generator"]
            if name not in BIT_GENERATORS:  # numpy.random has other names, which a file must not call
                raise ValueError(f"unknown bit generator {name!r}; known are {', '.join(BIT_GENERATORS)}")
            current = np.random.Generator(getattr(np.random, name)())
        current.bit_generator.state = value
        return current
    python = current if isinstance(current, random.Random) else random.Random()
    python.setstate(decode_python(saved["value"]))
    return python
