"""Resolve candidate sets with a model.

For each row: the most probable candidate and its share of the candidates' probability, the probability
outside the set, and whether the set probably misses the true label. For each annotator: how often the answers
contain the resolved label. A model agrees more with rows that it was trained on than with new ones.

examples:
  plench resolve model.plench animals.csv -o resolved.csv
  plench resolve model.plench 'songs.csv?answers=answers.csv' -o resolved.csv --annotators annotators.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import plench
from plench.cli.options import add_model_options, check_outputs, write_csv
from plench.text import clean_text

if TYPE_CHECKING:  # imports torch
    from plench.estimator import Items, Resolution

ROWS_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model_options(parser, data="data with candidate sets or annotators' answers")
    parser.add_argument("--annotators", metavar="FILE", help="also write the annotators' agreement as CSV")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")


def run(args: argparse.Namespace) -> int:
    """Resolve, write the tables, and print a summary to standard error."""
    from plench.estimator import read_items, resolve_items

    check_outputs(
        {"--output": args.output, "--annotators": args.annotators},
        {"the data themselves": args.data, "the model itself": args.model},
    )
    model = plench.load(args.model, device=args.device, run_code=args.run_code)
    items = read_items(args.data, args.data_dir)
    found = resolve_items(model, items)
    write_csv(args.output, list_rows(found, items, [str(label) for label in model.classes]))
    if args.annotators is not None:
        agreements = [(each.annotator, each.n_answers, f"{each.share:.6f}") for each in found.agreements]
        write_csv(args.annotators, [("annotator", "answers", "agreement"), *agreements])
    rows = [str(row + 1) for row in found.doubtful.nonzero()[0]]
    listed = f": rows {', '.join(rows[:ROWS_SHOWN])}" if rows else ""
    more = " …" if len(rows) > ROWS_SHOWN else ""
    print(f"{len(rows)} of {len(found.label)} sets probably miss the truth{listed}{more}", file=sys.stderr)
    for each in found.agreements:
        agreement = f"{each.share:.1%} of {each.n_answers} answers contain the resolved label"
        print(clean_text(f"annotator {each.annotator}: {agreement}"), file=sys.stderr)
    return 0


def list_rows(found: Resolution, items: Items, names: list[str]) -> Iterator[list[str]]:
    """Yield the header and the resolved rows."""
    first = ["row"] if items.names is None else ["row", "item"]
    yield [*first, "label", "probability", "predicted", "outside", "probably_misses_truth"]
    for row in range(len(found.label)):
        yield [
            str(row + 1),
            *([] if items.names is None else [items.names[row]]),
            names[found.label[row]],
            f"{found.probability[row]:.6f}",
            names[found.predicted[row]],
            f"{found.outside[row]:.6f}",
            "yes" if found.doubtful[row] else "no",
        ]
