"""Sets of classes as annotators give them: names in cells, answers to items, candidate sets and weights.

An answer is a set of classes: a label is a set of one, "not x" is all classes but x, "all" is all of them,
and "unsure" is the empty set, which votes for nothing; in a column of candidates it stands for all classes.
Shapes: N items, M answers, K classes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plench.data.tables import Cell, RawTable, clean_cell, to_text
from plench.errors import DataError, UsageError
from plench.text import list_some, short_repr

CombineRule = Literal["union", "vaguest", "votes"]
COMBINE_RULES: tuple[str, ...] = get_args(CombineRule)
DEFAULT_MIN_VOTES = 2
UNKNOWN = "unknown"
UNSURE = frozenset({"unsure", "?", UNKNOWN})
ALL = "all"
NONE = frozenset({"None", "none", "NONE"})  # gaps among features, but names of a class among labels
NOT = re.compile(r"not\s+(?=\S)", re.IGNORECASE)
FEW_CLASSES = 1_000  # always allowed
MAX_CELLS = 2**27  # examples × classes


class Names(NamedTuple):
    """Names of classes in a cell. `negated`: all classes but these. No names: unsure, or all if negated."""

    names: tuple[str, ...]
    cell: Cell
    negated: bool = False


def read_names(cell: Cell, separator: str, declared: frozenset[str] = frozenset()) -> Names:
    """Read a cell as a set of classes: a text with a separator, a list, or one label.

    It may also be `not x`, `unsure` or `all`, unless the class list declares a class of that name.
    """
    value, negated = cell.value, False
    if isinstance(value, str) and value not in declared:
        if value.lower() in UNSURE or value.lower() == ALL:
            return Names((), cell, value.lower() == ALL)
        begin = NOT.match(value)
        if begin:
            value, negated = value[begin.end() :], True
    parts: Sequence[Any] = [value]
    if isinstance(value, str):
        parts = value.split(separator)
    elif isinstance(value, list | tuple | set | frozenset | np.ndarray):
        parts = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
    names = []
    for part in parts:
        name = clean_cell(part, declared | NONE)
        if name is None:
            raise DataError(f"{cell.place}: {short_repr(value)} has an empty label (separator {separator!r})")
        text = to_text(cell._replace(value=name))
        special = text.lower() in UNSURE or text.lower() == ALL or NOT.match(text)
        if special and text not in declared and len(parts) > 1:
            raise DataError(
                f"{cell.place}: {short_repr(text)} is one of several labels in {short_repr(value)}; write it "
                "alone, or list the classes with classes= if it is the name of one"
            )
        names.append(text)
    return Names(tuple(names), cell, negated)


def describe_special(cells: Iterable[Names], table: str, is_answer: bool) -> list[str]:
    """Return warnings that count cells that are not classes, and cells of a class that looks like a gap."""
    special, empty = Counter[str](), Counter[str]()
    for names, cell, negated in cells:
        if isinstance(cell.value, str) and (negated or not names):
            special[cell.value] += 1
        empty.update(NONE.intersection(names))
    warnings = []
    if special:
        shown = ", ".join(f"{short_repr(text)} ({count:,})" for text, count in special.most_common(5))
        unsure = (
            "unsure, unknown and ? name no class, all names every class"
            if is_answer
            else ("unsure, unknown, ? and all stand for all classes")
        )
        warnings.append(
            f"{table}: not read as a class: {shown}{' …' if len(special) > 5 else ''}; {unsure}, `not x` for "
            "all but x; if one is the name of a class, list the classes with classes="
        )
    for text, count in empty.items():
        warnings.append(f"{table}: {short_repr(text)} is read as the name of a class ({count:,} sets)")
    return warnings


def merge_whole_number(name: str, known: Collection[str]) -> str:
    """Return the known name of a whole number: `1` for `1.0` if `1` is known too."""
    whole = name.partition(".")[0]
    return whole if whole in known and re.fullmatch(r"-?\d+\.0+", name) else name


def sort_names(cells: Iterable[Names]) -> list[str]:
    """Return all names in order: by value if all are whole numbers, else by letters."""
    found = {name for cell in cells for name in cell.names}
    names = {merge_whole_number(name, found) for name in found}
    if all(re.fullmatch(r"-?\d{1,9}", name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_num_classes(n_classes: int, n_examples: int, name: str) -> None:
    """Raise DataError if there are too few classes, or more than so many examples can have.

    A column of free text, or one wrong number among labels, would otherwise fill the memory.
    """
    allowed = max(FEW_CLASSES, min(10 * n_examples, MAX_CELLS // max(1, n_examples)))
    if not 2 <= n_classes <= allowed:
        raise DataError(
            f"{name} has {n_classes:,} classes; expected 2 to {allowed:,} for {n_examples:,} rows"
        )


class ClassList:
    """The classes of a dataset by name; with a taxonomy, a node above them stands for its leaves."""

    def __init__(
        self, names: Sequence[str], n_rows: int, name: str, taxonomy: Taxonomy | None = None
    ) -> None:
        if len(set(names)) < len(names):
            raise DataError(f"{name}: a class is named twice: {', '.join(names)}")
        check_num_classes(len(names), n_rows, f"{name} (classes {', '.join(map(short_repr, names[:3]))} …)")
        self.names = tuple(names)
        position = {name: number for number, name in enumerate(names)}
        self.leaves = {name: [number] for name, number in position.items()}
        for node, below in taxonomy.leaves.items() if taxonomy else ():
            self.leaves[node] = [position[leaf] for leaf in below]

    def encode(self, cells: Sequence[Names | None]) -> NDArray[np.bool_]:
        """Return the sets (n, K) that cells name; an empty one for None."""
        sets = np.zeros((len(cells), len(self.names)), np.bool_)
        for number, named in enumerate(cells):
            if named is None:
                continue
            for given in named.names:
                name = merge_whole_number(given, self.leaves)
                if name not in self.leaves:
                    known = list_some(self.names, 10)
                    place = named.cell.place
                    raise DataError(f"{place}: unknown class {short_repr(name)}; expected one of {known}")
                sets[number, self.leaves[name]] = True
            if named.negated:
                sets[number] = ~sets[number]
                if not sets[number].any():
                    raise DataError(f"{named.cell.place}: the answer excludes every class")
        return sets

    def encode_labels(self, cells: Sequence[Names | None]) -> NDArray[np.int64]:
        """Return the classes (n) that cells name, −1 for None."""
        sets = self.encode(cells)
        for named, found in zip(cells, sets, strict=True):
            if named and found.sum() > 1:
                name = short_repr(named.names[0])
                raise DataError(f"{named.cell.place}: {name} stands for {found.sum()} classes; expected one")
        return np.where(sets.any(1), sets.argmax(1), -1)


class Taxonomy:
    """Nodes and their parents. Nodes without children are classes; `leaves` has the classes below a node."""

    def __init__(self, parents: Mapping[str, str | None], name: str = "the taxonomy") -> None:
        above = {parent for parent in parents.values() if parent is not None}
        self.classes = tuple(sorted({*parents, *above} - above))
        below: dict[str, set[str]] = {}
        for leaf in self.classes:
            node: str | None = leaf
            while node is not None and leaf not in below.setdefault(node, set()):
                below[node].add(leaf)
                node = parents.get(node)
            if node is not None:
                raise DataError(f"{name}: {short_repr(node)} is its own ancestor")
        for node in parents:
            if node not in below:  # a circle without leaves
                raise DataError(f"{name}: {short_repr(node)} is its own ancestor")
        self.leaves = {node: tuple(sorted(leaves)) for node, leaves in below.items()}

    @classmethod
    def read(cls, table: RawTable) -> Taxonomy:
        """Read a table with the columns `node` and `parent`; a root has no parent, or no row."""
        names = {"node": ("node", "name", "child"), "parent": ("parent",)}
        columns = []
        for role, known in names.items():
            found = [column for column in table.columns if column.lower() in known]
            if not found:
                raise DataError(f"{table.name} has no column {role}; it has {', '.join(table.columns)}")
            columns.append(found[0])
        parents: dict[str, str | None] = {}
        nodes, above = table.complete(columns[0]), table.texts(columns[1])
        for row, (node, parent) in enumerate(zip(nodes, above, strict=True)):
            if parents.setdefault(node, parent) != parent:
                both = f"{short_repr(parents[node])} and {short_repr(parent)}"
                raise DataError(f"{table.place(row, columns[1])}: {short_repr(node)} has two parents, {both}")
        return cls(parents, table.name)


@dataclass(frozen=True, eq=False)
class Answers:
    """All M answers: `item` and `annotator` (M,) say to what and whose, `sets` (M, K) which classes.

    `lengths` (M,) is how many labels were listed; more than a set has, if a list repeats one. Where only
    votes were counted, nobody knows whose they are: every `annotator` is −1.
    """

    item: NDArray[np.int64]
    annotator: NDArray[np.int64]
    sets: NDArray[np.bool_]
    n_items: int
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    annotator_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.sets):
            object.__setattr__(self, "lengths", self.sets.sum(1))

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.sets.shape[1])

    @property
    def anonymous(self) -> bool:
        """Whether annotators are unknown."""
        return bool((self.annotator < 0).any())

    def widen(self, n_classes: int) -> Answers:
        """The same answers with further classes, which nobody has named."""
        more = max(0, n_classes - self.n_classes)
        return replace(self, sets=np.pad(self.sets, ((0, 0), (0, more))))

    def take_items(self, rows: NDArray[np.int64]) -> Answers:
        """The answers to some of the items, which are numbered anew."""
        position = np.full(self.n_items, -1)
        position[rows] = np.arange(len(rows))
        kept = position[self.item] >= 0
        return self.take(kept, position[self.item[kept]], len(rows))

    def take(self, rows: NDArray[Any], item: NDArray[np.int64], n_items: int) -> Answers:
        """Some of the answers, which are then those to the given items."""
        parts = {name: getattr(self, name)[rows] for name in ("annotator", "sets", "lengths")}
        return replace(self, item=item, n_items=n_items, **parts)


class Answer(NamedTuple):
    """One answer as it was read: the number of its item, the annotator, and the names."""

    item: int
    annotator: str
    names: Names


def read_set_column(
    table: RawTable, column: str, separator: str, declared: frozenset[str] = frozenset()
) -> list[Names]:
    """Read a column with one candidate set per row; raise DataError for a gap. Who is unsure names all."""
    sets = []
    for row, value in enumerate(table.cells(column, declared | NONE)):
        cell = Cell(value, table, row, column)
        named = None if value is None else read_names(cell, separator, declared)
        if named is None or not (named.names or isinstance(value, str)):
            raise DataError(
                f"{cell.place}: the candidate set is empty; write {UNKNOWN!r} for all classes, or leave the "
                "row out"
            )
        sets.append(named if named.names else named._replace(negated=True))
    return sets


def read_answer_columns(
    table: RawTable, columns: Mapping[str, str], separator: str, declared: frozenset[str] = frozenset()
) -> list[Answer]:
    """Read columns of annotators, `columns` from a column to its annotator; a gap is not an answer."""
    return [
        Answer(row, annotator, read_names(Cell(value, table, row, column), separator, declared))
        for column, annotator in columns.items()
        for row, value in enumerate(table.cells(column, declared))
        if value is not None
    ]


def make_answers(given: Sequence[Answer], classes: ClassList, n_items: int) -> Answers:
    """Lay out answers as arrays; annotators are numbered in the order of their names."""
    names, annotator = np.unique([answer.annotator for answer in given], return_inverse=True)
    return Answers(
        item=np.array([answer.item for answer in given]),
        annotator=annotator,
        sets=classes.encode([answer.names for answer in given]),
        n_items=n_items,
        annotator_names=tuple(names.tolist()),
    )


def spread_votes(votes: NDArray[np.integer[Any]]) -> Answers:
    """Return one answer for each of the votes counted in (N, K), by unknown annotators."""
    item, label = np.nonzero(votes)
    times = votes[item, label]
    item, label = np.repeat(item, times), np.repeat(label, times)
    sets = label[:, None] == np.arange(votes.shape[1])
    return Answers(item, np.full(len(item), -1), sets, len(votes))


def count_votes(answers: Answers, first: int | None = None) -> NDArray[np.int64]:
    """Return how many answers have each class in their set (N, K), of all or of the first annotators."""
    votes = np.zeros((answers.n_items, answers.n_classes), np.int64)
    used = slice(None) if first is None else answers.annotator < first
    rows, labels = np.nonzero(answers.sets[used])
    np.add.at(votes, (answers.item[used][rows], labels), 1)
    return votes


def unite(answers: Answers, first: int | None = None) -> NDArray[np.bool_]:
    """Return the union (N, K) of the sets of all annotators, or of the first few."""
    return count_votes(answers, first) > 0


def pick_vaguest(answers: Answers) -> NDArray[np.bool_]:
    """Return the largest set (N, K) of each item, the first of equals; as published, the longest list."""
    candidates = np.zeros((answers.n_items, answers.n_classes), np.bool_)
    order = np.lexsort((answers.annotator, -answers.lengths, answers.item))
    items, first = np.unique(answers.item[order], return_index=True)
    candidates[items] = answers.sets[order[first]]
    return candidates


def check_rule(rule: str, min_votes: Any) -> int:
    """Return `min_votes` as a number; raise UsageError unless both say how answers are combined."""
    if rule not in COMBINE_RULES:
        raise UsageError(f"unknown combine {rule!r}; expected one of {', '.join(COMBINE_RULES)}")
    if not str(min_votes).isdecimal() or int(min_votes) < 1:
        raise UsageError(f"min_votes must be a whole number of at least 1, not {min_votes!r}")
    return int(min_votes)


def combine_answers(
    answers: Answers, rule: str = "union", min_votes: int = DEFAULT_MIN_VOTES
) -> NDArray[np.bool_]:
    """Return one candidate set (N, K) per item; all classes if nobody has voted for any.

    By the rule `votes` these are the classes with so many votes; if no class has them, those with the most.
    """
    check_rule(rule, min_votes)
    if rule == "vaguest":
        candidates = pick_vaguest(answers)
    else:
        votes = count_votes(answers)
        enough = np.minimum(min_votes if rule == "votes" else 1, votes.max(1, keepdims=True))
        candidates = (votes >= enough) & (votes > 0)
    candidates[~candidates.any(1)] = True
    return candidates


def weigh_by_votes(candidates: NDArray[np.bool_], answers: Answers) -> NDArray[np.float32]:
    """Return each candidate's share (N, K) of the votes for its set; equal shares where there are none."""
    votes = np.where(candidates, count_votes(answers), 0).astype(np.float64)
    empty = votes.sum(1) == 0
    votes[empty] = candidates[empty]
    shares: NDArray[np.float32] = (votes / votes.sum(1, keepdims=True)).astype(np.float32)
    return shares


