"""How far each run of a sweep is, read from its folder and nothing else."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from plench.storage.description import FINISHED
from plench.storage.store import DONE, LOCK, RESULTS, RunStore
from plench.sweeps.plan import PlannedRun
from plench.version import PROTOCOL_VERSION

State = Literal["done", "diverged", "failed", "interrupted", "running", "damaged", "foreign", "missing"]

# What a launch carries out. Failed runs are carried out when a retry is asked for, foreign folders never.
PENDING: tuple[State, ...] = ("missing", "interrupted", "running", "damaged")

_TAIL_BYTES = 4096


@dataclass(frozen=True)
class RunState:
    """The state of a planned run, with the reason where there is one to tell."""

    run: PlannedRun
    state: State
    message: str = ""

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.state in FINISHED


def read_states(runs: Iterable[PlannedRun], output_dir: str | Path) -> list[RunState]:
    """Read the state of every run. A run whose process was killed counts as interrupted."""
    root = os.fspath(output_dir)
    try:
        with os.scandir(root) as entries:
            there = {entry.name for entry in entries}
    except OSError:
        there = set()
    return [
        read_state(run, f"{root}/{run.folder}") if run.folder in there else RunState(run, "missing")
        for run in runs
    ]


def read_state(run: PlannedRun, folder: str) -> RunState:
    """Read the state of one run from its folder."""
    info = RunStore(Path(folder)).read_run()
    done = os.path.exists(f"{folder}/{DONE}")
    if info is None:
        if done:
            return RunState(run, "damaged", "its run.json is missing or broken")
        return _unfinished(run, folder)
    if info.get("protocol") != PROTOCOL_VERSION or not _names_itself(info, run):
        return RunState(run, "foreign", _explain_foreign(info))
    status = info.get("status")
    if done and status in FINISHED:
        last = info.get("diverged_after_step") if status == "diverged" else run.config.steps - 1
        if _last_step(f"{folder}/{RESULTS}") != last:
            return RunState(run, "damaged", "its results.jsonl does not end with the last record")
        return RunState(run, status)
    if done:
        return RunState(run, "damaged", f"it is marked as done, but its status is {status!r}")
    if status == "failed":
        error = info.get("error")
        told = error if isinstance(error, dict) else {"message": error}
        return RunState(run, "failed", f"{told.get('type', 'error')}: {told.get('message', '')}".strip())
    return _unfinished(run, folder)


def count_states(states: Iterable[RunState]) -> Counter[State]:
    """Count the runs in each state."""
    return Counter(entry.state for entry in states)


def is_held(lock: str) -> bool:
    """Say whether a living process holds a lock file."""
    if not os.path.exists(lock):
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
        return f"written under protocol {protocol!r}, this plench has {PROTOCOL_VERSION}: move it away"
    return "its run.json belongs to another run: move it away"


def _last_step(path: str) -> int | None:
    """Return the step of the last record; None if there is none or the last line is not whole."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            for length in (_TAIL_BYTES, size):  # one record is far shorter than the tail, as a rule
                file.seek(max(size - length, 0))
                tail = file.read()
                start = tail.rfind(b"\n", 0, -1) + 1
                if start > 0:
                    break
        return json.loads(tail[start:]).get("step") if tail.endswith(b"\n") else None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
