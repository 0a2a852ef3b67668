"""Golden recordings: where they are, under which conditions they were made, and how they are compared."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn
import torch

HERE = Path(__file__).parent
RUNS = HERE / "runs"
CONDITIONS = HERE / "conditions.json"
TABLES = HERE / "tables.json"


def conditions(fitted: bool = True) -> dict[str, str]:
    """Return what decides whether bits repeat: libraries that fit only where they do."""
    found = {"torch": str(torch.__version__), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    libraries = {"numpy": np.__version__, "scipy": scipy.__version__, "sklearn": sklearn.__version__}
    return {**found, **(libraries if fitted else {})}


def recorded_conditions(fitted: bool = True) -> dict[str, str]:
    """Return the conditions of the recordings, as `conditions` returns those of today."""
    recorded = json.loads(CONDITIONS.read_text(encoding="utf-8"))
    return {name: recorded[name] for name in conditions(fitted)}


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


def find_differences(recorded: Any, now: Any, rtol: float, path: str = "") -> list[str]:
    """Return where what is measured now differs from the recording: in bits (rtol 0), or by more than rtol.

    Unless bits count, hashes of values do not; those of names always do.
    """
    if isinstance(recorded, dict) and isinstance(now, dict):
        if set(recorded) != set(now):  # the keys of a JSON object have no order
            return [f"{path}: keys {list(recorded)} → {list(now)}"]
        left_out = () if rtol == 0 else ("records_sha256", "tensors_sha256", "plain_sha256")
        return [
            text
            for key in recorded
            if key not in left_out
            for text in find_differences(recorded[key], now[key], rtol, f"{path}.{key}")
        ]
    if isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            return [f"{path}: {len(recorded)} → {len(now)} entries"]
        pairs = enumerate(zip(recorded, now, strict=True))
        return [text for i, (a, b) in pairs for text in find_differences(a, b, rtol, f"{path}[{i}]")]
    return [] if is_same(recorded, now, rtol) else [f"{path}: {recorded!r} → {now!r}"]


def is_same(recorded: Any, now: Any, rtol: float) -> bool:
    """Compare two values; numbers that are not whole within the tolerance.

    Near 0 a tenth of it counts as such: biases after few updates, which one update moves by about that.
    """
    if isinstance(recorded, float) and isinstance(now, float) and rtol > 0:
        return bool(now == pytest.approx(recorded, rel=rtol, abs=0.1 * rtol))
    return type(recorded) is type(now) and bool(recorded == now)
