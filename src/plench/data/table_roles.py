"""What the columns of a user's table mean: by their names, or as the user says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl

from plench.data.answers import COMBINE_RULES, DEFAULT_MIN_VOTES
from plench.data.raw_table import RawTable, shorten, strip_text
from plench.errors import DataError, UsageError
from plench.text import find_name

# Names by which a column is recognised, in any case.
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "candidates": ("candidates", "candidate labels", "candidate_labels"),
    "truth": ("truth", "true label", "true_label", "label", "class", "target", "y"),
    "split": ("split",),
    "group": ("group",),
    "item": ("item", "id", "item_id", "file"),
    "annotator": ("annotator", "annotator_id", "worker", "worker_id"),
    "answers": ("answers",),
}
# In a table with one answer per row, `label` is the answer; only these are the truth.
TRUTH_BESIDE_ANSWERS = ("truth", "true label", "true_label")
ANSWER_NAMES = ("answer", "label", "labels", "response")
CLASS_PREFIXES = ("candidate_", "candidate:", "candidate ")
ANNOTATOR_PREFIXES = ("annotator_", "annotator:", "annotator ", "worker_", "worker:")
LISTS = ("annotators", "class_columns", "classes", "features", "ignore")


@dataclass(frozen=True)
class TableOptions:
    """How a table is read. What is None, or an empty list, is recognised by the columns' names.

    `candidates`, `truth`, `split`, `group` and `item` are columns. `class_columns` are columns of 0 and 1,
    one per class, which take the place of `candidates`. Annotators' answers come from `annotator` and
    `answer` (one answer per row), `annotators` (one column per annotator) or `answers` (a column of lists, or
    a file with one answer per row); `combine` and `min_votes` say how they become candidates. `features` are
    the feature columns (all others, where empty), `ignore` those to leave out. `classes` are the classes in
    their order, `taxonomy` is a file of nodes and parents.
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
    separator: str = "|"
    answer_separator: str = ";"
    combine: str = "union"
    min_votes: int = DEFAULT_MIN_VOTES
    taxonomy: str | None = None

    def __post_init__(self) -> None:
        for name in LISTS:
            value = getattr(self, name)
            parts = value.split(",") if isinstance(value, str) else value
            object.__setattr__(self, name, tuple(strip_text(str(part)) for part in parts))
        if self.combine not in COMBINE_RULES:
            raise UsageError(f"combine is {self.combine!r}; allowed are {', '.join(COMBINE_RULES)}")
        try:
            votes = int(self.min_votes)
        except (TypeError, ValueError):
            votes = 0
        if votes < 1:
            raise UsageError(f"min_votes is {self.min_votes!r}; allowed are whole numbers from 1")
        object.__setattr__(self, "min_votes", votes)
        if not self.separator or not self.answer_separator or self.separator == self.answer_separator:
            raise UsageError(
                f"separator is {self.separator!r} and answer_separator {self.answer_separator!r}; allowed "
                "are "
                "two different texts"
            )

    def changed(self) -> dict[str, Any]:
        """Return what differs from the defaults, for hashes and descriptions."""
        default = TableOptions()
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) != getattr(default, entry.name)
        }


def read_table_options(values: Mapping[str, Any]) -> TableOptions:
    """Make options of names and values; a name in any spelling, an unknown one is an error."""
    known = [entry.name for entry in fields(TableOptions)]
    return TableOptions(
        **{find_name(key, known, "option of a table"): value for key, value in values.items()}
    )


def split_reference(reference: str) -> tuple[str, TableOptions]:
    """Take `file.csv?candidates=tags&ignore=a,b` apart into the path and the options."""
    path, _, query = reference.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise UsageError(
            f"dataset {reference!r}: after the question mark stand options like candidates=tags&truth=species"
        ) from None
    return path, read_table_options(dict(pairs))


