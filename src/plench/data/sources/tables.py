"""A user's table as a dataset: a CSV, TSV or Parquet file given by path, or a frame in Python."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plench.data.answers import (
    NONE,
    UNSURE,
    Answer,
    Answers,
    ClassList,
    Names,
    Taxonomy,
    combine_answers,
    describe_special,
    make_answers,
    merge_whole_number,
    read_answer_columns,
    read_names,
    read_set_column,
    sort_names,
)
from plench.data.check import check_separator, keep_together
from plench.data.dataset import Dataset, DatasetCard, TestSet
from plench.data.encoders import list_encoders
from plench.data.readers import read_array, read_file, read_images
from plench.data.roles import (
    TableOptions,
    find_roles,
    read_options,
    split_query,
    split_reference,
    strip_prefix,
)
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder, attach_encoders
from plench.data.tables import (
    TABLE_SUFFIXES,
    Cell,
    RawTable,
    Table,
    clean_cell,
    has_image_files,
    is_table_file,
    make_table,
    parse_table,
    read_frame,
    read_number,
    read_table_file,
)
from plench.errors import DataError, UsageError
from plench.files import sha256
from plench.text import list_some, short_repr

CANDIDATES = "candidates.csv"
OTHER_SUFFIXES = (".xls", ".xlsb", ".ods", ".numbers")  # spreadsheets that are not read
PARTS = ("train", "validation", "test")
PART_NAMES = {"training": "train", "valid": "validation", "val": "validation"}
MEANING = (
    "a table (.csv, .tsv, .xlsx, .parquet) of features, with candidates, annotators' answers or truth; "
    "columns are recognised by name or named behind the path: table.csv?candidates=tags&ignore=a,b"
)


@dataclass(frozen=True, eq=False)
class TableContent:
    """What a table holds, N items: all that a dataset consists of, before its own test set is split off.

    `labels` has −1 where the truth is missing. `is_generated`: there are no candidates. `items` are the names
    of the items, if they have any; `features` is None if the items are elsewhere, such as image files.
    `table` is the table as it was read.
    """

    features: Table | None
    items: tuple[str, ...] | None
    candidates: NDArray[np.bool_]
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    answers: Answers | None
    groups: NDArray[np.int64] | None
    split: NDArray[Any] | None
    warnings: tuple[str, ...]
    is_generated: bool
    roles: TableOptions
    table: RawTable


def read_content(
    table: RawTable,
    options: TableOptions,
    answers_table: RawTable | None = None,
    taxonomy: Taxonomy | None = None,
    has_features: bool = True,
    keep_ids: bool = False,
) -> TableContent:
    """Read a table, and perhaps one with one answer per row; ids are left out unless `keep_ids`."""
    long, given_table = None, table
    warnings = list(table.warnings)
    if answers_table is not None:  # `item=` is for both tables, where they have such a column
        is_own, is_theirs = options.item in table.columns, options.item in answers_table.columns
        item = options.items_of_answers or (options.item if is_theirs else None)
        theirs = TableOptions(annotator=options.annotator, answer=options.answer, item=item)
        long = answers_table, find_roles(answers_table, theirs, is_answers_file=True)
        own_item = options.item if is_own or not is_theirs else None
        options = replace(options, annotator=None, answer=None, item=own_item)
        warnings += answers_table.warnings
    roles = find_roles(table, options, has_answers_file=long is not None)
    if roles.annotator:
        long = table, roles
    declared = options.classes or (taxonomy.classes if taxonomy else ())
    keep = frozenset(declared)
    given = read_answers(table, roles, long, keep)
    sets = read_sets(table, roles, keep)
    named = [*sets, *(answer.names for answer in given)]
    if not declared and not roles.class_columns:
        check_separator(named, roles.separator)
    if named and roles.truth and options.truth is None:
        known = {
            *declared,
            *(taxonomy.leaves if taxonomy else ()),
            *(name for cell in named for name in cell.names),
        }
        roles = check_truth(table, roles, known, has_features and not options.features, warnings)
    warnings = [*announce_roles(table, options, roles, has_features), *warnings]
    features = None
    if has_features:
        columns = roles.features
        if roles.item and not options.features and has_image_files(table, roles.item):
            columns = (*columns, roles.item)  # a file names the item and is its image
        if not columns:
            raise DataError(f"{table.name} has no feature columns ({roles.describe()})")
        chosen = columns if keep_ids else options.features
        features, messages = make_table(table, columns, roles.text, roles.images, chosen)
        warnings += messages
    elif roles.features:
        unused = list_some(roles.features, 5)
        warnings.append(f"{table.name}: {len(roles.features):,} columns are not used: {unused}")
    if options.classes == ():
        source, given_in = (long[0], [long[1].answer]) if long else (table, [*roles.annotators])
        empty = sum(int(source.frame[column].isin(NONE).sum()) for column in given_in)
        if empty:
            warnings.append(
                f"{source.name}: {empty:,} answers `None` are read as gaps; if it is the name of a class, "
                "list the classes with classes="
            )
        warnings += describe_special(sets, table.name, is_answer=False)
        warnings += describe_special((answer.names for answer in given), table.name, is_answer=True)
    if roles.annotator:
        table, features = fold_items(table, roles, features)
    labelled = keep | {name for cell in named for name in cell.names}
    truth = [
        None if text is None else Names((text,), Cell(text, table, row, str(roles.truth)))
        for row, text in enumerate(table.texts(roles.truth, labelled) if roles.truth else ())
    ]
    names = declared or tuple(strip_prefix(column, "class_columns") for column in roles.class_columns)
    if not names:
        names = tuple(sort_names([*filter(None, truth), *named]))
    if not names and named:
        raise DataError(f"{table.name}: no cell names a class ({roles.describe()})")
    if not names:
        raise DataError(
            f"{table.name} has neither candidates nor answers nor truth ({roles.describe()}); call a column "
            "candidates, or name it with candidates=COLUMN"
        )
    classes = ClassList(names, len(table), table.name, taxonomy)
    labels = classes.encode_labels(truth) if truth else None
    answers = make_answers(given, classes, len(table)) if given else None
    if answers is not None:
        candidates = combine_answers(answers, roles.combine, roles.min_votes)
        silent = len(table) - len(np.unique(answers.item[answers.sets.any(1)]))
        if silent:
            warnings.append(
                f"{table.name}: {silent:,} of {len(table):,} items have no answer that names a class; all "
                "classes are their candidates"
            )
    elif sets:
        candidates = classes.encode(sets)
    elif labels is None or (labels < 0).any():
        raise DataError(f"{table.name} needs candidates, or the truth of every row to generate them from")
    else:
        candidates = labels[:, None] == np.arange(len(classes.names))  # until sets are drawn
    groups = None
    if roles.group:
        groups = np.unique(table.complete(roles.group), return_inverse=True)[1]
    return TableContent(
        features=features,
        items=tuple(text or "" for text in table.texts(roles.item)) if roles.item else None,
        candidates=candidates,
        labels=labels,
        class_names=classes.names,
        answers=answers,
        groups=groups,
        split=read_split(table, roles.split) if roles.split else None,
        warnings=tuple(warnings),
        is_generated=answers is None and not sets,
        roles=roles,
        table=given_table,
    )


def announce_roles(
    table: RawTable, options: TableOptions, roles: TableOptions, has_features: bool
) -> list[str]:
    """Say which columns are not features because of their names, and how to change that."""
    found = {role: getattr(roles, role) for role in ("truth", "split", "group", "item")}
    return [
        f"{table.name}: column {short_repr(column)} is read as the {role} because of its name, not as a "
        f"feature; {role}= reads it as a feature, {role}=COLUMN names another column"
        for role, column in found.items()
        if has_features
        and column
        and getattr(options, role) is None
        and not (role == "item" and has_image_files(table, column))
    ]


def check_truth(
    table: RawTable, roles: TableOptions, known: set[str], is_feature: bool, warnings: list[str]
) -> TableOptions:
    """Return the roles without a truth that was recognised by name but has no classes in it.

    Numbers of which none is a class are a feature of that name. Anything else could be either, and a truth
    among the features would be learned from: the user has to say which it is.
    """
    column = roles.truth
    assert column is not None
    counts = Counter(text for text in table.texts(column, frozenset(known)) if text is not None)
    others = [
        text for text in counts if merge_whole_number(text, known) not in known and text.lower() not in UNSURE
    ]
    if not others:
        return roles
    some = list_some((f"{short_repr(text)} ({counts[text]:,})" for text in others), 3)
    if len(others) < len(counts) or any(read_number(text) is None for text in others):
        raise DataError(
            f"{table.name}: column {short_repr(column)} has the name of a truth, but {len(others):,} of its "
            f"{len(counts):,} different values are not classes of the candidates: {some}; say what it is "
            f"with truth={column}, with ignore={column}, or with truth= if it is a feature"
        )
    warnings.append(
        f"{table.name}: column {short_repr(column)} has the name of a truth, but its values are not classes "
        f"of the candidates ({some}): it is {'a feature' if is_feature else 'not used'}; truth={column} "
        f"makes it the truth, ignore={column} leaves it out"
    )
    features = [name for name in table.columns if name in roles.features or (is_feature and name == column)]
    return replace(roles, truth=None, features=tuple(features))


def read_answers(
    table: RawTable, roles: TableOptions, long: tuple[RawTable, TableOptions] | None, keep: frozenset[str]
) -> list[Answer]:
    """Return the annotators' answers in the one form that there is, if any.

    They are in the table `long` with one answer per row, in columns of annotators, or in a column of lists.
    """
    answers: list[Answer] = []
    if long is not None:
        answers = read_long_answers(table, roles, *long, keep)
    elif roles.annotators:
        columns = {column: strip_prefix(column, "annotators") for column in roles.annotators}
        answers = read_answer_columns(table, columns, roles.separator, keep)
        answers.sort(key=lambda answer: answer.item)
    for row, value in enumerate(table.cells(roles.answers) if roles.answers else ()):
        cell = Cell(value, table, row, roles.answers or "")
        parts = value.split(roles.answer_separator) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple | np.ndarray | None):
            raise DataError(f"{cell.place}: expected a list of answers, not {short_repr(value)}")
        for number, part in enumerate(() if parts is None else parts, 1):
            answer = clean_cell(part, keep)
            if answer is not None:
                names = read_names(cell._replace(value=answer), roles.separator, keep)
                answers.append(Answer(row, f"{number:09d}", names))
    if not answers and (long or roles.annotators or roles.answers):
        raise DataError(f"{table.name}: there is not one answer")
    return answers


def read_long_answers(
    table: RawTable, roles: TableOptions, source: RawTable, own: TableOptions, keep: frozenset[str]
) -> list[Answer]:
    """Read one answer per row of `source`, the table itself or another; an annotator answers an item once."""
    if not roles.item:
        raise DataError(f"{table.name} has no column of items; name it with item=COLUMN")
    if not (own.annotator and own.answer and own.item):
        columns = ", ".join(source.columns)
        raise DataError(
            f"{source.name} must have columns item, annotator and label; it has {columns}; name them with "
            "items_of_answers=, annotator= and answer="
        )
    names = table.complete(roles.item)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    if source is not table and len(numbers) < len(names):
        raise DataError(f"{table.name}: two rows have one name in column {roles.item!r}; expected one row")
    answers: list[Answer] = []
    rows: dict[tuple[int, str], int] = {}
    annotators, cells = source.complete(own.annotator), source.cells(own.answer, keep)
    for row, (item, annotator) in enumerate(zip(source.complete(own.item), annotators, strict=True)):
        if item not in numbers:
            raise DataError(f"{source.place(row, own.item)}: unknown item {short_repr(item)}")
        if cells[row] is None:
            continue
        cell = Cell(cells[row], source, row, own.answer)
        first = rows.setdefault((numbers[item], annotator), row)
        if first != row:
            raise DataError(
                f"{cell.place}: {short_repr(annotator)} has answered this item in row {first + 1}; write "
                f"several labels as one answer, a{roles.separator}b"
            )
        given = read_names(cell, roles.separator, keep)
        answers.append(Answer(numbers[item], annotator, given))
    return answers


def fold_items(table: RawTable, roles: TableOptions, features: Table | None) -> tuple[RawTable, Table | None]:
    """Return the first row of each item of a table with one answer per row; its other rows must agree."""
    assert roles.item is not None
    first: dict[str, int] = {}
    same = np.array([first.setdefault(name, row) for row, name in enumerate(table.complete(roles.item))])
    values = {
        name: np.array(table.texts(name), object) for name in (roles.truth, roles.group, roles.split) if name
    }
    for column in features.columns if features is not None else ():
        values[column.name] = np.nan_to_num(column.values, nan=np.inf)  # finite otherwise
    for name, column_values in values.items():
        differing = np.flatnonzero(column_values != column_values[same])
        if len(differing):
            row = int(differing[0])
            raise DataError(f"{table.place(row, name)}: differs from row {same[row] + 1} of the same item")
    rows = np.array(list(first.values()))
    return table.take(rows), None if features is None else features[rows]


def read_sets(table: RawTable, roles: TableOptions, keep: frozenset[str]) -> list[Names]:
    """Return the candidates of each row: from their column, or from a column of 0 and 1 per class."""
    if roles.candidates:
        return read_set_column(table, roles.candidates, roles.separator, keep)
    bits: dict[str, list[bool]] = {}
    for column in roles.class_columns:
        texts = table.texts(column)
        numbers = [None if text is None else read_number(text, "boolean") for text in texts]
        if None in numbers:
            row = numbers.index(None)
            raise DataError(f"{table.place(row, column)}: expected 0 or 1, not {short_repr(texts[row])}")
        bits[strip_prefix(column, "class_columns")] = [number == 1 for number in numbers]
    sets = []
    for row in range(len(table) if bits else 0):
        names = tuple(name for name, present in bits.items() if present[row])
        if not names:
            raise DataError(f"{table.place(row, column)}: the row has 0 in every column of a class")
        sets.append(Names(names, Cell(None, table, row, column)))
    return sets


def read_split(table: RawTable, column: str) -> NDArray[Any]:
    """Return the part that each row is in: train (if it is empty), validation or test."""
    texts = [(text or "train").lower() for text in table.texts(column)]
    parts = [PART_NAMES.get(text, text) for text in texts]
    for row, part in enumerate(parts):
        if part not in PARTS:
            place = table.place(row, column)
            raise DataError(f"{place}: expected {', '.join(PARTS)} or nothing, not {short_repr(part)}")
    return np.array(parts)


def assemble(
    content: TableContent, card: DatasetCard, features: NDArray[Any] | Table | None = None
) -> Dataset:
    """Make the dataset. Items of the split `test` become its own test set, if their truth is known.

    `features` are those of the items, if they are not in the table.
    """
    features = content.features if features is None else features
    assert features is not None
    warnings = [describe_generated(card)] if content.is_generated else []
    warnings += content.warnings
    split = np.full(len(content.candidates), "train") if content.split is None else content.split
    parts: dict[int, str] = {}
    for row, group in enumerate([] if content.groups is None else content.groups.tolist()):
        if parts.setdefault(group, split[row]) != split[row]:
            raise DataError(
                f"{card.name}: the group of item {row + 1} has items in {parts[group]} and in {split[row]}; "
                "a group stays in one part"
            )
    is_test = split == "test"
    kept = np.flatnonzero(~is_test)
    if len(kept) == 0:
        raise DataError(f"{card.name}: every row is in the split test; expected some in train")
    labels, known, test = content.labels, None, None
    if is_test.any():
        if labels is not None and (labels[is_test] >= 0).all():
            test = TestSet(features[is_test], labels[is_test])
        else:
            warnings.append(f"{card.name}: {is_test.sum():,} test rows without truth are left out")
    if labels is not None:
        labels = labels[kept]
        n_unknown = int((labels < 0).sum())
        known = labels if n_unknown else None
        if 0 < n_unknown < len(labels):
            measured = "measured on its own test set only" if test is not None else "not measured in runs"
            warnings.append(
                f"{card.name}: the truth of {n_unknown:,} rows is missing, so accuracy is {measured}; "
                "`plench fit` measures it on reserved rows whose truth is known"
            )
        labels = None if n_unknown else labels
    is_validation = split[kept] == "validation"
    items = np.array(content.items or [""] * len(split))
    shared = set(items[kept].tolist()) & set(items[is_test].tolist()) - {""}
    if shared:
        warnings.append(
            f"{card.name}: {len(shared):,} items have rows in test and in training, such as "
            f"{short_repr(min(shared))}, so test accuracy is too high; put all rows of an item in one part"
        )
    dataset = Dataset(
        features[kept],
        content.candidates[kept],
        labels,
        replace(card, class_names=content.class_names),
        test,
        tuple(warnings),
        groups=None if content.groups is None else content.groups[kept],
        validation=is_validation if is_validation.any() else None,
        answers=None if content.answers is None else content.answers.take_items(kept),
        items=None if content.items is None else tuple(content.items[row] for row in kept),
        known_labels=known,
    )
    return keep_together(dataset)


def describe_generated(card: DatasetCard) -> str:
    """Return the warning that candidate sets are generated."""
    rate = f" {card.candidates.fps_rate}" if card.candidates.fps_rate is not None else ""
    return (
        f"{card.name} has no candidate sets of its own: they are generated from its labels (by default "
        f"{card.candidates.pl_type}{rate}), so results show what a method does with such sets"
    )


def make_table_card(
    stem: str, digest: str, content: TableContent, kind: Literal["tabular", "image"] = "tabular"
) -> DatasetCard:
    """Describe a table; its source says which column has which role."""
    card = make_card(Path(f"{stem}.table"), digest, kind, has_candidates=not content.is_generated)
    return replace(card, source=f"the user's own table: {content.roles.describe()}")


def read_table_files(
    path: Path, options: TableOptions, has_features: bool = True, keep_ids: bool = False
) -> tuple[TableContent, str]:
    """Read a table and the files that its options name; return a hash of the files and options with it."""
    contents = [read_file(path, path.name)]
    table = parse_table(contents[0], path.suffix, path.name, options.sheet)
    table = replace(table, folder=path.parent)
    others: dict[str, RawTable] = {}
    for option in ("answers", "taxonomy"):
        name = getattr(options, option)
        if not name or (option == "answers" and name in table.columns):
            continue
        if not is_table_file(name):
            raise DataError(
                f"{path.name}: {option}={name} is neither a column nor a file ending in "
                f"{', '.join(TABLE_SUFFIXES)}; columns are {', '.join(table.columns[:20])}"
            )
        file = path.parent / name if (path.parent / name).is_file() else Path(name)
        contents.append(read_file(file, file.name))
        others[option] = parse_table(contents[-1], file.suffix, file.name)
    digest = hash_tables(contents, {k: v for k, v in options.changed().items() if k not in others})
    answers = others.get("answers")
    taxonomy = Taxonomy.read(others["taxonomy"]) if "taxonomy" in others else None
    options = replace(options, answers=None) if answers is not None else options
    return read_content(table, options, answers, taxonomy, has_features, keep_ids), digest


def hash_tables(contents: Sequence[bytes], options: Mapping[str, Any]) -> str:
    """Return a hash of the contents of files and of the options that they are read with."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents))
    if options:
        digest.update(repr(sorted(options.items())).encode())
    return digest.hexdigest()


