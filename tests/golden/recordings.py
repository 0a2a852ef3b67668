"""Golden recordings: where they are, under which conditions they were made, and how they are compared."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
RUNS = HERE / "runs"
CONDITIONS = HERE / "conditions.json"
TABLES = HERE / "tables.json"
RTOL = 1e-4


def conditions() -> dict[str, str]:
    """Return what decides whether bits repeat."""
    return {"torch": str(torch.__version__), "cpu_capability": torch.backends.cpu.get_cpu_capability()}


def write_recording(path: Path, content: dict[str, Any]) -> None:
    """Write a recording, a line for each of its parts, so that a change is seen where it is."""
    parts = []
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n  " + ",\n  ".join(json.dumps(row, allow_nan=False) for row in value) + "\n ]"
        else:
            text = json.dumps(value, allow_nan=False)
        parts.append(f" {json.dumps(key)}: {text}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read_recording(path: Path) -> dict[str, Any]:
    """Return a recording."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def find_differences(recorded: Any, now: Any, bits: bool, path: str = "") -> list[str]:
    """Return where what is measured now differs from the recording: in bits, or by more than 1e-4.

    Without bits, hashes of values do not count, those of names do.
    """
    if isinstance(recorded, dict) and isinstance(now, dict):
        if list(recorded) != list(now):
            return [f"{path}: keys {list(recorded)} → {list(now)}"]
        left_out = () if bits else ("records_sha256", "tensors_sha256", "plain_sha256")
        return [
            text
            for key in recorded
            if key not in left_out
            for text in find_differences(recorded[key], now[key], bits, f"{path}.{key}")
        ]
    if isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            return [f"{path}: {len(recorded)} → {len(now)} entries"]
        pairs = enumerate(zip(recorded, now, strict=True))
        return [text for i, (a, b) in pairs for text in find_differences(a, b, bits, f"{path}[{i}]")]
    return [] if is_same(recorded, now, bits) else [f"{path}: {recorded!r} → {now!r}"]


def is_same(recorded: Any, now: Any, bits: bool) -> bool:
    """Compare two values; numbers that are not whole within the tolerance, if bits need not agree."""
    if isinstance(recorded, float) and isinstance(now, float) and not bits:
        return bool(now == pytest.approx(recorded, rel=RTOL, abs=1e-7))
    return type(recorded) is type(now) and bool(recorded == now)