def describe_answers(answers: Answers) -> dict[str, Any]:
    """Count answers by item and annotator, set sizes, and how far the annotators agree.

    Shares are of items with at least two answers, None if there are none: `agreement` is the share of equal
    ones among the pairs of answers to one item, `unanimous` the share of items whose answers are all equal,
    `common` the share of items with a class that is in every answer. An answer of "unsure" is counted, but
    agrees with nothing and is not asked for a common class.
    """
    sizes = answers.sets.sum(1)
    sure = sizes > 0
    item, sets = answers.item[sure], answers.sets[sure]
    given = np.bincount(item, minlength=answers.n_items)
    several = given >= 2
    agreement = unanimous = common = None
    if several.any():
        keys = np.concatenate([item[:, None], np.packbits(sets, axis=1)], axis=1)
        same, counts = np.unique(keys, axis=0, return_counts=True)
        equal = np.bincount(same[:, 0], weights=counts * (counts - 1) / 2, minlength=answers.n_items)
        pairs = given * (given - 1) / 2
        agreement = float(equal.sum() / pairs.sum())
        unanimous = float((equal == pairs)[several].mean())
        common = float((count_votes(answers).max(1) == given)[several].mean())
    counts_of_items = Counter(np.bincount(answers.item, minlength=answers.n_items).tolist())
    per_annotator = [] if answers.anonymous else np.bincount(answers.annotator).tolist()
    names = answers.annotator_names or [str(number) for number in range(len(per_annotator))]
    return {
        "n_answers": len(sizes),
        "n_annotators": len(np.unique(answers.annotator[answers.annotator >= 0])),
        "n_unsure": int((~sure).sum()),
        "answers_per_item": dict(sorted(counts_of_items.items())),
        "answers_per_annotator": dict(zip(names, per_annotator, strict=True)),
        "set_sizes": dict(sorted(Counter(sizes.tolist()).items())),
        "agreement": agreement,
        "unanimous": unanimous,
        "common": common,
    }


