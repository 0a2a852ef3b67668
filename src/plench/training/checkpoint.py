"""Checkpoints: one safe file with everything needed to continue exactly."""

from __future__ import annotations

import io
import logging
import zipfile
from typing import Any

import torch

from plench.storage.store import RunStore

FORMAT = 1

logger = logging.getLogger("plench")


def dump(payload: dict[str, Any]) -> bytes:
    """Turn tensors and plain values into bytes."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **payload}, buffer)
    return buffer.getvalue()


def parse(content: bytes) -> dict[str, Any]:
    """Read bytes made by `dump`; only tensors and plain values are accepted. Raises ValueError otherwise."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            damaged = archive.testzip()  # torch itself does not look at the checksums
        payload = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise ValueError(f"damaged file: {error}") from error
    if damaged is not None:
        raise ValueError(f"damaged file: the checksum of {damaged} is wrong")
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ValueError("not a file of this format")
    return payload


def read_newest(store: RunStore) -> dict[str, Any] | None:
    """Return the newest checkpoint that is whole, or None if the run has to start at the beginning."""
    for name, content in store.read_checkpoints():
        try:
            return parse(content)
        except ValueError as error:
            logger.warning("%s in %s cannot be used (%s)", name, store.folder, error)
            store.discard(name)
    return None
