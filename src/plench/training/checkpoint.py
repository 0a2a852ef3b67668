"""Checkpoints and models: safe files with everything needed to continue exactly, or to predict."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from plench.criteria import criteria
from plench.data.unpickle import scan_pickle
from plench.errors import DataError, PlenchError
from plench.runs.folder import MODEL, RunStore
from plench.zip_archive import STORED, list_entries, read_entry

FORMAT = 1
# Behind the content of a file: its hash. Files of older versions have none.
SEAL = b"\nplench sha256 "
SEAL_BYTES = len(SEAL) + 64
MAX_PICKLE_BYTES = 2**28
# What a checkpoint must hold to be continued from, and of what type.
NEEDED: dict[str, type] = {
    "environment": dict,
    "candidates": str,
    "keep_models": bool,
    "updates": int,
    "records": list,
    "best": dict,
    "algorithm": dict,
    "data": dict,
    "streams": dict,
    "totals": dict,
    "window_seconds": float,
    "seconds": dict,
    "notices": list,
    "begun": str,
}

logger = logging.getLogger("plench")


def dump(payload: dict[str, Any]) -> bytes:
    """Turn tensors and plain values into bytes, with their hash at the end."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **payload}, buffer)
    buffer.write(SEAL + hashlib.sha256(buffer.getbuffer()).hexdigest().encode("ascii"))
    return buffer.getvalue()


def parse(content: bytes) -> dict[str, Any]:
    """Read bytes made by `dump`; only tensors and plain values are accepted. Raises ValueError otherwise."""
    if content[-SEAL_BYTES:].startswith(SEAL):
        content, digest = content[:-SEAL_BYTES], content[-64:]
        if hashlib.sha256(content).hexdigest().encode("ascii") != digest:
            raise ValueError("damaged file: it was changed since it was written")
    file = io.BytesIO(content)
    try:
        check_archive(file)
        file.seek(0)
        payload = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise ValueError(f"damaged file: {error}") from error
    if not isinstance(payload, dict) or type(payload.get("format")) is not int or payload["format"] != FORMAT:
        raise ValueError("not a file of this format")
    if not isinstance(payload.get("run_id", ""), str):  # older versions did not write whose it is
        raise ValueError("damaged file: its run_id is broken")
    return payload


def check_archive(file: io.BytesIO) -> None:
    """Raise DataError for an archive that torch does not write: it trusts sizes, and looks at no checksum."""
    for entry in list_entries(file):
        if entry.method != STORED:
            raise DataError("it has packed entries")
        pieces = read_entry(file, entry)
        if entry.name.endswith("data.pkl") and entry.size <= MAX_PICKLE_BYTES:
            scan_pickle(b"".join(pieces))
        for _ in pieces:  # to the end, where the checksum is looked at
            continue


def check_checkpoint(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint if it holds what is needed to continue; raise ValueError otherwise."""
    for name, kind in NEEDED.items():
        if type(payload.get(name)) is not kind:
            raise ValueError(f"damaged file: its {name} is missing or broken")
    if not all(isinstance(line, str) for line in payload["records"]):
        raise ValueError("damaged file: its records are broken")
    return payload


def read_newest(store: RunStore) -> dict[str, Any] | None:
    """Return the newest checkpoint that is whole, or None if the run has to start at the beginning."""
    return next(read_whole(store), None)


def read_whole(store: RunStore) -> Iterator[dict[str, Any]]:
    """Yield the checkpoints that are whole, the newest first; others are removed."""
    for name, content in store.read_checkpoints():
        try:
            payload = check_checkpoint(parse(content))
        except ValueError as error:
            logger.warning("%s in %s cannot be used (%s)", name, store.folder, error)
            store.discard(name)
        else:
            yield payload


def find_lost_model(
    store: RunStore, records: Sequence[str], best: Mapping[str, float], run_id: str
) -> str | None:
    """Name the model of a best checkpoint that a continued run no longer has; None if all are there.

    What was written before the checkpoint may have been lost or changed since, and is not written again.
    """
    evaluations = [json.loads(line) for line in records]
    for name, value in best.items():
        key = criteria[name].record_key
        reached = (r["step"] for r in evaluations if r["step"] > 0 and r.get(key) == value)
        step = next(reached, None)
        if step is None:  # a record that an older version wrote in another way
            continue
        try:
            payload = parse(store.read_model(name) or b"")
        except ValueError:
            return MODEL.format(name)
        if payload.get("run_id", run_id) != run_id or payload.get("updates") != step + 1:
            return MODEL.format(name)
    return None


@contextmanager
def fitting(what: str, kind: type[PlenchError]) -> Iterator[None]:
    """Turn whatever goes wrong inside into an error of ours: a file holds what does not fit the algorithm."""
    try:
        yield
    except PlenchError:
        raise
    except (Exception, MemoryError) as error:
        raise kind(f"{what} ({type(error).__name__}: {error})") from error