def has_gaps(array: NDArray[Any]) -> bool:
    """Whether a matrix of numbers has −1 or NaN, which are gaps among answers and cannot be candidates."""
    return array.dtype.kind in "fi" and bool(((array == -1) | np.isnan(array)).any())


def read_answer_matrix(matrix: ArrayLike, n_classes: int | None = None, name: str = "answers") -> Answers:
    """Read answers as an array: N×M of classes with −1 in gaps, or N×M×K of 0 and 1, gaps all 0.

    `n_classes` is needed if the largest class occurs in no answer.
    """
    array = np.asarray(matrix)
    if array.dtype.kind == "f" and array.ndim == 2:
        array = np.where(np.isnan(array), -1, array)
    if array.dtype.kind not in "fiub" or array.ndim not in (2, 3) or 0 in array.shape:
        raise DataError(
            f"{name} must be N×M classes with -1 in gaps, or N×M×K with 0 and 1, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.ndim == 3:
        wrong = (array != 0) & (array != 1)
        expected = "0 and 1"
    else:
        wrong = (array != np.floor(array)) | (array < -1) | (array >= (n_classes or np.inf))
        expected = f"classes 0{', 1, …' if n_classes is None else f'…{n_classes - 1}'} and -1 for a gap"
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        where = f"the answer of annotator {place[1]} to item {place[0]}"
        value = f"{array[place]} for class {place[2]}" if array.ndim == 3 else array[place]
        raise DataError(f"{name}: {where} is {value}; expected {expected}")
    item, annotator = np.nonzero(array.any(2) if array.ndim == 3 else array >= 0)
    if len(item) == 0:
        raise DataError(f"{name} has nothing but gaps")
    if array.ndim == 3:
        return Answers(item, annotator, array[item, annotator] != 0, len(array))
    if n_classes is None:
        n_classes = max(2, int(array.max()) + 1)
        check_num_classes(n_classes, len(item), name)
    labels = array[item, annotator].astype(np.int64)
    return Answers(item, annotator, labels[:, None] == np.arange(n_classes), len(array))
