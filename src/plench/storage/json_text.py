"""JSON of run folders, of which there are many, as Python's own parser reads it and faster."""

from __future__ import annotations

import json
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
    rough = text.translate(_ROUGH)
    if _LONG_WITHIN not in rough and not rough.startswith(_LONG):
        try:
            return orjson.loads(text)
        except ValueError:
            pass
    # Python would take bytes with zeros in them for UTF-16 or UTF-32.
    return json.loads(text.decode("utf-8-sig", "surrogatepass"))
