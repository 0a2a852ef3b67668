"""The records of runs, ours and the public benchmark's, read so that one bad file never hides the others.

A run is a folder with `results.jsonl` (one JSON object per evaluation) and an empty file `done` once it has
finished. Ours also have `run.json`, which says exactly which experiment the run belongs to; for folders
of the public benchmark that is put together from the `args` and `hparams` of the records.
"""

import gc
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from plench.errors import UsageError
from plench.plain_files import is_plain, read_plain
from plench.runs.description import FINISHED, DescriptionError, DescriptionReader, find_lack
from plench.runs.ended import DONE, MAX_RECORDS_BYTES, RESULTS
from plench.runs.folder import RUN
from plench.runs.lines import Record, is_finite, parse_lines
from plench.settings import describe_cell

logger = logging.getLogger("plench")

# What belongs to the row of a method fitted in rounds, where it belongs to the table for others.
OF_A_FITTED_ROW = ("model", "steps", "fitted")


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
        """The same experiment with no algorithm named: what all rows of one table share.

        Steps and network of a method fitted in rounds belong to its row: its setting has none.
        """
        details = {**self.details, "algorithm": ""}
        if self.fitted:
            details = {name: value for name, value in details.items() if name not in OF_A_FITTED_ROW}
        return Experiment(self.dataset, "", canonical(details))

    @cached_property
    def circumstances(self) -> "Experiment":
        """The setting without steps and network: what rows share that are compared across them."""
        details = {name: value for name, value in self.details.items() if name not in OF_A_FITTED_ROW}
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
        """How long its runs train, in words."""
        if self.steps is None:
            return "unknown"
        count, unit = (self.steps - 1, "round") if self.fitted else (self.steps, "step")
        return f"{count:,} {unit}{'' if count == 1 else 's'}"

    @property
    def origin(self) -> str:
        """`plench` for our own runs, `public` for folders of the public benchmark."""
        return str(self.details.get("origin"))


@dataclass(frozen=True)
class Run:
    """One run as its folder tells it. `usable_records` are those that may be selected."""

    folder: str
    experiment: Experiment
    trial_seed: int
    hparams_seed: int
    seed: int
    hparams: Mapping[str, Any]
    status: str
    records: tuple[Record, ...]
    diverged_after_step: int | None = None
    notices: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def path(self) -> Path:
        """The folder as a path, made when it is asked for: of many runs that takes its time."""
        return Path(self.folder)

    @property
    def finished(self) -> bool:
        """Whether training came to its end, by itself or by diverging."""
        return self.status in FINISHED

    @property
    def diverged(self) -> bool:
        """Whether training ended in NaN."""
        return self.status == "diverged"

    @property
    def fleet_size(self) -> int:
        """How many runs were trained as one with it; times of such a run are no figures of its method."""
        told = [self.info.get("fleet_size"), *(record.get("fleet_size") for record in self.records)]
        return max([1, *(int(size) for size in told if is_finite(size))])

    @cached_property
    def order(self) -> tuple[int, int, int, str]:
        """The place of the run among those of its experiment."""
        return self.trial_seed, self.hparams_seed, self.seed, os.path.basename(self.folder)

    @cached_property
    def usable_records(self) -> tuple[Record, ...]:
        """Records that may be selected: not step 0, and none taken after the run diverged."""
        limit = math.inf
        if self.diverged and self.diverged_after_step is not None:
            limit = self.diverged_after_step
        return tuple([record for record in self.records if 0 < record.step <= limit])

    @property
    def last_record(self) -> Record | None:
        """The record of the last update, or None if the run did not get there whole."""
        if self.diverged or not self.usable_records:
            return None
        last = self.usable_records[-1]
        steps = self.experiment.steps
        return last if steps is None or last.step == steps - 1 else None


