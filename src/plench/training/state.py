"""Saves and restores whatever an algorithm object holds, ours or a third party's.

Found and saved: parameters and buffers of every module, optimisers and other objects with a `state_dict`,
tensors, numpy arrays, numbers, strings, random generators, and lists, tuples, sets, dicts and plain objects
of those. Names in a class's `transient` are left out. What cannot be saved is reported by its path.
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plench.training.streams import decode_numpy, decode_python, encode_numpy, encode_python

MODULE_INTERNALS = frozenset(vars(nn.Module()))
# Parts of an object that hold no state of the run: code, types and settings of torch.
STATELESS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    torch.device,
    torch.dtype,
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


def restore_snapshot(owner: nn.Module, tree: Mapping[str, Any]) -> None:
    """Put saved state back into an object built the same way."""
    restore(owner, tree)


class Encoder:
    """Walks an object once, each part at its first place."""

    def __init__(self, for_prediction: bool = False) -> None:
        self.for_prediction = for_prediction
        self.seen: set[int] = set()
        self.keep: list[object] = []
        self.unsaved: list[str] = []

    def encode(self, value: Any, path: str) -> dict[str, Any]:
        """Return the saved form of a value."""
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return {"kind": "plain", "value": value}
        if isinstance(value, np.generic):
            return {"kind": "plain", "value": value.item()}
        if isinstance(value, STATELESS):
            return {"kind": "stateless"}
        # Equal tuples may or may not be one object, so each is saved where it stands: copies of a layer share
        # theirs until they are restored.
        if id(value) in self.seen and not isinstance(value, tuple):
            return {"kind": "seen"}
        self.seen.add(id(value))
        self.keep.append(value)  # an id stays unique only while its object lives
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
            state = Encoder().encode(value.state_dict(), path)
            return {"kind": "state_dict", "value": state}
        return self.encode_container(value, path)

    def encode_module(self, module: nn.Module, path: str) -> dict[str, Any]:
        """Save parameters, buffers (persistent or not), submodules and plain attributes."""
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
            "tensors": saved,
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
        if isinstance(value, dict):
            pairs = [
                [self.encode(key, path), self.encode(item, f"{path}[{key!r}]")] for key, item in value.items()
            ]
            return {"kind": "dict", "pairs": pairs}
        if hasattr(value, "__dict__") and not isinstance(value, Iterator):
            names = list(vars(value))
            return {"kind": "object", "attributes": self.encode_attributes(value, names, path)}
        self.unsaved.append(f"{path} ({type(value).__name__})")
        return {"kind": "stateless"}


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


def restore(current: Any, saved: Mapping[str, Any]) -> Any:
    """Bring `current` to the saved state, in place where it can be; return what is to stand in its place."""
    kind = saved["kind"]
    if kind in ("stateless", "seen"):
        return current
    if kind == "plain":
        return saved["value"]
    if kind == "tensor":
        return restore_tensor(current, saved["value"])
    if kind == "array":
        return saved["value"].numpy().copy()
    if kind == "module":
        return restore_module(current, saved)
    if kind == "state_dict":
        current.load_state_dict(restore(None, saved["value"]))
        return current
    if kind == "object":
        return restore_attributes(current, saved["attributes"])
    if kind == "dict":
        return restore_dict(current, saved)
    if kind in CONTAINERS:
        return restore_container(current, saved)
    return restore_generator(current, saved)


def restore_tensor(current: Any, value: Tensor) -> Tensor:
    """Copy into the tensor that is there if it fits, else return the saved one."""
    if isinstance(current, Tensor):
        if current.shape == value.shape and current.dtype == value.dtype:
            with torch.no_grad():
                current.copy_(value)
            return current
        return value.to(current.device)
    return value.clone()


def restore_module(module: nn.Module, saved: Mapping[str, Any]) -> nn.Module:
    """Restore a module and what it holds."""
    for name, value in saved["tensors"].items():
        current = getattr(module, name)
        replaced = restore(current, value)
        if replaced is not current:
            setattr(module, name, replaced)
    for name, value in saved["modules"].items():
        restore(getattr(module, name), value)
    restore_attributes(module, saved["attributes"])
    return module


def restore_attributes(owner: Any, attributes: Mapping[str, Any]) -> Any:
    """Restore plain attributes by name."""
    for name, value in attributes.items():
        current = vars(owner).get(name)
        replaced = restore(current, value)
        if replaced is not current or name not in vars(owner):
            setattr(owner, name, replaced)
    return owner


def restore_dict(current: Any, saved: Mapping[str, Any]) -> dict[Any, Any]:
    """Restore a dict, keeping the object that is there."""
    present = current if isinstance(current, dict) else {}
    values = {}
    for key_saved, value in saved["pairs"]:
        key = restore(None, key_saved)
        values[key] = restore(present.get(key), value)
    present.clear()
    present.update(values)
    return present


def restore_container(current: Any, saved: Mapping[str, Any]) -> Any:
    """Restore a list, tuple, set or deque element by element."""
    cls = CONTAINERS[saved["kind"]]
    present = list(current) if type(current) is cls and len(current) == len(saved["items"]) else None
    items = [restore(present[i] if present else None, item) for i, item in enumerate(saved["items"])]
    if cls is list and isinstance(current, list):
        current[:] = items
        return current
    return deque(items, maxlen=saved["limit"]) if cls is deque else cls(items)


def restore_generator(current: Any, saved: Mapping[str, Any]) -> Any:
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
        value = restore(None, saved["value"])
        if not isinstance(current, np.random.Generator):
            current = np.random.Generator(getattr(np.random, value["bit_generator"])())
        current.bit_generator.state = value
        return current
    if kind == "python generator":
        python = current if isinstance(current, random.Random) else random.Random()
        python.setstate(decode_python(saved["value"]))
        return python
    raise ValueError(f"unknown kind of saved state {kind!r}")


def saved_values(node: Mapping[str, Any], path: str, optimisers: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the values of a saved tree with their paths, those of optimisers only if wanted."""
    kind = node["kind"]
    parts: dict[str, Any] = {}
    if kind == "module":
        named = {**node["tensors"], **node["modules"], **node["attributes"]}
        parts = {f"{path}.{name}": part for name, part in named.items()}
    elif kind == "object":
        parts = {f"{path}.{name}": part for name, part in node["attributes"].items()}
    elif kind == "dict":
        parts = {f"{path}[{key.get('value')!r}]": part for key, part in node["pairs"]}
    elif kind in CONTAINERS:
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
