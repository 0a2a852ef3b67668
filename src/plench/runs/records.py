"""The runs of folders, ours and the public benchmark's, read so that one bad file never hides the others.

A run is a folder with `results.jsonl` (one JSON object per evaluation) and a file `done` once it is finished.
Ours also have `run.json`, which names the experiment that the run belongs to; for folders of the public
benchmark the experiment is built from the `args` and `hparams` of the records.
"""

import json
import marshal
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from plench.errors import UsageError
from plench.files import parse_json
from plench.runs.folder import DONE, FINISHED, NEEDED, RESULTS, RUN, SCHEMA, STATUSES, read_description
from plench.settings import describe_cell
from plench.text import counted, short_repr

# The figures that every record has by the protocol (null where they cannot be measured), the loss first.
FIGURES = ("loss", "val_accuracy", "val_covering_rate", "val_approximated_acc", "test_acc")
# Those that are shares: a number outside 0 to 1 does not count.
SHARES = frozenset(FIGURES) - {"loss"}
SEEDS = ("trial_seed", "hparams_seed", "seed")
# Keys that belong to the row of a method fitted in rounds; for others they belong to the table.
FITTED_ROW_KEYS = ("model", "steps", "fitted")
# Keys of run.json whose values many runs share.
SHARED = ("experiment", "algorithm_card", "dataset", "versions", "state")
_MISSING = object()
_LARGEST = sys.float_info.max


class Record(NamedTuple):
    """One evaluation: the 0-based step after which it was taken, and the other values of its line."""

    step: int
    values: Mapping[str, Any]

    def get(self, key: str) -> float | None:
        """Return a figure; None if it is missing, null, NaN, not a number, or a share outside 0 to 1."""
        (figure,) = read_figures((self,), key)
        return figure


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value read from JSON is a finite number (true, false and integers too large are not)."""
    return type(value) in (float, int) and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def read_figures(records: Iterable[Record], key: str) -> list[float | None]:
    """Return `Record.get(key)` of each record."""
    is_share = key in SHARES
    found = (values.get(key) for _, values in records)
    return [f if is_finite(f) and (not is_share or 0 <= f <= 1) else None for f in found]


class ParsedLines(NamedTuple):
    """Records by rising step, the args and hparams of the first line that has args, and warnings."""

    records: tuple[Record, ...]
    first: dict[str, Any] | None
    warnings: list[str]


def parse_lines(content: bytes) -> ParsedLines:
    """Parse the content of a results file. If a step has several records, the last one counts.

    A run that was started again appends to the records it had before.
    """
    by_step: dict[int, Record] = {}
    first: dict[str, Any] | None = None
    broken, stepless, repeated = [], [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values = parse_json(line)
        except ValueError:
            broken.append(number)
            continue
        step = values.get("step") if type(values) is dict else None
        if not is_finite(step) or step < 0 or int(step) != step:
            stepless.append(number)
            continue
        step = int(step)
        if step in by_step:
            repeated.append(step)
        args, hparams = values.pop("args", None), values.pop("hparams", None)
        if first is None and type(args) is dict:
            first = {"args": args, "hparams": hparams}
        by_step[step] = Record(
            step, {**values}
        )  # a copy takes half the memory of what keys were removed from
    records = tuple(by_step[step] for step in sorted(by_step))
    warnings = []
    for numbers, noun, what in (
        (broken, "line", "skipped, not JSON"),
        (stepless, "line", "skipped, no usable step"),
        (repeated, "step", "repeated, the last record of each counts"),
    ):
        if numbers:
            first_few = ", ".join(map(str, sorted(set(numbers))[:5])) + (
                ", …" if len(set(numbers)) > 5 else ""
            )
            warnings.append(f"{counted(len(numbers), noun)} {what}: {first_few}")
    return ParsedLines(records, first, warnings + _check_figures(records))


def _check_figures(records: Sequence[Record]) -> list[str]:
    """Return warnings about figures of the protocol that are missing or not as they should be."""
    warnings = []
    for key in FIGURES:
        low, high = (0, 1) if key in SHARES else (-_LARGEST, _LARGEST)
        figures = [values.get(key, _MISSING) for _, values in records]
        wrong = [f for f in figures if not (type(f) is float and low <= f <= high) and f is not None]
        if not wrong:
            continue
        missing = wrong.count(_MISSING)
        outside = sum(is_finite(f) and not low <= f <= high for f in wrong)
        odd = sum(not is_finite(f) for f in wrong) - missing
        found = (("missing from", missing), ("not a number in", odd), ("not between 0 and 1 in", outside))
        warnings += [f"{key} is {what} {n} of {len(records)} records" for what, n in found if n]
    return warnings


@dataclass(frozen=True)
class Experiment:
    """What the cell of a table stands for; runs that differ in any of it are never averaged.

    `identity` is canonical JSON of everything that counts (network, steps, fingerprint, candidates,
    fractions, protocol, origin), so that two experiments are equal exactly when all of it is.
    """

    dataset: str
    algorithm: str
    identity: str

    @cached_property
    def details(self) -> dict[str, Any]:
        """The identity as a dictionary."""
        details: dict[str, Any] = json.loads(self.identity)
        return details

    @cached_property
    def setting(self) -> "Experiment":
        """The experiment without its algorithm: what all rows of one table share.

        Steps and network of a method fitted in rounds belong to its row, so its setting has neither.
        """
        if self.fitted:
            return self.comparison_key
        return Experiment(self.dataset, "", canonical({**self.details, "algorithm": ""}))

    @cached_property
    def comparison_key(self) -> "Experiment":
        """The setting without steps and network: what rows share that are compared across them."""
        details = {name: value for name, value in self.details.items() if name not in FITTED_ROW_KEYS}
        return Experiment(self.dataset, "", canonical({**details, "algorithm": ""}))

    @property
    def fitted(self) -> bool:
        """Whether its runs are fitted in rounds."""
        return self.details.get("fitted") is True

    @property
    def model(self) -> str:
        """The network's name."""
        return str(self.details.get("model"))

    @property
    def steps(self) -> int | None:
        """How many updates a run of this experiment makes."""
        steps = self.details.get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def budget(self) -> str:
        """How long its runs train, as text."""
        if self.steps is None:
            return "unknown"
        count, unit = (self.steps - 1, "round") if self.fitted else (self.steps, "step")
        return counted(count, unit)

    @property
    def origin(self) -> str:
        """`plench` for our own runs, `public` for folders of the public benchmark."""
        return str(self.details.get("origin"))


