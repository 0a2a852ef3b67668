"""`plench cite`: print the BibTeX of algorithms' papers."""

from __future__ import annotations

import argparse

from plench import algorithms

EXAMPLES = "example:\n  plench cite PRODEN pico+ > methods.bib"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="an algorithm's name, in any spelling")
    parser.set_defaults(handler=print_bibtex)


def print_bibtex(arguments: argparse.Namespace) -> int:
    """Print each paper once, in the order asked for."""
    print("\n\n".join(algorithms.cite(arguments.names)))
    return 0


def find_bibtex(name: str) -> str:
    """Return the entry of an algorithm's paper; only third parties' classes are imported for it."""
    from plench.algorithms.cards import declared_algorithms, find_reference
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
