"""What is probably wrong with a user's own data, found before anything is trained (`plench data check`).

`check_separator` and `keep_together` are called while data are read: the first refuses sets that were written
with another separator, the second keeps identical rows and rows of one item in one part of every split.
`check_dataset` returns everything else as findings, the worst first, and takes about a second.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import Answers, Names
from plench.data.dataset import Dataset
from plench.data.tables import MIN_IDS, Column, RawTable, Table
from plench.errors import DataError
from plench.text import counted, list_some, short_repr

SEPARATORS = (",", ";", "/", "|", "+", "&", "\t", "\n", " or ", " and ")
HASHED_ROWS = 4096
MIN_CONTINUOUS = 10  # different values of a column
MIN_EXAMPLES = 5  # of a class
MIN_ANSWERS = 10  # of an annotator who always gives the same
COMPARED_NAMES = 300  # more classes are not compared by their letters
SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """Something suspicious. Training is meaningless with an `error`; `topic` is a short name of the check."""

    severity: Literal["error", "warning"]
    topic: str
    message: str

    @property
    def is_misread(self) -> bool:
        """Whether the data were probably not meant that way."""
        return self.severity == "error" or self.topic == "names"


def find_separator(used: Collection[str], separator: str) -> tuple[str, list[str]] | None:
    """Return another separator that names of classes look to be sets with, and these names; None otherwise.

    A name counts if each of its parts occurs elsewhere, and one of them alone or in another place of a name:
    `red/large`, `red/small` and `blue/large` are classes, `a/b`, `b/c` and `a/c` are sets.
    """
    for other in SEPARATORS:
        if other in separator:
            continue
        parts = {name: [part.strip() for part in name.split(other)] for name in used if other in name}
        places = defaultdict(list)
        for split in parts.values():
            for place, part in enumerate(split):
                places[part].append(place)
        sets = [
            name
            for name, split in parts.items()
            if len(set(split)) > 1
            and all(part in used or len(places[part]) > 1 for part in split)
            and any(part in used or len(set(places[part])) > 1 for part in split)
        ]
        if sets and 2 * len(sets) >= len(parts):
            return other, sets
    return None


def check_separator(cells: Sequence[Names], separator: str) -> None:
    """Raise DataError if names of classes look like sets that were written with another separator."""
    counts = Counter(name for cell in cells for name in cell.names)
    found = find_separator(counts, separator)
    if found is None:
        return
    other, sets = found
    cell = next(cell.cell for cell in cells if sets[0] in cell.names)
    advice = f"read them with separator={quote(other, safe=',;/| ')}"
    if any(len(cell.names) > 1 for cell in cells):
        advice = "write all sets with one separator"
    raise DataError(
        f"{cell.place}: {short_repr(sets[0])} looks like a set of classes with the separator {other!r}, but "
        f"the separator is {separator!r} ({sum(counts[name] for name in sets):,} such cells); {advice}, or "
        "list the classes with classes= if it is the name of one"
    )


# --- rows that must stay together ---


def hash_rows(features: NDArray[Any] | Table) -> NDArray[np.int64]:
    """Return a number for each row, the same for identical rows."""
    if isinstance(features, Table):
        columns = []
        for column in features.columns:
            values: Any = column.values.astype(np.float64) + 0.0  # -0.0 is 0.0
            if column.has_texts:  # by what the codes stand for: tables may have different categories
                codes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in column.categories]
                values = np.frombuffer(b"".join([*codes, bytes(8)]), np.uint64)[column.values]
            columns.append(values.view(np.uint64))
        features = np.column_stack(columns)
    digests = []
    for start in range(0, len(features), HASHED_ROWS):  # in parts: what is mapped from a file stays there
        block = np.asarray(features[start : start + HASHED_ROWS])
        block = np.ascontiguousarray(block + block.dtype.type(0)).reshape(len(block), -1)  # -0.0 is 0.0
        digests += [hashlib.blake2b(row.data, digest_size=8).digest() for row in block]
    return np.frombuffer(b"".join(digests), np.int64)


def has_continuous(features: NDArray[Any] | Table, rows: NDArray[np.int64]) -> bool:
    """Whether a feature is an image, a text or a number of so many values that equal rows are copies.

    `rows` are all different.
    """
    if isinstance(features, Table):
        if any(column.kind in ("text", "image") for column in features.columns):
            return True
        numbers = [column.values[rows] for column in features.columns if column.kind == "number"]
    elif features.ndim > 2:
        return True
    else:
        numbers = list(features[rows[:HASHED_ROWS]].T)
    return any(len(np.unique(v[~np.isnan(v)])) >= max(MIN_CONTINUOUS, len(v) ** 0.5) for v in numbers)


def keep_together(dataset: Dataset) -> Dataset:
    """Return a user's own data with groups, so that no split separates identical rows or rows of one item.

    Rows that the data itself puts into different parts stay there, with a warning. Without a continuous
    feature, a text or an image identical rows may be different examples: a warning says so.
    """
    name, n_rows = dataset.card.name, dataset.n_examples
    part = np.zeros(n_rows, np.int64) if dataset.validation is None else dataset.validation.astype(np.int64)
    hashes, messages = hash_rows(dataset.features), []
    different, first, copies = np.unique(hashes, return_index=True, return_inverse=True)
    together = [] if dataset.groups is None else [dataset.groups]
    repeated = n_rows - len(different)
    if repeated:
        text = f"{name}: {repeated:,} of {n_rows:,} rows repeat the features of another row"
        if has_continuous(dataset.features, first):
            together.append(copies)
            messages.append(f"{text}; identical rows stay in one part of every split")
            messages += warn_of_leaks(copies, part, f"{name}: {{}} rows of validation are also in training")
        else:
            messages.append(
                f"{text}; as no feature is continuous they count as different examples, and may be in "
                "training and in test; name examples that belong together with group=COLUMN"
            )
    if dataset.items is not None:
        seen: dict[str | int, int] = {}  # a row without a name is its own item
        numbers = np.array(
            [seen.setdefault(item or row, len(seen)) for row, item in enumerate(dataset.items)]
        )
        if len(seen) < n_rows:
            together.append(numbers)
            messages.append(
                f"{name}: {n_rows - len(seen):,} of {n_rows:,} rows have the item of another row; rows of "
                "one item stay in one part of every split"
            )
            messages += warn_of_leaks(
                numbers, part, f"{name}: {{}} rows of validation have an item of training"
            )
    if dataset.test is not None:
        leaked = int(np.isin(hash_rows(dataset.test.features), hashes).sum())
        if leaked:
            messages.append(
                f"{name}: {leaked:,} of {len(dataset.test.labels):,} test rows have the features of a "
                "training row, so test accuracy is too high; leave them out"
            )
    if len(together) > (dataset.groups is not None):
        within = [np.unique([each, part], axis=1, return_inverse=True)[1] for each in together]
        dataset = replace(dataset, groups=join_groups(within))
    return dataset.with_warnings(messages) if messages else dataset


def warn_of_leaks(groups: NDArray[np.int64], part: NDArray[np.int64], text: str) -> list[str]:
    """Return a warning that counts the rows of part 1 whose group is in part 0 as well, if there are any."""
    leaked = int(np.isin(groups[part == 1], groups[part == 0]).sum())
    return [text.format(f"{leaked:,}")] if leaked else []


def join_groups(groupings: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the finest groups that contain all groups of several groupings."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n_rows = end = len(groupings[0])  # rows are nodes, and so are the groups behind them
    ends = []
    for groups in groupings:
        names, numbers = np.unique(groups, return_inverse=True)
        ends.append(end + numbers.ravel())
        end += len(names)
    edges = np.tile(np.arange(n_rows), len(ends)), np.concatenate(ends)
    graph = coo_matrix((np.ones(len(edges[0]), np.int8), edges), shape=(end, end))
    joined: NDArray[np.int64] = connected_components(graph, directed=False)[1][:n_rows].astype(np.int64)
    return joined


# --- columns ---


def describe_columns(
    dataset: Dataset, table: RawTable | None = None, roles: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return each column with its role, kind, gaps and number of different values.

    `table` is the file as it was read, with the `roles` of its columns; without it, features are listed.
    """
    features = dataset.features.columns if isinstance(dataset.features, Table) else ()
    typed = {column.name: column for column in features}
    rows = []
    for name in typed if table is None else table.columns:
        values: Any
        if table is None:
            values = typed[name].values[~typed[name].missing].tolist()
        else:
            values = [str(cell) for cell in table.cells(name) if cell is not None]
        rows.append(
            {
                "name": name,
                "role": "feature" if name in typed else (roles or {}).get(name, "left out"),
                "kind": typed[name].kind if name in typed else None,
                "gaps": (dataset.n_examples if table is None else len(table)) - len(values),
                "values": len(set(values)),
            }
        )
    return rows


