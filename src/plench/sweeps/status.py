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
    from plench.training.config import RunConfig

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
    fitted: bool | None = None  # not listed by an older plench

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


# What runs share with similar ones, from the closest to the loosest: algorithm and dataset, algorithm, kind.
Likeness = tuple[tuple[str, str], tuple[str], tuple[bool | None]]


class Paces:
    """Seconds per update of runs that ended: of an algorithm on a dataset, of the algorithm, or of its kind.

    A round of a fitted method may take a thousand times as long as a step of a network, so that runs of one
    kind say nothing about those of the other.
    """

    def __init__(self) -> None:
        self.totals: dict[tuple[str | bool | None, ...], tuple[int, float]] = {}

    @staticmethod
    def likeness(config: RunConfig | ListedRun) -> Likeness:
        """Return by what the pace of a run is found."""
        return (config.algorithm, config.dataset), (config.algorithm,), (config.fitted,)

    def add(self, likeness: Likeness, updates: int, seconds: float) -> None:
        """Count updates and the seconds that they took."""
        for key in likeness:
            made, taken = self.totals.get(key, (0, 0.0))
            self.totals[key] = made + updates, taken + seconds

    def find(self, likeness: Likeness) -> float | None:
        """Return the seconds per update of the most similar runs; None if there are none."""
        known = (self.totals[key] for key in likeness if key in self.totals)
        return next((seconds / updates for updates, seconds in known), None)


def measure_rates(states: Sequence[RunState], now: datetime | None = None) -> dict[str, Any]:
    """Return how many runs have ended within the last hour, the rate, and the time that the rest takes.

    A run that is left takes as long per update as the most similar finished ones (`Paces`). The work of the
    runs that ended within the hour says how many are computed at a time. Without such runs, where a run that
    is left has no similar finished one, or where none is running, the time left is not known (None).
    """
    now = now or datetime.now(UTC)
    window = now - timedelta(hours=1)
    paces = Paces()
    recent: list[tuple[datetime, float]] = []
    for entry in states:
        timings = entry.timings or {}
        try:
            seconds = float(timings["training_seconds"] + timings["evaluation_seconds"])
            begun, written = (datetime.fromisoformat(timings[key]) for key in ("begun", "written"))
        except (KeyError, TypeError, ValueError):
            continue
        paces.add(Paces.likeness(entry.run.config), max(entry.run.config.steps, 1), seconds)
        if window <= written <= now:
            inside = (written - max(begun, window)) / max(written - begun, timedelta(seconds=1))
            recent.append((max(begun, window), seconds * min(inside, 1.0)))
    elapsed = (now - min(begun for begun, _ in recent)).total_seconds() if recent else 0.0
    rates: dict[str, Any] = {"ended_last_hour": len(recent), "runs_per_minute": None, "seconds_left": None}
    if elapsed > 0:
        rates["runs_per_minute"] = 60 * len(recent) / elapsed
        left = [entry.run.config for entry in states if entry.state in PENDING]
        rest = [(config.steps, paces.find(Paces.likeness(config))) for config in left]
        at_once = sum(seconds for _, seconds in recent) / elapsed
        known = all(pace is not None for _, pace in rest)
        if at_once > 0 and known and any(entry.state == "running" for entry in states):
            rates["seconds_left"] = sum(steps * (pace or 0.0) for steps, pace in rest) / at_once
    return rates


def write_plan(spec: SweepSpec, runs: Sequence[PlannedRun], output_dir: Path) -> None:
    """List the runs of a resolved sweep in its file; a failure to write is ignored."""
    rows = []
    for run in runs:
        config = run.config
        names = (config.algorithm, config.dataset, str(config.hparams.get("model", "")), config.more_criteria)
        third_party = any("@" in name for name in names)  # the hash of a file
        values = (getattr(config, name) for name in ListedRun._fields[1:6])
        rows.append([run.folder, *values, third_party, config.fitted])
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
