"""Finds algorithms: the package's own, those of entry points, and classes given by path or module."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from plench.algorithms.base import FAMILIES, Algorithm, AlgorithmCard
from plench.errors import UsageError
from plench.registry import NOT_REPEATABLE, Entry, Registry, is_path
from plench.text import normalise

logger = logging.getLogger("plench")

# The algorithms of the paper, which its suites consist of.
PAPER = frozenset(
    {
        *("PRODEN", "CAVL", "POP", "ABS_MAE", "ABS_GCE", "EXP", "MCL_GCE", "MCL_MSE", "CC", "LWS", "IDGP"),
        *("PC", "Forward", "NN", "GA", "SCL_EXP", "SCL_NL", "L_W", "OP_W"),
        *("VALEN", "PiCO", "ABLE", "CRDPLL", "DIRK", "FREDIS", "ALIM", "PiCO_plus"),
    }
)


@dataclass(frozen=True)
class AlgorithmEntry:
    """An algorithm ready to be run: name in records, class, card, what was asked for, file if third-party."""

    name: str
    cls: type[Algorithm]
    card: AlgorithmCard
    spec: str
    source: str | None = None

    @property
    def by_path(self) -> bool:
        """Whether the class was asked for by the path of its file."""
        return is_path(self.spec.rpartition(":")[0])


def own_card(cls: type[Algorithm]) -> AlgorithmCard | None:
    """Return the card of a class itself, not one that it inherits."""
    card: AlgorithmCard | None = vars(cls).get("card")
    return card


ALGORITHMS = Registry[type[Algorithm]](
    "algorithm",
    "plench.algorithms",
    "a subclass of plench.algorithms.Algorithm",
    lambda value: isinstance(value, type) and issubclass(value, Algorithm) and value is not Algorithm,
    lambda cls: card.name if (card := own_card(cls)) else None,
    group="plench.algorithms",
    aliases_of=lambda cls: cls.card.aliases,
)


def algorithms() -> dict[str, AlgorithmEntry]:
    """Return every algorithm of the package and of the installed entry points, by name."""
    return {name: add_card(entry) for name, entry in ALGORITHMS.items.items()}


def own_cards() -> dict[str, AlgorithmCard]:
    """Return the cards of the package's algorithms by name."""
    return {name: entry.member.card for name, entry in ALGORITHMS.own.items()}


def describe_algorithms() -> list[dict[str, Any]]:
    """Return the cards of all algorithms as rows, sorted by family and name."""
    cards = {name: entry.card for name, entry in algorithms().items()}
    order = sorted(cards, key=lambda name: (FAMILIES.index(cards[name].family), name.lower()))
    shown = ("family", "answers", "idea", "venue", "views", "passes", "state")
    rows = [{"name": name, **{key: getattr(cards[name], key) for key in shown}} for name in order]
    return [{**row, "views": list(row["views"])} for row in rows]


def cite(names: Iterable[str]) -> list[str]:
    """Return the BibTeX of the papers of algorithms, each once, in the order asked for."""
    cards = [find_algorithm(name).card for name in names]
    for card in cards:
        if not card.bibtex:
            raise UsageError(f"{card.name} has no citation on its card")
    return list(dict.fromkeys(card.bibtex for card in cards))


def find_algorithm(spec: str | type[Algorithm]) -> AlgorithmEntry:
    """Return the algorithm that `spec` means: a name, `file.py:ClassName`, `module:ClassName` or a class."""
    entry = add_card(ALGORITHMS.find(spec))
    for alias in entry.card.aliases:
        if isinstance(spec, str) and normalise(spec) == normalise(alias):
            logger.warning("%s is the same method as %s, which is used", alias, entry.name)
    return entry


def load_third_party(spec: str) -> AlgorithmEntry:
    """Load a class given by path or module. Its name in records carries a hash of its file's content."""
    return add_card(ALGORITHMS.load_third_party(spec))


def add_card(entry: Entry[type[Algorithm]]) -> AlgorithmEntry:
    """Add the card; what a third-party class does not declare gets the paper's defaults."""
    cls = entry.member
    card = own_card(cls)
    if card is None:
        doc = " ".join((vars(cls).get("__doc__") or "").split("\n\n")[0].split())
        unknown = AlgorithmCard(
            entry.name,
            "third party",
            views=("original", "weak", "strong") if cls.shared else (),
            hyperparameters=cls.base_hyperparameters,
            shared=cls.shared,
        )
        inherited: AlgorithmCard = getattr(cls, "card", unknown)
        card = replace(
            inherited,
            family="third party",
            aliases=(),
            idea=doc,
            objective="",
            stacked=False,
            not_stackable="",
        )
    if entry.source is not None or entry.name in NOT_REPEATABLE:
        card = replace(card, name=entry.name)
    return AlgorithmEntry(entry.name, cls, card, entry.spec, entry.source)
