"""What the columns of a user's table mean: recognised by their names, or as the user says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl

from plench.data.answers import DEFAULT_MIN_VOTES, check_rule
from plench.data.tables import RawTable, strip_text
from plench.errors import DataError, UsageError
from plench.text import find_name, short_repr

# Names by which a column is recognised, in any case.
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "annotator": ("annotator", "annotator_id", "worker", "worker_id"),
    "candidates": ("candidates", "candidate labels", "candidate_labels"),
    "split": ("split",),
    "group": ("group",),
    "item": ("item", "id", "item_id", "file"),
    "answers": ("answers",),
    "answer": ("answer", "label", "labels", "response"),  # in a table with annotators only
    "truth": ("truth", "true label", "true_label", "label", "class", "target", "y"),
}
TRUTH_AMONG_ANSWERS = KNOWN_NAMES["truth"][:3]  # in a table with one answer per row, `label` is the answer
PREFIXES = {
    "class_columns": ("candidate_", "candidate:", "candidate "),
    "annotators": ("annotator_", "annotator:", "annotator ", "worker_", "worker:"),
}
LISTS = ("annotators", "class_columns", "classes", "features", "ignore", "images", "text")


@dataclass(frozen=True)
class TableOptions:
    """How a table is read. `find_roles` recognises columns that are None or an empty list by their names.

    An empty text means that no column has the role, whatever its name.

    `candidates`, `truth`, `split`, `group` and `item` are columns. `class_columns` are columns of 0 and 1,
    one per class, which take the place of `candidates`. Annotators' answers come from `annotator` and
    `answer` (one answer per row), `annotators` (one column per annotator) or `answers` (a column of lists, or
    a file with one answer per row); `combine` and `min_votes` say how they become candidates. `features` are
    the feature columns (by default all others), `ignore` those to leave out, `text` those of free text, which
    is recognised where it has several words per cell, `images` those of image files, which are recognised
    where the files are there. `classes` are the classes in their order, `taxonomy` is a file of nodes and
    parents, `sheet` is one of an Excel workbook. `items_of_answers` is the column of items in a file of
    answers, if it has another name there.
    """

    candidates: str | None = None
    truth: str | None = None
    split: str | None = None
    group: str | None = None
    item: str | None = None
    annotator: str | None = None
    answer: str | None = None
    answers: str | None = None
    annotators: tuple[str, ...] = ()
    class_columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    separator: str = "|"
    answer_separator: str = ";"
    combine: str = "union"
    min_votes: int = DEFAULT_MIN_VOTES
    taxonomy: str | None = None
    sheet: str | None = None
    items_of_answers: str | None = None

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if name in LISTS:
                parts = value.split(",") if isinstance(value, str) else () if value is None else value
                if not isinstance(parts, Iterable):
                    raise UsageError(f"{name} must be a list of texts, not {short_repr(value)}")
                object.__setattr__(self, name, tuple(strip_text(str(part)) for part in parts))
            elif isinstance(value, int) and name not in ("separator", "answer_separator", "combine"):
                object.__setattr__(self, name, str(value))  # frames may have numbers for names
            elif not isinstance(value, str | None):
                raise UsageError(f"{name} must be a text, not {short_repr(value)}")
        object.__setattr__(self, "min_votes", check_rule(self.combine, self.min_votes))
        if not self.separator or not self.answer_separator:
            raise UsageError("separator and answer_separator must not be empty")

    def changed(self) -> dict[str, Any]:
        """Return what differs from the defaults, for hashes."""
        default = TableOptions()
        return {name: value for name, value in vars(self).items() if value != getattr(default, name)}

    def by_column(self) -> dict[str, str]:
        """Return the role of each column that has one and is not a feature."""
        lists = {"class_columns": "class", "annotators": "annotator", "ignore": "ignored"}
        named = {name: text for role, text in lists.items() for name in getattr(self, role)}
        return named | {getattr(self, role): role for role in KNOWN_NAMES if getattr(self, role)}

    def describe(self) -> str:
        """Say which column has which role."""
        named = ("candidates", "truth", "split", "group", "item", "annotator", "answer", "answers")
        parts = [f"{name} in {getattr(self, name)!r}" for name in named if getattr(self, name)]
        parts += [f"{len(self.class_columns)} columns of classes"] * bool(self.class_columns)
        parts += [f"{len(self.annotators)} columns of annotators"] * bool(self.annotators)
        return ", ".join([*parts, f"{len(self.features)} columns of features"])


def read_options(values: Mapping[str, Any]) -> TableOptions:
    """Make options of names, in any spelling, and values."""
    known = [entry.name for entry in fields(TableOptions)]
    return TableOptions(
        **{find_name(key, known, "option of a table"): value for key, value in values.items()}
    )


def split_query(reference: str) -> tuple[str, dict[str, str]]:
    """Split `file.csv?candidates=tags&ignore=a,b` into the path and what follows it."""
    path, _, query = reference.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        example = "candidates=tags&truth=species"
        raise UsageError(f"dataset {reference!r}: expected options such as {example} after the ?") from None
    return path, dict(pairs)


def split_reference(reference: str) -> tuple[str, TableOptions]:
    """Split the reference of a table into its path and the options."""
    path, values = split_query(reference)
    return path, read_options(values)


def find_roles(
    table: RawTable, options: TableOptions, *, is_answers_file: bool = False, has_answers_file: bool = False
) -> TableOptions:
    """Return the options with all roles filled in.

    A column that could have two roles is an error, and so are candidate sets that could come from two places.
    """
    table.check_columns((*options.ignore, *options.features, *options.text, *options.images))
    left = [name for name in table.columns if name not in options.ignore]
    found: dict[str, Any] = {}

    def take(role: str, columns: tuple[str, ...]) -> None:
        table.check_columns(columns)
        for column in columns:
            if column not in left:
                raise UsageError(
                    f"{table.name}: column {short_repr(column)} has two roles, one of them {role}"
                )
            left.remove(column)

    for role, known in KNOWN_NAMES.items():
        given = getattr(options, role)
        if given == "":
            found[role] = None
            continue
        if role == "answer" and not found.get("annotator"):
            if given is not None:
                raise UsageError("answer=COLUMN needs annotator=COLUMN: one answer per row")
            continue
        if role == "truth" and found.get("annotator"):
            known = TRUTH_AMONG_ANSWERS
        features = {*options.features, *options.text, *options.images}
        fitting = [name for name in left if name.lower() in known and name not in features]
        if given is not None:
            fitting = [strip_text(given)]
        if len(fitting) > 1:
            first, second = fitting[:2]
            raise DataError(
                f"{table.name}: columns {short_repr(first)} and {short_repr(second)} could both be the "
                f"{role}; choose with {role}={first}&ignore={second}"
            )
        take(role, tuple(fitting))
        if fitting:
            found[role] = fitting[0]
    for role in ("answer", "item"):
        if found.get("annotator") and not found.get(role):
            raise DataError(
                f"{table.name} has a column {found['annotator']!r} of annotators but no column {role}; name "
                f"it with {role}=COLUMN"
            )
    for role, prefixes in PREFIXES.items():
        prefixed = tuple(name for name in left if name.lower().startswith(prefixes))
        found[role] = getattr(options, role) or prefixed
        take(role, found[role])
        names = [strip_prefix(column, role) for column in found[role]]
        if len(set(names)) < len(names):
            raise DataError(f"{table.name}: two columns of {', '.join(found[role])} have the same name")
    found["features"] = options.features or tuple(left)
    take("features", options.features)
    for option in ("text", "images"):
        for column in getattr(options, option):
            if column not in found["features"]:
                raise UsageError(
                    f"{table.name}: {option}={column}, but column {short_repr(column)} is not a feature; "
                    f"leave it out of {option}= or name it in features="
                )
    forms = {
        "one answer per row": found.get("annotator"),
        "a file of answers": has_answers_file,
        "columns of annotators": found["annotators"],
        "a column of lists": found.get("answers"),
        "candidates": found.get("candidates") or found["class_columns"],
    }
    present = [form for form, is_present in forms.items() if is_present]
    if len(present) > 1 and not is_answers_file:
        raise DataError(
            f"{table.name} has {present[0]} and {present[1]}; leave one of them out with ignore=COLUMN"
        )
    return replace(options, **found)


def strip_prefix(column: str, role: str) -> str:
    """Return the class or annotator that a column of a prefixed role is about."""
    used = next((prefix for prefix in PREFIXES[role] if column.lower().startswith(prefix)), "")
    return strip_text(column[len(used) :]) or column