@dataclass(frozen=True)
class Run:
    """One run as read from its folder or a results file."""

    folder: str
    experiment: Experiment
    trial_seed: int
    hparams_seed: int
    seed: int
    hparams: Mapping[str, Any]
    status: str
    records: tuple[Record, ...]
    diverged_after_step: int | None = None
    warnings: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def path(self) -> Path:
        """The folder as a path; created on demand, since that takes time for many runs."""
        return Path(self.folder)

    @property
    def finished(self) -> bool:
        """Whether training ended, regularly or by diverging."""
        return self.status in FINISHED

    @property
    def diverged(self) -> bool:
        """Whether training ended in NaN."""
        return self.status == "diverged"

    @property
    def stack_size(self) -> int:
        """Number of runs in its stack; times of stacked runs say nothing about a single run."""
        sizes = [self.info.get("fleet_size"), *(record.get("fleet_size") for record in self.records)]
        return max([1, *(int(size) for size in sizes if is_finite(size))])

    @cached_property
    def order(self) -> tuple[int, int, int, str]:
        """The place of the run among those of its experiment."""
        return self.trial_seed, self.hparams_seed, self.seed, os.path.basename(self.folder)

    @cached_property
    def usable_records(self) -> tuple[Record, ...]:
        """Records that may be selected: after step 0, and before the run diverged."""
        limit = math.inf
        if self.diverged and self.diverged_after_step is not None:
            limit = self.diverged_after_step
        return tuple([record for record in self.records if 0 < record.step <= limit])

    @property
    def last_record(self) -> Record | None:
        """The record of the last update, or None if the run did not get there."""
        if self.diverged or not self.usable_records:
            return None
        last = self.usable_records[-1]
        steps = self.experiment.steps
        return last if steps is None or last.step == steps - 1 else None


def canonical(value: object) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read one run's folder, with its warnings; raise UsageError if it is not the folder of a run."""
    run, warnings = read_folder(str(Path(folder)))
    if run is None:
        reason = "; ".join(warnings) or f"it has neither {RESULTS} nor {RUN}"
        raise UsageError(f"{os.fspath(folder)!r} is not a run folder: {reason}")
    return run


def read_folder(folder: str) -> tuple[Run | None, list[str]]:
    """Read a folder into a run, or into None; warnings have the reason."""
    about_info: list[str] = []
    about_lines: list[str] = []
    info = content = run = None
    try:
        info = read_description(f"{folder}/{RUN}")
        if info.get("schema") != SCHEMA:
            about_info.append(f"schema {short_repr(info.get('schema'))}; expected {SCHEMA}")
    except FileNotFoundError:
        pass
    except ValueError as error:
        about_info.append(f"{error}, the records' own args are used")
    try:
        with open(f"{folder}/{RESULTS}", "rb") as file:
            content = file.read()
    except FileNotFoundError:
        pass
    except OSError as error:
        about_lines.append(f"cannot be read ({error.strerror or error})")
    if info is not None or content is not None:
        records, first, warnings = parse_lines(content or b"")
        about_lines += warnings
        try:
            if info is not None:
                run = _run_of_ours(folder, info, records)
            elif first is not None:
                run = _run_of_records(folder, first, records)
                if run.experiment.origin == "plench" and not about_info:
                    about_info.append("missing, the records' own args are used")
            else:
                about_lines.append("no usable record, skipped")
        except ValueError as error:
            (about_lines if info is None else about_info).append(f"{error}, skipped")
    warnings = [
        f"{file}: {'; '.join(about)}" for file, about in ((RUN, about_info), (RESULTS, about_lines)) if about
    ]
    if run is not None and warnings:
        run = replace(run, warnings=tuple(warnings))
    return run, warnings


