"""Checkpoints and models: the state of an algorithm is found on the object, saved safely and put back.

Saved are parameters (with pending gradients), buffers and mode of every module, optimisers and other objects
with a `state_dict`, tensors, numpy arrays and numbers, plain values, enum members, random generators, and
lists, tuples, sets, dicts and plain objects of those. An object held in two places is saved once. Names in a
class's `transient` are left out. What cannot be saved is reported by its path.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from plench.errors import PlenchError, ResumeError
from plench.files import sha256
from plench.runs.folder import RunStore
from plench.training.environment import decode_numpy, encode_numpy

FORMAT = 1
SEAL = b"\nplench sha256 "  # follows the content of a file, in front of its hash
MODULE_INTERNALS = frozenset(vars(nn.Module()))
# By exact type: a subclass (an enum, a number of numpy) is something else and would not be read back.
PLAIN = (type(None), bool, int, float, str, bytes)
# Parts of an object without state of the run: code, types and settings of torch.
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
# Kinds of random generators, with how their state is read and set.
GENERATORS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "torch generator": (torch.Generator, lambda made: made.get_state(), torch.Generator.set_state),
    "numpy state": (
        np.random.RandomState,
        lambda made: encode_numpy(made.get_state(legacy=False)),
        lambda made, state: made.set_state(decode_numpy(state)),
    ),
    "numpy generator": (
        np.random.Generator,
        lambda made: Encoder().encode(made.bit_generator.state, ""),
        lambda made, tree: setattr(made.bit_generator, "state", Decoder().restore(None, tree, "")),
    ),
    "python generator": (random.Random, random.Random.getstate, random.Random.setstate),
}

logger = logging.getLogger("plench")

Saved = Mapping[str, Any]


# Files.


def dump(payload: dict[str, Any]) -> bytes:
    """Return tensors and plain values as bytes, with their hash at the end."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **payload}, buffer)
    buffer.write(SEAL + sha256(buffer.getbuffer()).encode("ascii"))
    return buffer.getvalue()


def parse(content: bytes) -> dict[str, Any]:
    """Read bytes made by `dump`; nothing in them is executed. Raises ValueError if they are damaged."""
    body, seal, digest = content[: -len(SEAL) - 64], content[-len(SEAL) - 64 : -64], content[-64:]
    if seal == SEAL:  # files of 0.1.0 have no hash
        if sha256(body).encode("ascii") != digest:
            raise ValueError("damaged file: it was changed since it was written")
        content = body
    try:
        payload = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise ValueError(f"damaged file: {error}") from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ValueError("not a file of this format")
    return payload


def read_checkpoints(store: RunStore) -> Iterator[dict[str, Any]]:
    """Yield the checkpoints of a run that are intact, the newest first; others are removed."""
    for name, content in store.read_checkpoints():
        try:
            payload = parse(content)
            if "environment" not in payload:
                raise ValueError("not a checkpoint")
        except ValueError as error:
            logger.warning("%s in %s cannot be used (%s)", name, store.folder, error)
            store.discard(name)
        else:
            yield payload


@contextmanager
def fitting(what: str, kind: type[PlenchError]) -> Iterator[None]:
    """Turn any error inside into one of ours: a file contains what does not fit the algorithm."""
    try:
        yield
    except Exception as error:
        if isinstance(error, kind) or (isinstance(error, PlenchError) and not isinstance(error, ResumeError)):
            raise
        raise kind(f"{what} ({type(error).__name__}: {error})") from error


# Saving.


class Snapshot(NamedTuple):
    """What was found on an object: a tree of plain values and tensors, and the paths left out."""

    tree: dict[str, Any]
    unsaved: list[str]


