"""The cost of a step, as `plench bench step --output FILE` measured it."""

import json
from dataclasses import dataclass
from pathlib import Path

from plench.errors import DataError
from plench.plain_files import read_plain
from plench.runs.lines import is_finite

MAX_BYTES = 2**24


@dataclass(frozen=True)
class StepCost:
    """Time and memory of one training step of an algorithm on a dataset."""

    algorithm: str
    dataset: str
    ms: float
    floor_ms: float | None
    peak_mb: float | None


def read_costs(path: Path) -> list[StepCost]:
    """Read a list of measurements (or an object whose `rows` is one); DataError names what is wrong."""
    try:
        content = json.loads(read_plain(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read the measurements {str(path)!r}: {error}") from error
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        raise DataError(
            f"{str(path)!r} holds no list of measurements (make one with plench bench step --output FILE)"
        )
    rows = [row for row in rows if not isinstance(row, dict) or row.get("part", "step") in ("step", "image")]
    if not rows:
        raise DataError(f"{str(path)!r} holds no measurement of a step (plench bench step)")
    costs = []
    for number, row in enumerate(rows):
        known = isinstance(row, dict) and isinstance(row.get("algorithm"), str)
        if not known or not is_finite(row.get("ms")) or row["ms"] <= 0:
            raise DataError(f"{str(path)!r}: measurement {number} lacks algorithm or a positive ms")
        floor, memory = row.get("floor_ms"), row.get("peak_mb")
        costs.append(
            StepCost(
                algorithm=row["algorithm"],
                dataset=str(row.get("dataset", "")),
                ms=row["ms"],
                floor_ms=floor if is_finite(floor) else None,
                peak_mb=memory if is_finite(memory) else None,
            )
        )
    return costs
