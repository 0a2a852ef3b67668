"""What the package's algorithm files declare, read from their text: importing them would import torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

from plench import algorithms
from plench.errors import PlenchError, UsageError
from plench.text import normalise

FAMILIES = ("vanilla PLL", "vanilla CLL", "holistic PLL", "noisy PLL", "classical", "third party")


@dataclass(frozen=True)
class Declared:
    """The part of an algorithm's card (see `plench.algorithms.register`) that needs no import of its file.

    `idea` is the first paragraph of its class's docstring, `objective` what that says of it.
    """

    name: str
    family: str = "third party"
    venue: str = ""
    views: tuple[str, ...] = ("weak",)
    passes: str = "1"
    state: str = "none"
    aliases: tuple[str, ...] = ()
    answers: bool = False
    cite: str = ""
    public_fault: str = ""
    public_fault_on: tuple[str, ...] = ()
    idea: str = ""
    objective: str = ""


@cache
def declared_algorithms() -> dict[str, Declared]:
    """Return what every algorithm of the package declares, by name."""
    folder = files("plench") / "algorithms"
    places = [entry for part in (folder, folder / "classical") for entry in part.iterdir()]
    texts = [entry.read_text(encoding="utf-8") for entry in places if entry.name.endswith(".py")]
    cards = (card for text in texts for card in read_cards(ast.parse(text)))
    return {card.name: card for card in sorted(cards, key=lambda card: card.name.lower())}


def read_cards(module: ast.Module) -> Iterator[Declared]:
    """Read the arguments of `@register(...)`; a value is a literal or the name of a literal of the module."""
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def read(node: ast.expr) -> Any:
        return ast.literal_eval(constants.get(node.id, node) if isinstance(node, ast.Name) else node)

    wanted = set(Declared.__dataclass_fields__)
    for cls in module.body:
        for call in cls.decorator_list if isinstance(cls, ast.ClassDef) else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "register":
                given = {key.arg: read(key.value) for key in call.keywords if key.arg in wanted}
                text = (ast.get_docstring(cls) if isinstance(cls, ast.ClassDef) else None) or ""
                idea = " ".join(text.split("\n\n")[0].split())
                yield Declared(read(call.args[0]), **given, idea=idea, objective=read_objective(text))


def describe_algorithms() -> list[dict[str, Any]]:
    """Describe each algorithm by its card, as rows, by family; only third parties' are imported for it."""
    described = [*declared_algorithms().values(), *_list_third_parties()]
    described.sort(key=lambda card: (FAMILIES.index(card.family), card.name.lower()))
    return [
        {
            "name": card.name,
            "family": card.family,
            "answers": card.answers,
            "idea": card.idea,
            "venue": card.venue,
            "views": [] if card.family == "classical" else list(card.views),
            "passes": card.passes,
            "state": card.state,
        }
        for card in described
    ]


def _list_third_parties() -> list[Any]:
    """Return the cards of the algorithms of installed packages, under the names of their entry points."""
    if not entry_points(group=algorithms.__name__):
        return []
    return [
        replace(entry.card, name=name)
        for name, entry in algorithms.algorithms().items()
        if entry.source is not None
    ]


def read_objective(docstring: str) -> str:
    """Return the paragraph "Objective: …" of a class's docstring, in one line."""
    found = re.search(r"^Objective:(.*?)(?:\n\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


@cache
def references() -> dict[str, str]:
    """Return the entries of references.bib by key."""
    text = (files("plench") / "algorithms" / "references.bib").read_text(encoding="utf-8")
    entries = re.finditer(r"^@\w+\{([^,\s]+),.*?^\}", text, re.MULTILINE | re.DOTALL)
    return {entry[1]: entry[0] for entry in entries}


def find_reference(key: str) -> str:
    """Return the BibTeX entry of a key."""
    if key not in references():
        raise PlenchError(f"references.bib has no entry {key!r}; it has {', '.join(sorted(references()))}")
    return references()[key]


def cite(names: Iterable[str]) -> list[str]:
    """Return the BibTeX of algorithms' papers, each once, in the order asked for.

    Only a third party's class is imported for it.
    """
    return list(dict.fromkeys(map(_find_bibtex, names)))


def _find_bibtex(name: str) -> str:
    for declared in declared_algorithms().values():
        if normalise(name) in map(normalise, (declared.name, *declared.aliases)):
            return find_reference(declared.cite)
    card = algorithms.find_algorithm(name).card
    if not card.bibtex:
        raise UsageError(f"{card.name} has no citation on its card")
    return card.bibtex
