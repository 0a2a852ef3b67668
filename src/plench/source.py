"""Classes and other objects that are given in Python, not by name: their source as a file of its own.

A class of a notebook exists in one process only. Its source, with that of the functions and classes it uses
and with the imports it needs, is written as a Python file, from which workers, later sessions and other
people load it.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import math
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from plench.errors import UsageError
from plench.text import short_repr

MEMBER = "MEMBER"  # the name of an object that is not a class, in its file
FUTURE = "from __future__ import annotations\n"


class NotSelfContainedError(UsageError):
    """An object whose source cannot be written as a file of its own; the text says why."""


def find_module(value: Any) -> tuple[ModuleType, str] | None:
    """Return the imported module that declares an object, and its name there, or None (notebook, script)."""
    parts = [value] if isinstance(value, type | FunctionType) else vars(value).values()
    for name in {getattr(part, "__module__", None) for part in parts if callable(part)} - {"__main__", None}:
        module = sys.modules.get(str(name))
        if module is not None and getattr(module, "__file__", None):
            for own, held in vars(module).items():
                if held is value:
                    return module, own
    return None


def write_member(value: Any) -> tuple[str, str]:
    """Return an object's source as the text of a Python file, and its name in there.

    Raises NotSelfContainedError if it uses something that cannot be written.
    """
    text = SourceText()
    if isinstance(value, type | FunctionType):
        text.bind(value.__name__, value)
        return text.join(), value.__name__
    text.parts.append(f"{MEMBER} = {text.express(value, 'it')}\n")
    return text.join(), MEMBER


class SourceText:
    """Imports and definitions, each name once, those that others need first."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self.imports: list[str] = []
        self.parts: list[str] = []

    def join(self) -> str:
        """Return the text of the file."""
        return "\n".join([FUTURE, *sorted(self.imports), "\n", "\n\n".join(self.parts)])

    def bind(self, name: str, value: Any) -> None:
        """Make a name stand for a value."""
        if name in self.bound:
            if self.bound[name] is not value:
                raise NotSelfContainedError(f"{name} stands for two things; was it defined again?")
            return
        self.bound[name] = value
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        own = (
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__qualname__", None) or name
        )
        renamed = f" as {name}" if name != own else ""
        if isinstance(value, ModuleType):
            self.imports.append(f"import {own}{renamed}")
        elif home is not None and home.__name__ != "__main__" and getattr(home, own, None) is value:
            self.imports.append(f"from {home.__name__} import {own}{renamed}")
        elif isinstance(value, type | FunctionType):
            source, names = find_source(value)
            for used in list_globals(source):
                if used in names and not used.startswith("__"):
                    self.bind(used, names[used])
            self.parts.append(
                source if name == value.__name__ else f"{source}\n\n{name} = {value.__name__}\n"
            )
        else:
            self.parts.append(f"{name} = {self.express(value, name)}\n")

    def express(self, value: Any, name: str) -> str:
        """Return a value as Python code."""
        if isinstance(value, type | FunctionType):
            if value.__name__.isidentifier():
                self.bind(value.__name__, value)
                return value.__name__
        elif value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        elif type(value) is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        elif type(value) in (list, tuple, set, frozenset):
            parts = ", ".join(self.express(part, name) for part in value)
            return f"{type(value).__name__}([{parts}])"
        elif type(value) is dict:
            pairs = ((self.express(key, name), self.express(part, name)) for key, part in value.items())
            return "{" + ", ".join(f"{key}: {part}" for key, part in pairs) + "}"
        elif is_dataclass(value):
            given = [
                each for each in fields(value) if each.init and getattr(value, each.name) is not each.default
            ]
            parts = ", ".join(
                f"{each.name}={self.express(getattr(value, each.name), name)}" for each in given
            )
            return f"{self.express(type(value), name)}({parts})"
        what = "a lambda" if isinstance(value, FunctionType) else short_repr(value)
        raise NotSelfContainedError(f"{name} is {what}, which cannot be written as source")


def find_source(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the source of a class or function of a notebook, a script or `exec`, and its global names."""
    members = [value] if isinstance(value, FunctionType) else vars(value).values()
    parts = (getattr(part, "fget", None) or getattr(part, "__func__", part) for part in members)
    functions = [inspect.unwrap(part) for part in parts if isinstance(part, FunctionType)]
    for function in functions:
        code = function.__code__
        lines = linecache.getlines(code.co_filename, function.__globals__)
        try:
            nodes = ast.parse("".join(lines)).body
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if first <= code.co_firstlineno <= (node.end_lineno or 0):
                    return "".join(lines[first - 1 : node.end_lineno]), function.__globals__
    raise NotSelfContainedError(
        f"the source of {value.__qualname__} cannot be found at the top level of a cell or file"
    )


def find_change(given: type, written: type) -> str | None:
    """Return the name of an attribute that a class has got after its definition, or None."""

    def known(value: Any) -> Any:
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(value, FunctionType):  # the code itself depends on what its file imports
            code = inspect.unwrap(value).__code__
            constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
            return code.co_names, code.co_varnames, constants
        plain = value is None or type(value) in (bool, int, float, str, tuple)
        return value if plain else type(value).__name__

    def describe(cls: type) -> dict[str, Any]:
        return {name: known(value) for name, value in vars(cls).items() if name != "__module__"}

    before, after = describe(written), describe(given)
    return next((name for name in before | after if before.get(name) != after.get(name)), None)


def list_globals(source: str) -> list[str]:
    """Return the global names that a definition reads, sorted."""

    def walk(code: CodeType) -> Iterator[str]:
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") or "OR_GLOBALS" in step.opname:
                yield step.argval
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from walk(constant)

    return sorted(set(walk(compile(FUTURE + source, "<source>", "exec"))))
