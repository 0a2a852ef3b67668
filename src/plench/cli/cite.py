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
