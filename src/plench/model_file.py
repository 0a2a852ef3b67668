"""A model as one file, `.plench`: safe to open from a stranger, readable without torch.

It is a zip archive of stored entries: `model.json` says what the model is and how it was made, `state.json`
is its state with numbers in the place of arrays, `arrays/N.npy` are those arrays, `algorithm.py` and
`network.py` the code of third parties, if any, which reading does not run, and `sha256` a hash of all of it.
There is no pickle in it, and nothing in it is packed, so that reading takes memory in proportion to the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from plench.data.npy import parse_npy
from plench.errors import DataError
from plench.plain_files import open_plain
from plench.runs.files import write_through
from plench.text import short_repr
from plench.version import __version__
from plench.zip_archive import STORED, ZipEntry, list_entries, read_entry

SUFFIX = ".plench"
FORMAT = "plench model"
VERSION = 1
HEAD, STATE, DIGEST = "model.json", "state.json", "sha256"
SOURCES = ("algorithm.py", "network.py")
ARRAY = re.compile(r"arrays/(0|[1-9]\d{0,8})\.npy")
MAX_BYTES = {HEAD: 2**24, STATE: 2**24, DIGEST: 64, **dict.fromkeys(SOURCES, 2**20)}
MAX_DEPTH = 100
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every entry: the same model is the same bytes

MARK = "$"  # the key of what JSON has no form for
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file: `head` as plain values, `state` with arrays, and third parties' code."""

    head: dict[str, Any]
    state: Any
    sources: dict[str, bytes] = field(default_factory=dict)


def write_model_file(path: str | Path, content: ModelFile) -> None:
    """Write a model, whole or not at all."""
    data = pack(content)
    write_through(Path(path), lambda temporary: temporary.write_bytes(data))


def pack(content: ModelFile) -> bytes:
    """Return a model as the bytes of its file; raise DataError for one that could not be read again."""
    encoder = StateEncoder()
    tree = encoder.encode(content.state)
    head = {"format": FORMAT, "version": VERSION, "plench": __version__, **content.head}
    parts = {HEAD: write_json(head, indent=1), STATE: write_json(tree), **content.sources}
    for number, array in enumerate(encoder.arrays):
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        parts[f"arrays/{number}.npy"] = buffer.getvalue()
    digest = hashlib.sha256()
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            update_digest(digest, name, part)
            archive.writestr(zipfile.ZipInfo(name, MOMENT), part)
        archive.writestr(zipfile.ZipInfo(DIGEST, MOMENT), digest.hexdigest().encode("ascii"))
    try:
        find_entries(sink)
    except DataError as error:
        raise DataError(f"the model cannot be kept as a file: {error}") from None
    return sink.getvalue()


def write_json(value: Any, indent: int | None = None) -> bytes:
    """Return JSON as bytes."""
    return json.dumps(
        value, indent=indent, allow_nan=False, separators=None if indent else (",", ":")
    ).encode()


def update_digest(digest: Any, name: str, part: bytes) -> None:
    """Add an entry to the hash."""
    digest.update(f"{name}\0{len(part)}\0".encode())
    digest.update(part)


def is_model_file(path: str | Path) -> bool:
    """Say whether a path is meant as that of a model file."""
    return str(path).lower().endswith(SUFFIX)


