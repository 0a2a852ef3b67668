"""Finds what the files of a package declare. A duplicate name or a file that fails to import is an error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from plench.errors import PlenchError
from plench.names import normalise


class DiscoveryError(PlenchError):
    """A file of the package that cannot be imported, or two that declare the same name."""


def find_members(package: str, what: str, name_of: Callable[[Any], str | None]) -> dict[str, Any]:
    """Import every module of `package` (sub-packages and `base` aside) and collect what `name_of` names.

    A member counts in the module that defines it: classes by `__module__`, other objects by a public
    module-level name. Names that differ only in case and punctuation count as the same.
    """
    parent = importlib.import_module(package)
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for info in sorted(pkgutil.iter_modules(parent.__path__), key=lambda info: info.name):
        if info.ispkg or info.name == "base":
            continue
        module_name = f"{package}.{info.name}"
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise DiscoveryError(f"{what} file {module_name} fails to import: {error!r}") from error
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ != module_name:
                continue
            name = name_of(value)
            if name is None or found.get(name) is value:
                continue
            key = normalise(name)
            if key in origin:
                raise DiscoveryError(f"{what} {name!r} is declared twice: in {origin[key]} and {module_name}")
            found[name] = value
            origin[key] = module_name
    return found
