"""An audit: a person labels a few random rows that the model was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plench.data import Dataset
from plench.data.tables import Table, read_table_file
from plench.errors import DataError, UsageError
from plench.estimator.calibration import LEAST_LABELS, Calibration, calibrate_by_truth
from plench.estimator.quality import Estimate, estimate_share
from plench.estimator.review import Rows, find_stored, name_rows, spread, unpack
from plench.settings import seed_hash
from plench.text import guard_formula, short_repr, unknown_name
from plench.training.model import TrainedModel

MAX_NUMBERS = 20  # columns of numbers that are shown to whoever labels
FORGOTTEN = (
    "the model file does not say which rows it was trained on, so it cannot be audited: fit it again with "
    "`plench fit`"
)


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Rows that may be audited, in the random order in which they are drawn; `row` is a place in the data.

    `candidates` are numbers of classes, None where the data has no sets. `n_trained` rows were trained on.
    """

    ids: tuple[str, ...]
    candidates: tuple[tuple[int, ...], ...] | None
    logits: NDArray[np.float64]
    row: Rows
    n_trained: int
    trained_ids: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Audit:
    """What labels of a person say of a model: its accuracy, and how often sets miss the truth.

    `n_more` is how many further labels would halve the interval of the accuracy, and `n_left` how many rows
    are left to label. `n_empty` rows have no label. `calibration` is None if there are fewer than 30 labels,
    or if they are not those of the rows that were drawn first.
    """

    accuracy: Estimate
    noise_rate: Estimate | None
    n_more: int
    n_left: int
    n_empty: int
    is_random: bool
    calibration: Calibration | None = None


def reserved_rows(model: TrainedModel) -> AuditRows:
    """Return the rows that `fit` kept apart, from the model's file alone."""
    rows = model.notes.get("rows")
    if rows is None:
        raise DataError(FORGOTTEN)
    kept = rows["audit"]
    if not kept["ids"]:
        raise UsageError(
            "the model was trained on all rows of its data, so none of them can be audited: give other data, "
            "or fit it again with --reserve 0.2 (300 rows or more)"
        )
    if "logits" not in kept:
        raise DataError(
            "the model file has no predictions of its reserved rows (an earlier version of plench wrote it): "
            "name the data that it was fitted to (plench audit MODEL DATA --labels FILE)"
        )
    order = draw_order(len(kept["ids"]))
    return AuditRows(
        tuple(kept["ids"][row] for row in order),
        tuple(tuple(kept["candidates"][row]) for row in order),
        unpack(kept["logits"], np.float32).reshape(-1, len(model.classes)).astype(np.float64)[order],
        np.array(rows["reserved"])[order],
        0,
    )


def rows_of(
    model: TrainedModel, items: Dataset, numbers: Sequence[int] | None = None, has_sets: bool = True
) -> AuditRows:
    """Return the rows of some data that the model was not trained on: its reserved rows, and new ones."""
    rows = model.notes.get("rows")
    if rows is None:
        raise DataError(FORGOTTEN)
    at = find_stored(rows, items.features)
    reserved = {place: n for n, place in enumerate(rows["reserved"])}
    names = name_rows(items.items, len(at), numbers)
    is_trained = (at >= 0) & ~np.isin(at, rows["reserved"])
    is_first = np.isin(np.arange(len(at)), np.unique(at, return_index=True)[1])  # of copies of a reserved row
    free = np.flatnonzero(~is_trained & (is_first | (at < 0)))
    if len(free) == 0:
        raise UsageError(
            f"all {len(at):,} rows were trained on; an audit needs rows that were not: give other data, or "
            "fit the model again with --reserve 0.2 (300 rows or more)"
        )
    order = free[draw_order(len(free))]
    own = [reserved.get(int(at[row])) for row in order]
    # A reserved row keeps the name and the set that the model's file knows, whatever this file says.
    kept = rows["audit"]
    ids = [names[row] if n is None else kept["ids"][n] for row, n in zip(order, own, strict=True)]
    name, n = Counter(ids).most_common(1)[0]
    if n > 1:
        raise DataError(f"{n} rows have the id {short_repr(name)}; give the rows different ids")
    place = {str(label): number for number, label in enumerate(model.classes)}
    columns = np.array([place.get(name, -1) for name in items.label_names])
    sets = [np.flatnonzero(each).tolist() for each in spread(items.candidates, columns, len(place))[order]]
    sets = [each if n is None else kept["candidates"][n] for each, n in zip(sets, own, strict=True)]
    return AuditRows(
        tuple(ids),
        tuple(map(tuple, sets)) if has_sets else None,
        model.predict_logits(items.features)[order],
        order,
        int(is_trained.sum()),
        frozenset(names[row] for row in np.flatnonzero(is_trained)),
    )


def draw_order(n: int) -> NDArray[np.int64]:
    """Return the order in which n rows are drawn: always the same, so that more labels extend fewer."""
    return np.random.RandomState(seed_hash(0, "audit")).permutation(n)


