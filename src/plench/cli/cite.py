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
    from plench.algorithms import find_algorithm
    from plench.errors import UsageError

    cards = [find_algorithm(name).card for name in arguments.names]
    for card in cards:
        if not card.bibtex:
            raise UsageError(f"{card.name} has no citation on its card")
    print("\n\n".join(dict.fromkeys(card.bibtex for card in cards)))
    return 0
