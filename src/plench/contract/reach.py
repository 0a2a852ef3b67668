"""Finds everything that can be reached from an object, with the path to it."""

from __future__ import annotations

import gc
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Where a walk ends: code and its surroundings lead to every module that is loaded, and plain values nowhere.
ENDS = (types.ModuleType, type, types.CodeType, str, bytes, int, float, complex, bool, type(None))


def walk(root: object, name: str, for_state: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) for all that is reachable from `root`, each object once.

    Modules, their namespaces and classes are not entered. With `for_state`, neither are optimisers, which
    hold the parameters again, and attributes that a class lists as transient.
    """
    # Seen by identity, so all that was met is kept alive until the walk ends.
    met: list[object] = [getattr(module, "__dict__", None) for module in list(sys.modules.values())]
    seen = {id(namespace) for namespace in met}
    waiting: deque[tuple[str, Any]] = deque([(name, root)])
    while waiting:
        path, value = waiting.popleft()
        if id(value) in seen or isinstance(value, ENDS):
            continue
        seen.add(id(value))
        met.append(value)
        if for_state and isinstance(value, torch.optim.Optimizer):
            continue
        yield path, value
        waiting.extend(parts_of(path, value, for_state))


def parts_of(path: str, value: Any, for_state: bool) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds directly: by name where it has one, then what the collector knows of."""
    transient = getattr(type(value), "transient", ()) if for_state else ()
    if isinstance(value, dict):
        for key, item in list(value.items()):
            yield f"{path}[{key!r}]", item
            yield f"{path} (key)", key
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for position, item in enumerate(list(value)):
            yield f"{path}[{position}]", item
    elif isinstance(value, Tensor):
        yield f"{path}.grad", value.grad if value.is_leaf else None
        yield f"{path} (base)", value._base
    elif isinstance(value, np.ndarray):
        yield f"{path} (base)", value.base
        if value.dtype == object:
            yield path, value.tolist()
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            yield f"{path} (closure)", cell
        yield f"{path} (defaults)", (value.__defaults__, value.__kwdefaults__)
        return
    if isinstance(value, nn.Module):
        for group in (value._parameters, value._buffers, value._modules):
            for key, item in group.items():
                yield f"{path}.{key}", item
    names = vars(value) if hasattr(value, "__dict__") else {}
    for key, item in list(names.items()):
        if key not in transient:
            yield f"{path}.{key}", item
    if transient:
        return  # the collector does not know which of the values are transient
    for item in gc.get_referents(value):
        if item is not names:
            yield f"{path} (…)", item