def canonical(value: object) -> str:
    """Return JSON text that is equal for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def read_runs(output_dir: str | os.PathLike[str]) -> list[Run]:
    """Read every run folder directly under `output_dir`, in the order of their names.

    What is wrong with single files is logged as warnings; `read_runs_with_notices` returns it instead.
    """
    runs, notices = read_runs_with_notices(output_dir)
    for notice in notices:
        logger.warning("%s", notice)
    return runs


def read_runs_with_notices(output_dir: str | os.PathLike[str]) -> tuple[list[Run], list[str]]:
    """Read every run folder, with the notices of all files, each starting with the file it is about.

    A results file (`plench results export`) is read as the folders that it was made from.
    """
    root = Path(output_dir)
    if is_plain(root):
        from plench.runs.parquet_reading import read_results_file

        results = read_results_file(root)
        return results.runs, results.notices
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if _is_folder(entry))
    except OSError as error:
        raise UsageError(f"cannot read the results folder {str(output_dir)!r}: {error.strerror}") from error
    runs: list[Run] = []
    notices: list[str] = []
    reader = FolderReader()
    with paused_garbage_collector():
        for name in names:
            run, found = _read_folder(os.path.join(root, name), reader)
            # A name that is not UTF-8 on disk could not be printed as it is.
            shown = name.encode("utf-8", "replace").decode("utf-8")
            notices.extend(f"{shown}/{notice}" for notice in found)
            if run is not None:
                runs.append(run)
    return runs, notices


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder that can be looked into; a link that leads nowhere is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read one run folder; its notices are in `Run.notices`. A folder that is no run is a UsageError."""
    run, notices = _read_folder(str(Path(folder)), FolderReader())
    if run is None:
        reason = "; ".join(notices) or "it holds neither results.jsonl nor run.json"
        raise UsageError(f"{os.fspath(folder)!r} is not a run folder: {reason}")
    return run


