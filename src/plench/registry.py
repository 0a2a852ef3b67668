"""One way to find, list and extend algorithms, networks, criteria, datasets and engines.

A `Registry` finds the members that a package declares. Third-party ones come by entry point, path
(`path/to/file.py:NAME`) or module (`module:NAME`). The name of a third-party member in records carries a hash
of its file (`NAME@1a2b3c4d`), so that two versions are never confused.
"""

from __future__ import annotations

import ast
import atexit
import dis
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import math
import os
import pkgutil
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, TypeVar
from uuid import uuid4

from plench.errors import PlenchError, UsageError
from plench.files import attempt
from plench.text import normalise, short_repr, unknown_name

T = TypeVar("T")

# Why runs of a part cannot be repeated from their folder, by the part's name in records.
NOT_REPEATABLE: dict[str, str] = {}
SPELLING = "path/to/file.py:NAME or module:NAME"  # how a third-party member is written
MEMBER = "MEMBER"  # the name of an object that is not a class, in its file
FUTURE = "from __future__ import annotations\n"


class DiscoveryError(PlenchError):
    """A file or entry point that cannot be imported, or two that declare the same name."""


class NotSelfContainedError(UsageError):
    """An object whose source cannot be written as a file of its own; the text says why."""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A member that was found: its name in records, what was asked for, and its file if it is third-party."""

    name: str
    member: T
    spec: str
    source: str | None = None


class Registry(Generic[T]):
    """The members of one kind: those of a package, of entry points, and those loaded by path or module.

    Nothing is imported before it is asked for. Looking up a member of plench imports no third-party code.

    Parameters
    ----------
    what : str
        The noun of messages.
    package : str
        The package or module that declares members. Files called `base` are not searched.
    kind : str
        Completes "… is not" in the message for a wrong value.
    recognise : callable
        Whether a value is a member.
    name_of : callable
        The name that a member has. None excludes it from the package; a third-party member then has the name
        it was asked for by.
    group : str, optional
        Group of entry points.
    rename : callable, optional
        `rename(member, name)` returns a member under another name.
    aliases_of : callable, optional
        Other names of a member.
    """

    def __init__(
        self,
        what: str,
        package: str,
        kind: str,
        recognise: Callable[[Any], bool],
        name_of: Callable[[T], str | None],
        *,
        group: str | None = None,
        rename: Callable[[T, str], T] = lambda member, name: member,
        aliases_of: Callable[[T], Iterable[str]] = lambda member: (),
    ) -> None:
        self.what = what
        self.package = package
        self.kind = kind
        self.group = group
        self._recognise = recognise
        self._name_of = name_of
        self._rename = rename
        self._aliases_of = aliases_of
        self.loaded: dict[str, Entry[T]] = {}  # third-party members, by their name in records
        self._given: list[tuple[Any, Entry[T]]] = []  # objects of notebooks and scripts

    def clear(self) -> None:
        """Forget what was found and loaded."""
        for name in ("own", "items", "_points", "_aliases", "_spellings"):
            self.__dict__.pop(name, None)
        self.loaded.clear()
        self._given.clear()

    @cached_property
    def own(self) -> dict[str, Entry[T]]:
        """The members that the package declares, by name.

        Names that differ only in case and punctuation count as the same.
        """
        package = importlib.import_module(self.package)
        modules = [self.package]
        if hasattr(package, "__path__"):  # its modules, then those of packages below it
            walked = pkgutil.walk_packages(package.__path__, f"{self.package}.")
            modules = [info.name for info in walked if not info.ispkg and not info.name.endswith(".base")]
            modules.sort(key=lambda name: (name.count("."), name))
        found: dict[str, Entry[T]] = {}
        places: dict[str, str] = {}
        for place in modules:
            try:
                module = importlib.import_module(place)
            except Exception as error:
                raise DiscoveryError(f"{self.what} file {place} fails to import: {error!r}") from error
            for value in self._list_members(module).values():
                name = self._name_of(value)
                if name is None or (name in found and found[name].member is value):
                    continue
                if normalise(name) in places:
                    both = f"{places[normalise(name)]} and {place}"
                    raise DiscoveryError(f"{self.what} {name!r} is declared twice: in {both}")
                places[normalise(name)] = place
                found[name] = Entry(name, value, spec=name)
        return found

    @cached_property
    def items(self) -> dict[str, Entry[T]]:
        """The members of the package and of all entry points, which are imported, by name."""
        return {**self.own, **{name: self._load_point(name) for name in self._points}}

    @property
    def names(self) -> list[str]:
        """The names of the package's members and of entry points, which are not imported."""
        return [*self.own, *self._points]

    def find(self, spec: object) -> Entry[T]:
        """Return the member that `spec` means: a name in any spelling, a third-party member, or an object.

        The name of a third-party member in records is known once it was loaded in this process.
        """
        if not isinstance(spec, str):
            return self.find_object(spec)
        if is_third_party(spec):
            return self.load_third_party(spec)
        if spec in self.loaded:
            return self.loaded[spec]
        name = self._spellings.get(normalise(spec))
        if name is not None:
            return self.own[name] if name in self.own else self._load_point(name)
        if "@" in spec:  # a name in records, perhaps that of an entry point
            if spec in {entry.name for entry in self.items.values()}:
                return self.loaded[spec]
            reason = f"it is third-party and not loaded; name it as {SPELLING}"
            raise UsageError(f"unknown {self.what} {spec!r}: {reason}")
        raise unknown_name(spec, [*self._aliases, *self.names], self.what)

    def knows(self, name: str) -> bool:
        """Whether a name is that of a member, in any spelling; imports no third-party code."""
        return name in self.loaded or normalise(name) in self._spellings

    def is_own(self, name: str) -> bool:
        """Whether a name is that of a member of the package, in any spelling; imports no third-party code."""
        return not is_third_party(name) and self._spellings.get(normalise(name)) in self.own

    def load_third_party(self, spec: str) -> Entry[T]:
        """Load a member given by path or module."""
        location, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
        if not location:
            raise UsageError(f"{self.what} {spec!r}: expected {SPELLING}")
        module = load_file(Path(location), self.what) if is_path(location) else import_module(location)
        if not hasattr(module, name):
            problem = f"{location} has no {self.what} {name!r}" if name else f"{location}: a name is missing"
            members = ", ".join(self._list_members(module)) or "nothing of this kind"
            raise UsageError(f"{problem}; it has {members}: write {SPELLING}")
        return self.adopt(name, getattr(module, name), spec, module)

    def adopt(self, name: str, value: Any, spec: str, module: ModuleType | None = None) -> Entry[T]:
        """Add a third-party member; `module` is where it was found (a class knows its own)."""
        if not self._recognise(value):
            raise UsageError(f"{spec} is not {self.kind}")
        source = (
            inspect.getsourcefile(value) if isinstance(value, type) else getattr(module, "__file__", None)
        )
        if source is None:
            raise UsageError(f"{spec} has no source file, so what it computes cannot be identified")
        digest = hashlib.sha256(Path(source).read_bytes()).hexdigest()[:8]
        full_name = f"{self._name_of(value) or name}@{digest}"
        entry = Entry(full_name, self._rename(value, full_name), spec, source)
        self.loaded[full_name] = entry
        return entry

    def find_object(self, value: Any) -> Entry[T]:
        """Return the entry of a member that is given as an object.

        One of a notebook or script is loaded from its source. If that is not self-contained, the object
        itself is used, under a name that no other run has, and `NOT_REPEATABLE` has the reason.
        """
        if (own := self._find_own(value)) is not None:
            return own
        for given, entry in self._given:
            if given is value:
                return entry
        try:
            if (found := find_module(value)) is not None:
                return self.adopt(found[1], value, f"{found[0].__name__}:{found[1]}", found[0])
            entry = self.load_third_party(self.write_spec(value, _scratch()))
        except NotSelfContainedError as error:
            name = f"{self._name_of(value) or value.__name__}@{uuid4().hex[:8]}"
            entry = self.loaded[name] = Entry(name, self._rename(value, name), name)
            NOT_REPEATABLE[name] = f"{name} cannot be run again from this folder: {error}"
        self._given.append((value, entry))
        return entry

    def write_spec(self, value: Any, folder: Path) -> str:
        """Return how other processes find a member that is given by name or as an object.

        One of a notebook or script is written to `folder`. Raises NotSelfContainedError if it cannot be.
        """
        if isinstance(value, str):
            return value
        if (own := self._find_own(value)) is not None:
            return own.name
        if (found := find_module(value)) is not None:
            module, name = found
            place = module.__name__ if module.__package__ else str(Path(str(module.__file__)).absolute())
            return f"{place}:{name}"
        text, name = write_member(value)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        label = re.sub(r"\W", "_", self._name_of(value) or name)
        file = folder.absolute() / f"{label}_{digest}.py"
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        written = getattr(load_file(file, self.what), name)
        if isinstance(value, type) and (changed := find_change(value, written)):
            raise NotSelfContainedError(f"{name}.{changed} is not as the source of {name} has it")
        return f"{file}:{name}"

    def _find_own(self, value: Any) -> Entry[T] | None:
        """Return the package's entry of an object; raise UsageError for an object of another kind."""
        if not self._recognise(value):
            raise UsageError(f"{short_repr(value)} is not {self.kind}, and not the name of one")
        return next((own for own in self.own.values() if own.member is value), None)

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """The installed entry points of the group, by name; none is imported."""
        points: dict[str, EntryPoint] = {}
        taken = {normalise(name): f"plench ({name})" for name in self.own}
        for point in entry_points(group=self.group) if self.group else ():
            key = normalise(point.name)
            if key in taken:
                both = f"{taken[key]} and the entry point {point.value}"
                raise DiscoveryError(f"{self.what} {point.name!r} is declared twice: by {both}")
            taken[key] = f"the entry point {point.value}"
            points[point.name] = point
        return points

    @cached_property
    def _aliases(self) -> dict[str, str]:
        """Other names of the package's members → their names."""
        return {alias: name for name, entry in self.own.items() for alias in self._aliases_of(entry.member)}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Names and aliases without case and punctuation → names; a name wins over an alias."""
        known = {**self._aliases, **{name: name for name in self.names}}
        return {normalise(spelling): name for spelling, name in known.items()}

    def _list_members(self, module: ModuleType) -> dict[str, T]:
        """The members that a module declares, by their names there; imported classes are not its own."""
        return {
            name: value
            for name, value in vars(module).items()
            if self._recognise(value)
            and not (isinstance(value, type) and value.__module__ != module.__name__)
        }

    def _load_point(self, name: str) -> Entry[T]:
        point = self._points[name]
        try:
            value = point.load()
        except (Exception, SystemExit) as error:
            raise DiscoveryError(f"entry point {name} = {point.value} fails to load: {error!r}") from error
        return self.adopt(name, value, spec=name, module=sys.modules.get(point.module))


@cache
def _scratch() -> Path:
    """Return a folder for source files that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="plench-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def is_third_party(spec: str) -> bool:
    """Whether a spec asks for a file or a module, not for a name."""
    location, colon, name = spec.rpartition(":")
    if is_path(spec) or is_path(location):
        return True
    return bool(colon) and not {"/", "\\"} & set(location + name)  # not C:\file or ./a:b


def is_path(location: str) -> bool:
    """Whether the part before the member's name is a file, not a module."""
    return location.endswith(".py")


def load_file(path: Path, what: str) -> ModuleType:
    """Import a Python file under a name of its own, made from its place and content."""
    with attempt(f"read the {what}'s file {path}", UsageError):
        content = path.read_bytes()
    # A copy elsewhere is another module: the first place may be gone when a member's file is read again.
    digest = hashlib.sha256(os.fsencode(path.absolute()) + b"\0" + content).hexdigest()[:16]
    name = f"plench_third_party_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may exit
        del sys.modules[name]
        raise UsageError(f"{path} fails to import: {error!r}") from error
    return module


def import_module(name: str) -> ModuleType:
    """Import a module by name; the current folder counts, as it does for `python -m`."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"module {name!r} fails to import: {error!r}") from error


# Classes and other objects that are given in Python, not by name: their source as a file of its own.
#
# A class of a notebook exists in one process only. Its source, with that of the functions and classes it uses
# and with the imports it needs, is written as a Python file, from which workers, later sessions and other
# people load it.


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
                raise NotSelfContainedError(f"{name} has two definitions; was it defined again?")
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