# --- findings ---


def check_dataset(dataset: Dataset) -> list[Finding]:
    """Return what is suspicious in data, the worst first; warnings of reading are not repeated."""
    generated = dataset.card.candidates.pl_type != "real"
    found = [*check_features(dataset.features), *check_classes(dataset, generated)]
    if not generated:
        found += check_sets(dataset)
    if dataset.answers is not None:
        found += check_annotators(dataset.answers)
    return sorted(found, key=lambda finding: (finding.severity != "error", not finding.is_misread))


def check_features(features: NDArray[Any] | Table) -> Iterator[Finding]:
    """Find columns that say nothing, and columns that number the rows."""
    if not isinstance(features, Table):
        if features.ndim > 2 or len(features) < 2:
            return
        same = np.ones(features.shape[1], np.bool_)
        for start in range(0, len(features), HASHED_ROWS):
            same &= (features[start : start + HASHED_ROWS] == features[0]).all(axis=0)
        constant, total = [str(column) for column in np.flatnonzero(same)], features.shape[1]
    else:
        total = len(features.columns)
        constant = [each.name for each in features.columns if (each.values == each.values[0]).all()]
        for column in features.columns:
            yield from check_column(column, len(features))
    if len(constant) == total and len(features) > 1:
        yield Finding(
            "error", "constant", "no feature has more than one value, so there is nothing to learn from"
        )
    elif constant:
        yield Finding(
            "warning",
            "constant",
            f"{len(constant):,} of {total:,} features have the same value in every row: "
            f"{list_some(constant, SHOWN)}",
        )


