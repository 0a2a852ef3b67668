"""Finds algorithms: the package's own, those of entry points, and classes given by path or module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from plench.algorithms.base import FAMILIES, Algorithm, AlgorithmCard
from plench.discovery import DiscoveryError, find_members
from plench.errors import UsageError
from plench.names import find_name, normalise

ENTRY_POINT_GROUP = "plench.algorithms"

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm ready to be run: name in records, class, card, what was asked for, file if not ours."""

    name: str
    cls: type[Algorithm]
    card: AlgorithmCard
    spec: str
    source: str | None = None

    @property
    def by_path(self) -> bool:
        """Whether the class was asked for by the path of its file."""
        return is_path(self.spec.rpartition(":")[0])


@cache
def algorithms() -> dict[str, AlgorithmEntry]:
    """Return every algorithm of the package and of the installed entry points, by name."""
    classes = find_members("plench.algorithms", "algorithm", own_name)
    found = {name: AlgorithmEntry(name, cls, cls.card, spec=name) for name, cls in classes.items()}
    taken = {normalise(name): cls.__module__ for name, cls in classes.items()}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        key = normalise(point.name)
        if key in taken:
            raise DiscoveryError(
                f"algorithm {point.name!r} is declared twice: in {taken[key]} and {point.value}"
            )
        taken[key] = point.value
        try:
            cls = point.load()
        except Exception as error:
            raise DiscoveryError(
                f"entry point {point.name} = {point.value} fails to load: {error!r}"
            ) from error
        found[point.name] = third_party_entry(point.name, cls, spec=point.name)
    return found


def own_name(value: object) -> str | None:
    """Return the name on a class's own card, if it has one."""
    if isinstance(value, type) and issubclass(value, Algorithm):
        card = vars(value).get("card")
        return card.name if card else None
    return None


def find_algorithm(spec: str) -> AlgorithmEntry:
    """Return the algorithm that `spec` means: a name, `path/to/file.py:ClassName` or `module:ClassName`."""
    if ":" in spec or is_path(spec):
        return load_third_party(spec)
    known = algorithms()
    aliases = {alias: entry.name for entry in known.values() for alias in entry.card.aliases}
    name = find_name(spec, [*aliases, *known], "algorithm")  # of two that are alike the later is taken
    if name not in known:
        logger.warning("%s is the same method as %s here, which stands for it", name, aliases[name])
        name = aliases[name]
    return known[name]


def load_third_party(spec: str) -> AlgorithmEntry:
    """Load a class given by path or module. Its name in records carries a hash of its file's content."""
    location, _, class_name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    if not location:
        raise UsageError(f"algorithm {spec!r}: expected path/to/file.py:ClassName or module:ClassName")
    module = load_file(Path(location)) if is_path(location) else import_module(location)
    cls = getattr(module, class_name, None)
    if cls is None:
        wrong = f"{location} has no class {class_name!r}" if class_name else f"{location}: a class is needed"
        raise UsageError(
            f"{wrong}; its algorithms are {', '.join(list_classes(module)) or 'none'}: "
            "write path/to/file.py:ClassName or module:ClassName"
        )
    return third_party_entry(class_name, cls, spec)


def list_classes(module: ModuleType) -> list[str]:
    """Return the names of the algorithms that a module defines itself."""
    own = [name for name, value in vars(module).items() if is_algorithm(value)]
    return [name for name in own if vars(module)[name].__module__ == module.__name__]


def is_path(location: str) -> bool:
    """Say whether the part before the class's name is a file, not a module."""
    return location.endswith(".py")


def third_party_entry(name: str, cls: object, spec: str) -> AlgorithmEntry:
    """Describe a third party's class; what its card does not say gets the paper's defaults."""
    if not is_algorithm(cls):
        raise UsageError(f"{spec} is not a subclass of plench.algorithms.Algorithm")
    assert isinstance(cls, type)
    card = vars(cls).get("card")
    if card is None:
        doc = " ".join((vars(cls).get("__doc__") or "").split("\n\n")[0].split())
        inherited = getattr(
            cls, "card", AlgorithmCard(name, "third party", views=("original", "weak", "strong"))
        )
        card = replace(inherited, name=name, family="third party", aliases=(), idea=doc)
    source = inspect.getsourcefile(cls)
    if source is None:
        raise UsageError(f"{spec} has no source file, so what it computes cannot be identified")
    digest = hashlib.sha256(Path(source).read_bytes()).hexdigest()[:8]
    full_name = f"{card.name}@{digest}"
    return AlgorithmEntry(full_name, cls, replace(card, name=full_name), spec, source)


def is_algorithm(value: object) -> bool:
    """Say whether a value is an algorithm class other than the contract itself."""
    return isinstance(value, type) and issubclass(value, Algorithm) and value is not Algorithm


def load_file(path: Path) -> ModuleType:
    """Import a Python file under a name of its own, made from its content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the algorithm's file {path}: {error.strerror}") from error
    name = f"plench_third_party_{path.stem}_{hashlib.sha256(content).hexdigest()[:16]}"
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


def describe_algorithms() -> list[dict[str, Any]]:
    """Describe each algorithm by its card, as rows, by family."""
    found = [(name, entry.card) for name, entry in algorithms().items()]
    found.sort(key=lambda pair: (FAMILIES.index(pair[1].family), pair[0].lower()))
    return [
        {
            "name": name,
            "family": card.family,
            "venue": card.venue,
            "views": list(card.views),
            "passes": card.passes,
            "state": card.state,
        }
        for name, card in found
    ]


def cite(names: Iterable[str]) -> list[str]:
    """Return the BibTeX of algorithms' papers, each once, in the order asked for."""
    cards = [find_algorithm(name).card for name in names]
    for card in cards:
        if not card.bibtex:
            raise UsageError(f"{card.name} has no citation on its card")
    return list(dict.fromkeys(card.bibtex for card in cards))
