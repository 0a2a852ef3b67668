"""JSON of run folders, of which there are many, as Python's own parser reads it and faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

# Digits as zeros, and what a number may follow as a space: an integer beyond 64 bits, which orjson would
# round, has nineteen digits or more after one, or at the start.
_ROUGH = bytes.maketrans(b"123456789:,[-\t\r\n", b"0" * 9 + b" " * 7)
_LONG = b"0" * 19
_LONG_WITHIN = b" " + _LONG


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; raise ValueError or RecursionError where there is none.

    Python's parser has its say wherever orjson differs from it: on NaN, on long integers, on odd letters.
    """
    return _parse_long(text) if _may_have_long(text) else _parse_short(text)


def find_parser(text: bytes) -> Callable[[bytes], Any]:
    """Return what parses the lines or other parts of a text as `parse_json` does.

    Where the text has no long integer, which is seen at once, no part is looked through for one.
    """
    return parse_json if _may_have_long(text) else _parse_short


def _may_have_long(text: bytes) -> bool:
    """Say whether an integer that orjson would round may be in a text, or in a line of it."""
    rough = text.translate(_ROUGH)
    return _LONG_WITHIN in rough or rough.startswith(_LONG)


def _parse_short(text: bytes) -> Any:
    """Parse a text without long integers."""
    try:
        return orjson.loads(text)
    except ValueError:
        return _parse_long(text)


def _parse_long(text: bytes) -> Any:
    """Parse a text with Python's parser; it would take bytes with zeros in them for UTF-16 or UTF-32."""
    return json.loads(text.decode("utf-8-sig", "surrogatepass"))
