"""The files of a site: data as scripts, its assets, and a folder that holds nothing else.

A page opened from disk may load scripts from its folder, but not fetch files, so data come as scripts.
Content of records is not trusted: it becomes JSON in which every character that HTML or JavaScript could read
as more than text is escaped, and the page shows it as text nodes only.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from plench.errors import UsageError
from plench.runs.files import write_text
from plench.settings import __version__
from plench.text import clean

GENERATOR = "plench report"
PAGE = "index.html"
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


def check_folder(folder: Path, page: str = PAGE, option: str = "--output") -> None:
    """Refuse a folder that holds something else: a user's files are never mixed with ours or replaced."""
    try:
        there = sorted(entry.name for entry in folder.iterdir())
        is_ours = page in there and GENERATOR.encode() in (folder / page).read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write the site to {str(folder)!r}: {error.strerror}") from error
    if there and not is_ours:
        raise UsageError(
            f"{str(folder)!r} contains {there[0]!r} and is not a folder of plench report; "
            f"give a new or empty folder with {option}"
        )


def write_assets(folder: Path, stamp: str) -> Path:
    """Write style and scripts, then the page that names them and the data; return its path."""
    source = files(__package__).joinpath("assets")
    assets = {entry.name: entry.read_text(encoding="utf-8") for entry in source.iterdir()}
    template = assets.pop(PAGE)
    for name, text in assets.items():
        write_text(folder / "assets" / name, text)
    # All our own text: a version, a hash.
    for place, text in (("VERSION", __version__), ("DATA", f"data/{stamp}"), ("ASSETS", digest(assets)[:8])):
        template = template.replace("{{" + place + "}}", text)
    write_text(folder / PAGE, template)
    return folder / PAGE


def digest(texts: Mapping[str, str]) -> str:
    """Return a hash of named texts, whatever their order."""
    found = hashlib.sha256()
    for name in sorted(texts):
        found.update(f"{name}\0{texts[name]}\0".encode())
    return found.hexdigest()[:16]
