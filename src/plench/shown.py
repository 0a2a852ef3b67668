"""How text and values from files are shown: short, and without control characters."""

from __future__ import annotations

import unicodedata

MAX_SHOWN = 60
NUMBER_BITS = 128
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str, *, keep: str = "\n\t") -> str:
    """Return text without invisible characters: control, direction, separators."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _is_hidden(unicodedata.category(c)) else REPLACEMENT for c in text)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 run`, `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_hidden(category: str) -> bool:
    """Whether a category of Unicode is that of control, format, private and unassigned, or ends of lines."""
    return category[0] == "C" or category in ("Zl", "Zp")


def show_value(value: object) -> str:
    """Return a few words for any value out of a file: a short one itself, else its type.

    Never `repr` of a container: a few nested lists can have one of 2⁶⁰ letters.
    """
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        return (
            repr(value) if value.bit_length() <= NUMBER_BITS else f"a number of {value.bit_length():,} bits"
        )
    if isinstance(value, str | bytes | bytearray):
        return repr(value[:MAX_SHOWN]) + ("…" if len(value) > MAX_SHOWN else "")
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"a {type(value).__name__} of {len(value):,}"
    return f"a {type(value).__name__}"
