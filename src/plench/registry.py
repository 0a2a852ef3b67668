"""One way to find, list, look up and extend algorithms, networks, criteria, datasets, engines and the like.

A `Registry` knows the members that the files of a package declare. Third parties' come by entry point, path
(`path/to/file.py:NAME`) or module (`module:NAME`); the name of such a member in records carries a hash of its
file (`NAME@1a2b3c4d`), so that two versions are never taken for one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from plench.errors import PlenchError, UsageError
from plench.plain_files import read_plain
from plench.text import find_name, normalise, unknown_name

T = TypeVar("T")

# How a third party's member is written.
SPELLING = "path/to/file.py:NAME or module:NAME"
MAX_FILE_BYTES = 2**24  # of a Python file

logger = logging.getLogger("plench")


class DiscoveryError(PlenchError):
    """A file or entry point that cannot be imported, or two that declare the same name."""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A member that was found: its name in records, what was asked for, and its file if it is not ours."""

    name: str
    member: T
    spec: str
    source: str | None = None

    @property
    def by_path(self) -> bool:
        """Whether it was asked for by the path of its file."""
        return is_given_by_path(self.spec)


def keep_name(member: T, name: str) -> T:
    """Return a member that does not hold its own name, as it is."""
    return member


def no_aliases(member: object) -> Sequence[str]:
    """Return no other names."""
    return ()


