"""What a run's folder holds in the end, and how it differs from that of an undisturbed run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from plench.training.checkpoint import parse, saved_values

MEASURED = ("step_time", "mem_gb")


def summarise(folder: Path) -> dict[str, Any]:
    """Return records without times, hashes of the models' files, status, and what was left over."""
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    records = [{k: v for k, v in json.loads(line).items() if k not in MEASURED} for line in lines]
    left = [
        path.name
        for path in folder.iterdir()
        if path.name.startswith("checkpoint") or (path.suffix == ".tmp" and not path.is_dir())
    ]
    return {
        "status": info["status"],
        "ended": (folder / "done").exists(),
        "records": records,
        "models": {path.name: hash_model(path) for path in sorted(folder.glob("model_*.pt"))},
        "left": sorted(left),
    }


def read_sweep(output: Path) -> dict[str, Any]:
    """Return what every run of a sweep or a fleet holds."""
    return {path.parent.name: summarise(path.parent) for path in sorted(output.glob("*/run.json"))}


def hash_model(path: Path) -> str:
    """Return a hash of all values in a model's file. Bytes would depend on which tensors share memory."""
    payload = parse(path.read_bytes())
    digest = hashlib.sha256(f"{payload.get('run_id')} {payload['updates']}".encode())
    for name, value in saved_values(payload["algorithm"], "model"):
        if isinstance(value, torch.Tensor):
            digest.update(f"\0{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"\0{name} {value!r}".encode())
    return digest.hexdigest()


def compare(calm: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say how a run that was disturbed differs from the undisturbed one; nothing if it does not."""
    differences = []
    expected, records = calm["records"], found["records"]
    if len(records) < len(expected):
        differences.append(f"{len(expected) - len(records)} records lost")
    if len(records) > len(expected):
        differences.append(f"{len(records) - len(expected)} records too many")
    changed = sum(one != other for one, other in zip(expected, records, strict=False))
    if changed:
        differences.append(f"{changed} records changed")
    for name in sorted({*calm["models"], *found["models"]}):
        if calm["models"].get(name) != found["models"].get(name):
            differences.append(f"{name} {'lost' if name not in found['models'] else 'changed'}")
    for name in ("status", "ended", "left"):
        if calm[name] != found[name]:
            differences.append(f"{name} {found[name]!r}, not {calm[name]!r}")
    return differences