def take_snapshot(owner: nn.Module, for_prediction: bool = False) -> Snapshot:
    """Copy all state of a module and its parts; for prediction without optimisers and rows of examples."""
    encoder = Encoder(for_prediction)
    return Snapshot(encoder.encode(owner, type(owner).__name__), encoder.unsaved)


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
            return self.encode_part(value, path)
        if id(value) in self.numbers:
            return {"kind": "seen", "number": self.numbers[id(value)]}
        number = self.numbers[id(value)] = len(self.numbers)
        self.keep.append(value)  # an id stays unique only while its object lives
        return {"number": number, **self.encode_part(value, path)}

    def encode_part(self, value: Any, path: str) -> dict[str, Any]:
        """Return the saved form of an object that is met for the first time."""
        if isinstance(value, Tensor) and type(value.detach()) is Tensor:
            return {"kind": "tensor", "value": value.detach().cpu().clone()}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            return {"kind": "array", "value": torch.from_numpy(value.copy())}
        if isinstance(value, nn.Module):
            return self.encode_module(value, path)
        if self.for_prediction and isinstance(value, torch.optim.Optimizer):
            return {"kind": "stateless"}
        for kind, (cls, read, _) in GENERATORS.items():
            if isinstance(value, cls):
                return {"kind": kind, "value": read(value)}
        named = {"type": type(value).__qualname__}
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            inner = Encoder()
            state = inner.encode(value.state_dict(), path)
            self.unsaved += inner.unsaved
            return {"kind": "state_dict", **named, "value": state}
        if isinstance(value, dict):
            pairs = []
            for key, item in value.items():
                if type(key) in PLAIN:
                    pairs.append([{"kind": "plain", "value": key}, self.encode(item, f"{path}[{key!r}]")])
                else:
                    self.unsaved.append(f"{path} (an entry under a key of type {type(key).__name__})")
            return {"kind": "dict", **named, "pairs": pairs}
        is_named_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
        if type(value) in CONTAINERS.values() or is_named_tuple:
            items = [self.encode(item, f"{path}[{number}]") for number, item in enumerate(value)]
            if is_named_tuple:
                return {"kind": "named tuple", **named, "items": items}
            limit = value.maxlen if isinstance(value, deque) else None
            return {"kind": type(value).__name__, "items": items, "limit": limit}
        # A tensor of the author's own type would make the file unreadable.
        if hasattr(value, "__dict__") and not isinstance(value, Iterator | functools.partial | Tensor):
            frozen = dataclasses.is_dataclass(value) and vars(type(value))["__dataclass_params__"].frozen
            attributes = self.encode_attributes(value, vars(value), path)
            return {"kind": "frozen object" if frozen else "object", **named, "attributes": attributes}
        self.unsaved.append(f"{path} ({type(value).__name__})")
        return {"kind": "stateless"}

    def encode_module(self, module: nn.Module, path: str) -> dict[str, Any]:
        """Save parameters, buffers (persistent or not), submodules, mode and plain attributes."""
        left_out: set[str] = set()
        if self.for_prediction:
            left_out.update(getattr(module, "per_example_names", ()), getattr(module, "training_only", ()))
        tensors = {k: v for k, v in {**module._parameters, **module._buffers}.items() if k not in left_out}
        modules = {k: v for k, v in module._modules.items() if k not in left_out}
        attributes = [name for name in vars(module) if name not in MODULE_INTERNALS]
        gradients = {
            name: {
                "learns": parameter.requires_grad,
                "gradient": None if parameter.grad is None else parameter.grad.detach().cpu().clone(),
            }
            for name, parameter in module._parameters.items()
            if parameter is not None and not self.for_prediction
        }
        return {
            "kind": "module",
            "type": type(module).__qualname__,
            "training": module.training,
            "tensors": {name: self.encode(value, f"{path}.{name}") for name, value in tensors.items()},
            "gradients": gradients,
            "modules": {name: self.encode(value, f"{path}.{name}") for name, value in modules.items()},
            "attributes": self.encode_attributes(module, attributes, path),
        }

    def encode_attributes(self, owner: Any, names: Iterable[str], path: str) -> dict[str, Any]:
        """Save the named attributes, except for transient ones."""
        transient = getattr(type(owner), "transient", ())
        kept = [name for name in names if name not in transient]
        return {name: self.encode(vars(owner)[name], f"{path}.{name}") for name in kept}