class Registry(Generic[T]):
    """The members of one kind: those of a package, of entry points, and those loaded by path or module.

    Nothing is imported before it is asked for. Looking up a member of ours imports no third party's code, and
    looking up a third party's imports no other's.
    """

    def __init__(
        self,
        what: str,
        package: str,
        kind: str,
        recognise: Callable[[Any], bool],
        name_of: Callable[[T], str | None],
        *,
        plural: str | None = None,
        subpackages: Sequence[str] = (),
        group: str | None = None,
        rename: Callable[[T, str], T] = keep_name,
        order: Callable[[T], Any] | None = None,
        aliases_of: Callable[[T], Iterable[str]] = no_aliases,
        alias_notice: str | None = None,
    ) -> None:
        """`what` and `plural` are the nouns of messages; `kind` completes "… is not" for a wrong value.

        `recognise` says whether a value is a member, and `name_of` the name it gives itself; None where it
        gives none, which makes it no member of ours, and a third party's takes the name it was asked for by.
        `subpackages` of the package are searched too. `rename` returns a member under another name. `order`
        sorts our members; without it they stand by file. `alias_notice` is logged where a member is found by
        another name, with {alias} and {name}.
        """
        self.what = what
        self.plural = plural or f"{what}s"
        self.package = package
        self.subpackages = tuple(subpackages)
        self.kind = kind
        self.group = group
        self._recognise = recognise
        self._name_of = name_of
        self._rename = rename
        self._order = order
        self._aliases_of = aliases_of
        self._alias_notice = alias_notice
        self.loaded: dict[str, Entry[T]] = {}  # third parties', by their name in records

    def clear(self) -> None:
        """Forget what was found and loaded, so that it is looked for again."""
        for name in ("own", "items", "_declared", "_points", "_aliases", "_spellings"):
            self.__dict__.pop(name, None)
        self.loaded.clear()

    @cached_property
    def own(self) -> dict[str, Entry[T]]:
        """The members that the package's files declare, by name."""
        return {name: Entry(name, member, spec=name) for name, (member, _) in self._declared.items()}

    @cached_property
    def items(self) -> dict[str, Entry[T]]:
        """Our members and those of all entry points, which are imported for it, by name."""
        return {**self.own, **{name: self._load_point(name) for name in self._points}}

    @property
    def names(self) -> list[str]:
        """The names of our members and of entry points, none of which is imported for it."""
        return [*self.own, *self._points]

    def find(self, spec: str) -> Entry[T]:
        """Return the member that `spec` means: a name in any spelling, or a third party's by path or module.

        A third party's name in records is known once it was loaded in this process.
        """
        if is_third_party(spec):
            return self.load_third_party(spec)
        if spec in self.loaded:
            return self.loaded[spec]
        name = self._spellings.get(normalise(spec))
        if name in self._points:
            return self._load_point(name)
        if name is not None:
            return self._take(name)
        if "@" in spec:  # a name in records: an entry point may stand for it
            if spec in {entry.name for entry in self.items.values()}:
                return self.loaded[spec]
            raise UsageError(
                f"unknown {self.what} {spec!r}: it is a third party's and not loaded; name it as {SPELLING}"
            )
        raise unknown_name(spec, [*self._aliases, *self.names], self.what)

    def knows(self, name: str) -> bool:
        """Say whether a name is that of a member, in any spelling, without importing third-party code."""
        return name in self.loaded or normalise(name) in self._spellings

    def is_own(self, name: str) -> bool:
        """Say whether a name, in any spelling, is one of our members; imports no third-party code."""
        meant = None if is_third_party(name) else self._spellings.get(normalise(name))
        return meant in self.own or meant in self._aliases

    def find_own(self, name: str) -> Entry[T]:
        """Return the member of ours that `name` means; a third party's code is never imported."""
        return self.own[find_name(name, self.own, self.what)]

    def load_third_party(self, spec: str) -> Entry[T]:
        """Load a member given by path or module."""
        location, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
        if not location:
            raise UsageError(f"{self.what} {spec!r}: expected {SPELLING}")
        module = load_file(Path(location), self.what) if is_path(location) else import_module(location)
        if not hasattr(module, name):
            wrong = f"{location} has no {self.what} {name!r}" if name else f"{location}: a name is needed"
            known = ", ".join(self._list_members(module)) or "none"
            raise UsageError(f"{wrong}; its {self.plural} are {known}: write {SPELLING}")
        return self.adopt(name, getattr(module, name), spec, module)

    def adopt(self, name: str, value: Any, spec: str, module: ModuleType | None = None) -> Entry[T]:
        """Take in a third party's member; `module` is where it was found (a class knows its own)."""
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

    @cached_property
    def _declared(self) -> dict[str, tuple[T, str]]:
        """Our members by name, each with its module.

        Files called `base` and sub-packages that are not listed are passed over. A member counts in the
        module that defines it: classes by `__module__`, other objects where they come first. Names that
        differ only in case and punctuation count as the same.
        """
        found: dict[str, tuple[T, str]] = {}
        origin: dict[str, str] = {}
        for module_name in self._list_modules():
            try:
                module = importlib.import_module(module_name)
            except Exception as error:
                raise DiscoveryError(f"{self.what} file {module_name} fails to import: {error!r}") from error
            for value in vars(module).values():
                if not self._recognise(value) or is_imported_class(value, module):
                    continue
                name = self._name_of(value)
                if name is None or (name in found and found[name][0] is value):
                    continue
                self._claim(origin, name, module_name)
                found[name] = (value, module_name)
        if self._order is None:
            return found
        order = self._order
        return dict(sorted(found.items(), key=lambda item: order(item[1][0])))

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """The installed entry points of the group, by name; none is imported for it."""
        points: dict[str, EntryPoint] = {}
        if self.group is None:
            return points
        origin = {normalise(name): module_name for name, (_, module_name) in self._declared.items()}
        for point in entry_points(group=self.group):
            self._claim(origin, point.name, point.value)
            points[point.name] = point
        return points

    @cached_property
    def _aliases(self) -> dict[str, str]:
        """Other names of our members → their names."""
        return {alias: name for name, entry in self.own.items() for alias in self._aliases_of(entry.member)}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Names without case and punctuation → names; of two that are alike an alias gives way."""
        return {normalise(name): name for name in (*self._aliases, *self.names)}

    def _list_modules(self) -> Iterator[str]:
        for package in (self.package, *(f"{self.package}.{name}" for name in self.subpackages)):
            parent = importlib.import_module(package)
            if not hasattr(parent, "__path__"):  # one module has all members
                yield package
                continue
            for info in sorted(pkgutil.iter_modules(parent.__path__), key=lambda info: info.name):
                if not info.ispkg and info.name != "base":
                    yield f"{package}.{info.name}"

    def _list_members(self, module: ModuleType) -> list[str]:
        """The names of the members that a module declares."""
        declared = vars(module).items()
        return [
            name
            for name, value in declared
            if self._recognise(value) and not is_imported_class(value, module)
        ]

    def _claim(self, origin: dict[str, str], name: str, place: str) -> None:
        """Note where a name is declared; twice is an error."""
        key = normalise(name)
        if key in origin:
            raise DiscoveryError(f"{self.what} {name!r} is declared twice: in {origin[key]} and {place}")
        origin[key] = place

    def _take(self, name: str) -> Entry[T]:
        """Return a member of ours by its name or an alias."""
        if name in self.own:
            return self.own[name]
        meant = self._aliases[name]
        if self._alias_notice is not None:
            logger.warning("%s", self._alias_notice.format(alias=name, name=meant))
        return self.own[meant]

    def _load_point(self, name: str) -> Entry[T]:
        point = self._points[name]
        try:
            value = point.load()
        except (Exception, SystemExit) as error:
            raise DiscoveryError(f"entry point {name} = {point.value} fails to load: {error!r}") from error
        return self.adopt(name, value, spec=name, module=sys.modules.get(point.module))


def is_imported_class(value: object, module: ModuleType) -> bool:
    """Say whether a value is a class that another module defines."""
    return isinstance(value, type) and value.__module__ != module.__name__


def is_third_party(spec: str) -> bool:
    """Say whether a spec asks for a file or a module, not for a name."""
    location, colon, name = spec.rpartition(":")
    if is_path(spec) or is_path(location):
        return True
    return bool(colon) and not {"/", "\\"} & set(location + name)  # C:\file and ./a:b are no modules


def is_given_by_path(spec: str) -> bool:
    """Say whether a spec is that of a file."""
    return is_path(spec.rpartition(":")[0])


def is_path(location: str) -> bool:
    """Say whether the part before the member's name is a file, not a module."""
    return location.endswith(".py")


def load_file(path: Path, what: str) -> ModuleType:
    """Import a Python file under a name of its own, made from its place and content."""
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read the {what}'s file {path}: {error.strerror}") from error
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
    except (Exception, SystemExit) as error:  # a script that ends the process is no module either
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