def find_table(name: str) -> Source | None:
    """Return the source of a table given by path, with options after a question mark."""
    path = name.partition("?")[0]
    if path.lower().endswith(OTHER_SUFFIXES):
        raise UsageError(f"{path} cannot be read; save it as .xlsx or .csv")
    if not is_table_file(path):
        return None
    path, options = split_reference(name)
    content, digest = read_table_files(Path(path), options)
    return make_table_source(Path(path).stem, digest, content)


def make_table_source(stem: str, digest: str, content: TableContent) -> Source:
    """Return the source of a table.

    Without an encoder a column of images is left out, or read as pixels if the table has nothing else.
    """
    columns = content.features.columns if content.features is not None else ()
    raw = content.table, content.roles.by_column()
    images = [column for column in columns if column.kind == "image"]
    others = tuple(column for column in columns if column.kind != "image")
    if not images:
        card = make_table_card(stem, digest, content)
        return Source(card, lambda data_dir: assemble(content, card), raw=raw)
    hashes = [digest, *(each for column in images for each in column.categories)]
    digest = sha256("".join(hashes).encode())
    card = make_table_card(stem, digest, content, "tabular" if others else "image")
    names = ", ".join(column.name for column in images)

    def load(data_dir: Path | None) -> Dataset:
        if others:
            warning = (
                f"{card.name}: the images in {names} are left out, because no image encoder is given: "
                f"image_encoder={list_encoders('image')} (--image-encoder)"
            )
            return assemble(replace(content, features=Table(others)), card).with_warnings([warning])
        if len(images) > 1 or images[0].missing.any():
            raise DataError(
                f"{card.name}: a network is trained on one image per row; {names} needs an image encoder: "
                f"{list_encoders('image')} (--image-encoder)"
            )
        pixels, warnings = read_images([images[0].images[v] for v in images[0].values], card.name)
        return assemble(content, card, pixels).with_warnings(warnings)

    tabular = replace(card, kind="tabular")
    return Source(card, load, load_files=lambda data_dir: assemble(content, tabular), raw=raw)


