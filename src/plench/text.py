"""Names and values in messages: spellings, suggestions for unknown names, short and printable forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path

from plench.errors import UsageError

MAX_LENGTH = 60
MAX_BITS = 128
MAX_NAME = 48
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def normalise(name: str) -> str:
    """Reduce a name to its letters and digits: `Yahoo! News` → `yahoonews`, `pico+` → `picoplus`."""
    return "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())


def find_name(name: str, known: Iterable[str], what: str) -> str:
    """Return the entry of `known` that `name` spells in any way; raise UsageError if there is none."""
    by_normal = {normalise(entry): entry for entry in known}
    found = by_normal.get(normalise(name))
    if found is None:
        raise unknown_name(name, by_normal.values(), what)
    return found


def unknown_name(name: str, known: Iterable[str], what: str) -> UsageError:
    """Return the error for an unknown name: it suggests the nearest names, or lists all of them."""
    by_normal = {normalise(entry): entry for entry in known}
    near = [by_normal[entry] for entry in get_close_matches(normalise(name), by_normal, n=3, cutoff=0.5)]
    if near:
        return UsageError(f"unknown {what} {name!r}; did you mean {' or '.join(near)}?")
    listed = ", ".join(sorted(by_normal.values(), key=str.lower))
    return UsageError(f"unknown {what} {name!r}; expected one of {listed}")


def clean_text(text: str, *, keep: str = "\n\t") -> str:
    """Replace invisible characters (control, direction, line separators) in a text."""
    if text.isascii() and text.isprintable():
        return text
    categories = ((c, unicodedata.category(c)) for c in text)
    return "".join(
        REPLACEMENT if c not in keep and (kind[0] == "C" or kind in ("Zl", "Zp")) else c
        for c, kind in categories
    )


def clean(name: str, longest: int | None = MAX_NAME) -> str:
    """Make a name from a file printable on one line, and cut it to the given length."""
    kept = clean_text(name, keep="")
    return kept if longest is None or len(kept) <= longest else kept[: longest - 1] + "…"


def guard_formula(text: str) -> str:
    """Put an apostrophe in front of text that a spreadsheet would run as a formula; numbers stay."""
    if text[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def short_repr(value: object) -> str:
    """Return the repr of a short value, and the type and size of any other."""
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= MAX_BITS else f"a number of {value.bit_length():,} bits"
    if isinstance(value, str | bytes | bytearray):
        return repr(value[:MAX_LENGTH]) + ("…" if len(value) > MAX_LENGTH else "")
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"a {type(value).__name__} of {len(value):,}"
    return f"a {type(value).__name__}"


def check_local(path: str | PathLike[str]) -> None:
    """Raise UsageError for a URL in place of a path: it would become a folder of that name, such as `s3:`."""
    if any(re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+:", part) for part in Path(path).parts):
        raise UsageError(
            f"{fspath(path)!r} is a URL; plench writes to folders of this machine. Write to one and copy it "
            "afterwards (for example with `aws s3 sync`, `gsutil rsync` or `rclone`), or mount the storage "
            "and give the mounted path"
        )


def flag(name: str) -> str:
    """Return the command-line flag of a setting: `data_dir` → `--data-dir`."""
    return "--" + name.replace("_", "-")


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_some(texts: Iterable[str], most: int) -> str:
    """Return the first texts, and a sign that there are more."""
    every = list(texts)
    return ", ".join(every[:most]) + (" …" if len(every) > most else "")