def list_audit(
    model: TrainedModel, rows: AuditRows, items: Dataset, n: int, labels: Mapping[str, str]
) -> list[list[str]]:
    """Return the table to label: id, features that a person can read, candidates, and a column for the label.

    `labels` are filled in where they are known. Nothing in the table depends on what the model predicts.
    """
    shown = []
    if isinstance(items.features, Table):
        numbers = sum(not column.has_texts for column in items.features.columns)
        shown = [each for each in items.features.columns if each.has_texts or numbers <= MAX_NUMBERS]
    names = [str(label) for label in model.classes]
    taken = ("id", "candidates", "label")
    header = [f"{each.name} (feature)" if each.name.lower() in taken else each.name for each in shown]
    table = [["id", *header, "candidates", "label"]]
    cells = [column.texts() for column in shown]
    for place, row in enumerate(rows.row[:n].tolist()):
        sets = "" if rows.candidates is None else "|".join(names[k] for k in rows.candidates[place])
        name = rows.ids[place]
        table.append([name, *(column[row] for column in cells), sets, labels.get(name, "")])
    return table


def read_labels(paths: Sequence[str | Path], model: TrainedModel) -> dict[str, tuple[str, str | None, str]]:
    """Read tables that were labelled: label ("" for none), candidates and place in its file of each id."""
    names = [str(label) for label in model.classes]
    known = {guard_formula(name): name for name in names} | {name: name for name in names}
    found: dict[str, tuple[str, str | None, str]] = {}
    for path in paths:
        table = read_table_file(path)
        by_name = {column.lower(): column for column in table.columns}
        missing = [name for name in ("id", "label") if name not in by_name]
        if missing:
            raise DataError(
                f"{table.name} has no column {missing[0]}; expected a table that `plench audit -o` wrote, "
                f"with its labels filled in, not one with {', '.join(table.columns[:10])}"
            )
        keep = frozenset(known)
        ids, labels = table.complete(by_name["id"]), table.texts(by_name["label"], keep)
        sets = table.texts(by_name["candidates"], keep) if "candidates" in by_name else [None] * len(table)
        for row, (name, label, candidates) in enumerate(zip(ids, labels, sets, strict=True)):
            place = table.place(row, by_name["label"])
            if label is not None and label not in known:
                error = unknown_name(label, names, "class")
                raise DataError(f"{place}: {error}; leave the cell empty if the class cannot be told")
            given = "" if label is None else known[label]
            earlier = found.get(name, ("", None, ""))[0]
            if earlier and given and earlier != given:
                raise DataError(
                    f"{place}: {short_repr(name)} has the labels {earlier} and {given}; expected one"
                )
            found[name] = (given or earlier, candidates, place)
    return found


def audit(model: TrainedModel, rows: AuditRows, labels: Mapping[str, tuple[str, str | None, str]]) -> Audit:
    """Compare labels with predictions and sets.

    Raises
    ------
    DataError
        If a row was trained on, is unknown, or has other candidates than the data, or if no row has a label.
    """
    names = [str(label) for label in model.classes]
    number = {name: place for place, name in enumerate(rows.ids)}
    number |= {guard_formula(name): place for place, name in enumerate(rows.ids)}
    chosen: list[int] = []
    truth: list[int] = []
    n_empty = 0
    for name, (label, candidates, place) in labels.items():
        if name not in number:
            if name in rows.trained_ids:
                raise DataError(f"{place}: the model was trained on {short_repr(name)}; expected other rows")
            raise DataError(
                f"{place}: {short_repr(name)} is not one of the {len(rows.ids):,} rows that can be audited: "
                "the model was trained on it, its id was changed, or it is from other data; then name them: "
                "plench audit MODEL DATA --labels FILE"
            )
        if rows.candidates is not None and candidates is not None:
            expected = "|".join(names[k] for k in rows.candidates[number[name]])
            if candidates not in (expected, guard_formula(expected)):
                raise DataError(
                    f"{place}: the candidates of {short_repr(name)} are {short_repr(candidates)}, but "
                    f"{short_repr(expected)} in the data: the table is of other data, or was changed"
                )
        chosen.append(number[name])
        truth.append(names.index(label) if label else -1)
        n_empty += not label
    at, found = np.array(chosen, np.int64), np.array(truth, np.int64)
    kept = found >= 0
    if not kept.any():
        raise DataError("no row has a label yet: fill in the column label")
    logits = rows.logits[at[kept]]
    hits = logits.argmax(1) == found[kept]
    noise = None
    if rows.candidates is not None:
        misses = [label not in rows.candidates[row] for row, label in zip(at[kept], found[kept], strict=True)]
        noise = estimate_share(sum(misses), len(misses))
    is_random = set(chosen) == set(range(len(labels)))
    calibration = None
    if is_random and len(hits) >= LEAST_LABELS:
        earlier = model.notes.get("calibration")
        earlier = None if earlier is None else Calibration.from_json(earlier)
        calibration = calibrate_by_truth(logits, found[kept], earlier, "audit")
    return Audit(
        estimate_share(int(hits.sum()), len(hits)),
        noise,
        count_to_halve(int(hits.sum()), len(hits)),
        len(rows.ids) - int(kept.sum()),
        n_empty,
        is_random,
        calibration,
    )


def count_to_halve(n_right: int, n: int) -> int:
    """Return how many further labels would halve the exact interval of a share, if the share stays."""

    def width(size: int) -> float:
        found = estimate_share(round(n_right / n * size), size)
        return found.high - found.low

    target, low, high = width(n) / 2, n, 2 * n
    while width(high) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if width(middle) > target else (low, middle)
    return high - n