def find_embeddings(name: str) -> Source | None:
    """Return the source of an `.npy` file of features whose rows `candidates.csv` in its folder describes.

    Another table is named with `table=`; further options are those of that table.
    """
    if not name.partition("?")[0].lower().endswith(".npy"):
        return None
    text, values = split_query(name)
    path, given = Path(text), values.pop("table", None)
    table = given or CANDIDATES
    if not given and not (path.parent / table).is_file():
        return None
    content, digest = read_table_files(path.parent / table, read_options(values), has_features=False)
    features = read_array(path, text, mapped=True)
    if len(features) != len(content.candidates):
        raise DataError(
            f"{path.name} has {len(features):,} rows and {table} {len(content.candidates):,}; expected one "
            "row of the table for each row of features, in the same order"
        )
    digest = sha256(f"{digest}{sha256(path)}".encode())
    card = make_table_card(path.stem, digest, content)
    message = f"{path.name} and {table} are matched by the order of their rows"
    return Source(card, lambda data_dir: assemble(content, card, features).with_warnings([message]))


def make_table_dataset(
    data: Any,
    name: str = "table",
    answers: Any = None,
    text_encoder: str | None = None,
    image_encoder: str | None = None,
    **options: Any,
) -> Dataset:
    """Make a dataset from a table: a file, a pandas or polars frame, or a mapping of names to columns.

    Parameters
    ----------
    data : path, frame or mapping
        The table.
    name : str
        What messages and records call a frame; the name in records carries a hash of its content.
    answers : frame, mapping or str, optional
        A second table with one answer per row (item, annotator, label), or the name of a column of lists.
    text_encoder, image_encoder : str, optional
        Pretrained encoders of columns of text and of image files.
    **options
        Those of `TableOptions`; `taxonomy` may also be a mapping from node to parent.

    Returns
    -------
    Dataset
    """
    if isinstance(answers, str):
        options["answers"], answers = answers, None
    taxonomy = options.pop("taxonomy", None)
    chosen = read_options(options)
    if not isinstance(taxonomy, Mapping | str | Path | None):
        raise UsageError(f"taxonomy must be a file or a mapping, not {short_repr(taxonomy)}")
    is_file = isinstance(data, str | Path)
    if is_file and answers is None and not isinstance(taxonomy, Mapping):
        chosen = replace(chosen, taxonomy=None if taxonomy is None else str(taxonomy))
        content, digest = read_table_files(Path(data), chosen)
        source = make_table_source(Path(data).stem, digest, content)
        return attach_encoders(source, text_encoder, image_encoder).load(None)
    tree = Taxonomy(taxonomy) if isinstance(taxonomy, Mapping) else None
    if isinstance(taxonomy, str | Path):
        tree = Taxonomy.read(read_table_file(taxonomy))
    table = read_table_file(data) if is_file else read_frame(data, name)
    answers = None if answers is None else read_frame(answers, f"{name}'s answers")
    content = read_content(table, chosen, answers, tree)
    fingerprint = assemble(content, make_table_card(name, "", content)).fingerprint
    source = make_table_source(name, fingerprint, content)
    return attach_encoders(source, text_encoder, image_encoder).load(None)


TABLES = SourceFinder("path/to/table.csv", MEANING, find_table)
EMBEDDINGS = SourceFinder(
    "path/to/embeddings.npy",
    "features (N×D), with candidates, answers or truth in candidates.csv next to it, or in ?table=FILE",
    find_embeddings,
)
