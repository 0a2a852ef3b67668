"""Ways to forge files whose values are named: JSON, TOML, other text, checkpoints and models."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from random import Random
from typing import Any

from campaigns.fuzz.mutations import MARK, NUMBERS, TEXTS, forge_npy

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
)
VALUES += ([1, 2], {"a": 1}, {"": {}}, *TEXTS)


def forge_json(content: bytes, random: Random) -> bytes:
    """Replace, drop, rename or wrap a value of a JSON text, or of one of its lines."""
    lines = content.decode("utf-8").splitlines() if b"\n{" in content else [content.decode("utf-8")]
    chosen = random.randrange(len(lines))
    value = json.loads(lines[chosen])
    places = list(walk(value))
    for _ in range(random.choice((1, 1, 3))):
        parent, key = random.choice(places)
        change = random.randrange(6)
        odd = random.choice(VALUES)
        try:
            if change == 0:
                del parent[key]
            elif change == 1 and isinstance(parent, dict):
                parent[random.choice(TEXTS)] = parent.pop(key)
            elif change == 2:
                parent[key] = [parent[key]]
            else:
                parent[key] = odd
        except (KeyError, IndexError):
            continue
    text = json.dumps(value)
    if random.random() < 0.1:
        text = text.replace(":", ": " + random.choice(("[", '{"a":')) * random.choice((10, 5000, 200_000)), 1)
    lines[chosen] = text
    return "\n".join(lines).encode("utf-8") + b"\n"


def forge_table(content: bytes, random: Random) -> bytes:
    """Change a cell, a row or the header of a table."""
    lines = content.decode("utf-8", "replace").split("\n")
    place = random.choice((0, random.randrange(len(lines))))
    delimiter = max(",;\t", key=lines[place].count)
    cells = lines[place].split(delimiter)
    cell = random.randrange(len(cells))
    odd = (
        "",
        '"',
        '"x',
        "a|b|c",
        "|",
        "!cat",
        "nan",
        "1e999",
        "-1",
        "2" * 400,
        "9" * 5000,
        "x" * 100_000,
        "=1+1",
    )
    change = random.randrange(5)
    if change == 0:
        cells[cell] = random.choice((*odd, *TEXTS))
    elif change == 1:
        cells[cell] = random.choice(("candidates", "truth", "answers", "weight", "group", "split", "item"))
    elif change == 2:
        cells = cells * random.choice((2, 50))
    elif change == 3:
        del cells[cell]
    else:
        lines[place:place] = [lines[-2 if len(lines) > 1 else -1]] * random.choice((1, 1000))
    lines[min(place, len(lines) - 1)] = delimiter.join(cells)
    return "\n".join(lines).encode("utf-8", "replace")


def forge_state(content: bytes, random: Random) -> bytes:
    """Replace, drop or wrap a value of a checkpoint or a model, in a file that is sound otherwise."""
    import torch

    value = torch.load(io.BytesIO(content), weights_only=True)
    tensors = (
        torch.zeros(0),
        torch.full((3, 2), float("nan")),
        torch.tensor(2**62),
        torch.ones(1, dtype=torch.bool),
    )
    places = walk(value)
    for _ in range(random.choice((1, 1, 3))):
        parent, key = random.choice(places[: random.choice((10, len(places)))])
        change = random.randrange(4)
        try:
            if change == 0:
                del parent[key]
            elif change == 1:
                parent[key] = [parent[key]]
            else:
                parent[key] = random.choice((*VALUES, *tensors))
        except (KeyError, IndexError):
            continue
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def forge_model_file(content: bytes, random: Random) -> bytes:
    """Change values, an array or the code of a model file, whose sizes, checksums and hash are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if name != "sha256"}
    texts = ["model.json", "model.json", "state.json", "state.json", random.choice(list(entries))]
    name = random.choice(texts)
    if name.endswith(".json"):
        entries[name] = forge_json(json.dumps(json.loads(entries[name])).encode(), random)
    elif name.endswith(".npy"):
        entries[name] = forge_npy(entries[name], random)
    if random.random() < 0.1:
        entries["algorithm.py"] = b"open('" + MARK.encode() + b"', 'w')"
    digest = hashlib.sha256()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in entries.items():
            digest.update(f"{name}\0{len(part)}\0".encode() + part)
            archive.writestr(name, part)
        archive.writestr("sha256", digest.hexdigest())
    return buffer.getvalue()


def walk(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of a value: the container and the key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        current = waiting.pop()
        keys = (
            list(current)
            if isinstance(current, dict)
            else range(len(current))
            if isinstance(current, list)
            else ()
        )
        found += [(current, key) for key in keys]
        waiting += [current[key] for key in keys]
    return found or [({"x": 1}, "x")]


def forge_toml(content: bytes, random: Random) -> bytes:
    """Change a key, a value or the order of lines of a TOML text."""
    lines = content.decode("utf-8", "replace").splitlines()
    place = random.randrange(len(lines))
    key, equals, _ = lines[place].partition("=")
    odd: tuple[str, ...] = (
        "1",
        "-1",
        "1.5",
        "nan",
        "inf",
        "true",
        '""',
        '"x"',
        "[]",
        "[1]",
        "[[]]",
        "{}",
        "{a=1}",
        "1979-05-27",
    )
    odd += (
        '["x"]',
        '["PRODEN", 1]',
        "9" * 5000,
        "99999999999999999999",
        '"\\u001b[2J"',
        "[" * 3000 + "]" * 3000,
        "0x10",
    )
    odd += ('"./evil.py:E"', '["./evil.py:E"]', "[" * 100_000, "{a=" * 1000)
    change = random.randrange(4)
    if change == 0 and equals:
        lines[place] = f"{key}= {random.choice(odd)}"
    elif change == 1:
        lines.insert(
            place,
            random.choice(
                ("[[grid]]", "[grid]", "[fingerprints]", "x = 1", "[a.b.c]", "schema = 2", "[" * 50)
            ),
        )
    elif change == 2:
        lines[place] = lines[random.randrange(len(lines))]
    else:
        del lines[place]
    return "\n".join(lines).encode("utf-8", "replace")


def forge_text(content: bytes, random: Random) -> bytes:
    """Replace a number or a word of a text."""
    text = content.decode("utf-8", "replace")
    words = list(re.finditer(r"-?\d+(\.\d+)?|\w+", text))
    chosen = random.choice(words)
    odd = random.choice((*map(str, NUMBERS), "1e999", "-1", "nan", "-0.0", *TEXTS))
    return (text[: chosen.start()] + odd + text[chosen.end() :]).encode("utf-8", "replace")
