"""How a run ended, and whether a folder holds a finished and complete run."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plench.errors import ResumeError, StorageError
from plench.runs.ended import DONE
from plench.runs.folder import RunStore
from plench.training.config import RunConfig

logger = logging.getLogger("plench")

Status = Literal["done", "diverged", "failed", "interrupted"]


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, where its records are, and how many updates this call made.

    `out_of_time`: it is interrupted because the time left would not hold another round.
    """

    status: Status
    folder: Path
    updates_made: int
    message: str = ""
    out_of_time: bool = False


def find_fault(store: RunStore, config: RunConfig, run_id: str) -> str | None:
    """Say what is wrong with a run that is marked as finished; None if it is this run and whole."""
    info = store.read_run()
    if info is not None and info.get("run_id") not in (None, run_id):
        return "its run.json belongs to another run"
    return store.find_breach(config.steps)


def check_owner(store: RunStore, run_id: str) -> None:
    """Raise ResumeError if the folder holds another run."""
    info = store.read_run()
    if info is not None and info.get("run_id") not in (None, run_id):
        raise ResumeError(f"{store.folder} holds another run, as its run.json says: move it away")


def leave_finished(store: RunStore) -> RunOutcome:
    """Return how a run ended that was finished before; remove a checkpoint that a kill may have left."""
    with suppress(StorageError):  # it may be kept where nothing can be written
        store.tidy()
    status = (store.read_run() or {}).get("status", "done")
    return RunOutcome(status, store.folder, 0, "already finished")


def reopen(store: RunStore, fault: str) -> None:
    """Let a run that is marked as finished but is not whole be continued from its checkpoint.

    Where there is none the run is left as it is: what can still be read of it is kept.
    """
    if not store.has_checkpoint:
        raise ResumeError(
            f"{store.folder} is marked as finished, but {fault}, and there is no checkpoint to repair it "
            "from; delete the folder to run it again"
        )
    logger.warning(
        "%s was marked as finished, but %s; it is continued from its checkpoint", store.folder, fault
    )
    store.discard(DONE)
