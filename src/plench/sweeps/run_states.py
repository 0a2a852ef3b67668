"""The state of each run of a sweep, read from its folder alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from filelock import FileLock, Timeout

from plench.plain_files import is_plain
from plench.runs.description import FINISHED, DescriptionError, read_description
from plench.runs.ended import DONE, find_breach
from plench.runs.folder import LOCK, RUN
from plench.settings import PROTOCOL_VERSION
from plench.text import clean_text, short_repr

if TYPE_CHECKING:  # imports torch
    from plench.sweeps.plan import PlannedRun

State = Literal["done", "diverged", "failed", "interrupted", "running", "damaged", "foreign", "missing"]

# What a launch carries out. Failed runs are carried out when a retry is requested, foreign folders never.
PENDING: tuple[State, ...] = ("missing", "interrupted", "running", "damaged")


@dataclass(frozen=True)
class RunState:
    """The state of a planned run, with the reason where there is one to tell."""

    run: PlannedRun
    state: State
    message: str = ""
    # Whether the run is in a results file that the sweep extends, not in a folder.
    in_extended: bool = False

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.state in FINISHED


def read_states(
    runs: Iterable[PlannedRun], output_dir: str | Path, extended: Mapping[str, str] | None = None
) -> list[RunState]:
    """Read the state of every run. A run whose process was killed counts as interrupted.

    A run that is finished in `extended` (see `read_extended`) needs no folder.
    """
    root = os.fspath(output_dir)
    try:
        with os.scandir(root) as entries:
            there = {entry.name for entry in entries}
    except OSError:
        there = set()
    states = []
    for run in runs:
        status = extended.get(run.folder[-12:]) if extended else None
        if status is not None:
            states.append(RunState(run, cast("State", status), in_extended=True))
        elif run.folder in there:
            states.append(read_state(run, f"{root}/{run.folder}"))
        else:
            states.append(RunState(run, "missing"))
    return states


def read_extended(files: Iterable[str | Path]) -> dict[str, str]:
    """Return the status of the finished runs of results files, by the part of `run_id` in folder names."""
    if not files:
        return {}
    from plench.runs.parquet_reading import read_finished

    return {run_id[:12]: status for file in files for run_id, status in read_finished(Path(file)).items()}


def read_state(run: PlannedRun, folder: str) -> RunState:
    """Read the state of one run from its folder."""
    info = _read_info(f"{folder}/{RUN}")
    if info is not None and (info.get("protocol") != PROTOCOL_VERSION or not _names_itself(info, run)):
        return RunState(run, "foreign", _explain_foreign(info))
    if os.path.exists(f"{folder}/{DONE}"):
        wrong = find_breach(folder, info, run.config.steps)
        if wrong is not None:
            return RunState(run, "damaged", wrong)
        assert info is not None
        return RunState(run, info["status"])
    if info is not None and info.get("status") == "failed":
        error = info.get("error")
        told = error if isinstance(error, dict) else {"message": error}
        reason = f"{told.get('type', 'error')}: {told.get('message', '')}".strip()
        return RunState(run, "failed", clean_text(reason))
    return _unfinished(run, folder)


def _read_info(path: str) -> dict[str, Any] | None:
    """Return run.json, None where it is missing or broken."""
    try:
        return read_description(path)
    except (OSError, DescriptionError):
        return None


def count_states(states: Iterable[RunState]) -> Counter[State]:
    """Count the runs in each state."""
    return Counter(entry.state for entry in states)


def is_held(lock: str) -> bool:
    """Say whether a living process holds a lock file."""
    if not is_plain(lock) or os.path.islink(lock):
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _unfinished(run: PlannedRun, folder: str) -> RunState:
    return RunState(run, "running" if is_held(f"{folder}/{LOCK}") else "interrupted")


def _names_itself(info: dict[str, Any], run: PlannedRun) -> bool:
    """Say whether run.json belongs to the run that the folder is named after."""
    return str(info.get("run_id", ""))[:12] == run.folder[-12:]


def _explain_foreign(info: dict[str, Any]) -> str:
    protocol = info.get("protocol")
    if protocol != PROTOCOL_VERSION:
        return (
            f"written under protocol {short_repr(protocol)}, this plench has {PROTOCOL_VERSION}: move it away"
        )
    return "its run.json belongs to another run: move it away"
