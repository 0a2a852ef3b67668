"""`plench cite`: the BibTeX of a method's paper."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `plench cite`."""
    parser = subparsers.add_parser(
        "cite",
        help="print the BibTeX of algorithms' papers",
        epilog="example:\n  plench cite PRODEN pico+ > methods.bib",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="an algorithm's name, in any spelling")
    parser.set_defaults(handler=print_bibtex)


def print_bibtex(arguments: argparse.Namespace) -> int:
    """Print each paper once, in the order asked for."""
    print("\n\n".join(dict.fromkeys(find_bibtex(name) for name in arguments.names)))
    return 0


def find_bibtex(name: str) -> str:
    """Return the entry of an algorithm's paper; only third parties' classes are imported for it."""
    from plench.declared import declared_algorithms, find_reference
    from plench.errors import UsageError
    from plench.names import normalise

    for declared in declared_algorithms().values():
        if normalise(name) == normalise(declared.name):
            return find_reference(declared.cite)
    from plench.algorithms import find_algorithm  # imports torch

    card = find_algorithm(name).card
    if not card.bibtex:
        raise UsageError(f"{card.name} has no citation on its card")
    return card.bibtex
