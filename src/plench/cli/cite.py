"""`plench cite`: print the BibTeX of algorithms' papers."""

from __future__ import annotations

import argparse

EXAMPLES = "example:\n  plench cite PRODEN pico+ > methods.bib"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="an algorithm's name, in any spelling")
    parser.set_defaults(handler=print_bibtex)


def print_bibtex(arguments: argparse.Namespace) -> int:
    """Print each paper once, in the order asked for."""
    from plench.algorithms import cite

    print("\n\n".join(cite(arguments.names)))
    return 0
