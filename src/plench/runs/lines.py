"""The lines of results.jsonl, one evaluation each: a bad line is skipped with a notice."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from operator import itemgetter, lt
from typing import Any, NamedTuple, TypeGuard

from plench.runs.json_text import find_parser, parse_json

# The figures that every record has by the protocol (null where they cannot be measured), the loss first.
FIGURES = ("loss", "val_accuracy", "val_covering_rate", "val_approximated_acc", "test_acc")
# Those that are shares: a number outside 0 to 1 is none.
SHARES = frozenset(FIGURES) - {"loss"}
_pick_figures = itemgetter(*FIGURES)
# What is the same in all lines of a run begins here.
_END = b', "hparams": {'
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
        (figure,) = read_figures((self,), key)
        return figure


class ParsedLines(NamedTuple):
    """Records by rising step, the args and hparams of the first line that has args, and what was wrong."""

    records: tuple[Record, ...]
    first: dict[str, Any] | None
    notices: list[str]


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value read from JSON is a finite number (true, false and integers too large are none)."""
    return type(value) in _NUMBERS and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def read_figures(records: Iterable[Record], key: str) -> list[float | None]:
    """Return what `Record.get` does of each record."""
    found = [values.get(key) for _, values in records]
    # Most are floats from 0 to 1, and all of these are figures.
    return [f if type(f) is float and 0 <= f <= 1 else _as_figure(f, key) for f in found]


def _as_figure(value: object, key: str) -> float | None:
    return value if is_finite(value) and (key not in SHARES or 0 <= value <= 1) else None


def parse_lines(content: bytes) -> ParsedLines:
    """Parse the content of a results file. Of several records of one step the last counts.

    The last, because a run that was started again appends to the records it had before.
    """
    return _parse_regular(content) or _parse_any(content)


def _parse_regular(content: bytes) -> ParsedLines | None:
    """Parse a file as a run of ours writes it in one go, faster; None for any other.

    All lines of such a file end alike, from their hyperparameters on, and that end is parsed once. A line
    whose parts before and after the cut are each members of an object says what both of them say.
    """
    lines = content.split(b"\n")
    cut = lines[0].rfind(_END)
    if cut < 0 or lines.pop():
        return None
    end = lines[0][cut:]
    heads = [line[: -len(end)] + b"}" for line in lines if line.endswith(end)]
    if len(heads) < len(lines):
        return None
    parse = find_parser(b"\n".join(heads))
    try:
        shared = parse_json(b"{" + end[1:])
        found = list(map(parse, heads))
        steps = [values["step"] for values in found]
    except (ValueError, RecursionError, KeyError):
        return None
    if "step" in shared or set(map(type, steps)) != {int} or not _rise(steps):
        return None
    args, hparams = shared.pop("args", None), shared.pop("hparams", None)
    for values in found:
        values.update(shared)
    first = {"args": args, "hparams": hparams} if type(args) is dict else None
    records = tuple(map(Record, steps, found))
    return ParsedLines(records, first, _check_figures(records))


def _rise(steps: Sequence[int]) -> bool:
    """Say whether whole numbers are steps, each above the one before."""
    return steps[0] >= 0 and steps[-1] <= _LARGEST and all(map(lt, steps, steps[1:]))


def _parse_any(content: bytes) -> ParsedLines:
    """Parse a file line by line, whatever it holds."""
    by_step: dict[int, Record] = {}
    first: dict[str, Any] | None = None
    broken: list[int] = []
    stepless: list[int] = []
    repeated: list[int] = []
    parse = find_parser(content)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        values = _decode(line, parse)
        step = _find_step(values)
        if values is _BROKEN:
            broken.append(number)
        elif step is None:
            stepless.append(number)
        else:
            if step in by_step:
                repeated.append(step)
            args, hparams = values.pop("args", None), values.pop("hparams", None)
            if first is None and type(args) is dict:
                first = {"args": args, "hparams": hparams}
            by_step[step] = Record(step, values)
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


def _decode(line: bytes, parse: Callable[[bytes], Any]) -> Any:
    """Return the JSON value of a line, `_BROKEN` if it has none; letters that are no UTF-8 are replaced."""
    try:
        try:
            return parse(line)
        except UnicodeDecodeError:
            return parse(line.decode("utf-8", errors="replace").encode("utf-8"))
    except (ValueError, RecursionError):
        return _BROKEN


def _find_step(values: Any) -> int | None:
    """Return the step that a line names, None where it is no whole number from 0."""
    step = values.get("step") if type(values) is dict else None
    return int(step) if is_finite(step) and step >= 0 and int(step) == step else None


def _check_figures(records: Sequence[Record]) -> list[str]:
    """Say which of the protocol's figures are missing from records, or there but not as they should be."""
    if records and _are_figures(records):
        return []  # nearly always
    notices = []
    for key in FIGURES:
        lowest, highest = (0, 1) if key in SHARES else (-_LARGEST, _LARGEST)
        wrong = [
            figure
            for _, values in records
            if not (type(figure := values.get(key, _MISSING)) is float and lowest <= figure <= highest)
        ]
        if not wrong:
            continue
        missing = wrong.count(_MISSING)
        known = [figure for figure in wrong if figure is not _MISSING and figure is not None]
        odd = sum(not is_finite(figure) for figure in known)
        outside = sum(is_finite(figure) and not lowest <= figure <= highest for figure in known)
        told = (("missing from", missing), ("NaN or no number in", odd), ("not between 0 and 1 in", outside))
        notices += [f"{key} is {what} {n} of {len(records)} records" for what, n in told if n]
    return notices


def _are_figures(records: Sequence[Record]) -> bool:
    """Say whether all records have all figures, and nothing is odd about them; a doubt is a no."""
    try:
        figures: list[Any] = list(chain.from_iterable(_pick_figures(values) for _, values in records))
    except KeyError:
        return False
    # The sum of numbers of which one is NaN is NaN, where their least need not be.
    if {*map(type, figures)} != {float} or not isfinite(sum(figures)):
        return False
    del figures[:: len(FIGURES)]  # the losses, which need not be shares
    return bool(min(figures) >= 0 and max(figures) <= 1)


def _count(found: Sequence[int], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


def _list(numbers: Sequence[int]) -> str:
    """Show the first few of a list of numbers."""
    distinct = sorted(set(numbers))
    return ", ".join(map(str, distinct[:5])) + (", …" if len(distinct) > 5 else "")
