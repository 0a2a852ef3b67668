"""Exports of annotation tools given by path: tables of items with their data and gold labels, and of answers.

A tool is one `Importer`, recognised by the content of its records. Nothing in an export is executed or
extracted to disk, and a damaged one is a DataError.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from plench.data.answers import ALL, NOT, UNSURE
from plench.data.check import find_separator
from plench.data.readers import read_file
from plench.data.roles import KNOWN_NAMES, PREFIXES, read_options, split_query
from plench.data.sources.base import Source, SourceFinder
from plench.data.sources.tables import assemble, hash_tables, make_table_card, read_content
from plench.data.tables import MISSING_TEXTS, parse_table, read_number, strip_text
from plench.errors import DataError, UsageError, as_data_error
from plench.text import counted, find_name, short_repr

OPTIONS = ("tool", "from_name", "predictions")
CSV_COLUMNS = ("annotation_id", "annotator", "created_at", "lead_time", "updated_at")
SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")  # of files with records
SEPARATORS = ("|", ";", "/", "#")
ROLE_NAMES = {name for names in KNOWN_NAMES.values() for name in names}
ROLE_PREFIXES = tuple(prefix for prefixes in PREFIXES.values() for prefix in prefixes)
ADVICE = (
    "export a question about the item as a whole (Choices in Label Studio, document or image classification "
    "in doccano, choice or textcat in Prodigy), or make each region an item of its own first"
)


class Record(NamedTuple):
    """An object of a JSON file or a row of a table: where it is, its file without ending, its content."""

    place: str
    file: str
    value: dict[str, Any]

    def text(self, value: Any, what: str) -> str:
        """Return a name as text; raise DataError unless it is a text or a number."""
        text = strip_text(str(value)) if isinstance(value, str | int | float) else ""
        if not text or isinstance(value, bool):
            raise DataError(f"{self.place}: expected {what} (a text or a number), not {short_repr(value)}")
        return text

    def labels(self, value: Any) -> tuple[str, ...]:
        """Return labels as text; raise DataError unless they are a list of texts or numbers."""
        if not isinstance(value, list):
            raise DataError(f"{self.place}: expected a list of labels, not {short_repr(value)}")
        return tuple(dict.fromkeys(self.text(label, "a label") for label in value))

    def objects(self, value: Any, what: str) -> list[dict[str, Any]]:
        """Return a list of objects, empty for None; raise DataError for anything else."""
        if not isinstance(value, list | None) or not all(isinstance(entry, dict) for entry in value or ()):
            raise DataError(f"{self.place}: expected a list of {what}, not {short_repr(value)}")
        return value or []

    def refuse(self, kind: str) -> NoReturn:
        """Raise DataError for a task that is not classification."""
        raise DataError(f"{self.place}: {kind} does not give a class to the item; {ADVICE}")


class Answer(NamedTuple):
    """One or more labels, or with `negated` all but these; unsure without labels."""

    labels: tuple[str, ...]
    negated: bool = False


@dataclass
class Export:
    """What an export holds, in its order: items with their data, gold labels, answers by item and annotator.

    `from_name` and `predictions` are what the user asked for. `models` are the annotators that are models.
    `skipped` counts what is not an answer, by reason, and `changes` what a user may not expect.
    """

    name: str
    tool: str
    from_name: str | None
    predictions: bool
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    truth: dict[str, str] = field(default_factory=dict)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)  # data fields that cannot be columns
    changes: Counter[str] = field(default_factory=Counter)

    @property
    def warnings(self) -> list[str]:
        """What a user may not expect, and how often it happened."""
        return [f"{self.name}: {text} ({counted(n, 'time')})" for text, n in self.changes.items()]

    @property
    def columns(self) -> list[str]:
        """The data fields that become columns."""
        every = dict.fromkeys(key for data in self.items.values() for key in data)
        return [key for key in every if key not in self.left_out]

    def add_item(self, record: Record, item: Any, data: Mapping[str, Any]) -> str:
        """Add an item with its data, unless an earlier record has it; return its name."""
        name = record.text(item, "an id of the item")
        fields = {name_column(key): value for key, value in data.items()}
        if len(fields) < len(data):
            raise DataError(f"{record.place}: two data fields would be one column: {', '.join(data)}")
        known = self.items.setdefault(name, fields)
        for key, new in zip(data, fields, strict=True):
            if key != new:
                self.changes[f"the data field {short_repr(key)} is the column {short_repr(new)}"] += 1
        for key in {**known, **fields}:
            value = fields.get(key)
            if isinstance(value, list | dict) or (isinstance(value, str) and value.startswith("data:")):
                reason = "is neither a text nor a number"
            elif value != known.get(key):
                reason = "differs between the records of an item"
            else:
                continue
            self.left_out.add(key)
            self.changes[f"the data field {short_repr(key)} {reason} and is left out"] += 1
        return name

    def add_answer(self, item: str, annotator: str, answer: Answer) -> None:
        """Add an answer; the last one of an annotator to an item counts."""
        sure = tuple(label for label in answer.labels if label.lower() not in UNSURE)
        for label in {*answer.labels} - {*sure}:
            self.changes[f"the label {short_repr(label)} is read as being unsure"] += 1
        if (item, annotator) in self.answers:
            self.changes[f"{short_repr(annotator)} answered an item again; the last answer counts"] += 1
        self.answers[item, annotator] = answer._replace(labels=sure)

    def to_tables(self, separator: str | None = None) -> tuple[bytes, bytes, dict[str, Any]]:
        """Return the tables of items and of answers as CSV files, and the options to read them with.

        Classes are declared if a label would mean something else in a cell (`None`, `not x`, `all`). If x is
        the only label and was rejected, `not x` is the other class.
        """
        labels = {label for answer in self.answers.values() for label in answer.labels}
        if not labels:
            raise DataError(f"{self.name} has {counted(len(self.items), 'item')}, but not one answer")
        answered = set(labels)
        labels.update(self.truth.values())
        if len(labels) == 1 and any(answer.negated for answer in self.answers.values()):
            labels.add(f"not {min(labels)}")
        unused = [mark for mark in SEPARATORS if not any(mark in label for label in labels)]
        mark = separator or next(iter(unused), SEPARATORS[0])
        options: dict[str, Any] = {} if mark == SEPARATORS[0] else {"separator": mark}
        special = any(NOT.match(label) or label.lower() in {*MISSING_TEXTS, ALL} for label in labels)
        special = special or find_separator(labels, mark) is not None
        if not answered.issuperset(self.truth.values()):
            options["truth"] = "truth"  # also classes that nobody has named
        if special:
            options["classes"] = ",".join(sorted(labels))
        wrong = [label for label in sorted(labels) if mark in label or (special and "," in label)]
        answers: list[list[Any]] = [["item", "annotator", "answer"]]
        for key, (names, negated) in self.answers.items():
            wrong += [name for name in names if len(names) > 1 and NOT.match(name)]  # negates the whole set
            cell = mark.join(names) or "unsure"
            answers.append([*key, f"not {cell}" if negated and names else cell])
        if wrong:
            raise DataError(f"{self.name}: the label {short_repr(wrong[0])} cannot be used; rename it")
        columns = self.columns
        items: list[list[Any]] = [["item", *columns, *["truth"] * bool(self.truth)]]
        for item, data in self.items.items():
            truth = [self.truth.get(item)] * bool(self.truth)
            items.append([item, *map(data.get, columns), *truth])
        return self._write(items), self._write(answers), options

    def _write(self, rows: list[list[Any]]) -> bytes:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(rows)
        try:
            return stream.getvalue().encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{self.name} has a text that is not Unicode ({error.reason})") from None


def name_column(key: str) -> str:
    """Return the column of a data field; a name that has a role in tables, such as `label`, gets a prefix."""
    name = strip_text(re.sub(r"[;\s]+", " ", key)) or "data"
    is_role = name.lower() in ROLE_NAMES or name.lower().startswith(ROLE_PREFIXES)
    return f"data_{name}" if is_role else name


@dataclass(frozen=True)
class Importer:
    """A tool: what its records look like, whether a record is one of its own, and how records are read."""

    name: str
    shape: str
    recognise: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Export, list[Record]], None]


def read_export(
    path: Path, tool: str | None = None, from_name: str | None = None, predictions: bool = True
) -> Export:
    """Read an export: a file, or a .zip file or a folder of files.

    The tool is recognised if it is not given. `from_name` is the question to read if there are several. With
    `predictions`, those of models are answers.
    """
    records = [
        Record(f"{file}: record {number}", PurePosixPath(file).stem, value)
        for file, content in read_files(path).items()
        for number, value in enumerate(parse_records(content, file), 1)
    ]
    if not records:
        raise DataError(f"{path.name} has no records; expected files ending in {', '.join(SUFFIXES)}")
    names = IMPORTERS if tool is None else [find_name(tool, IMPORTERS, "annotation tool")]
    importers = [IMPORTERS[name] for name in names]
    fitting = {each: [each.recognise(record.value) for record in records] for each in importers}
    chosen = [each for each in importers if all(fitting[each])]
    if len(chosen) > 1:
        listed = " or ".join(each.name for each in chosen)
        raise DataError(f"{path.name} could come from {listed}; choose with tool={chosen[0].name}")
    if not chosen:
        nearest = max(importers, key=lambda each: sum(fitting[each]))
        odd = records[fitting[nearest].index(False)]
        keys = ", ".join(map(short_repr, list(odd.value)[:12])) or "nothing"
        known = [nearest] if any(fitting[nearest]) else importers
        expected = "; or ".join(f"{each.shape} ({each.name})" for each in known)
        raise DataError(f"{odd.place} of {path.name} has {keys}; expected {expected}")
    export = Export(path.name, chosen[0].name, from_name, predictions)
    chosen[0].read(export, records)
    return export


def read_files(path: Path) -> dict[str, bytes]:
    """Return the contents of the files of an export that may have records by their names, sorted."""
    with as_data_error(f"{path.name} cannot be read: damaged or encrypted"):
        if os.path.isdir(path):
            files = {entry.name: entry for entry in path.iterdir() if entry.is_file()}
            return {name: read_file(files[name], name) for name in pick_files(files)}
        content = read_file(path, path.name)
        if path.suffix.lower() != ".zip":
            return {path.name: content}
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            return {name: archive.read(name) for name in pick_files(names)}


def pick_files(names: Iterable[str]) -> list[str]:
    """Return the visible files that may have records, sorted."""
    visible = [name for name in sorted(names) if not re.search(r"(^|/)(\.|__MACOSX/)", name)]
    return [name for name in visible if name.lower().endswith(SUFFIXES)]


def parse_records(content: bytes, name: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON or JSONL file, or the rows of a table."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in (".csv", ".tsv"):
        rows: list[dict[str, Any]] = parse_table(content, suffix, name).frame.to_dict("records")
        return rows
    try:
        text = content.decode("utf-8-sig").strip()
        lines = [line for line in text.split("\n") if line.strip()]
        if text.startswith("{") and len(lines) > 1 and lines[0].rstrip().endswith("}"):
            values = [json.loads(line) for line in lines]
        else:
            values = json.loads(text)
    except UnicodeDecodeError as error:
        byte = f"{content[error.start]:#04x} at {error.start:,}"
        raise DataError(f"{name} is not UTF-8 (byte {byte}); save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is not complete JSON ({error}); export it again") from None
    values = values if isinstance(values, list) else [values]
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{name}: record {number}: expected an object, not {short_repr(value)}")
    return values


def choose_question(export: Export, found: Iterable[str], problem: str) -> str:
    """Return the question whose answers are read; raise an error that lists them if it is not clear."""
    names, asked = sorted(found), export.from_name
    if not names:
        raise DataError(f"{export.name} has no column with answers")
    if asked is not None and asked not in names:
        raise UsageError(f"{export.name} has no question {asked!r}; expected one of {', '.join(names)}")
    if asked is None and len(names) != 1:
        raise DataError(
            f"{export.name} {problem}: {', '.join(names)}; choose with from_name={names[0]} (or --from-name)"
        )
    return asked or names[0]


def read_label_studio(export: Export, records: list[Record]) -> None:
    """Read tasks with annotations, once called completions, and predictions."""
    given: list[tuple[Record, str, dict[str, Any], dict[str, tuple[str, ...]]]] = []
    others = Counter[str]()  # results that are not choices, by type
    for record in records:
        item = export.add_item(record, record.value.get("id"), record.value["data"])
        annotations = record.value.get("annotations", record.value.get("completions"))
        entries = record.objects(annotations, "annotations")
        entries = sorted(entries, key=lambda entry: str(entry.get("updated_at")))  # the last one counts
        if export.predictions:
            what = "predictions with their results (predictions=no or --no-predictions leaves them out)"
            for entry in record.objects(record.value.get("predictions"), what):
                entries.append({"model_version": None, **entry, "is_model": True})
        for entry in entries:
            if entry.get("was_cancelled") or entry.get("skipped"):
                export.skipped["cancelled"] += 1
                continue
            chosen: dict[str, tuple[str, ...]] = {}
            for result in record.objects(entry.get("result"), "results"):
                kind, name, value = (result.get(key) for key in ("type", "from_name", "value"))
                if kind != "choices" or not isinstance(value, dict):
                    others[str(kind)] += 1
                elif value.keys() & {"start", "x", "points", "ranges"} or str(name) in chosen:
                    others["choices of a region"] += 1
                else:
                    chosen[str(name)] = record.labels(value.get("choices"))
            given.append((record, item, entry, chosen))
    questions = {name for *_, chosen in given for name in chosen}
    if not questions:
        records[0]._replace(place=export.name).refuse(", ".join(others) or "an export without results")
    for kind, count in others.items():
        export.changes[f"{kind} does not give a class to the item and is left out"] += count
    question = choose_question(export, questions, "asks several questions")
    people = {name_person(record, entry) for record, _, entry, _ in given if "is_model" not in entry}
    for record, item, entry, chosen in given:
        labels = chosen.get(question)
        if not labels:
            export.skipped["empty"] += 1
        elif entry.get("ground_truth"):
            if len(labels) > 1 or labels[0].lower() in UNSURE:
                export.skipped["gold labels that are not one class"] += 1
            else:
                export.truth[item] = labels[0]
        elif "is_model" in entry:
            version = record.text(entry["model_version"] or "model", "a model_version")
            version = f"model {version}" if version in people else version
            export.models.add(version)
            export.changes[f"{short_repr(version)} is a model whose predictions are answers"] += 1
            export.add_answer(item, version, Answer(labels))
        else:
            export.add_answer(item, name_person(record, entry), Answer(labels))


def name_person(record: Record, entry: Mapping[str, Any]) -> str:
    """Return who completed an annotation of Label Studio: the email if it is there, else the id."""
    person = entry.get("completed_by")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id")
    return "unknown" if person is None else record.text(person, "completed_by")


ROW_KEYS = {
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
    "agreement",
    "was_cancelled",
}


def read_label_studio_rows(export: Export, records: list[Record]) -> None:
    """Read rows with one annotation each, in which data and questions are columns alike.

    A question is a column between `id` and `annotator`, where the tool writes it unless it sorts columns, one
    with choices, or one that differs between rows of an item.
    """
    questions, every, first = set[str](), set[str](), dict[str, dict[str, Any]]()
    for record in records:
        row = record.value
        keys = list(row)
        questions.update(keys[keys.index("id") + 1 : keys.index("annotator")])
        earlier = first.setdefault(str(row["id"]), row)
        for key, cell in row.items():
            if isinstance(cell, str) and cell.startswith(("{", "[")):
                with suppress(ValueError, RecursionError):
                    row[key] = json.loads(cell)
            has_choices = isinstance(row[key], dict) and "choices" in row[key]
            if has_choices or row[key] != earlier.get(key):
                questions.add(key)
        every.update(keys)
    questions -= ROW_KEYS
    known = questions if questions and export.from_name is None else every - ROW_KEYS
    question = choose_question(export, known, "does not say which column has the answers")
    for record in records:
        row = record.value
        data = {key: row[key] for key in row if key not in ROW_KEYS | questions | {question}}
        item = export.add_item(record, row["id"], data)
        value = row.get(question)
        if str(row.get("was_cancelled")).lower() == "true":
            export.skipped["cancelled"] += 1
        elif value is None or value in ("", []):
            export.skipped["empty"] += 1
        elif isinstance(value, list) or (isinstance(value, dict) and "choices" not in value):
            record.refuse(f"column {short_repr(question)} with {short_repr(value)}")
        else:
            labels = record.labels(value["choices"] if isinstance(value, dict) else [value])
            export.add_answer(item, record.text(row["annotator"], "an annotator"), Answer(labels))


DOCCANO_DATA = ("text", "data", "filename")
DOCCANO_LABELS = ("label", "labels", "cats")
DOCCANO_REGIONS = ("entities", "relations", "bbox", "segmentation")


def read_doccano(export: Export, records: list[Record]) -> None:
    """Read examples with lists of labels; the annotator is the file."""
    for record in records:
        value = record.value
        key = next((key for key in DOCCANO_LABELS if key in value), None)
        if key is None:
            record.refuse(", ".join(name for name in DOCCANO_REGIONS if name in value))
        labels = value[key]
        if isinstance(labels, str):
            labels = labels.split("#") if labels else []
        if isinstance(labels, list) and any(isinstance(label, list | dict) for label in labels):
            record.refuse("a label with a place in the text")
        data = {name: value[name] for name in value if name not in ("id", key, "Comments")}
        item = export.add_item(record, value["id"], data)
        content = next(name for name in DOCCANO_DATA if name in value)
        if export.items[item].get(content) != value[content]:
            raise DataError(f"{record.place}: item {item} has another {content} in an earlier record")
        if labels:
            export.add_answer(item, record.file, Answer(record.labels(labels)))
        else:
            export.skipped["empty"] += 1


PRODIGY_VIEWS = (None, "choice", "classification", "blocks", "text", "html", "image", "audio")
PRODIGY_KEYS = (
    "options",
    "accept",
    "answer",
    "label",
    "score",
    "priority",
    "config",
    "meta",
    "tokens",
    "spans",
)


def read_prodigy(export: Export, records: list[Record]) -> None:
    """Read choices, and yes-or-no questions, of which an annotator may answer several about an item."""
    binary: dict[tuple[str, str], dict[str, str]] = {}
    texts = name_options(records)
    for record in records:
        value = record.value
        view, verdict = value.get("_view_id"), value["answer"]
        if view not in PRODIGY_VIEWS or not value.keys() & {"accept", "options", "label"}:
            record.refuse(f"a task of the interface {view or 'without options and label'}")
        if verdict not in ("accept", "reject", "ignore"):
            raise DataError(f"{record.place}: expected accept, reject or ignore, not {short_repr(verdict)}")
        data = {key: value[key] for key in value if key not in PRODIGY_KEYS and not key.startswith("_")}
        item = export.add_item(record, value["_input_hash"], data)
        person = value.get("_annotator_id") or value.get("_session_id") or "unknown"
        annotator = record.text(person, "an annotator")
        if not value.keys() & {"accept", "options"}:
            label = record.text(value["label"], "a label")
            earlier = binary.setdefault((item, annotator), {})
            if label in earlier:
                export.changes[f"{short_repr(annotator)} answered an item again; the last answer counts"] += 1
            earlier[label] = verdict
        elif verdict == "ignore":
            export.add_answer(item, annotator, Answer(()))
        elif verdict == "reject":
            export.skipped["rejected"] += 1
        elif labels := record.labels(value.get("accept", [])):
            export.add_answer(item, annotator, Answer(tuple(texts.get(label, label) for label in labels)))
        else:
            export.skipped["empty"] += 1
    for (item, annotator), verdicts in binary.items():
        accepted = tuple(label for label, verdict in verdicts.items() if verdict == "accept")
        rejected = tuple(label for label, verdict in verdicts.items() if verdict == "reject")
        export.add_answer(item, annotator, Answer(accepted or rejected, negated=not accepted))


def name_options(records: list[Record]) -> dict[str, str]:
    """Return the texts that annotators saw by the ids of Prodigy's options.

    It is empty, so that ids are the classes, unless every option has one text of its own in all records.
    """
    pairs = {
        (strip_text(str(option.get("id"))), strip_text(str(option.get("text") or "")))
        for record in records
        for option in record.objects(record.value.get("options"), "options")
    }
    texts = dict(pairs)
    is_clear = len(pairs) == len(texts) == len(set(texts.values())) and all(texts.values())
    return texts if is_clear else {}


LABEL_STUDIO = Importer(
    "Label Studio",
    "a task with id, data and annotations",
    lambda value: (
        isinstance(value.get("data"), dict)
        and bool(value.keys() & {"annotations", "completions", "predictions"})
    ),
    read_label_studio,
)
LABEL_STUDIO_ROWS = Importer(
    "Label Studio rows",
    "a row of JSON_MIN or CSV with id, annotator, annotation_id and the name of the question",
    lambda value: {"id", "annotator", "annotation_id"} <= value.keys(),
    read_label_studio_rows,
)
DOCCANO = Importer(
    "doccano",
    "an example with id, text and label",
    lambda value: (
        "id" in value
        and bool(value.keys() & {*DOCCANO_DATA})
        and bool(value.keys() & {*DOCCANO_LABELS, *DOCCANO_REGIONS})
        and not value.keys() & {"annotations", "annotator", "_input_hash"}
    ),
    read_doccano,
)
PRODIGY = Importer(
    "Prodigy",
    "a task with _input_hash, answer and options or label",
    lambda value: {"_input_hash", "answer"} <= value.keys(),
    read_prodigy,
)
IMPORTERS = {each.name: each for each in (LABEL_STUDIO, LABEL_STUDIO_ROWS, DOCCANO, PRODIGY)}


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
    if any(part.partition("=")[0] in OPTIONS for part in query.split("&")):
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
    text, values = split_query(name)
    path = Path(text)
    own = {key: values.pop(key) for key in OPTIONS if key in values}
    options = read_options(values)
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
    card = make_table_card(path.stem, hash_tables([items, answers], options.changed()), content)
    card = replace(card, source=f"the user's own export of {export.tool}: {content.roles.describe()}")
    return Source(card, lambda data_dir: assemble(content, card).with_warnings(export.warnings))


EXPORTS = SourceFinder(
    "path/to/export.json",
    f"an export of {', '.join(IMPORTERS)}: .json, .jsonl, .csv, .zip or a folder of such files "
    "(docs/annotation-tools.md)",
    find_export,
)