def read_head(path: str | Path | bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what a model file says of its model, and third parties' code in it; the state is left alone."""
    with opened(path) as (file, entries):
        return parse_head(read_small(file, entries, HEAD)), read_sources(file, entries)


def read_model_file(path: str | Path | bytes, make_array: Callable[[np.ndarray, str], Any]) -> ModelFile:
    """Return the content of a model file, given by path or as its bytes; raise DataError unless it is sound.

    `make_array` makes what stands for an array in the state, from its values and the name of their type.
    """
    with opened(path) as (file, entries):
        head = parse_head(read_small(file, entries, HEAD))
        digest = hashlib.sha256()
        arrays: dict[int, np.ndarray] = {}
        for name, entry in entries.items():
            if name == DIGEST:
                continue
            part = b"".join(read_entry(file, entry))
            update_digest(digest, name, part)
            number = ARRAY.fullmatch(name)
            if number is not None:
                arrays[int(number[1])] = parse_npy(part)
        if read_small(file, entries, DIGEST) != digest.hexdigest().encode("ascii"):
            raise DataError("its content is not what its hash says: it was changed or is damaged")
        tree = parse_json(read_small(file, entries, STATE), STATE)
        return ModelFile(head, StateDecoder(arrays, make_array).decode(tree), read_sources(file, entries))


class opened:
    """Opens a model file and lists its entries, inside a `with` block that turns errors into ours."""

    def __init__(self, path: str | Path | bytes) -> None:
        self.path = path
        self.name = "the model" if isinstance(path, bytes) else os.fspath(path)

    def __enter__(self) -> tuple[BinaryIO, dict[str, ZipEntry]]:
        self.file: BinaryIO
        try:
            self.file = io.BytesIO(self.path) if isinstance(self.path, bytes) else open_plain(self.path)
        except OSError as error:
            raise DataError(f"{self.name} cannot be read ({error.strerror or error})") from None
        try:
            return self.file, find_entries(self.file)
        except BaseException as error:
            self.file.close()
            self.translate(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.file.close()
        if error is not None:
            self.translate(error)

    def translate(self, error: BaseException) -> None:
        """Raise our error, with the file's name, for what can go wrong with a broken file."""
        if isinstance(error, DataError | OSError | MemoryError | ValueError):
            reason = str(error) or "there is not enough memory"
            raise DataError(f"{self.name} cannot be used as a model file: {reason}") from None


def find_entries(file: BinaryIO) -> dict[str, ZipEntry]:
    """Return the entries by name; raise DataError unless they are those of a model, stored as they are."""
    entries = {entry.name: entry for entry in list_entries(file)}
    for name, entry in entries.items():
        if name not in MAX_BYTES and ARRAY.fullmatch(name) is None:
            raise DataError(f"it has an entry {short_repr(name)}, which no model has")
        if entry.method != STORED:
            raise DataError(f"its entry {short_repr(name)} is packed")
        if entry.size > MAX_BYTES.get(name, entry.size):
            raise DataError(f"its entry {name} has {entry.size:,} bytes; allowed are {MAX_BYTES[name]:,}")
    for name in (HEAD, STATE, DIGEST):
        if name not in entries:
            raise DataError(f"it has no entry {name}")
    return entries


def read_small(file: BinaryIO, entries: Mapping[str, ZipEntry], name: str) -> bytes:
    """Return the bytes of an entry of limited size."""
    return b"".join(read_entry(file, entries[name]))


def read_sources(file: BinaryIO, entries: Mapping[str, ZipEntry]) -> dict[str, bytes]:
    """Return third parties' code; it is read, not run."""
    return {name: read_small(file, entries, name) for name in SOURCES if name in entries}


def parse_json(content: bytes, name: str) -> Any:
    """Return the value that a JSON text holds."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"its {name} cannot be read ({error})") from None


def parse_head(content: bytes) -> dict[str, Any]:
    """Return what a model is; raise DataError for one of another format."""
    head = parse_json(content, HEAD)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise DataError("it is no model of plench")
    if type(head.get("version")) is not int or head["version"] != VERSION:
        raise DataError(
            f"it has version {short_repr(head.get('version'))} of the format; this plench knows {VERSION}"
        )
    return head


class StateEncoder:
    """Writes plain values, containers and tensors as JSON, and gathers the arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def encode(self, value: Any) -> Any:
        """Return the JSON form of a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {MARK: "float", "value": str(value)}
        if type(value) is bytes:
            return {MARK: "bytes", "value": value.hex()}
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        if isinstance(value, tuple):
            return {MARK: "tuple", "items": [self.encode(item) for item in value]}
        if isinstance(value, dict):
            if all(type(key) is str for key in value) and MARK not in value:
                return {key: self.encode(item) for key, item in value.items()}
            return {
                MARK: "dict",
                "pairs": [[self.encode(key), self.encode(item)] for key, item in value.items()],
            }
        if isinstance(value, np.ndarray) or (hasattr(value, "detach") and hasattr(value, "dtype")):
            return self.encode_array(value)
        raise DataError(f"a model holds a {type(value).__name__}, for which its file has no form")

    def encode_array(self, value: Any) -> dict[str, Any]:
        """Keep an array or a tensor, and return its number; bfloat16 is kept as the bits it has."""
        if isinstance(value, np.ndarray):
            array, kind = value, str(value.dtype)
        else:
            kind = str(value.dtype).removeprefix("torch.")
            plain = value.detach().cpu().contiguous()
            array = (bits_of(plain) if kind == "bfloat16" else plain).numpy()
        self.arrays.append(array)
        return {MARK: "array", "number": len(self.arrays) - 1, "type": kind}


def bits_of(tensor: Any) -> Any:
    """Return a tensor of bfloat16 as whole numbers of the same bits, a type that numpy has."""
    import torch

    return tensor.view(torch.int16)


class StateDecoder:
    """Reads what `StateEncoder` wrote; each array stands in one place."""

    def __init__(self, arrays: dict[int, np.ndarray], make_array: Callable[[np.ndarray, str], Any]) -> None:
        self.arrays = dict(arrays)
        self.make_array = make_array

    def decode(self, node: Any, depth: int = 0) -> Any:
        """Return the value of a JSON form."""
        if depth > MAX_DEPTH:
            raise DataError(f"its state is nested more than {MAX_DEPTH} deep")
        if isinstance(node, list):
            return [self.decode(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if MARK not in node:
            return {key: self.decode(item, depth + 1) for key, item in node.items()}
        try:
            return self.decode_marked(node, depth)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"its state is broken ({type(error).__name__}: {error})") from None

    def decode_marked(self, node: dict[str, Any], depth: int) -> Any:
        """Return the value of a form that JSON has no other way for."""
        kind = node[MARK]
        if kind == "float":
            return FLOATS[node["value"]]
        if kind == "bytes":
            return bytes.fromhex(node["value"])
        if kind == "tuple":
            return tuple(self.decode(item, depth + 1) for item in node["items"])
        if kind == "dict":
            return {self.decode(key, depth + 1): self.decode(item, depth + 1) for key, item in node["pairs"]}
        if kind == "array" and type(node["number"]) is int and isinstance(node["type"], str):
            array = self.arrays.pop(node["number"], None)
            if array is None:
                raise DataError(
                    f"its state names array {node['number']}, which is not there or is used twice"
                )
            return self.make_array(array, node["type"])
        raise DataError(f"its state has a part of kind {short_repr(kind)}")
