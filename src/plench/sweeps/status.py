"""The state of each run of a sweep, from its folder alone, and the list of a launch. Needs no torch.

A launch lists its runs in a file, so that `plench sweep status` and `plan` need not draw all configurations
again, nor import third-party code. Our own runs are taken from a list of the same plench only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from filelock import FileLock, Timeout

from plench.errors import PlenchError
from plench.files import parse_json, write_text
from plench.runs.folder import DONE, FINISHED, LOCK, RUN, check_integrity, read_description
from plench.settings import PROTOCOL_VERSION, __version__
from plench.text import clean_text, short_repr

if TYPE_CHECKING:
    from plench.runs.sweep_spec import SweepSpec
    from plench.sweeps.plan import PlannedRun  # imports torch

State = Literal["done", "diverged", "failed", "interrupted", "running", "damaged", "foreign", "missing"]

# What a launch runs. Failed runs are run by a retry, foreign folders never.
PENDING: tuple[State, ...] = ("missing", "interrupted", "running", "damaged")
PLAN = ".plan-{}.json"  # by the identity of the sweep


class ListedRun(NamedTuple):
    """A run in the list of a launch: as much of `PlannedRun`, and of its configuration, as a status needs."""

    folder: str
    algorithm: str
    dataset: str
    hparams_seed: int
    trial_seed: int
    steps: int
    third_party: bool

    @property
    def config(self) -> ListedRun:
        """Itself, which has the values of the configuration."""
        return self

    @property
    def label(self) -> str:
        """A short name for messages."""
        return label_run(self)


def label_run(config: Any) -> str:
    """Return a short name of a run for messages."""
    return f"{config.algorithm} on {config.dataset}, h{config.hparams_seed} t{config.trial_seed}"


@dataclass(frozen=True)
class RunState:
    """The state of a planned run, with the reason if there is one."""

    run: PlannedRun
    state: State
    message: str = ""
    # Whether the run is in a results file that the sweep extends, not in a folder.
    in_extended: bool = False
    timings: Mapping[str, Any] | None = None  # of a finished run, from run.json

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
    from plench.runs.results import read_finished

    return {run_id[:12]: status for file in files for run_id, status in read_finished(Path(file)).items()}


def read_state(run: PlannedRun, folder: str) -> RunState:
    """Read the state of one run from its folder."""
    try:
        info = read_description(f"{folder}/{RUN}")
    except (FileNotFoundError, ValueError):
        info = None
    if info is not None and info.get("protocol") != PROTOCOL_VERSION:
        found = short_repr(info.get("protocol"))
        reason = f"written under protocol {found}, this plench has {PROTOCOL_VERSION}: move it away"
        return RunState(run, "foreign", reason)
    if info is not None and str(info.get("run_id", ""))[:12] != run.folder[-12:]:
        return RunState(run, "foreign", "its run.json belongs to another run: move it away")
    if os.path.exists(f"{folder}/{DONE}"):
        wrong = check_integrity(folder, info, run.config.steps)
        if wrong is not None:
            return RunState(run, "damaged", wrong)
        assert info is not None
        timings = info.get("timings")
        return RunState(run, info["status"], timings=timings if isinstance(timings, dict) else None)
    if info is not None and info.get("status") == "failed":
        error = info.get("error")
        error = error if isinstance(error, dict) else {"message": error}
        reason = f"{error.get('type', 'error')}: {error.get('message', '')}".strip()
        return RunState(run, "failed", clean_text(reason))
    try:
        with FileLock(f"{folder}/{LOCK}", timeout=0) if os.path.isfile(f"{folder}/{LOCK}") else nullcontext():
            return RunState(run, "interrupted")
    except Timeout:
        return RunState(run, "running")
    except OSError:  # a lock in a read-only folder
        return RunState(run, "interrupted")


def measure_rates(states: Sequence[RunState], now: datetime | None = None) -> dict[str, Any]:
    """Return how many runs have ended within the last hour, the rate, and the time that the rest takes.

    A run that is left takes as long per step as finished runs of its algorithm and dataset, of its algorithm,
    or of any. The work of the runs that ended within the hour says how many are computed at a time. Without
    such runs, or where none is running, the time left is not known (None).
    """
    now = now or datetime.now(UTC)
    window = now - timedelta(hours=1)
    paces: dict[tuple[str, ...], list[float]] = {}
    recent: list[tuple[datetime, float]] = []
    for entry in states:
        timings, config = entry.timings or {}, entry.run.config
        try:
            seconds = float(timings["training_seconds"] + timings["evaluation_seconds"])
            begun, written = (datetime.fromisoformat(timings[key]) for key in ("begun", "written"))
        except (KeyError, TypeError, ValueError):
            continue
        for key in ((config.algorithm, config.dataset), (config.algorithm,), ()):
            paces.setdefault(key, []).append(seconds / max(config.steps, 1))
        if window <= written <= now:
            inside = (written - max(begun, window)) / max(written - begun, timedelta(seconds=1))
            recent.append((max(begun, window), seconds * min(inside, 1.0)))
    elapsed = (now - min(begun for begun, _ in recent)).total_seconds() if recent else 0.0
    rates: dict[str, Any] = {"ended_last_hour": len(recent), "runs_per_minute": None, "seconds_left": None}
    if elapsed > 0:
        rates["runs_per_minute"] = 60 * len(recent) / elapsed
        work = 0.0
        for config in (entry.run.config for entry in states if entry.state in PENDING):
            keys = ((config.algorithm, config.dataset), (config.algorithm,), ())
            known = next(paces[key] for key in keys if key in paces)
            work += config.steps * sum(known) / len(known)
        at_once = sum(seconds for _, seconds in recent) / elapsed
        if at_once > 0 and any(entry.state == "running" for entry in states):
            rates["seconds_left"] = work / at_once
    return rates


def write_plan(spec: SweepSpec, runs: Sequence[PlannedRun], output_dir: Path) -> None:
    """List the runs of a resolved sweep in its file; a failure to write is ignored."""
    rows = []
    for run in runs:
        config = run.config
        names = (config.algorithm, config.dataset, str(config.hparams.get("model", "")), config.more_criteria)
        third_party = any("@" in name for name in names)  # the hash of a file
        rows.append([run.folder, *(getattr(config, name) for name in ListedRun._fields[1:-1]), third_party])
    content = json.dumps({"plench": stamp_plench(), "runs": rows})
    path = output_dir / PLAN.format(spec.identity)
    with suppress(OSError, PlenchError):
        if not path.exists() or path.read_bytes() != content.encode("utf-8"):
            write_text(path, content)


def read_plan(spec: SweepSpec, output_dir: str | Path, stamp: str | None = None) -> list[ListedRun] | None:
    """Return the runs that the last launch of a sweep has listed, None without a list (of this plench)."""
    try:
        content: Any = parse_json(Path(output_dir, PLAN.format(spec.identity)).read_bytes())
        if stamp in (None, content["plench"]):
            return [ListedRun(*row) for row in content["runs"]]
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return None


def stamp_plench() -> str:
    """Return a hash of the version and the files of this plench."""
    root = Path(__file__).absolute().parents[1]
    files = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    found = [__version__, PROTOCOL_VERSION, [(name, s.st_size, s.st_mtime_ns) for name, s in files]]
    return hashlib.sha256(json.dumps(found).encode("utf-8")).hexdigest()[:16]