def saved_values(node: Saved, path: str, optimisers: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the values of a saved tree with their paths, those of optimisers only if wanted."""
    kind = node["kind"]
    parts: dict[str, Any] = {}
    if "attributes" in node:
        parts = {f"{path}.{name}": part for name, part in named_parts(node).items()}
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
    """List the tensors of a module that are not parameters: name, shape, dtype and bytes of each."""
    weights = {name for name, _ in owner.named_parameters(remove_duplicate=False)}
    rows = []
    for path, value in saved_values(take_snapshot(owner).tree, "", optimisers=False):
        name = path.removeprefix(".")
        if isinstance(value, Tensor) and name not in weights:
            dtype = str(value.dtype).removeprefix("torch.")
            n_bytes = value.numel() * value.element_size()
            rows.append({"name": name, "shape": list(value.shape), "dtype": dtype, "bytes": n_bytes})
    return rows


# Restoring.


def restore_snapshot(owner: nn.Module, tree: Saved) -> None:
    """Bring an object to the saved state. Raises ResumeError, naming the place, where it does not fit."""
    parameter = next(owner.parameters(), None)
    Decoder(None if parameter is None else parameter.device).restore(owner, tree, type(owner).__name__)


def check_names(built: Saved, saved: Saved, path: str, extra: bool = True) -> None:
    """Raise ResumeError, naming the place, where a checkpoint's state has other names than the algorithm's.

    `built` is a snapshot of the algorithm as it was just built. Parts that the checkpoint lacks are always
    refused; additional ones unless `extra`, since the same code may make them after __init__.
    """
    if built["kind"] != saved["kind"]:
        return  # is refused, with its types, where it is restored, or is a value of another type
    now, before = named_parts(built), named_parts(saved)
    missing = [name for name in now if name not in before]
    unknown = [name for name in before if name not in now]
    if missing or (unknown and not extra):
        found = f"it lacks {path}.{missing[0]}" if missing else f"it also has {path}.{unknown[0]}"
        raise ResumeError(
            f"the checkpoint's state is not that of the algorithm: {found}; resume with the version that "
            "started the run, or delete its folder to start over"
        )
    for name, part in now.items():
        check_names(part, before[name], f"{path}.{name}", extra)


def named_parts(node: Saved) -> dict[str, Saved]:
    """Return the parts of a saved module or object by name; a part that is None may change its group."""
    groups = ("tensors", "modules", "attributes")
    return {name: part for group in groups for name, part in node.get(group, {}).items()}


class Decoder:
    """Walks a saved tree and the object together: restores in place where possible, else with new values.

    `places` has what was restored by the number of its first place, for parts that are held twice.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self.places: dict[int, Any] = {}

    def restore(self, current: Any, saved: Saved, path: str) -> Any:
        """Bring `current` to the saved state; return what is to stand in its place."""
        kind = saved["kind"]
        if kind == "seen":
            return self.places.get(saved["number"], current)
        if "number" in saved and current is not None:
            self.places[saved["number"]] = current  # for what lies inside and points back
        restored = self.restore_part(kind, current, saved, path)
        if "number" in saved:
            self.places[saved["number"]] = restored
        return restored

    def restore_part(self, kind: str, current: Any, saved: Saved, path: str) -> Any:
        """Restore one value by its kind."""
        if kind == "stateless":
            return current
        if kind == "plain":
            return saved["value"]
        if kind == "number":
            return np.dtype(saved["dtype"]).type(saved["value"])
        if kind == "tensor":
            value = saved["value"]
            if isinstance(current, Tensor) and (current.shape, current.dtype) == (value.shape, value.dtype):
                with torch.no_grad():
                    return current.copy_(value)
            return value.to(current.device if isinstance(current, Tensor) else self.device, copy=True)
        if kind == "array":
            return saved["value"].numpy().copy()
        if kind == "dict":
            return self.restore_dict(current, saved, path)
        if kind in CONTAINERS:
            cls = CONTAINERS[kind]
            present = list(current) if type(current) is cls and len(current) == len(saved["items"]) else None
            items = [
                self.restore(present[i] if present else None, item, f"{path}[{i}]")
                for i, item in enumerate(saved["items"])
            ]
            if cls is list and type(current) is list:
                current[:] = items
                return current
            return deque(items, maxlen=saved["limit"]) if cls is deque else cls(items)
        made, _, set_state = GENERATORS.get(kind, (None, None, None))
        fits = isinstance(current, made) if made else type(current).__qualname__ == saved["type"]
        if not fits:
            raise ResumeError(
                f"{path} holds a {saved.get('type', kind)} in the checkpoint, but a {type(current).__name__} "
                "after the algorithm is built: an algorithm must make all its parts in __init__ to be "
                "resumable"
            )
        if set_state:
            set_state(current, saved["value"])
            return current
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

    def restore_module(self, module: nn.Module, saved: Saved, path: str) -> nn.Module:
        """Restore a module and its parts."""
        for name, value in {**saved["tensors"], **saved["modules"]}.items():
            current = getattr(module, name, None)
            replaced = self.restore(current, value, f"{path}.{name}")
            if name in saved["tensors"] and not hasattr(module, name):  # registered after __init__
                module.register_buffer(name, replaced)
            elif replaced is not current:
                setattr(module, name, replaced)
        for name, entry in saved["gradients"].items():
            parameter = getattr(module, name)
            parameter.requires_grad_(entry["learns"])
            gradient = entry["gradient"]
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
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

    def restore_dict(self, current: Any, saved: Saved, path: str) -> Any:
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
        return current
