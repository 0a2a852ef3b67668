"""The settings of a run, each declared once: type, default, bounds, help, and whether it affects results.

Also here: the versions of plench and of the protocol, and how seeds are hashed.

Everything else that knows settings is derived from `Settings`: what a run is (`RunConfig`), the grids of a
sweep and their files, the flags of commands, the keywords of `plench.train` and `plench.sweep`, what a cell
of a table stands for, and the table in docs/settings.md. A new setting is one field here, and is
read where it acts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import ge, gt, le, lt
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from plench.errors import UsageError
from plench.text import find_name, short_repr

__version__ = "0.3.0"
# Of the protocol: raised whenever a change of ours alters the numbers that a configuration gives.
PROTOCOL_VERSION = 1

PartialLabelType = Literal["real", "uss", "fps", "id"]
Precision = Literal["float32", "bf16"]
CandidateWeights = Literal["uniform", "votes"]

DEFAULT_FPS_RATE = 0.3  # the middle of the 0.1, 0.3, 0.5 that papers usually report
DEFAULT_ID_RATE = 0.4
# Bounds of a setting or hyperparameter, by their names in its declaration.
BOUNDS: dict[str, Callable[[Any, Any], bool]] = {"above": gt, "at_least": ge, "below": lt, "at_most": le}
EARLIER_NAMES = {"resume_anyway": "force_resume"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of one setting.

    `affects_results`: it belongs to the run's identity; the other settings only say how a run is computed.
    `affects_data`: it may change the data of a run (candidate sets, split, inputs), so runs that differ in it
    share no prepared data; only a setting that acts later says False. `same_sizes`: whatever its value, all
    splits of a dataset have the same sizes; otherwise a stack has runs of one split.
    `cell` is its name in what a cell of a table stands for: runs that differ in it are never averaged.
    `per_run` settings are chosen for each run of a sweep, so grids do not have them. `block` is the object in
    run.json that it is part of, if it is not on top. Files name a setting that differs from its default, and
    always the `always_recorded` ones.
    """

    name: str
    type: type
    optional: bool
    choices: tuple[str, ...]
    default: Any
    help: str
    affects_results: bool = True
    affects_data: bool = True
    same_sizes: bool = False
    cell: str | None = None
    per_run: bool = False
    always_recorded: bool = False
    block: str | None = None
    group: str = ""
    metavar: str | None = None
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    @property
    def allowed(self) -> str:
        """What values are allowed, in words."""
        if self.type is bool:
            return "true or false"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        what = {int: "a whole number", float: "a number"}.get(self.type, "text")
        bounds = ((name, getattr(self, name)) for name in BOUNDS)
        words = (f"{name} {bound:g}".replace("at_", "of at ") for name, bound in bounds if bound is not None)
        return f"{what} {' and '.join(words)}".strip()

    def check(self, value: Any) -> Any:
        """Return a value in this setting's type; raise UsageError where it is not allowed."""
        if value is None and self.optional:
            return None
        if type(value).__module__ == "numpy" and hasattr(value, "item"):
            value = value.item()
        kind = type(value)
        if self.type is float and kind is int:
            value, kind = float(value), float
        good = kind is self.type and (not self.choices or value in self.choices)
        if good and kind in (int, float):
            good = math.isfinite(value) and all(
                getattr(self, name) is None or holds(value, getattr(self, name))
                for name, holds in BOUNDS.items()
            )
        if not good:
            raise UsageError(f"{self.name} must be {self.allowed}, not {short_repr(value)}")
        return value


def declare(default: Any, help: str, **details: Any) -> Any:
    """Declare a setting: a dataclass field whose metadata is the declaration (see `Setting`)."""
    return field(default=default, metadata={"help": help, **details})