def _run_of_ours(folder: str, info: dict[str, Any], records: tuple[Record, ...]) -> Run:
    """Build a run from its run.json; raise ValueError with the reason if something needed is missing."""
    for name, kind in NEEDED.items():
        if not isinstance(info.get(name), kind):
            raise ValueError(f"has no {name}")
    info |= {name: _share(marshal.dumps(info[name], 2)) for name in SHARED if name in info}
    config, status = info["config"], info["status"]
    if status not in STATUSES:
        raise ValueError(f"unknown status {short_repr(status)}; expected one of {', '.join(STATUSES)}")
    if status in FINISHED and not os.path.exists(f"{folder}/{DONE}"):
        status = "interrupted"  # killed between the last write of run.json and that of `done`
    diverged_after = info.get("diverged_after_step")
    return Run(
        folder=folder,
        experiment=make_experiment({**info["experiment"], "origin": "plench"}),
        **_read_seeds(config),
        hparams=_mapping(config.get("hparams")),
        status=status,
        records=records,
        diverged_after_step=diverged_after if isinstance(diverged_after, int) else None,
        info=info,
    )


def _run_of_records(folder: str, first: dict[str, Any], records: tuple[Record, ...]) -> Run:
    """Build a run from the args and hparams of its records, which is all that the public benchmark writes.

    A run of ours without run.json is recognised by `logged`, which public records do not have. Its protocol
    and data are unknown, so it is kept apart from other runs.
    """
    args, hparams = first["args"], _mapping(first.get("hparams"))
    # AA is computed from the outputs, so NaN means divergence. The loss is not used: some of the public
    # benchmark's losses are NaN on a batch without relevant examples, and training continues unharmed.
    aa = "val_approximated_acc"
    is_nan = [isinstance(record.values.get(aa), float) and record.get(aa) is None for record in records]
    diverged_after = None
    if any(is_nan):
        first_nan = is_nan.index(True)
        diverged_after = records[first_nan - 1].step if first_nan else -1
    if not os.path.exists(f"{folder}/{DONE}"):
        status = "interrupted"
    else:
        status = "done" if diverged_after is None else "diverged"
    steps = args.get("steps") or hparams.get("max_steps")
    if not isinstance(steps, int) and records:
        steps = records[-1].step + 1
    is_ours = any(isinstance(record.values.get("logged"), dict) for record in records)
    cell = describe_cell({**args, "steps": steps})
    if not is_ours:
        del cell["precision"]  # the public code has only one
    identity = {
        "origin": "plench" if is_ours else "public",
        "protocol": None,
        "dataset": args.get("dataset"),
        "dataset_fingerprint": None,
        **cell,
        "model": hparams.get("model"),
        **({"fitted": True} if is_ours and "model" not in hparams else {}),
        "algorithm": args.get("algorithm"),
    }
    return Run(
        folder=folder,
        experiment=make_experiment(identity),
        **_read_seeds(args),
        # The public code puts the folder among the hyperparameters, where it would look like one that varies.
        hparams={name: value for name, value in hparams.items() if name != "output_dir"},
        status=status,
        records=records,
        diverged_after_step=diverged_after,
    )


def make_experiment(details: dict[str, Any]) -> Experiment:
    """Return the experiment with these details; raise ValueError without dataset or algorithm."""
    for key in ("dataset", "algorithm"):
        if not isinstance(details.get(key), str) or not details[key]:
            raise ValueError(f"has no {key}")
    return _shared_experiment(details["dataset"], details["algorithm"], canonical(details))


# All runs of an experiment share one object, so that its cached properties are computed once.
_shared_experiment = lru_cache(maxsize=65536)(Experiment)
# Equal parts of descriptions are one object: of 17,000 runs they would take 240 MB.
_share = lru_cache(maxsize=65536)(marshal.loads)


def _read_seeds(values: Mapping[str, Any]) -> dict[str, Any]:
    for name in SEEDS:
        if type(values.get(name)) is not int:
            raise ValueError(f"has no whole number as {name}")
    return {name: values[name] for name in SEEDS}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
