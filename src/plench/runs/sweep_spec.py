"""What a sweep was asked to do: grids of runs, read from and written to TOML. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plench.errors import UsageError
from plench.files import write_text
from plench.hparams import Value
from plench.settings import Settings, __version__, declared, describe_settings
from plench.text import short_repr

SCHEMA = 1
SWEEP_FILES = "sweep-*.toml"  # in the folder of the runs
MAX_PLACES = 10**4  # configurations times splits: a hundred times a full benchmark's
# The first and the end of the configurations and of the splits.
RANGES = ("n_hparams_from", "n_hparams", "n_trials_from", "n_trials")


@dataclass(frozen=True)
class Grid(Settings):
    """Every algorithm on every dataset, for a range of configurations and a range of splits.

    `n_hparams` and `n_trials` are ends, not counts: configurations n_hparams_from … n_hparams − 1. The
    settings hold for every run; those that are chosen run by run (the seeds) cannot be set, and those that
    do not decide the numbers are not part of a sweep's file.
    """

    algorithms: tuple[str, ...]
    datasets: tuple[str, ...]
    n_hparams_from: int = 0
    n_hparams: int = 20
    n_trials_from: int = 0
    n_trials: int = 5
    hparams: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("algorithms", "datasets"):
            names = getattr(self, name)
            good = (
                isinstance(names, list | tuple) and names and all(isinstance(entry, str) for entry in names)
            )
            if not good:
                raise UsageError(f"{name} must be a list of names and not empty, not {short_repr(names)}")
            object.__setattr__(self, name, tuple(names))
        for first, end in (("n_hparams_from", "n_hparams"), ("n_trials_from", "n_trials")):
            _check_whole(first, getattr(self, first), 0)
            _check_whole(end, getattr(self, end), getattr(self, first) + 1)
        for name, setting in declared().items():
            if setting.per_run and getattr(self, name) != setting.default:
                raise UsageError(f"{name} cannot be set for a sweep: it is chosen run by run")
        n_places = (self.n_hparams - self.n_hparams_from) * (self.n_trials - self.n_trials_from)
        if n_places > MAX_PLACES:
            raise UsageError(
                f"a grid of {n_places:,} runs per pair is too large; expected at most {MAX_PLACES:,}"
            )
        if not isinstance(self.hparams, Mapping):
            raise UsageError(f"hparams must be a table of names and values, not {short_repr(self.hparams)}")
        for name, value in self.hparams.items():
            if not isinstance(value, str | int | float):
                raise UsageError(f"hyperparameter {name} must be a number or text, not {short_repr(value)}")

    @property
    def hparams_seeds(self) -> range:
        """The configurations."""
        return range(self.n_hparams_from, self.n_hparams)

    @property
    def trial_seeds(self) -> range:
        """The splits."""
        return range(self.n_trials_from, self.n_trials)

    def to_table(self) -> dict[str, Any]:
        """Return what is set as plain values."""
        content: dict[str, Any] = {"algorithms": list(self.algorithms), "datasets": list(self.datasets)}
        content |= {name: getattr(self, name) for name in RANGES}
        shared = describe_settings(vars(self), nested=False)
        content |= {
            name: value for name, value in shared.items() if value is not None and name in grid_settings()
        }
        if self.hparams:
            content["hparams"] = dict(self.hparams)
        return content

    @classmethod
    def from_table(cls, content: Mapping[str, Any]) -> Grid:
        """Rebuild a grid; an unknown key is an error."""
        known = ["algorithms", "datasets", *RANGES, *grid_settings(), "hparams"]
        unknown = sorted(set(content) - set(known))
        if unknown:
            raise UsageError(f"unknown key {unknown[0]!r} in a grid; expected one of {', '.join(known)}")
        missing = [name for name in ("algorithms", "datasets") if name not in content]
        if missing:
            raise UsageError(f"a grid has no {missing[0]}")
        return cls(**content)


def grid_settings() -> list[str]:
    """Return the names of the settings that a grid decides for all its runs."""
    return [name for name, setting in declared().items() if setting.affects_results and not setting.per_run]


@dataclass(frozen=True)
class SweepSpec:
    """One or more grids, and the fingerprints of the data they were run on (empty: not yet run).

    `launched` has the options of the first launch that the stacks depend on, by the names of their flags.
    They decide which runs were trained together, not which runs there are, and are not part of the identity.
    """

    grids: tuple[Grid, ...]
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    launched: Mapping[str, str | int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.grids:
            raise UsageError("a sweep needs at least one grid")

    @property
    def identity(self) -> str:
        """Hash of what was asked; the version that asked does not count."""
        content = {"grids": [grid.to_table() for grid in self.grids], "data": dict(self.fingerprints)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()[:12]

    @property
    def file_name(self) -> str:
        """The sweep's file in its output folder. Two sweeps have two files, so folders can be merged."""
        return f"sweep-{self.identity}.toml"

    def to_toml(self) -> str:
        """Return the text of the sweep's file."""
        lines = [
            "# What this sweep was asked to do; repeat it with: plench sweep launch --file THIS_FILE",
            f"schema = {SCHEMA}",
            f"plench = {_toml_value(__version__)}",
        ]
        for grid in self.grids:
            table = grid.to_table()
            hparams = table.pop("hparams", {})
            lines += ["", "[[grid]]", *_toml_lines(table)]
            if hparams:
                lines += ["", "[grid.hparams]", *_toml_lines(hparams)]
        for name, more in (("fingerprints", self.fingerprints), ("launch", self.launched)):
            if more:
                lines += ["", f"[{name}]", *_toml_lines(more)]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Write the sweep's file, whole or not at all."""
        write_text(path, self.to_toml())


