"""Launching a sweep: what is finished is kept, the rest is run by an engine."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from plench.callbacks import CALLBACKS
from plench.errors import BusyError, StorageError
from plench.files import hold
from plench.runs.folder import DONE, RunStore
from plench.runs.sweep_spec import SweepSpec
from plench.sweeps.engines import Engine
from plench.sweeps.engines.local import LocalEngine
from plench.sweeps.plan import DatasetCache, StackOptions, expand, group_runs, make_absolute, resolve_names
from plench.sweeps.progress import SweepCallback
from plench.sweeps.scheduler import Assignment, Limits
from plench.sweeps.status import PENDING, RunState, read_extended, read_state, read_states, write_plan
from plench.text import counted

logger = logging.getLogger("plench")

LOCK = ".sweep.lock"
# A second launch waits this long for one that is just ending, or for a status that is being read.
_LOCK_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, repr=False)
class SweepOutcome:
    """The state of every planned run after a launch, and the runs that another process holds."""

    states: list[RunState]
    busy: dict[str, str]
    waits: bool

    def __repr__(self) -> str:
        counts = sorted(Counter(entry.state for entry in self.states).items())
        listed = ", ".join(f"{state} {count}" for state, count in counts)
        return f"<SweepOutcome of {counted(len(self.states), 'run')}: {listed}>"

    @property
    def failed(self) -> list[RunState]:
        """Runs that failed, and folders that are in the way."""
        return [entry for entry in self.states if entry.state in ("failed", "foreign")]

    @property
    def unfinished(self) -> list[RunState]:
        """Runs that are still to do."""
        return [entry for entry in self.states if entry.state in PENDING]

    @property
    def exit_code(self) -> int:
        """0: all runs are finished (or in a queue); 1: some failed; 130: interrupted."""
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
    stack: StackOptions | None = None,
    skip_missing: bool = False,
    extend: Sequence[str | Path] = (),
    callbacks: Sequence[str] = (),
) -> SweepOutcome:
    """Run what is not finished of a sweep (or of several); failed runs only with `retry`.

    With `skip_missing`, datasets whose files do not exist are skipped with a warning. The default engine is
    the local one with one worker per core. `stack` says which runs are trained together. Runs that are done
    or diverged in one of the results files `extend` count as finished. `callbacks` name classes
    (`path/to/file.py:NAME` or `module:NAME`), of which every run gets an instance.
    """
    observers = tuple(make_absolute(spec) for spec in callbacks)
    for spec_of in observers:
        CALLBACKS.find(spec_of)  # a mistake is reported before anything runs
    engine = engine or LocalEngine()
    extended = read_extended(extend)
    datasets = DatasetCache(data_dir, skip_missing=skip_missing)
    folder = Path(output_dir).absolute()
    specs = [resolve_names(each, datasets) for each in ([spec] if isinstance(spec, SweepSpec) else spec)]
    expanded = [(each, expand(each)) for each in specs]
    runs = list({run.folder: run for _, part in expanded for run in part}.values())
    stack = stack or StackOptions()
    launched: dict[str, str | int | float] = {"stack": stack.word, "stack_memory_gb": stack.memory_gb}
    if runs:  # the number of stacks depends on the number of workers
        slots = engine.count_slots(runs[0].config)
        launched |= {"command_launcher": engine.name, "threads": runs[0].config.threads}
        launched |= {"workers": slots} if slots and engine.name in ("local", "ray") else {}
    with lock_folder(folder) if engine.writes else nullcontext():
        for each, part in expanded if engine.writes else ():
            if not (folder / each.file_name).exists():
                replace(each, launched=launched).write(folder / each.file_name)
            write_plan(each, part, folder)
        states = read_states(runs, folder, extended)
        wanted = (*PENDING, "failed") if retry else PENDING
        if engine.writes:
            prepare_folders(states, folder, retry=retry)
        here = [entry.run for entry in states if not entry.in_extended]
        assignment = Assignment(
            todo=[replace(entry.run, callbacks=observers) for entry in states if entry.state in wanted],
            finished=sum(entry.finished for entry in states),
            output_dir=folder,
            datasets=datasets,
            limits=limits or Limits(),
            callback=callback or SweepCallback(),
            stacks=group_runs(here, datasets, stack, engine),
        )
        try:
            engine.run(assignment)
        except StorageError as error:
            done = sum(entry.state == "done" for entry in read_states(runs, folder, extended))
            raise StorageError(
                f"{error}; the sweep has stopped, {done} of {len(runs)} runs are done and kept: free some "
                "space or make the folder writable, then repeat the command"
            ) from error
        return SweepOutcome(read_states(runs, folder, extended), assignment.busy, engine.waits)


def prepare_folders(states: Sequence[RunState], output_dir: Path, *, retry: bool) -> None:
    """Reset runs that are to be repeated, and remove checkpoints that a kill at the end of a run has left.

    If a file no longer matches its hash, the checkpoint is kept: the run can be repaired from it.
    """
    for entry in states:
        store = RunStore(output_dir / entry.run.folder)
        if entry.state == "damaged":
            store.discard(DONE)
        elif entry.state == "failed" and retry:
            store.write_run({**(store.read_run() or {}), "status": "interrupted"})
        elif entry.finished and store.has_checkpoint and not store.check_integrity(entry.run.config.steps):
            with suppress(StorageError):  # the folder may be read-only
                store.tidy()


def delete_runs(states: Iterable[RunState], output_dir: Path) -> int:
    """Delete runs' folders, except those that have started or finished since; return how many."""
    deleted = 0
    for run in (entry.run for entry in states):
        folder = output_dir / run.folder
        if folder.is_symlink():
            logger.warning("%s is a link and is kept: its target may belong to another folder", folder)
            continue
        try:
            with RunStore(folder).locked():
                if not read_state(run, str(folder)).finished:
                    shutil.rmtree(folder)
                    deleted += 1
        except BusyError:
            continue
        except OSError as error:
            raise StorageError(f"cannot delete {error.filename or folder}: {error.strerror}") from error
    return deleted


@contextmanager
def lock_folder(output_dir: Path) -> Iterator[None]:
    """Lock the output folder against a second launch."""
    busy = f"another launch is working on {output_dir}: wait until it has ended, or choose another folder"
    with hold(output_dir / LOCK, _LOCK_PATIENCE_SECONDS, busy):
        yield
