"""A model as one file, `.plench`: a safetensors file whose metadata describe the model.

The metadata hold one JSON text: what the model is and how it was made (`head`), its state with the names of
tensors in their place, the source of a third-party algorithm or network, which reading does not run, and a
sha256 over all of it. The description is read without torch.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plench.errors import DataError
from plench.files import write_through
from plench.settings import __version__
from plench.text import short_repr

SUFFIX = ".plench"
FORMAT = "plench model"
VERSION = 2
KEY = "plench"


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file: `head` as plain values, `state` with tensors, and third-party code."""

    head: dict[str, Any]
    state: Any
    sources: dict[str, bytes] = field(default_factory=dict)


def is_model_file(path: str | Path) -> bool:
    """Whether a path is named like a model file."""
    return str(path).lower().endswith(SUFFIX)


def write_model_file(path: str | Path, content: ModelFile) -> None:
    """Write a model, whole or not at all."""
    data = pack(content)
    write_through(Path(path), lambda temporary: temporary.write_bytes(data))


def pack(content: ModelFile) -> bytes:
    """Return a model as the bytes of its file."""
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    described = {
        "format": FORMAT,
        "version": VERSION,
        "plench": __version__,
        **content.head,
        "state": _encode(content.state, tensors),
        "sources": {
            name: source.decode("utf-8", "surrogateescape") for name, source in content.sources.items()
        },
    }
    text = json.dumps(described)
    digest = _hash(text, tensors)
    return save(tensors, metadata={KEY: json.dumps({"sha256": digest, "model": text})})


def read_head(path: str | Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the description of a model and the third-party code in its file, without reading its tensors."""
    described, sources, _ = _read_description(path)
    columns = described.pop("state").get("inputs", {}).get("columns", [])
    described["columns"] = [[column["name"], column["kind"]] for column in columns]
    return described, sources


def read_model_file(path: str | Path | bytes) -> ModelFile:
    """Return the content of a model file, given by path or as its bytes; raise DataError if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    head, sources, metadata = _read_description(path)
    try:
        tensors = load(path if isinstance(path, bytes) else Path(path).read_bytes())
    except SafetensorError as error:
        raise DataError(f"{_name(path)} cannot be used as a model file: {error}") from None
    if _hash(metadata["model"], tensors) != metadata.get("sha256"):
        raise DataError(
            f"{_name(path)} cannot be used as a model file: its content does not match its sha256; it was "
            "changed or is damaged"
        )
    return ModelFile(head, _decode(head.pop("state"), tensors), sources)


def _name(path: str | Path | bytes) -> str:
    return "the model" if isinstance(path, bytes) else str(path)


def _read_description(path: str | Path | bytes) -> tuple[dict[str, Any], dict[str, bytes], dict[str, Any]]:
    """Return the description, third-party code, and the text of the description with its sha256.

    Raises DataError for anything but a model file of this version.
    """
    try:
        with io.BytesIO(path) if isinstance(path, bytes) else open(path, "rb") as file:
            start = file.read(8)
            header = b"" if start[:2] == b"PK" else file.read(int.from_bytes(start, "little"))
    except (OSError, OverflowError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "it is not a safetensors file"
        raise DataError(f"{_name(path)} cannot be read as a model file: {reason}") from None
    if start[:2] == b"PK":
        raise DataError(
            f"{_name(path)} is a model file of plench 0.2.0, which this version does not read: load it with "
            "plench 0.2.0, or train it again (`plench fit`, `plench sweep refit`)"
        )
    try:
        metadata: dict[str, Any] = json.loads(json.loads(header)["__metadata__"][KEY])
        described = json.loads(metadata["model"])
        form, version = described["format"], described["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{_name(path)} is not a model file of plench, or it is damaged") from None
    if form != FORMAT or version != VERSION:
        raise DataError(
            f"{_name(path)} has version {short_repr(version)} of the model format; this plench reads version "
            f"{VERSION}"
        )
    sources = described.pop("sources", {})
    code = {name: source.encode("utf-8", "surrogateescape") for name, source in sources.items()}
    return described, code, metadata


def _hash(text: str, tensors: Mapping[str, Any]) -> str:
    import torch

    digest = hashlib.sha256(text.encode("utf-8"))
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _encode(value: Any, tensors: dict[str, Any]) -> Any:
    """Return the JSON form of plain values, containers and tensors, which are gathered by name."""
    import torch

    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [_encode(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, tensors) for item in value]}
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _encode(item, tensors) for key, item in value.items()}
        return {"$dict": [[_encode(key, tensors), _encode(item, tensors)] for key, item in value.items()]}
    if isinstance(value, torch.Tensor):
        name = f"{len(tensors):06d}"
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"$tensor": name}
    raise DataError(f"a model holds a {type(value).__name__}, which a model file cannot store")


def _decode(node: Any, tensors: Mapping[str, Any]) -> Any:
    """Return the value of a JSON form."""
    if isinstance(node, list):
        return [_decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        ((kind, content),) = node.items()
        if kind == "$bytes":
            return bytes.fromhex(content)
        if kind == "$tuple":
            return tuple(_decode(item, tensors) for item in content)
        if kind == "$dict":
            return {_decode(key, tensors): _decode(item, tensors) for key, item in content}
        if kind == "$tensor":
            return tensors[content]
    return {key: _decode(item, tensors) for key, item in node.items()}