def check_column(column: Column, n_rows: int) -> Iterator[Finding]:
    """Find a column that counts the rows, or has about as many categories as rows."""
    values, name = column.values[~column.missing], column.name
    if column.kind == "number" and len(values) >= MIN_IDS and (np.diff(values) == 1).all():
        yield Finding(
            "warning",
            "id",
            f"column {short_repr(name)} counts the rows; if it is not a measurement, leave it out with "
            f"ignore={name}",
        )
    if column.kind == "category" and len(values) >= MIN_IDS and 2 * len(np.unique(values)) > len(values):
        yield Finding(
            "warning",
            "id",
            f"column {short_repr(name)} has {len(np.unique(values)):,} categories in {len(values):,} rows, "
            f"which says little about new rows; ignore={name} leaves it out, text={name} reads it as text",
        )


def check_classes(dataset: Dataset, generated: bool) -> Iterator[Finding]:
    """Find names that are nearly the same, and classes with few examples."""
    full = dataset.candidates.all(axis=1)  # these name no class
    counts = dataset.candidates[~full].sum(axis=0)
    names = dataset.label_names
    if dataset.class_names is not None:
        for rare, known, how in find_similar(names, counts):
            yield Finding(
                "warning",
                "names",
                f"class {short_repr(names[rare])} ({counted(int(counts[rare]), 'set')}) and class "
                f"{short_repr(names[known])} ({counted(int(counts[known]), 'set')}) differ {how}; correct "
                "the cells if they are one class",
            )
    what = "examples" if generated else "candidate sets"
    few = [
        f"{short_repr(names[number])} ({counts[number]:,})"
        for number in np.flatnonzero(counts < MIN_EXAMPLES)
    ]
    if few:
        yield Finding(
            "warning",
            "rare",
            f"{len(few):,} of {len(names):,} classes are in fewer than {MIN_EXAMPLES} {what}: "
            f"{list_some(few, SHOWN)}",
        )


