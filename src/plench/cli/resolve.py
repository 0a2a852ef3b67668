"""Resolve candidate sets with a model: for each row the candidate that is most probable and its
share of the candidates' probability; the probability outside the set, and whether the set probably misses
the true label; and for each annotator how often the answers hold the resolved label. Where the model has
learned from these very rows it agrees with them more than with new ones.

examples:
  plench resolve model.plench animals.csv -o resolved.csv
  plench resolve model.plench 'songs.csv?answers=answers.csv' -o resolved.csv --annotators annotators.csv
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import plench
from plench.cli.options import add_run_code, check_outputs
from plench.cli.predict import guard
from plench.runs.files import write_text
from plench.text import clean_text

if TYPE_CHECKING:  # imports torch
    from plench.estimator import Items, Resolution


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench), or folder of a run")
    parser.add_argument("data", metavar="DATA", help="data with candidate sets or annotators' answers")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="CSV file to write (default: -)")
    parser.add_argument("--annotators", metavar="FILE", help="also write the annotators' agreement as CSV")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    add_run_code(parser)


def run(arguments: argparse.Namespace) -> int:
    """Resolve, write the tables, and print a summary to standard error."""
    from plench.estimator import read_items, resolve_items

    check_outputs(
        {"--output": arguments.output, "--annotators": arguments.annotators},
        {"the data themselves": arguments.data, "the model itself": arguments.model},
    )
    model = plench.load(arguments.model, device=arguments.device, run_code=arguments.run_code)
    items = read_items(arguments.data, arguments.data_dir)
    found = resolve_items(model, items)
    names = [str(label) for label in model.classes]
    text = format_resolved(found, items, names)
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        write_text(Path(arguments.output), text)
    if arguments.annotators is not None:
        write_text(Path(arguments.annotators), format_annotators(found))
    print(clean_text(summarise_resolution(found)), file=sys.stderr)
    return 0


def format_resolved(found: Resolution, items: Items, names: list[str]) -> str:
    """Return the rows as CSV."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    first = ["row"] if items.names is None else ["row", "item"]
    writer.writerow([*first, "label", "probability", "predicted", "outside", "probably_misses_truth"])
    for row in range(len(found.label)):
        cells = [str(row + 1)] if items.names is None else [str(row + 1), guard(items.names[row])]
        cells += [guard(names[found.label[row]]), f"{found.probability[row]:.6f}"]
        cells += [guard(names[found.predicted[row]]), f"{found.outside[row]:.6f}"]
        writer.writerow([*cells, "yes" if found.doubtful[row] else "no"])
    return sink.getvalue()


def format_annotators(found: Resolution) -> str:
    """Return the annotators' agreement as CSV."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["annotator", "answers", "agreement"])
    for each in found.agreements:
        writer.writerow([guard(each.annotator), each.n_answers, f"{each.share:.6f}"])
    return sink.getvalue()


def summarise_resolution(found: Resolution) -> str:
    """Return doubtful sets and annotators in short."""
    doubtful = [str(row + 1) for row in found.doubtful.nonzero()[0][:20]]
    more = " …" if found.doubtful.sum() > len(doubtful) else ""
    lines = [f"{found.doubtful.sum()} of {len(found.label)} sets probably miss the truth"]
    lines[0] += f": rows {', '.join(doubtful)}{more}" if doubtful else ""
    lines += [
        f"annotator {each.annotator}: {each.share:.1%} of {each.n_answers} answers hold the resolved label"
        for each in found.agreements
    ]
    return "\n".join(lines)
