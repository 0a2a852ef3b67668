"""The lines of results.jsonl, one evaluation each: a bad line is skipped with a notice."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from operator import lt
from typing import Any, NamedTuple, TypeGuard

# The figures that every record has by the protocol (null where they cannot be measured), the loss first.
FIGURES = ("loss", "val_accuracy", "val_covering_rate", "val_approximated_acc", "test_acc")
# Those that are shares: a number outside 0 to 1 is none.
SHARES = frozenset(FIGURES) - {"loss"}
# With this the part of a line begins that all records of a run share.
_SHARED = ', "hparams": {'
_AFTER = frozenset(("hparams", "args", "fleet_size"))
_MISSING = object()
_BROKEN = object()
# By exact type, which is all that JSON gives: this is asked two million times of a full benchmark.
_NUMBERS = (float, int)
_LARGEST = sys.float_info.max


class Record(NamedTuple):
    """One evaluation: the 0-based step after which it was taken, and what the line says besides."""

    step: int
    values: Mapping[str, Any]

    def get(self, key: str) -> float | None:
        """Return a figure, or None where it is missing, null, NaN, no number or no share where it must be."""
        value = self.values.get(key)
        if type(value) is float and 0 <= value <= 1:  # most are, and all of these may be
            return value
        return value if is_finite(value) and (key not in SHARES or 0 <= value <= 1) else None


class ParsedLines(NamedTuple):
    """Records by rising step, the args and hparams of the first line that has args, and what was wrong."""

    records: tuple[Record, ...]
    first: dict[str, Any] | None
    notices: list[str]


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value read from JSON is a finite number (true, false and integers too large are none)."""
    return type(value) in _NUMBERS and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def parse_text(text: str) -> ParsedLines:
    """Parse the content of a results file. Of several records of one step the last counts.

    The last, because a run that was started again appends to the records it had before.
    """
    return _parse_whole(text) or parse_lines(text.split("\n"))


def _parse_whole(text: str) -> ParsedLines | None:
    """Parse a results file with nothing wrong in it at once; None if there may be something.

    Every line of it ends with the same hparams and args (and the size of the fleet, if there was one). They
    are parsed once, and what is before them as an object of each line's own.
    """
    lines = text.split("\n")
    start = lines[0].rfind(_SHARED)
    if start < 0 or lines.pop() or not lines:
        return None
    shared = lines[0][start:]
    if not all(line.endswith(shared) for line in lines):
        return None
    first, cut = _decode(f"{{{shared[2:]}"), -len(shared)
    values = [_decode(f"{line[:cut]}}}") for line in lines]
    if not isinstance(first, dict) or set(map(type, values)) != {dict}:
        return None
    size = first.pop("fleet_size", _MISSING)
    if first.keys() != {"hparams", "args"} or not isinstance(first["args"], dict):
        return None
    steps = [value.get("step") for value in values]
    whole = set(map(type, steps)) == {int}
    rising = whole and steps[0] >= 0 and steps[-1] <= _LARGEST and all(map(lt, steps, steps[1:]))
    if not rising or any(not _AFTER.isdisjoint(value) for value in values):
        return None
    if size is not _MISSING:
        for value in values:
            value["fleet_size"] = size
    return None if _may_be_odd(values) else ParsedLines(tuple(map(Record, steps, values)), first, [])


def _may_be_odd(values: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a figure may be missing or not be as it should; false if all are as nearly always."""
    try:
        losses = [value["loss"] for value in values]
        shares = [value[key] for value in values for key in FIGURES[1:]]
    except KeyError:
        return True
    losses, shares = [[figure for figure in part if figure is not None] for part in (losses, shares)]
    if not set(map(type, losses + shares)) <= {float} or not all(map(isfinite, losses + shares)):
        return True
    return bool(shares) and (min(shares) < 0 or max(shares) > 1)


def parse_lines(lines: Iterable[str]) -> ParsedLines:
    """Parse the lines of a results file one by one, and say what is wrong with them."""
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    by_step: dict[int, Record] = {}
    first: dict[str, Any] | None = None
    broken: list[int] = []
    stepless: list[int] = []
    repeated: list[int] = []
    for (number, _), raw in zip(numbered, _decode_lines([line for _, line in numbered]), strict=True):
        step = raw.get("step") if isinstance(raw, dict) else None
        if raw is _BROKEN:
            broken.append(number)
        elif not is_finite(step) or step < 0 or int(step) != step:
            stepless.append(number)
        else:
            step = int(step)
            if step in by_step:
                repeated.append(step)
            args, hparams = raw.pop("args", None), raw.pop("hparams", None)
            if first is None and isinstance(args, dict):
                first = {"args": args, "hparams": hparams}
            by_step[step] = Record(step, raw)
    records = tuple(by_step[step] for step in sorted(by_step))
    notices = []
    if broken:
        notices.append(f"{_count(broken, 'line')} skipped, no JSON: {_list(broken)}")
    if stepless:
        notices.append(f"{_count(stepless, 'line')} skipped, no usable step: {_list(stepless)}")
    if repeated:
        notices.append(
            f"{_count(repeated, 'step')} repeated, the last record of each counts: {_list(repeated)}"
        )
    return ParsedLines(records, first, notices + _check_figures(records))


def _decode_lines(lines: list[str]) -> list[Any]:
    """Return the JSON value of each line, `_BROKEN` for one that has none.

    The args and hparams that every line repeats are left out after the first line, as they take most of it.
    """
    if not lines:
        return []
    first, rest = _decode(lines[0]), "\n".join(lines[1:])
    if isinstance(first, dict):
        for key in ("args", "hparams"):
            if isinstance(first.get(key), dict) and first[key]:
                rest = rest.replace(json.dumps(first[key]), "null")
    return [first, *map(_decode, rest.split("\n") if len(lines) > 1 else [])]


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _BROKEN


def _check_figures(records: Sequence[Record]) -> list[str]:
    """Say which of the protocol's figures are missing from records, or there but not as they should be."""
    missing: dict[str, int] = {}
    odd: dict[str, int] = {}
    outside: dict[str, int] = {}
    for record in records:
        values = record.values
        for key in FIGURES:
            value = values.get(key, _MISSING)
            if value is _MISSING:
                missing[key] = missing.get(key, 0) + 1
            elif value is None:
                continue
            elif not is_finite(value):
                odd[key] = odd.get(key, 0) + 1
            elif key in SHARES and not 0 <= value <= 1:
                outside[key] = outside.get(key, 0) + 1
    wrong = (("missing from", missing), ("NaN or no number in", odd), ("not between 0 and 1 in", outside))
    return [
        f"{key} is {what} {n} of {len(records)} records"
        for what, counts in wrong
        for key, n in counts.items()
    ]


def _count(found: Sequence[int], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


def _list(numbers: Sequence[int]) -> str:
    """Show the first few of a list of numbers."""
    distinct = sorted(set(numbers))
    return ", ".join(map(str, distinct[:5])) + (", …" if len(distinct) > 5 else "")