def find_similar(names: Sequence[str], counts: NDArray[np.int64]) -> Iterator[tuple[int, int, str]]:
    """Yield pairs of classes, the rarer first, whose names differ in case and signs, or in a few letters.

    Those that differ in letters are reported if one is rare, a tenth of the other; digits tell classes apart.
    """
    plain = [re.sub(r"[\W_]+", "", name.casefold()) or name for name in names]
    same: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(plain):
        same[text].append(number)
    for numbers in same.values():
        ordered = sorted(numbers, key=lambda number: -counts[number])
        for rare in ordered[1:]:
            yield rare, ordered[0], "only in case or punctuation"
    if len(names) > COMPARED_NAMES:
        return
    letters = [re.sub(r"\d+", "", text) for text in plain]
    for rare in np.argsort(counts, kind="stable").tolist():
        known = [
            number
            for number in range(len(names))
            if counts[number] >= 10 * counts[rare] > 0
            and len(letters[rare]) > 3
            and letters[number] != letters[rare]
        ]
        close = difflib.get_close_matches(plain[rare], [plain[number] for number in known], n=1, cutoff=0.8)
        if close and close[0] != plain[rare]:
            yield rare, next(number for number in known if plain[number] == close[0]), "in a few letters"


def check_sets(dataset: Dataset) -> Iterator[Finding]:
    """Find sets that say nothing, and sets that do not fit the truth."""
    sizes = dataset.candidates.sum(axis=1)
    full = int((sizes == dataset.n_classes).sum())
    if full == dataset.n_examples:
        yield Finding(
            "error", "sets", "every candidate set has all classes, so there is nothing to learn from"
        )
    elif 5 * full > dataset.n_examples:
        share = full / dataset.n_examples
        yield Finding(
            "warning", "sets", f"{full:,} candidate sets ({share:.0%}) have all classes and say nothing"
        )
    if sizes.max() == 1:
        text = "every candidate set has one class: these are ordinary labels, nothing is to be resolved"
        yield Finding("warning", "sets", text)
    if dataset.noise_rate is not None and dataset.n_examples >= 20:
        chance = 1 - sizes.mean() / dataset.n_classes
        if dataset.noise_rate >= max(chance, 0.5):
            yield Finding(
                "error",
                "truth",
                f"{dataset.noise_rate:.0%} of the candidate sets miss the true label, no fewer than random "
                f"sets would ({chance:.0%}): truth and candidates do not belong together; check the order of "
                "rows and the names of classes",
            )


def check_annotators(answers: Answers) -> Iterator[Finding]:
    """Find annotators who always give the same answer, while others do not."""
    constant = []
    codes = np.unique(np.packbits(answers.sets, axis=1), axis=0, return_inverse=True)[1].ravel()
    if len(np.unique(codes)) < 2:
        return
    order = np.argsort(answers.annotator, kind="stable")
    numbers, starts = np.unique(answers.annotator[order], return_index=True)
    for number, given in zip(numbers.tolist(), np.split(codes[order], starts[1:]), strict=True):
        if len(given) >= MIN_ANSWERS and (given == given[0]).all():
            name = answers.annotator_names[number] if answers.annotator_names else str(number)
            constant.append(f"{short_repr(name)} ({len(given):,} answers)")
    if constant:
        yield Finding(
            "warning",
            "annotators",
            f"{len(constant):,} of {len(numbers):,} annotators always give the same answer: "
            f"{list_some(constant, SHOWN)}; consider leaving them out",
        )