@dataclass(frozen=True)
class Roles:
    """The columns of one table by meaning; None and empty where there are none."""

    candidates: str | None = None
    truth: str | None = None
    split: str | None = None
    group: str | None = None
    item: str | None = None
    annotator: str | None = None
    answer: str | None = None
    answers: str | None = None
    annotators: Mapping[str, str] = field(default_factory=dict)
    class_columns: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    @property
    def is_long(self) -> bool:
        """Whether each row is one answer of one annotator."""
        return self.annotator is not None

    def describe(self) -> str:
        """Say which column is what."""
        named = {
            name: getattr(self, name)
            for name in ("candidates", "truth", "split", "group", "item", "annotator", "answer", "answers")
        }
        parts = [f"{name} in {column!r}" for name, column in named.items() if column is not None]
        parts += [f"{len(self.class_columns)} columns of classes"] * bool(self.class_columns)
        parts += [f"{len(self.annotators)} columns of annotators"] * bool(self.annotators)
        return ", ".join([*parts, f"{len(self.features)} columns of features"])


def find_roles(table: RawTable, options: TableOptions, answers_elsewhere: bool = False) -> Roles:
    """Find the meaning of each column; a column that may be two things, or is not there, is an error."""
    for name in (*options.ignore, *options.features):
        check_column(table, name)
    left = [name for name in table.columns if name not in options.ignore]
    roles = Roles()
    found: dict[str, str] = {}
    for role in ("annotator", "candidates", "split", "group", "item", "answers"):
        if role == "answers" and answers_elsewhere:
            continue
        column = find_role(table, left, role, getattr(options, role), KNOWN_NAMES[role])
        if column is not None:
            found[role] = column
            left.remove(column)
    if "annotator" in found:
        answer = find_role(table, left, "answer", options.answer, ANSWER_NAMES)
        if answer is None:
            raise DataError(
                f"{table.name} has a column {found['annotator']!r} of annotators and none of their answers; "
                f"call it {ANSWER_NAMES[0]}, or name it with answer=COLUMN"
            )
        if "item" not in found:
            raise DataError(
                f"{table.name} has one answer per row and no column that names the item; call it item, or "
                "name it with item=COLUMN"
            )
        found["answer"] = answer
        left.remove(answer)
    elif options.answer is not None:
        raise UsageError("answer=COLUMN goes with annotator=COLUMN, one answer per row")
    known = TRUTH_BESIDE_ANSWERS if "annotator" in found else KNOWN_NAMES["truth"]
    truth = find_role(table, left, "truth", options.truth, known)
    if truth is not None:
        found["truth"] = truth
        left.remove(truth)
    class_columns = find_prefixed(table, left, options.class_columns, CLASS_PREFIXES)
    annotators = find_prefixed(table, left, options.annotators, ANNOTATOR_PREFIXES)
    taken = {*class_columns.values(), *annotators.values()}
    left = [name for name in left if name not in taken]
    features = options.features or tuple(left)
    for name in features:
        if name in found.values() or name in taken:
            raise UsageError(
                f"{table.name}: column {shorten(name)} is named as a feature and as something else"
            )
    return replace(roles, **found, class_columns=class_columns, annotators=annotators, features=features)


def find_role(
    table: RawTable, left: list[str], role: str, given: str | None, known: tuple[str, ...]
) -> str | None:
    """Return the column of a role, as named by the user or recognised."""
    if given is not None:
        given = strip_text(given)
        check_column(table, given)
        return given
    fitting = [name for name in left if name.lower() in known]
    if len(fitting) > 1:
        raise DataError(
            f"{table.name}: columns {' and '.join(map(shorten, fitting))} could both be the {role}; name one "
            f"with {role}={fitting[0]} and leave the other out with ignore={fitting[1]}"
        )
    return fitting[0] if fitting else None


def find_prefixed(
    table: RawTable, left: list[str], given: tuple[str, ...], prefixes: tuple[str, ...]
) -> dict[str, str]:
    """Return columns with a common beginning by the rest of their names, or those that the user names."""
    for name in given:
        check_column(table, name)
    columns = given or tuple(name for name in left if name.lower().startswith(prefixes))
    found: dict[str, str] = {}
    for column in columns:
        used = next((prefix for prefix in prefixes if column.lower().startswith(prefix)), "")
        short = strip_text(column[len(used) :]) or column
        if short in found:
            raise DataError(f"{table.name}: columns {found[short]!r} and {column!r} are both for {short!r}")
        found[short] = column
    return found


def check_column(table: RawTable, name: str) -> None:
    """Raise DataError unless the table has a column of that name."""
    if name not in table.columns:
        shown = ", ".join(list(table.columns)[:20]) + (" …" if len(table.columns) > 20 else "")
        raise DataError(f"{table.name} has no column {shorten(name)}; it has {shown}")
