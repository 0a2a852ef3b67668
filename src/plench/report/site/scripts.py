"""Data as scripts: a page opened from disk may load scripts from its folder, but not fetch files.

Content of records is not trusted: it becomes JSON in which every character that HTML or JavaScript could read
as more than text is escaped, and the page shows it as text nodes only.
"""

import json
import math
from typing import Any

from plench.text import clean

_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'"}


def as_script(name: str, value: object) -> str:
    """Return a script that hands a value to the page under a name of ours. It is plain ASCII."""
    text = json.dumps(make_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"plench.receive({json.dumps(name)},{text.translate(_ESCAPES)});\n"


def make_plain(value: Any) -> Any:
    """Return a value as JSON can hold it: text without control characters, no NaN, no key from a record.

    Objects are for keys of our own: a record's name as a key could be `__proto__`, so names come as lists.
    """
    if isinstance(value, str):
        return "\n".join(clean(line, None) for line in value.split("\n"))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: make_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(entry) for entry in value]
    return value


def as_text(value: object) -> str:
    """Show a value of any type from a record as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def distinct(names: list[str]) -> list[str]:
    """Return names as shown, cleaned and told apart by a number where cleaning made two the same."""
    shown: list[str] = []
    for name in names:
        text, number = clean(name, None), 2
        while text in shown:
            text = f"{clean(name, None)} ({number})"
            number += 1
        shown.append(text)
    return shown
