"""Attributes of a package that are imported when they are first asked for."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def lazy_attributes(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from the imports under `if TYPE_CHECKING`.

    Type checkers read those imports; at run time each is done when its name is first asked for. A module of
    the package never hides one of these names: `plench.train` is the function, also once
    `plench/train.py`, which `python -m` needs, has been imported.
    """
    origins = _read_imports(package)

    class LazyPackage(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            # Having imported a module, Python sets it as an attribute of its package.
            if not isinstance(value, ModuleType) or origins.get(name, package) == package:
                super().__setattr__(name, value)

    sys.modules[package].__class__ = LazyPackage

    def find(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if origins[name] == package:  # a module of the package itself
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(origins[name]), name)

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *origins})

    return sorted(origins), find, names


def _read_imports(package: str) -> dict[str, str]:
    """Return the names that a package imports for type checkers, with the modules they come from."""
    spec = importlib.util.find_spec(package)
    source = spec.loader.get_source(package) if spec and spec.loader else None  # type: ignore[attr-defined]
    blocks = (node for node in ast.parse(source or "").body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for block in blocks
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
