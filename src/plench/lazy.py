"""Attributes of a package that are imported when they are first asked for."""

import ast
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def lazy_attributes(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from the imports under `if TYPE_CHECKING`.

    Type checkers read those imports; at run time each is done when its name is first asked for.
    """
    origins = _read_imports(package)

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
