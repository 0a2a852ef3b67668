"""What a Ray task does: a run or a fleet, in a worker process that Ray keeps warm between tasks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from plench.data import Dataset
from plench.registry import is_path
from plench.sweeps.engines.base import RunAttempt, Task
from plench.sweeps.engines.ray_writer import RemoteReporter, RemoteStore
from plench.sweeps.perform import Performer, limit_memory
from plench.sweeps.plan import PlannedRun


def read_given_files(run: PlannedRun) -> dict[str, bytes]:
    """Return, by path, the files of what a run was given by path: other nodes may not have them."""
    specs = (run.algorithm, run.network, *run.criteria.split(","))
    paths = {location for location, _, _ in (spec.strip().rpartition(":") for spec in specs)}
    return {path: Path(path).read_bytes() for path in paths if is_path(path)}


def carry_out_runs(
    runs: Task,
    dataset: Dataset,
    sources: dict[str, bytes],
    writer: Any,
    output_dir: Path,
    memory_limit_gb: float | None,
) -> dict[str, RunAttempt]:
    """Carry out a run, or several as one; all that is written goes through the writer."""
    limit_memory(memory_limit_gb)
    placed = tuple(place_sources(run, sources) for run in runs)
    attempts: dict[str, RunAttempt] = {}
    warm_performer().perform_fleet(
        placed,
        dataset,
        [RemoteStore(writer, output_dir / run.folder) for run in runs],
        [RemoteReporter(writer, run.folder) for run in runs],
        lambda run, attempt: attempts.update({run.folder: attempt}),
    )
    return attempts


def place_sources(run: PlannedRun, sources: dict[str, bytes]) -> PlannedRun:
    """Return a run whose files are those that came with it."""
    for path, content in sources.items():
        here = unpack_source(content, Path(path).name)
        run = replace(
            run,
            algorithm=run.algorithm.replace(path, here),
            network=run.network.replace(path, here),
            criteria=run.criteria.replace(path, here),
        )
    return run


@cache
def warm_performer() -> Performer:
    """Return this process's performer, which keeps prepared data from task to task."""
    return Performer()


@cache
def unpack_source(source: bytes, name: str) -> str:
    """Write an algorithm's file to a folder of this process's own; return its path."""
    folder = tempfile.TemporaryDirectory(prefix="plench-")
    _unpacked.append(folder)
    path = Path(folder.name) / name
    path.write_bytes(source)
    return str(path)


# Kept so that the folders last as long as the process, and no longer.
_unpacked: list[tempfile.TemporaryDirectory[str]] = []
