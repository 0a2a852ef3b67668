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
import logging
import sys
from collections.abc import Iterator, Sequence
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
    text = "promise of the sets: truth, truth_if_complete or some_candidate (default: the first possible)"
    parser.add_argument("--promise", metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    """Predict and write the table."""
    inputs = {"the data themselves": args.data, "the model itself": args.model}
    check_outputs({"--output": args.output}, inputs)
    encoders = given_encoders(args)
    model = plench.load(args.model, args.criterion, args.device, run_code=args.run_code, **encoders)
    calibration, sizes = None, list[np.ndarray]()
    if args.coverage is not None:
        from plench.estimator.calibration import find_calibration

        calibration = find_calibration(model)
    elif args.promise is not None:
        raise UsageError("--promise is that of prediction sets: give --coverage too")
    labels = [str(label) for label in model.classes]

    def list_rows() -> Iterator[list[str]]:
        """Yield the header and a row per example; one block of the data is in memory at a time."""
        has_header = False
        for columns, features in read_data(model, args.data):
            logits = model.predict_logits(features)
            probs = model.calibrate_logits(logits)
            best = np.argsort(-probs, axis=1, kind="stable")[:, :TOP]
            if not has_header:
                has_header = True
                places = range(2, best.shape[1] + 1)
                others = [text for place in places for text in (f"label_{place}", f"probability_{place}")]
                yield [*columns, "label", "probability", *others, *["set", "abstains"] * bool(calibration)]
            sets = None
            if calibration is not None:
                sets = calibration.predict_sets(logits, args.coverage, args.promise)
                sizes.append(sets.sum(1))
            for row, chosen in enumerate(best):
                ranked = [text for k in chosen for text in (labels[k], f"{probs[row, k]:.6f}")]
                if sets is not None:
                    names = [label for label, is_in in zip(labels, sets[row], strict=True) if is_in]
                    ranked += ["|".join(names), "no" if 0 < len(names) < len(labels) else "yes"]
                yield [*(str(values[row]) for values in columns.values()), *ranked]

    logger, seen = logging.getLogger("plench"), set[object]()

    def is_new(record: logging.LogRecord) -> bool:
        """Whether a warning was not given for an earlier block."""
        is_first = record.msg not in seen
        seen.add(record.msg)
        return is_first

    logger.addFilter(is_new)
    try:
        write_csv(args.output, list_rows())
    finally:
        logger.removeFilter(is_new)
    if calibration is not None:
        size = np.concatenate(sizes)
        print(describe_sets(calibration, size, len(labels), args.coverage, args.promise), file=sys.stderr)
    return 0


def describe_sets(
    calibration: Calibration, size: np.ndarray, n_classes: int, coverage: float, promise: str | None
) -> str:
    """Return what prediction sets promise, and how large they are."""
    contents = {
        "truth": "the true label",
        "truth_if_complete": "the true label if candidate sets are complete",
        "some_candidate": "some candidate (not necessarily the true label)",
    }
    content = contents[calibration.choose_promise(promise)]
    hold = f"hold {content} with probability {coverage:g} or more"
    if calibration.source == "cross-fitted":
        hold = f"should hold {content} with probability {coverage:g} (no guarantee: no rows are reserved)"
    abstentions = int(((size == 0) | (size == n_classes)).sum())
    return f"prediction sets {hold}; mean size {size.mean():.2f}, {abstentions:,} abstentions"


def read_data(
    model: TrainedModel, data: str, whole: bool = False
) -> Iterator[tuple[dict[str, Sequence[Any]], Any]]:
    """Yield columns that name the rows, and the features to predict on, in blocks of rows or `whole`."""
    from plench.data.readers import list_image_files, read_array, read_images
    from plench.data.roles import KNOWN_NAMES
    from plench.data.tables import BLOCK_ROWS, read_blocks, read_table_file
    from plench.training.data import TableInputs

    inputs, kind, is_folder = model.inputs, model.inputs.kind, Path(data).is_dir()
    has_table = isinstance(inputs, TableInputs) and [code.kind for code in inputs.encoder.codes] != ["image"]
    if is_folder and not has_table and kind != "tabular":
        files = list_image_files(Path(data))
        names: dict[str, Sequence[Any]] = {"file": [path.name for path in files]}
        if kind == "table":
            yield names, data
            return
        images, warnings = read_images(files, data)
        print_warnings(warnings)
        yield names, images
    elif has_table or (kind == "table" and not data.lower().endswith(".npy")):
        for table in [read_table_file(data)] if whole else read_blocks(data):
            known = [name for name in table.columns if name.lower() in KNOWN_NAMES["item"]]
            yield {name: [text or "" for text in table.texts(name)] for name in known[:1]}, table
    elif data.lower().endswith(".npy"):
        array = read_array(Path(data), data)
        size = len(array) if whole else BLOCK_ROWS
        for start in range(0, max(len(array), 1), max(size, 1)):
            yield {}, array[start : start + size]
    else:
        expected = "an .npy file (n, D)" if kind == "tabular" else "a folder of image files or an .npy file"
        raise UsageError(f"{data}: the model expects {expected}")