@contextmanager
def paused_garbage_collector() -> Iterator[None]:
    """Reading makes millions of objects and no cycles; collecting meanwhile takes a quarter of the time.

    The first collection after a pause looks through all that was made meanwhile, unless it was frozen.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class FolderReader:
    """Reads many folders: what several of them share is read once."""

    def __init__(self) -> None:
        self.descriptions = DescriptionReader()
        # By the identity of the details, which are kept so that nothing else can have it.
        self._experiments: dict[int, tuple[dict[str, Any], Experiment]] = {}

    def find_experiment(self, details: dict[str, Any]) -> Experiment:
        """Return the experiment of ours with these details; ValueError if they lack dataset or algorithm."""
        held = self._experiments.get(id(details))
        if held is None:
            held = details, make_experiment({**details, "origin": "plench"})
            self._experiments[id(details)] = held
        return held[1]


def _read_folder(folder: str, reader: FolderReader) -> tuple[Run | None, list[str]]:
    """Read a folder into a run, or into None with the reason among the notices."""
    about_info: list[str] = []
    about_lines: list[str] = []
    info = _read_info(folder, reader, about_info)
    lines = _read_lines(folder, about_lines)
    run = None
    if info is not None or lines is not None:
        records, first, said = parse_lines(lines or b"")
        about_lines.extend(said)
        try:
            if info is not None:
                run = _run_of_ours(folder, info, records, reader)
            elif first is not None:
                run = _run_of_records(folder, first, records)
                if run.experiment.origin == "plench" and not about_info:
                    about_info.append("missing, the records' own args are used")
            else:
                about_lines.append("no usable record, left out")
        except (ValueError, RecursionError) as error:
            (about_info if info is not None else about_lines).append(f"{error}, left out")
    notices = [
        f"{file}: {'; '.join(about)}"
        for file, about in (("run.json", about_info), ("results.jsonl", about_lines))
        if about
    ]
    if run is not None and notices:
        run = replace(run, notices=tuple(notices))
    return run, notices


def _read_info(folder: str, reader: FolderReader, notices: list[str]) -> dict[str, Any] | None:
    """Return run.json as a dictionary; None if there is none or it is broken."""
    try:
        info, odd = reader.descriptions.read(f"{folder}/{RUN}")
    except FileNotFoundError:
        return None
    except DescriptionError as error:
        notices.append(f"{error}, the records' own args are used")
        return None
    notices.extend(odd)
    return info


def _read_lines(folder: str, notices: list[str]) -> bytes | None:
    """Return the content of results.jsonl, or None if there is none."""
    try:
        return read_plain(f"{folder}/{RESULTS}", MAX_RECORDS_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        notices.append(f"cannot be read ({_reason(error)})")
        return None


def _run_of_ours(folder: str, info: dict[str, Any], records: tuple[Record, ...], reader: FolderReader) -> Run:
    """Build a run from its run.json; ValueError with the reason if something needed is missing."""
    lack = find_lack(info)
    if lack:
        raise ValueError(lack)
    experiment, config, status = info["experiment"], info["config"], info["status"]
    if status in FINISHED and not os.path.exists(f"{folder}/{DONE}"):
        status = "interrupted"  # killed between the last words of run.json and the end
    diverged_after = info.get("diverged_after_step")
    return Run(
        folder=folder,
        experiment=reader.find_experiment(experiment),
        trial_seed=_seed(config, "trial_seed"),
        hparams_seed=_seed(config, "hparams_seed"),
        seed=_seed(config, "seed"),
        hparams=_mapping(config.get("hparams")),
        status=str(status),
        records=records,
        diverged_after_step=diverged_after if isinstance(diverged_after, int) else None,
        info=info,
    )


def _run_of_records(folder: str, first: dict[str, Any], records: tuple[Record, ...]) -> Run:
    """Build a run from the args and hparams of its records, which is all that the public benchmark writes.

    A run of ours that has lost its run.json is known by `logged`, which public records do not have. The
    protocol and the data it was run on are unknown, so it stays apart from those that say.
    """
    args, hparams = first["args"], _mapping(first.get("hparams"))
    diverged_after = _last_step_before_nan(records)
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
        del cell["precision"]  # the public code knows no other
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
        trial_seed=_seed(args, "trial_seed"),
        hparams_seed=_seed(args, "hparams_seed"),
        seed=_seed(args, "seed"),
        # The public code puts the folder among the hyperparameters, where it would look like one that varies.
        hparams={name: value for name, value in hparams.items() if name != "output_dir"},
        status=status,
        records=records,
        diverged_after_step=diverged_after,
    )


def _last_step_before_nan(records: tuple[Record, ...]) -> int | None:
    """Return the last step recorded before the outputs turned NaN (−1: at once), or None if they never did.

    AA is computed from the outputs, so it tells. The loss does not: some of the public benchmark's losses
    are NaN on a batch that does not concern them, and training continues unharmed.
    """
    previous = -1
    for record in records:
        if (
            isinstance(record.values.get("val_approximated_acc"), float)
            and record.get("val_approximated_acc") is None
        ):
            return previous
        previous = record.step
    return None


def make_experiment(details: dict[str, Any]) -> Experiment:
    """Return the experiment with these details; ValueError if they lack dataset or algorithm."""
    names = {}
    for key in ("dataset", "algorithm"):
        value = details.get(key)
        if not isinstance(value, str) or not value:
            raise ValueError(f"has no {key}")
        names[key] = value
    return _shared_experiment(names["dataset"], names["algorithm"], canonical(details))


@lru_cache(maxsize=65536)
def _shared_experiment(dataset: str, algorithm: str, identity: str) -> Experiment:
    """Give all runs of an experiment the same object, so that what it caches is computed once."""
    return Experiment(dataset, algorithm, identity)


def _seed(values: Mapping[str, Any], name: str) -> int:
    seed = values.get(name)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"has no whole number as {name}")
    return seed


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
