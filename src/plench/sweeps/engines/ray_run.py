"""What a Ray task does: one run, in a worker process that Ray keeps warm between tasks."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from plench.data import Dataset
from plench.sweeps.engines.base import Attempt
from plench.sweeps.engines.ray_writer import RemoteReporter, RemoteStore
from plench.sweeps.perform import Performer, limit_memory
from plench.sweeps.plan import PlannedRun


def read_source(run: PlannedRun) -> bytes | None:
    """Return the content of an algorithm's file, if it was given by path: other nodes may not have it."""
    location, _, _ = run.algorithm.rpartition(":")
    return Path(location).read_bytes() if location.endswith(".py") else None


def carry_out_run(
    run: PlannedRun,
    dataset: Dataset,
    source: bytes | None,
    writer: Any,
    output_dir: Path,
    memory_limit_gb: float | None,
) -> Attempt:
    """Carry out one run; all it writes goes through the writer."""
    limit_memory(memory_limit_gb)
    if source is not None:
        path, _, class_name = run.algorithm.rpartition(":")
        run = replace(run, algorithm=f"{unpack_source(source, Path(path).name)}:{class_name}")
    store = RemoteStore(writer, output_dir / run.folder)
    return warm_performer().perform(run, dataset, store, RemoteReporter(writer, run.folder))


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
