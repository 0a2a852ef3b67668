"""Predict labels of new data with a model file or the model of a run.

The output has the most probable class of each row with its probability, and the next two. For a model of a
table, columns are matched by name, in any order: unknown ones are ignored, a missing one is an error, and a
category that training did not have is treated as missing.

With --coverage the output also has a prediction set per row, calibrated on rows that the model was not
trained on (`plench fit --reserve`). It contains the true label with that probability if candidate sets do
(--promise truth_if_complete), or without that condition after calibration on true labels (truth);
some_candidate promises some candidate only. A set with no class or with all of them is an abstention.

examples:
  plench predict model.plench new.csv -o predictions.csv
  plench predict runs/pets@1a2b3c4d-PRODEN-h0-t0-0123456789ab new.csv -o predictions.csv
  plench predict FOLDER new.csv --criterion CR        the model that was best by CR on validation
  plench predict model.plench new.csv --coverage 0.9  prediction sets
  cat new.csv | plench predict FOLDER - -o -          CSV from and to standard streams
  plench predict FOLDER features.npy -o -             a model of arrays
  plench predict FOLDER photos/ -o -                  a model of images
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plench
from plench.cli.options import add_model_options, check_outputs, given_encoders, print_warnings, write_csv
from plench.errors import UsageError

if TYPE_CHECKING:  # imports torch
    from plench.estimator.calibration import Calibration
    from plench.training.model import TrainedModel

TOP = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model_options(parser, data="table (.csv, .tsv, .parquet), .npy, folder of images, or - for CSV")
    text = "which model of a run: last, CR, AA, or a step as step1000 (default: last)"
    parser.add_argument("--criterion", default="last", metavar="NAME", help=text)
    text = "also write prediction sets that keep their promise with this probability, as 0.9"
    parser.add_argument("--coverage", type=float, metavar="F", help=text)
    text = "promise of the sets: truth, truth_if_complete or some_candidate (default: the first there is)"
    parser.add_argument("--promise", metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    """Predict and write the table."""
    inputs = {"the data themselves": args.data, "the model itself": args.model}
    check_outputs({"--output": args.output}, inputs)
    encoders = given_encoders(args)
    model = plench.load(args.model, args.criterion, args.device, run_code=args.run_code, **encoders)
    columns, features = read_data(model, args.data)
    labels = [str(label) for label in model.classes]
    logits = model.predict_logits(features)
    probs = model.calibrate_logits(logits)
    best = np.argsort(-probs, axis=1, kind="stable")[:, :TOP]
    header = [*columns, "label", "probability"]
    for place in range(2, best.shape[1] + 1):
        header += [f"label_{place}", f"probability_{place}"]
    sets = None
    if args.coverage is not None:
        from plench.estimator.calibration import find_calibration

        calibration = find_calibration(model)
        sets = calibration.predict_sets(logits, args.coverage, args.promise)
        header += ["set", "abstains"]
        print(describe_sets(calibration, sets, args.coverage, args.promise), file=sys.stderr)
    elif args.promise is not None:
        raise UsageError("--promise is that of prediction sets: give --coverage too")
    rows = [header]
    for row, chosen in enumerate(best):
        ranked = [text for k in chosen for text in (labels[k], f"{probs[row, k]:.6f}")]
        if sets is not None:
            names = [label for label, is_in in zip(labels, sets[row], strict=True) if is_in]
            ranked += ["|".join(names), "no" if 0 < len(names) < len(labels) else "yes"]
        rows.append([*(str(values[row]) for values in columns.values()), *ranked])
    write_csv(args.output, rows)
    return 0


def describe_sets(calibration: Calibration, sets: Any, coverage: float, promise: str | None) -> str:
    """Return what prediction sets promise, and how large they are."""
    contents = {
        "truth": "the true label",
        "truth_if_complete": "the true label if candidate sets are complete",
        "some_candidate": "some candidate, which need not be the true label",
    }
    content, size = contents[calibration.choose_promise(promise)], sets.sum(1)
    hold = f"hold {content} with probability {coverage:g} or more"
    if calibration.source == "cross-fitted":
        hold = f"should hold {content} with probability {coverage:g}, but no guarantee holds: too few rows"
    abstentions = int(((size == 0) | (size == sets.shape[1])).sum())
    return f"prediction sets {hold}; mean size {size.mean():.2f}, {abstentions:,} abstentions"


def read_data(model: TrainedModel, data: str) -> tuple[dict[str, Sequence[Any]], Any]:
    """Return columns that name the rows, and the features to predict on."""
    from plench.data.images import list_image_files, read_images
    from plench.data.readers import read_array
    from plench.data.roles import KNOWN_NAMES
    from plench.data.tables import read_table_file

    kind = model.inputs.kind
    if kind == "table" and Path(data).is_dir():
        return {"file": [path.name for path in list_image_files(Path(data))]}, data
    if kind == "table" and not data.lower().endswith(".npy"):
        table = read_table_file(data)
        known = [name for name in table.columns if name.lower() in KNOWN_NAMES["item"]]
        return {name: [text or "" for text in table.texts(name)] for name in known[:1]}, table
    if kind == "image" and Path(data).is_dir():
        files = list_image_files(Path(data))
        images, warnings = read_images({"all": files}, data)
        print_warnings(warnings)
        return {"file": [path.name for path in files]}, images["all"]
    if not data.lower().endswith(".npy"):
        expected = "an .npy file (n, D)" if kind == "tabular" else "a folder of image files or an .npy file"
        raise UsageError(f"{data}: the model expects {expected}")
    return {}, read_array(Path(data), data)
