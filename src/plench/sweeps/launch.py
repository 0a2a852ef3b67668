"""Launching a sweep: what is finished is kept, the rest is carried out by an engine."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from plench.errors import BusyError, StorageError
from plench.runs.ended import DONE
from plench.runs.folder import RunStore, hold
from plench.runs.sweep_spec import DEFAULT_FLEET, SweepSpec
from plench.sweeps.engines.base import (
    Assignment,
    Engine,
    Limits,
    NoSweepCallback,
    RunAttempt,
    SweepCallback,
    Task,
)
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.fleets import FleetOptions, form_fleets, read_fleet
from plench.sweeps.plan import DataShelf, PlannedRun, expand, settle
from plench.sweeps.remembered import remember
from plench.sweeps.run_states import PENDING, RunState, count_states, read_extended, read_state, read_states

logger = logging.getLogger("plench")

LOCK = ".sweep.lock"
# A second launch waits this long for one that is just ending, or for a status being read.
_LOCK_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class SweepOutcome:
    """The state of every planned run after a launch, and the runs that another process holds."""

    states: list[RunState]
    busy: dict[str, str]
    waits: bool

    @property
    def failed(self) -> list[RunState]:
        """Runs that failed, and folders that are in the way."""
        return [entry for entry in self.states if entry.state in ("failed", "foreign")]

    @property
    def unfinished(self) -> list[RunState]:
        """Runs that are still to be carried out."""
        return [entry for entry in self.states if entry.state in PENDING]

    @property
    def exit_code(self) -> int:
        """0: all is finished (or handed to a queue); 1: something failed; 130: interrupted."""
        if self.failed or self.busy:
            return 1
        return 130 if self.unfinished and self.waits else 0


def launch_sweep(
    spec: SweepSpec | Sequence[SweepSpec],
    output_dir: str | Path,
    *,
    data_dir: str | Path | None = None,
    engine: Engine | None = None,
    limits: Limits | None = None,
    callback: SweepCallback | None = None,
    retry: bool = False,
    fleet: FleetOptions | None = None,
    skip_missing: bool = False,
    extend: Sequence[str | Path] = (),
) -> SweepOutcome:
    """Carry out what is missing of a sweep (or of several); failed runs only with `retry`.

    With `skip_missing`, datasets whose files are not there are left out, with a notice. The default engine
    is the local one with as many workers as there are cores. `fleet` says which runs are trained as one.
    Runs that are done or diverged in one of the results files `extend` count as finished.
    """
    engine = engine or LocalEngine()
    extended = read_extended(extend)
    shelf = DataShelf(data_dir, skip_missing=skip_missing)
    folder = Path(output_dir).absolute()
    watch = BusyRuns(callback or NoSweepCallback())
    specs = [settle(each, shelf) for each in ([spec] if isinstance(spec, SweepSpec) else spec)]
    expanded = [(each, expand(each)) for each in specs]
    runs = list({run.folder: run for _, part in expanded for run in part}.values())
    with hold_folder(folder) if engine.writes else nullcontext():
        for each, part in expanded if engine.writes else ():
            if not (folder / each.file_name).exists():
                each.write(folder / each.file_name)
            remember(each, part, folder)
        states = read_states(runs, folder, extended)
        wanted = (*PENDING, "failed") if retry else PENDING
        todo = [entry for entry in states if entry.state in wanted]
        if engine.writes:
            reopen_runs(todo, folder)
            tidy(states, folder)
        assignment = Assignment(
            todo=[entry.run for entry in todo],
            finished=sum(entry.finished for entry in states),
            output_dir=folder,
            shelf=shelf,
            limits=limits or Limits(),
            callback=watch,
            fleets=plan_fleets(
                [entry.run for entry in states if not entry.in_extended],
                shelf,
                fleet or read_fleet(DEFAULT_FLEET),
                engine,
            ),
        )
        try:
            engine.carry_out(assignment)
        except StorageError as error:
            finished = count_states(read_states(runs, folder, extended))["done"]
            raise StorageError(
                f"{error}; the sweep has stopped, {finished} of {len(runs)} runs are done and kept: make "
                "room or make the folder writable, then repeat the command"
            ) from error
        return SweepOutcome(read_states(runs, folder, extended), watch.busy, engine.waits)


def plan_fleets(
    runs: Sequence[PlannedRun], shelf: DataShelf, options: FleetOptions, engine: Engine
) -> list[Task]:
    """Form the fleets of a sweep, finished runs included, so that they are the same on every launch.

    An engine that gives runs GPUs computes on them, whatever this machine has.
    """
    if runs and runs[0].config.device == "auto" and engine.gpus_per_run and not options.any_device:
        options = replace(options, size=1)
    slots = engine.count_slots(runs[0].config) if runs else None
    return form_fleets(runs, shelf, options, slots)


def reopen_runs(states: Sequence[RunState], output_dir: Path) -> None:
    """Reset runs that are to be repeated: damaged ones to unfinished, failed ones to interrupted."""
    for entry in states:
        store = RunStore(output_dir / entry.run.folder)
        if entry.state == "damaged":
            store.discard(DONE)
        elif entry.state == "failed":
            store.write_run({**(store.read_run() or {}), "status": "interrupted"})


def tidy(states: Sequence[RunState], output_dir: Path) -> None:
    """Remove checkpoints of finished runs: a kill at their very end has left them.

    Where a file does not have its hash any more, the checkpoint is what the run can be repaired from.
    """
    for entry in states:
        store = RunStore(output_dir / entry.run.folder)
        whole = entry.finished and store.has_checkpoint and not store.find_breach(entry.run.config.steps)
        if whole:
            with suppress(StorageError):  # it may be kept where nothing can be written
                store.tidy()


def delete_runs(states: Iterable[RunState], output_dir: Path) -> int:
    """Delete runs' folders, except those started or finished in the meantime; return how many."""
    return sum(_delete_run(entry.run, output_dir / entry.run.folder) for entry in states)


def _delete_run(run: PlannedRun, folder: Path) -> bool:
    if folder.is_symlink():
        logger.warning("%s is a link and stays, as what it points to may belong to another folder", folder)
        return False
    try:
        with RunStore(folder).locked():
            if read_state(run, str(folder)).finished:
                return False
            shutil.rmtree(folder)
    except BusyError:
        return False
    except OSError as error:
        raise StorageError(f"cannot delete {error.filename or folder}: {error.strerror}") from error
    return True


@contextmanager
def hold_folder(output_dir: Path) -> Iterator[None]:
    """Lock the output folder against a second launch. The lock dies with the process."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {output_dir}: {error.strerror}") from error
    busy = f"another launch is working on {output_dir}: wait until it has ended, or choose another folder"
    with hold(output_dir / LOCK, _LOCK_PATIENCE_SECONDS, busy):
        yield


class BusyRuns:
    """Passes everything on to a callback and remembers which runs another process had."""

    def __init__(self, callback: SweepCallback) -> None:
        self._callback = callback
        self.busy: dict[str, str] = {}
        self.planned = callback.planned
        self.begun = callback.begun
        self.advanced = callback.advanced
        self.noticed = callback.noticed

    def ended(self, run: PlannedRun, attempt: RunAttempt) -> None:
        """Remember a run that was busy."""
        if attempt.status == "busy":
            self.busy[run.folder] = attempt.message
        self._callback.ended(run, attempt)
