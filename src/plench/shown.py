"""How text and values from files are shown: short, and without what would steer a terminal."""

from __future__ import annotations

import unicodedata

MAX_SHOWN = 60
NUMBER_BITS = 128
# Control characters, characters without a meaning of their own (surrogates, private, unassigned) and those
# that turn the direction of writing or are not seen.
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def clean_text(text: str, *, keep: str = "\n\t") -> str:
    """Return text in which every character that a terminal obeys or hides is written out, as in `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in HIDDEN_CATEGORIES
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


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
