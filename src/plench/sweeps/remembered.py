"""The runs of a launched sweep, remembered in a file beside them, so that a look at them draws none anew.

The file is worth nothing by itself: a launch writes it, `plench sweep status` and `plan` read it, and it
counts only for the same sweep and the same plench. Runs of third parties are never in it, as their code may
change. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import plench
from plench.errors import PlenchError
from plench.plain_files import read_plain
from plench.runs.files import write_text
from plench.runs.json_text import parse_json
from plench.settings import PROTOCOL_VERSION, __version__

if TYPE_CHECKING:  # imports torch
    from plench.runs.sweep_spec import SweepSpec
    from plench.sweeps.plan import PlannedRun

MAX_BYTES = 2**28
FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._@-]*")


class RememberedConfig(NamedTuple):
    """What is remembered of a run's configuration."""

    algorithm: str
    dataset: str
    hparams_seed: int
    trial_seed: int
    steps: int


class RememberedRun(NamedTuple):
    """A run of a sweep as far as a look at its state needs it."""

    folder: str
    config: RememberedConfig

    @property
    def label(self) -> str:
        """A short name for people."""
        config = self.config
        return f"{config.algorithm} on {config.dataset}, h{config.hparams_seed} t{config.trial_seed}"


def remember(spec: SweepSpec, runs: Sequence[PlannedRun], output_dir: Path) -> None:
    """Write the runs of a settled sweep down, in place of what was remembered; no matter if it fails."""
    if any(map(_is_of_third_parties, runs)):
        return
    rows = [[run.folder, *(getattr(run.config, name) for name in RememberedConfig._fields)] for run in runs]
    content = json.dumps({"runs": rows})
    with suppress(OSError, PlenchError):
        path = _place(spec, output_dir)
        if not _holds(path, content):
            for old in output_dir.glob(f".plan-{spec.identity}-*.json"):
                old.unlink(missing_ok=True)
            write_text(path, content)


def _is_of_third_parties(run: PlannedRun) -> bool:
    """Say whether the folder's name depends on a file of a third party's: such names carry its hash."""
    config = run.config
    named = (config.algorithm, config.dataset, str(config.hparams.get("model", "")), config.more_criteria)
    return any("@" in name for name in named)


def _holds(path: Path, content: str) -> bool:
    """Say whether a file is there and has just this content; a torn or foreign one has not."""
    try:
        return read_plain(path, MAX_BYTES) == content.encode("utf-8")
    except OSError:
        return False


def recall(specs: Iterable[SweepSpec], output_dir: Path) -> list[RememberedRun] | None:
    """Return the runs of sweeps, each once; None unless all of them are remembered."""
    runs: dict[str, RememberedRun] = {}
    for spec in specs:
        try:
            content = parse_json(read_plain(_place(spec, output_dir), MAX_BYTES))
            for folder, *values in content["runs"]:
                if not FOLDER.fullmatch(folder) or not _is_config(values):
                    return None
                runs.setdefault(folder, RememberedRun(folder, RememberedConfig(*values)))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
    return list(runs.values()) if runs else None


def _is_config(values: list[Any]) -> bool:
    kinds = [str, str, int, int, int]
    return [type(value) for value in values] == kinds


def _place(spec: SweepSpec, output_dir: Path) -> Path:
    return output_dir / f".plan-{spec.identity}-{_stamp()}.json"


def _stamp() -> str:
    """Return a hash that another plench, or one with a changed file, does not have."""
    root = os.path.dirname(os.path.abspath(plench.__file__))
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                status = os.stat(path)
                found.append((os.path.relpath(path, root), status.st_size, status.st_mtime_ns))
    text = json.dumps([__version__, PROTOCOL_VERSION, sorted(found)])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
