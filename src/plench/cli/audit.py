"""Measure the accuracy of a model by labels of a person: fifty random rows settle what candidate sets cannot.

The first call writes random rows that the model was not trained on: those that `plench fit` reserved, or new
rows of another file. The table shows features and candidates, not what the model predicts. Fill in the column
`label`, and leave it empty where the class cannot be told. The second call reads the labels back.

With a model file as output, at least 30 labels also calibrate: the new model has a temperature fitted to true
labels, and its prediction sets contain the true label with the stated probability whatever candidate sets
are worth (`plench predict --coverage 0.9`, promise `truth`).

examples:
  plench audit model.plench animals.csv -n 50 -o audit.csv
  plench audit model.plench --labels audit.csv
  plench audit model.plench --labels audit.csv -o calibrated.plench               calibrate by the labels
  plench audit model.plench animals.csv -n 200 --labels audit.csv -o more.csv    more rows, known labels kept
  plench audit model.plench new.csv --labels audit.csv                            rows of another file
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plench
from plench.cli.options import check_outputs, print_warnings, write_csv
from plench.errors import DataError, UsageError
from plench.text import clean_text, counted

if TYPE_CHECKING:  # imports torch
    from plench.data import Dataset
    from plench.estimator.audit import Audit
    from plench.training.model import TrainedModel

UNSCALED = "probabilities as they were, since the labels do not determine a temperature"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench)")
    text = "data to draw from; with --labels needed only if it is not what the model was fitted to"
    parser.add_argument("data", metavar="DATA", nargs="?", help=text)
    parser.add_argument("-n", type=int, default=50, metavar="N", help="number of rows (default: 50)")
    text = "table to label (.csv, or - for standard output), or with --labels a calibrated model (.plench)"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument("--labels", nargs="+", metavar="FILE", help="tables that were labelled")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the data files of a named dataset")
    text = "run third-party code in the model file: only if you trust its author"
    parser.add_argument("--run-code", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(args: argparse.Namespace) -> int:
    """Write the table to label, or compare its labels with the model."""
    from plench.estimator.audit import audit, list_audit, read_labels, reserved_rows, rows_of
    from plench.estimator.calibration import LEAST_LABELS

    if args.n < 1:
        raise UsageError(f"-n is {args.n}; expected a whole number from 1")
    if args.output is None and args.labels is None:
        raise UsageError(
            "name the table to write (-o audit.csv), or one that was labelled (--labels audit.csv)"
        )
    is_model = args.output is not None and args.output.lower().endswith(".plench")
    if is_model and args.labels is None:
        raise UsageError("a model is calibrated by labels: name them with --labels audit.csv")
    if args.output is not None and args.data is None and not is_model:
        raise UsageError("name the data to draw rows from: plench audit MODEL DATA -o audit.csv")
    inputs = {"the model itself": args.model, **({} if args.data is None else {"the data": args.data})}
    inputs |= {f"what --labels reads ({name})": name for name in args.labels or ()}
    check_outputs({"--output": args.output}, inputs)
    model = plench.load(args.model, run_code=args.run_code)
    labels = {} if args.labels is None else read_labels(args.labels, model)
    if args.data is None:
        rows, items = reserved_rows(model), None
    else:
        items, numbers = read_data(model, args.data, args.data_dir)
        rows = rows_of(model, items, numbers, has_sets=numbers is not None)
    if args.output is None or is_model:
        found = audit(model, rows, labels)
        calibration, lines = found.calibration, list_lines(found, model.notes.get("quality") or {})
        if is_model:
            if calibration is None:
                raise UsageError(
                    f"calibration needs at least {LEAST_LABELS} labels of the rows that `plench audit` draws "
                    f"first; {args.output} was not written"
                )
            model.notes["calibration"] = calibration.to_json()
            model.save(args.output)
            scale = f"temperature {calibration.temperature:.2f}" if calibration.is_calibrated else UNSCALED
            sets = f"prediction sets contain the true label (plench predict {args.output} NEW --coverage 0.9)"
            lines.append(f"wrote {args.output}: {scale}; {sets}")
        figures = asdict(found)
        if calibration is not None:
            del figures["calibration"]["scores"]
        print(json.dumps(figures, indent=1) if args.json else clean_text("\n".join(lines)))
        return 0
    assert items is not None
    if labels:
        audit(model, rows, labels)  # what does not fit is refused before it is copied
    table = list_audit(model, rows, items, args.n, {name: each[0] for name, each in labels.items()})
    if len(table[0]) == 3:
        print_warnings(["the table has no features that a person can read: find the rows by their ids"])
    write_csv(args.output, table)
    if args.output != "-":
        drawn = f"{len(table) - 1} random rows of {len(rows.ids):,} that the model was not trained on"
        left_out = (
            f"; {counted(rows.n_trained, 'row')} that it was trained on left out" if rows.n_trained else ""
        )
        print(clean_text(f"wrote {args.output}: {drawn}{left_out}"))
        print(f"fill in the column label, then: plench audit {args.model} --labels {args.output}")
    return 0


def read_data(model: TrainedModel, data: str, data_dir: str | None) -> tuple[Dataset, list[int] | None]:
    """Return the rows of some data with their numbers in its file; None if they have no candidate sets."""
    import numpy as np

    from plench.cli.predict import read_data as read_new
    from plench.data import Dataset, as_dataset
    from plench.data.sources.arrays import make_card
    from plench.estimator.inputs import hide_truth
    from plench.estimator.review import number_rows

    try:
        images = "files" if model.inputs.kind == "table" else None  # as the model's encoder takes them
        items = hide_truth(as_dataset(data, data_dir, image_encoder=images))
        return items, number_rows(data, items.n_examples)
    except (DataError, UsageError) as error:
        try:  # new rows without candidates, as `plench predict` takes them
            ((columns, features),) = read_new(model, data, whole=True)
            features = model.inputs.accept(features)
        except (DataError, UsageError):
            raise error from None
    sets = np.ones((len(features), len(model.classes)), np.bool_)
    names = next((tuple(map(str, values)) for values in columns.values()), None)
    card = make_card(Path(data), "", "image" if len(features.shape) > 2 else "tabular", has_candidates=True)
    card = replace(card, class_names=tuple(map(str, model.classes)))
    return Dataset(features, sets, None, card, items=names), None


def list_lines(found: Audit, quality: dict[str, Any]) -> list[str]:
    """Return the outcome in words."""
    n = found.accuracy.n
    lines = [f"accuracy: {found.accuracy} on {counted(n, 'labelled row')}, exact 95 % interval"]
    if found.noise_rate is not None:
        lines.append(f"sets that miss the true label: {found.noise_rate}")
    more = f"about {counted(found.n_more, 'more label')} would halve the interval of the accuracy"
    lines.append(f"{more}; {counted(found.n_left, 'row')} can still be labelled")
    for name in ("uniform", "confusable"):
        told = quality.get(name)
        if told:
            said = f"{told['value']:.3f} ({told['low']:.3f} to {told['high']:.3f})"
            lines.append(f"fit estimated, for {name} distractors: {said}")
    if found.n_empty:
        lines.append(
            f"{counted(found.n_empty, 'row')} without a label left out: if these are the difficult ones, the "
            "accuracy is lower"
        )
    if not found.is_random:
        lines.append(
            "warning: these are not the rows that `plench audit` draws first; the interval holds for rows "
            "chosen at random, not for rows chosen by a person"
        )
    return lines
