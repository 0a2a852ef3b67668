"""The state of each run of a sweep, from its folder alone, and the plan cache. Needs no torch.

A launch writes the plan cache, a list of its runs, so that `plench sweep status` and `plan` need not draw all
configurations again. It is valid for the same sweep and the same plench only. A plan with third-party runs is
not cached, as third-party code may change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from filelock import FileLock, Timeout

from plench.errors import PlenchError
from plench.runs.files import parse_json, write_text
from plench.runs.folder import DONE, FINISHED, LOCK, RUN, DescriptionError, check_integrity, read_description
from plench.settings import PROTOCOL_VERSION, __version__
from plench.text import clean_text, short_repr

if TYPE_CHECKING:
    from plench.runs.sweep_spec import SweepSpec
    from plench.sweeps.plan import PlannedRun  # imports torch

State = Literal["done", "diverged", "failed", "interrupted", "running", "damaged", "foreign", "missing"]

# What a launch runs. Failed runs are run by a retry, foreign folders never.
PENDING: tuple[State, ...] = ("missing", "interrupted", "running", "damaged")


class CachedConfig(NamedTuple):
    """What the plan cache keeps of a run's configuration."""

    algorithm: str
    dataset: str
    hparams_seed: int
    trial_seed: int
    steps: int


class CachedRun(NamedTuple):
    """A run of the plan cache: as much of `PlannedRun` as a status needs."""

    folder: str
    config: CachedConfig

    @property
    def label(self) -> str:
        """A short name for messages."""
        config = self.config
        return f"{config.algorithm} on {config.dataset}, h{config.hparams_seed} t{config.trial_seed}"


@dataclass(frozen=True)
class RunState:
    """The state of a planned run, with the reason if there is one."""

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
    from plench.runs.parquet import read_finished

    return {run_id[:12]: status for file in files for run_id, status in read_finished(Path(file)).items()}


def read_state(run: PlannedRun, folder: str) -> RunState:
    """Read the state of one run from its folder."""
    try:
        info = read_description(f"{folder}/{RUN}")
    except (OSError, DescriptionError):
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
        return RunState(run, info["status"])
    if info is not None and info.get("status") == "failed":
        error = info.get("error")
        error = error if isinstance(error, dict) else {"message": error}
        reason = f"{error.get('type', 'error')}: {error.get('message', '')}".strip()
        return RunState(run, "failed", clean_text(reason))
    return RunState(run, "running" if _is_locked(f"{folder}/{LOCK}") else "interrupted")


def _is_locked(lock: str) -> bool:
    """Return True if a living process holds a lock file."""
    if not os.path.isfile(lock):
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def save_plan_cache(spec: SweepSpec, runs: Sequence[PlannedRun], output_dir: Path) -> None:
    """Write the runs of a resolved sweep into its cache file; a failure to write is ignored."""
    for run in runs:
        config = run.config
        named = (config.algorithm, config.dataset, str(config.hparams.get("model", "")), config.more_criteria)
        if any("@" in name for name in named):  # the hash of a third-party file
            return
    rows = [[run.folder, *(getattr(run.config, name) for name in CachedConfig._fields)] for run in runs]
    content = json.dumps({"runs": rows})
    with suppress(OSError, PlenchError):
        path = _cache_file(spec, output_dir)
        if path.exists() and path.read_bytes() == content.encode("utf-8"):
            return
        for old in output_dir.glob(f".plan-{spec.identity}-*.json"):
            old.unlink(missing_ok=True)
        write_text(path, content)


def load_plan_cache(specs: Iterable[SweepSpec], output_dir: Path) -> list[CachedRun] | None:
    """Return the runs of sweeps, each once; None unless all of the sweeps are cached."""
    runs: dict[str, CachedRun] = {}
    for spec in specs:
        try:
            content: Any = parse_json(_cache_file(spec, output_dir).read_bytes())
            for folder, *values in content["runs"]:
                runs.setdefault(folder, CachedRun(folder, CachedConfig(*values)))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
    return list(runs.values()) if runs else None


def _cache_file(spec: SweepSpec, output_dir: Path) -> Path:
    """Return the cache file of a sweep; its name has a hash of the version and the files of this plench."""
    root = Path(__file__).absolute().parents[1]
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                status = os.stat(path)
                found.append((os.path.relpath(path, root), status.st_size, status.st_mtime_ns))
    text = json.dumps([__version__, PROTOCOL_VERSION, sorted(found)])
    stamp = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
    return output_dir / f".plan-{spec.identity}-{stamp}.json"
