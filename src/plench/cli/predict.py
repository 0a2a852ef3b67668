"""Predict labels for new data with a model file or the model of a run: the most probable class
of each row with its probability, and the next two. For a model of a table, columns are matched by name, in
any order: unknown ones are ignored, a missing one is an error, and a category that training did not have
counts as none.

examples:
  plench predict model.plench new.csv -o predictions.csv
  plench predict runs/pets@1a2b3c4d-PRODEN-h0-t0-0123456789ab new.csv -o predictions.csv
  plench predict FOLDER new.csv --criterion CR        the model that was best by CR on validation
  cat new.csv | plench predict FOLDER - -o -          CSV from and to standard streams
  plench predict FOLDER features.npy -o -             a model of arrays
  plench predict FOLDER photos/ -o -                  a model of images
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plench
from plench.cli.options import add_run_code, check_outputs
from plench.data.readers import read_array
from plench.data.roles import KNOWN_NAMES
from plench.data.sources.folder import FORMATS, read_images
from plench.data.tables import read_table_file
from plench.errors import DataError, UsageError
from plench.runs.files import write_text
from plench.text import guard_formula

if TYPE_CHECKING:
    from plench.training.model import TrainedModel

TOP = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench), or folder of a run")
    parser.add_argument(
        "data", metavar="DATA", help="table (.csv, .tsv, .parquet), .npy, folder of images, or - for CSV"
    )
    parser.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="CSV file to write (default: -, standard output)"
    )
    parser.add_argument(
        "--criterion",
        default="last",
        metavar="NAME",
        help="which model of a run: last, CR, AA, or a step as step1000 (default: last)",
    )
    add_run_code(parser)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")


def run(arguments: argparse.Namespace) -> int:
    """Predict and write the table, whole or not at all."""
    inputs = {"the data themselves": arguments.data, "the model itself": arguments.model}
    check_outputs({"--output": arguments.output}, inputs)
    model = plench.load(arguments.model, arguments.criterion, arguments.device, run_code=arguments.run_code)
    names, features = read_data(model, arguments.data)
    text = format_predictions(model, names, model.predict_proba(features))
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        write_text(Path(arguments.output), text)
    return 0


def read_data(model: TrainedModel, data: str) -> tuple[dict[str, Sequence[Any]], Any]:
    """Return columns that say which row is which, and the features to predict on."""
    if model.inputs.kind == "table":
        table = read_table_file(data)
        known = [name for name in table.columns if name.lower() in KNOWN_NAMES["item"]]
        return {name: [text or "" for text in table.texts(name)] for name in known[:1]}, table
    if model.inputs.kind == "image" and Path(data).is_dir():
        return read_image_folder(Path(data))
    if not data.lower().endswith(".npy"):
        what = "images: give a folder of image files or an .npy file"
        if model.inputs.kind == "tabular":
            what = "arrays: give an .npy file (n, D)"
        raise UsageError(f"{data}: the model was trained on {what}")
    return {}, read_array(Path(data), data)


def read_image_folder(folder: Path) -> tuple[dict[str, Sequence[Any]], Any]:
    """Return the names and the pixels of the image files in a folder, in order of their names."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS)
    if not files:
        raise DataError(f"{folder} has no images; known are files ending in {', '.join(FORMATS)}")
    images, notices = read_images({"all": files}, str(folder))
    for notice in notices:
        print(f"notice: {notice}", file=sys.stderr)
    return {"file": [path.name for path in files]}, images["all"]


def format_predictions(model: TrainedModel, names: dict[str, Sequence[Any]], probs: np.ndarray) -> str:
    """Return the predictions as CSV; cells that a spreadsheet would take for a formula are escaped."""
    n_classes = probs.shape[1]
    labels = [str(label) for label in model.classes]
    shown = min(TOP, n_classes)
    best = np.argsort(-probs, axis=1, kind="stable")[:, :shown]
    header = ["label", "probability"]
    for place in range(2, shown + 1):
        header += [f"label_{place}", f"probability_{place}"]
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow([*names, *header])
    for row in range(len(probs)):
        cells: list[str] = [guard(values[row]) for values in names.values()]
        for label in best[row]:
            cells += [guard(labels[label]), f"{probs[row, label]:.6f}"]
        writer.writerow(cells)
    return sink.getvalue()


def guard(text: str) -> str:
    """Escape text that a spreadsheet would take for a formula; numbers stay as they are."""
    try:
        float(text)
    except ValueError:
        return guard_formula(text)
    return text
