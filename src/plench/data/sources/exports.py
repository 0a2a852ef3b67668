"""Exports of annotation tools given by path: their items and answers are read as tables are."""

from __future__ import annotations

import csv
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from plench.data.importers import IMPORTERS, read_export
from plench.data.roles import split_reference
from plench.data.sources.base import Source, SourceFinder
from plench.data.sources.tables import assemble, make_table_card, read_content
from plench.data.tables import parse_table, read_number
from plench.errors import UsageError

OPTIONS = ("tool", "from_name", "predictions")
CSV_COLUMNS = ("annotation_id", "annotator", "created_at", "lead_time", "updated_at")


def is_export(reference: str) -> bool:
    """Whether a path is that of an export, not of a table or of a folder of images.

    A CSV file or a folder is one if an option says so. Otherwise a CSV file must have the columns that Label
    Studio always writes, or those of doccano with a label that is several joined by `#`, and a folder must
    have `.jsonl` files and no `candidates.csv`.
    """
    path, _, query = reference.partition("?")
    if path.lower().endswith((".json", ".jsonl", ".zip")):
        return True
    is_folder = os.path.isdir(path)
    if not is_folder and not path.lower().endswith((".csv", ".tsv")):
        return False
    if any(name in OPTIONS for name, _ in parse_qsl(query, keep_blank_values=True)):
        return True
    try:
        if is_folder:
            names = os.listdir(path)
            return "candidates.csv" not in names and any(name.endswith(".jsonl") for name in names)
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            header = set(rows.fieldnames or ())
            if query or header >= {*CSV_COLUMNS}:
                return not query
            if not header >= {"id", "label"} or not header & {"text", "data"}:
                return False
            labels = {row["label"] or "" for row in rows}
            joined = [label.split("#") for label in labels if "#" in label]
            return any(part in labels for parts in joined for part in parts) and all(map(all, joined))
    except (OSError, ValueError, csv.Error):  # those who read all of it say why
        return False


def find_export(name: str) -> Source | None:
    """Return the source of an export given by path, with options after a question mark."""
    if not is_export(name):
        return None
    text, _, query = name.partition("?")
    path = Path(text)
    values = dict(parse_qsl(query, keep_blank_values=True))
    own = {key: values.pop(key) for key in OPTIONS if key in values}
    options = split_reference(f"{text}?{urlencode(values)}" if values else text)[1]
    predictions = read_number(own.get("predictions", "yes"), "boolean")
    if predictions is None:
        raise UsageError(f"predictions must be yes or no, not {own['predictions']!r}")
    if options.taxonomy is not None:
        raise UsageError("taxonomy= needs a table: write one with `plench data import`")
    export = read_export(path, own.get("tool"), own.get("from_name"), bool(predictions))
    chosen = options.changed()
    items, answers, needed = export.to_tables(chosen.get("separator"))
    options = replace(options, **{key: value for key, value in needed.items() if key not in chosen})
    content = read_content(
        parse_table(items, ".csv", path.name), options, parse_table(answers, ".csv", f"{path.name} (answers)")
    )
    # The same digest as that of the two files that `plench data import` writes.
    digest = hashlib.sha256(hashlib.sha256(items).digest() + hashlib.sha256(answers).digest())
    if options.changed():
        digest.update(repr(sorted(options.changed().items())).encode())
    card = make_table_card(path.stem, digest.hexdigest(), content)
    card = replace(card, source=f"the user's own export of {export.tool}: {content.roles.describe()}")
    return Source(card, lambda data_dir: assemble(content, card).with_warnings(export.warnings))


EXPORTS = SourceFinder(
    "path/to/export.json",
    f"an export of {', '.join(IMPORTERS.own)}: .json, .jsonl, .csv, .zip or a folder of such files "
    "(docs/annotation-tools.md)",
    find_export,
)