def read_sweep(path: str | Path) -> SweepSpec:
    """Read a sweep file; anything that is not understood is an error that names the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the sweep file {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from error
    return parse_sweep(text, str(path))


def parse_sweep(text: str, name: str) -> SweepSpec:
    """Read the text of the sweep file of this name."""
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{name} is not a sweep file: it is nested too deep") from None
    except ValueError as error:
        raise UsageError(f"{name} is not a TOML file: {error}") from error
    try:
        known = ("schema", "plench", "grid", "fingerprints", "launch")
        unknown = sorted(set(content) - set(known))
        if unknown:
            raise UsageError(f"unknown key {unknown[0]!r}; expected one of {', '.join(known)}")
        if content.get("schema", SCHEMA) != SCHEMA:
            raise UsageError(f"schema {short_repr(content['schema'])}, this version of plench reads {SCHEMA}")
        grids, fingerprints = content.get("grid", []), content.get("fingerprints", {})
        if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
            raise UsageError("grids are written as [[grid]]")
        if not isinstance(fingerprints, dict) or not all(type(v) is str for v in fingerprints.values()):
            raise UsageError("fingerprints are written as a table of texts: [fingerprints]")
        launched = content.get("launch", {})
        if not isinstance(launched, dict) or not all(
            isinstance(v, str | int | float) for v in launched.values()
        ):
            raise UsageError(
                "the options of the launch are written as a table of texts and numbers: [launch]"
            )
        return SweepSpec(tuple(Grid.from_table(grid) for grid in grids), fingerprints, launched)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def read_sweeps(output_dir: str | Path) -> list[SweepSpec]:
    """Read every sweep that was launched into an output folder, in the order of their files' names."""
    return [read_sweep(path) for path in sorted(Path(output_dir).glob(SWEEP_FILES))]


def _check_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} must be a whole number of at least {least}, not {short_repr(value)}")


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    keys = [key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key) for key in table]
    return [f"{key} = {_toml_value(value)}" for key, value in zip(keys, table.values(), strict=True)]


def _toml_value(value: object) -> str:
    """Return a value as TOML, which agrees with JSON on strings, whole numbers, booleans and lists."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"a sweep file holds finite numbers only, not {value}")
        return repr(value)
    if isinstance(value, str | bool | int):
        return json.dumps(value, ensure_ascii=False)
    raise UsageError(f"a sweep file cannot hold {short_repr(value)}")
