"""Resolve candidate sets with a model, and find rows to relabel and annotators to check.

For each row: the most probable candidate and its share of the candidates' probability, the probability that
the true label is outside the set, and whether that is probable. Rows that the model was trained on are
judged by the out-of-fold predictions that `plench fit` stored in its file, never by the model itself.

For each annotator: how often the answers contain the prediction, and the skill, which is corrected for
chance: an annotator who always gives the same answer scores 0.

examples:
  plench resolve model.plench animals.csv -o resolved.csv
  plench resolve model.plench animals.csv -o resolved.csv --relabel relabel.csv     what to relabel, ranked
  plench resolve model.plench 'songs.csv?answers=answers.csv' -o resolved.csv --annotators annotators.csv
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import plench
from plench.cli.options import add_model_options, check_outputs, given_encoders, print_warnings, write_csv
from plench.text import clean_text

if TYPE_CHECKING:  # imports torch
    from plench.data import Dataset
    from plench.estimator.review import AnnotatorRating, Resolution

ROWS_SHOWN = 10
UNKNOWN = (
    "the model does not say which rows it was trained on; it agrees with those whatever their sets are, so "
    "what follows is about new rows only"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model_options(parser, data="data with candidate sets or annotators' answers")
    parser.add_argument("--relabel", metavar="FILE", help="also write the rows to relabel as CSV, ranked")
    parser.add_argument("--annotators", metavar="FILE", help="also write the ratings of annotators as CSV")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")


def run(args: argparse.Namespace) -> int:
    """Resolve, write the tables, and print a summary to standard error."""
    from plench.estimator.review import find_doubts, rate_annotators, read_items, resolve_items

    check_outputs(
        {"--output": args.output, "--relabel": args.relabel, "--annotators": args.annotators},
        {"the data themselves": args.data, "the model itself": args.model},
    )
    encoders = given_encoders(args)
    model = plench.load(args.model, device=args.device, run_code=args.run_code, **encoders)
    items = read_items(args.data, args.data_dir, as_files=model.inputs.kind == "table")
    found = resolve_items(model, items)
    write_csv(args.output, list_rows(found, items))
    doubts, ratings = find_doubts(found), rate_annotators(found)
    names = items.items or [""] * len(found.label)
    if args.relabel is not None:
        ranked = [
            [n, each.row + 1, names[each.row], each.kind, f"{found.outside[each.row]:.6f}", each.reason]
            for n, each in enumerate(doubts, 1)
        ]
        write_csv(args.relabel, [["rank", "row", "item", "kind", "outside", "reason"], *ranked])
    if args.annotators is not None:
        write_csv(args.annotators, list_annotators(ratings))
    n_unfair = int((~found.is_fair).sum())
    warnings = [] if "rows" in model.notes else [UNKNOWN]
    if n_unfair:
        warnings.append(
            f"{n_unfair:,} of {len(found.label):,} rows were trained on and the model has no out-of-fold "
            "predictions of them: they are resolved, but not judged"
        )
    print_warnings(warnings)
    kinds = Counter(each.kind for each in doubts)
    lines = [f"{kinds['misses']} of {found.is_fair.sum()} sets probably miss the truth"]
    lines[0] += f", {kinds['may_miss']} may miss it"
    if doubts:
        lines.append(f"{len(doubts)} rows to relabel" + ("" if args.relabel else " (--relabel FILE has all)"))
    lines += [f"  {names[each.row] or f'row {each.row + 1}'}: {each.reason}" for each in doubts[:ROWS_SHOWN]]
    lines += [f"annotator {each}" for each in ratings]
    print(clean_text("\n".join(lines)), file=sys.stderr)
    return 0


def list_annotators(ratings: list[AnnotatorRating]) -> Iterator[list[str]]:
    """Yield the header and the ratings."""
    yield ["annotator", "answers", "agreement", "chance", "skill", "low", "high", "confusions", "flag"]
    for each in ratings:
        figures = (each.agreement, each.chance, each.skill, each.low, each.high)
        shown = ["" if value is None else f"{value:.6f}" for value in figures]
        yield [each.annotator, str(each.n_answers), *shown, "; ".join(each.confusions), each.flag]


def list_rows(found: Resolution, items: Dataset) -> Iterator[list[str]]:
    """Yield the header and the resolved rows."""
    first = ["row"] if items.items is None else ["row", "item"]
    yield [*first, "label", "probability", "predicted", "outside", "probably_misses_truth"]
    for row in range(len(found.label)):
        place = [str(row + 1), *([] if items.items is None else [items.items[row]])]
        label, predicted = (found.class_names[k[row]] for k in (found.label, found.predicted))
        doubtful = ("yes" if found.doubtful[row] else "no") if found.is_fair[row] else "trained on"
        yield [
            *place,
            label,
            f"{found.probability[row]:.6f}",
            predicted,
            f"{found.outside[row]:.6f}",
            doubtful,
        ]