_count: dict[str, Any] = {"at_least": 1, "metavar": "N"}
_recorded: dict[str, Any] = {"always_recorded": True}
_later: dict[str, Any] = {"affects_data": False}
_even: dict[str, Any] = {"same_sizes": True}
_seed: dict[str, Any] = {"at_least": 0, "below": 2**63, "metavar": "N", "per_run": True, **_recorded}
_split: dict[str, Any] = {"at_least": 0, "below": 1, "metavar": "F", "group": "split", **_recorded, **_even}
_arithmetic: dict[str, Any] = {"group": "arithmetic", **_recorded, **_later}
_sets: dict[str, Any] = {"group": "candidate sets", **_even}
_candidates: dict[str, Any] = {"block": "candidates", **_sets, **_recorded}
_rate: dict[str, Any] = {"at_least": 0, "at_most": 1, "metavar": "P", **_candidates}
_device: dict[str, Any] = {"affects_results": False, "group": "computing", **_even}
_computing: dict[str, Any] = {**_device, **_later}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user can set for a run, apart from algorithm, dataset and hyperparameters.

    None stands for the dataset's own: its number of steps in the protocol, its candidate sets.
    """

    steps: int | None = declare(
        None,
        "updates (default: the dataset's number in the protocol)",
        cell="steps",
        **_recorded,
        **_count,
        **_later,
    )
    checkpoint_freq: int = declare(1000, "updates between evaluations", **_recorded, **_count, **_later)
    trial_seed: int = declare(0, "seed of the split and of generated candidates", **_seed, **_even)
    hparams_seed: int = declare(
        0, "number of the random configuration; 0: all hyperparameters at their defaults", **_seed, **_later
    )
    seed: int = declare(
        0, "seed of initialisation, batches, views and the algorithm's own draws", **_seed, **_later
    )
    holdout_fraction: float = declare(
        0.1, "fraction of training examples held out for validation", cell="holdout_fraction", **_split
    )
    tabular_test_fraction: float = declare(
        0.1, "test fraction of data that come without a test set", cell="test_fraction", **_split
    )
    imbalance: float | None = declare(
        None,
        "make the training split long-tailed: class k keeps R^(-k/(K-1)) of the first class's number "
        "(default: off)",
        cell="imbalance",
        group="split",
        metavar="R",
        at_least=1,
    )
    precision: Precision = declare(
        "float32", "bf16: networks compute in bfloat16", cell="precision", **_arithmetic
    )
    compile: bool = declare(
        False, "compile the networks (slow to start, needs a C++ compiler)", **_arithmetic
    )
    pl_type: PartialLabelType | None = declare(
        None,
        "real: those of the data; uss, fps, id: generated from true labels (default: the dataset's)",
        cell="pl_type",
        **_candidates,
    )
    fps_rate: float | None = declare(
        None, f"flipping probability of fps (default: {DEFAULT_FPS_RATE})", cell="fps_rate", **_rate
    )
    id_rate: float | None = declare(
        None, f"flipping rate of id (default: {DEFAULT_ID_RATE})", cell="id_rate", **_rate
    )
    drop_true_rate: float | None = declare(
        None, "rate at which true labels are dropped (default: 0)", cell="drop_true_rate", **_rate
    )
    candidate_weights: CandidateWeights = declare(
        "uniform",
        "votes: weight candidates by annotators' votes, for methods that use weights",
        cell="candidate_weights",
        **_sets,
    )
    more_criteria: str = declare(
        "",
        "third-party criteria to compute as well: file.py:NAME or module:NAME, separated by commas",
        metavar="SPEC",
        **_later,
    )
    device: str = declare("auto", "auto, cpu, cuda, cuda:N or mps", **_device)
    threads: int = declare(1, "compute threads of a run", **_count, **_computing)
    save_seconds: float = declare(60.0, "seconds between checkpoints", above=0, metavar="S", **_computing)
    save_steps: int | None = declare(None, "also checkpoint every N updates", **_count, **_computing)
    force_resume: bool = declare(
        False, "resume a run that began under other versions or threads", **_computing
    )
    skip_model_save: bool = declare(False, "keep no model after the run", **_computing)
    save_model_every_checkpoint: bool = declare(False, "keep a model of every evaluation", **_computing)

    def __post_init__(self) -> None:
        for name, setting in declared().items():
            value = getattr(self, name)
            checked = setting.check(value)
            if checked is not value:
                object.__setattr__(self, name, checked)
        if self.skip_model_save and self.save_model_every_checkpoint:
            raise UsageError("skip_model_save and save_model_every_checkpoint contradict each other")

    def values(self) -> dict[str, Any]:
        """Return every setting by name."""
        return {name: getattr(self, name) for name in declared()}


@cache
def declared() -> dict[str, Setting]:
    """Return every declared setting by name, in the order of their declaration."""
    hints = get_type_hints(Settings)
    found = {}
    for entry in fields(Settings):
        kind, choices = hints[entry.name], ()
        optional = get_origin(kind) in (Union, UnionType)
        if optional:
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        if get_origin(kind) is Literal:
            kind, choices = str, get_args(kind)
        own = {"name": entry.name, "type": kind, "optional": optional, "choices": choices}
        found[entry.name] = Setting(**own, default=entry.default, **entry.metadata)
    return found


def read_settings(given: Mapping[str, Any], known: Iterable[str] = ()) -> dict[str, Any]:
    """Return values checked by name; an unknown name is a UsageError that suggests the nearest.

    `known` are further keywords of the caller, to be suggested too.
    """
    settings = declared()
    given = {EARLIER_NAMES.get(name, name): value for name, value in given.items()}
    for name in given:
        if name not in settings:
            nearest = find_name(name, [*known, *settings], "setting")
            raise UsageError(f"unknown setting {name!r}; did you mean {nearest}?")
    return {name: settings[name].check(value) for name, value in given.items()}


def seed_hash(*args: object) -> int:
    """Hash any arguments to a seed in [0, 2³¹): md5 of the tuple's Python text."""
    return int(hashlib.md5(str(args).encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % 2**31


def describe_settings(values: Mapping[str, Any], *, nested: bool = True) -> dict[str, Any]:
    """Return the settings that affect results, as run.json (`nested`) and records (flat) hold them.

    A setting that is not always recorded is there only if it differs from its default.
    """
    written: dict[str, Any] = {}
    for name, setting in declared().items():
        if setting.affects_results and (setting.always_recorded or values[name] != setting.default):
            place = written.setdefault(setting.block, {}) if setting.block and nested else written
            place[name] = values[name]
    return written


def describe_cell(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what settings add to what a cell of a table stands for; runs that differ in it are not averaged.

    Records of other versions may not have all settings: one that is always recorded is then None.
    """
    written: dict[str, Any] = {}
    for name, setting in declared().items():
        value = values.get(name, None if setting.always_recorded else setting.default)
        if setting.cell is not None and (setting.always_recorded or value != setting.default):
            place = written.setdefault(setting.block, {}) if setting.block else written
            place[setting.cell] = value
    return written


def format_table() -> str:
    """Return the table of settings in Markdown, for docs/settings.md."""
    lines = ["| setting | values | default | meaning | affects results |", "|---|---|---|---|---|"]
    for setting in declared().values():
        meaning, _, stated = setting.help.partition(" (default: ")
        default = stated.rstrip(")") if setting.default is None else f"`{setting.default}`".lower()
        default = default if setting.default != "" else "none"
        affects = "yes" if setting.affects_results else "no"
        lines.append(f"| `{setting.name}` | {setting.allowed} | {default} | {meaning} | {affects} |")
    return "\n".join(lines)
