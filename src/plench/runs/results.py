"""Results: runs of folders and results files read together, and written as one Parquet file (extra `report`).

The file has a row per record. What a run states once (configuration, versions, cards) is in each of its rows;
dictionary encoding keeps that small. A run without records has one row whose step is null.
docs/results-file.md describes the columns.
"""

import gc
import json
import logging
import math
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from plench.errors import DataError, UsageError, needs_package
from plench.files import attempt, write_through
from plench.runs.folder import FINISHED, STATUSES
from plench.runs.records import (
    FIGURES,
    SEEDS,
    Record,
    Run,
    is_finite,
    make_experiment,
    read_figures,
    read_folder,
)
from plench.runs.sweep_spec import SWEEP_FILES
from plench.text import counted

SCHEMA = 1
SUFFIX = ".parquet"
COUNT_ONCE = "of runs that count once; left out: "
FORMAT_KEY, WARNINGS_KEY, SWEEPS_KEY = (f"plench.{name}" for name in ("schema", "notices", "sweeps"))
MOST_ROWS = 5_000_000  # a file that declares more is not read: no benchmark has that many records

# Columns that are the same in all rows of a run, by their type.
MOMENTS = ("begun", "written")
TEXTS = ("run_id", "folder", "dataset", "algorithm", "status", *MOMENTS)
PARTS = ("experiment", "hparams", "config", "versions", "algorithm_card", "dataset_card", "info")  # JSON
SECONDS = ("training_seconds", "evaluation_seconds")
# Columns of a record: figures in full, maps for other values.
COLUMNS = ("epoch", "loss", "mem_gb", "val_covering_rate", "val_approximated_acc", "val_accuracy", "test_acc")
MAPS = ("others", "logged")
# Keys of run.json that have a column of their own under another name, or the same.
IN_PARTS = {
    "config": "config",
    "versions": "versions",
    "algorithm_card": "algorithm_card",
    "dataset": "dataset_card",
}

logger = logging.getLogger("plench")


@dataclass(frozen=True)
class StoredResults:
    """The content of a results file or a folder: runs, warnings about single files, sweep files."""

    runs: list[Run]
    warnings: list[str] = field(default_factory=list)
    sweeps: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the numbers of runs, records, algorithms and datasets as text."""
        numbers = {
            "run": len(self.runs),
            "record": sum(len(run.records) for run in self.runs),
            "algorithm": len({run.experiment.algorithm for run in self.runs}),
            "dataset": len({run.experiment.dataset for run in self.runs}),
        }
        return ", ".join(counted(number, noun) for noun, number in numbers.items())


def read_runs(output_dir: str | os.PathLike[str]) -> list[Run]:
    """Read every run folder directly under `output_dir`, or a results file, and log warnings."""
    runs, warnings = read_runs_with_warnings(output_dir)
    for warning in warnings:
        logger.warning("%s", warning)
    return runs


def read_runs_with_warnings(output_dir: str | os.PathLike[str]) -> tuple[list[Run], list[str]]:
    """Read every run folder in the order of their names; each warning starts with the file it is about.

    A results file (`plench export`) is read like the folders that it was made from.
    """
    root = Path(output_dir)
    if root.is_file():
        results = read_results_file(root)
        return results.runs, results.warnings
    with attempt(f"read the results folder {str(output_dir)!r}", UsageError), os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if os.path.isdir(entry))
    runs: list[Run] = []
    warnings: list[str] = []
    with paused_garbage_collector():
        for name in names:
            run, found = read_folder(os.path.join(root, name))
            warnings.extend(f"{plain(name)}/{warning}" for warning in found)
            if run is not None:
                runs.append(run)
    return runs, warnings


@contextmanager
def paused_garbage_collector() -> Iterator[None]:
    """Pause the collector: it takes a quarter of the time, and what is read has no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def gather_results(places: Iterable[str | os.PathLike[str]]) -> StoredResults:
    """Read folders of runs and results files; copies of a run count once, and must have the same records."""
    runs: list[Run] = []
    warnings: list[str] = []
    sweeps: dict[str, str] = {}
    named = list(dict.fromkeys(Path(place).resolve() for place in places))
    for place in named:
        found, said = read_runs_with_warnings(place)
        runs.extend(found)
        warnings.extend(f"{place.name}/{warning}" if len(named) > 1 else warning for warning in said)
        sweeps.update({Path(name).name: text for name, text in read_sweep_texts(place, warnings).items()})
    if not runs:
        raise UsageError(f"no runs in {', '.join(map(str, named))} (folders with results.jsonl)")
    runs, copies = drop_copies(runs, refuse_conflicts=True)
    return StoredResults(runs, [*warnings, *copies], sweeps)


def read_sweep_texts(place: Path, warnings: list[str]) -> dict[str, str]:
    """Return the sweep files of a folder or results file by their paths; add warnings for unreadable ones."""
    if place.is_file():
        with _opened(place) as (_, _, sweeps):
            return {f"{place}/{name}": text for name, text in sweeps.items()}
    texts = {}
    for path in sorted(place.glob(SWEEP_FILES)):
        try:
            texts[str(path)] = path.read_text(encoding="utf-8")
        except OSError as error:
            warnings.append(f"cannot read the sweep file {path}: {error.strerror}")
        except ValueError as error:
            warnings.append(f"{path} is not a TOML file: {error}")
    return texts


def drop_copies(runs: Iterable[Run], *, refuse_conflicts: bool = False) -> tuple[list[Run], list[str]]:
    """Keep one folder of each run, the first that finished, and name the others in one warning.

    Our runs are identified by their `run_id`. Those without one (the public benchmark's) are all kept. With
    `refuse_conflicts`, finished copies of one run with different records raise DataError.
    """
    kept: dict[Hashable, Run] = {}
    copies: list[Run] = []
    for number, run in enumerate(runs):
        run_id = run.info.get("run_id")
        # The experiment and the seeds are in the key so that a faulty run_id never hides another run.
        named = (run_id, run.experiment, run.trial_seed, run.hparams_seed, run.seed)
        key: Hashable = named if isinstance(run_id, str) and run_id else number
        held = kept.setdefault(key, run)
        if held is run:
            continue
        if refuse_conflicts and held.finished and run.finished:
            one, other = (
                [[record.step for record in each.records], *(read_figures(each.records, k) for k in FIGURES)]
                for each in (held, run)
            )
            if one != other:
                raise DataError(
                    f"{held.path} and {run.path} are the same run with different records: remove one"
                )
        if run.finished and not held.finished:
            kept[key], run = run, held
        copies.append(run)
    if not copies:
        return list(kept.values()), []
    shown = ", ".join(["/".join(run.path.parts[-2:]) for run in copies[:3]] + ["…"] * (len(copies) > 3))
    noun = "folder is a copy" if len(copies) == 1 else "folders are copies"
    return list(kept.values()), [f"{len(copies)} {noun} {COUNT_ONCE}{shown}"]


def check_name(path: Path) -> None:
    """Raise UsageError for a results file without the right suffix."""
    if path.suffix != SUFFIX:
        raise UsageError(f"a results file must end in {SUFFIX}, not {path.name!r}")


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; raise UsageError with what to install if they are missing."""
    with needs_package("Parquet", "pyarrow", "report"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq


def make_schema(pa: Any) -> Any:
    """Return the columns of version 1, in their order."""
    types = {
        **dict.fromkeys(("run_id", "folder", "dataset", "algorithm"), pa.string()),
        **dict.fromkeys(SEEDS, pa.int64()),
        "status": pa.string(),
        "diverged_after_step": pa.int64(),
        "step": pa.int64(),
        **dict.fromkeys(COLUMNS, pa.float64()),
        "step_time": pa.float32(),  # a clock is not more exact
        "others": pa.map_(pa.string(), pa.float64()),
        "logged": pa.map_(pa.string(), pa.float32()),  # for display only
        **dict.fromkeys(MOMENTS, pa.string()),
        **dict.fromkeys(SECONDS, pa.float64()),
        **dict.fromkeys(PARTS, pa.string()),
    }
    return pa.schema([pa.field(name, kind) for name, kind in types.items()])


def plain(text: str) -> str:
    """Return text that can be written as UTF-8; names of files may be anything."""
    return text.encode("utf-8", "replace").decode("utf-8")


def write_results_file(results: StoredResults, path: Path) -> None:
    """Write runs as a Parquet file, completely or not at all."""
    pa, pq = import_pyarrow()
    rows: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for run in results.runs:
        name = plain(run.path.name)
        seen[name] = seen.get(name, 0) + 1  # folders of one name get a number
        about = _describe(run, name if seen[name] == 1 else f"{name}~{seen[name]}")
        rows.extend({**about, **_figures(record)} for record in run.records)
        if not run.records:
            rows.append(about)
    content = {
        FORMAT_KEY: str(SCHEMA),
        WARNINGS_KEY: json.dumps(list(results.warnings)),
        SWEEPS_KEY: json.dumps(dict(results.sweeps)),
    }
    schema = make_schema(pa).with_metadata(content)
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(f"a run has a value that no column can hold: {error}") from error
    # Figures of which hardly two are equal take less space byte by byte than in a dictionary.
    apart = ("loss", "val_approximated_acc", "step_time", *SECONDS)
    options = {
        "compression": "zstd",
        "compression_level": 15,
        "use_dictionary": [name for name in schema.names if name not in (*apart, "seed", *MAPS)],
        "use_byte_stream_split": list(apart),
        "dictionary_pagesize_limit": 64 * 2**20,
        "write_page_checksum": True,
    }
    write_through(path, lambda temporary: pq.write_table(table, temporary, **options))


def _describe(run: Run, folder: str) -> dict[str, Any]:
    """Return the columns that all rows of a run share."""
    info = dict(run.info)
    timings = info.pop("timings", None)
    found: dict[str, Any] = {}
    if isinstance(timings, dict):
        found.update({name: plain(v) for name in MOMENTS if isinstance(v := timings.get(name), str)})
        found.update({name: v for name in SECONDS if is_finite(v := timings.get(name))})
        rest = {name: value for name, value in timings.items() if name not in found}
        if rest:
            info["timings"] = rest
    run_id, config = info.pop("run_id", None), info.get("config")
    if isinstance(config, dict):  # keys with columns of their own keep their place with a null
        info["config"] = {name: None if name in ("hparams", *SEEDS) else v for name, v in config.items()}
    parts = {column: info.pop(name, None) for name, column in IN_PARTS.items()}
    parts["info"] = {name: v for name, v in info.items() if name not in ("status", "experiment")} or None
    return {
        "run_id": plain(run_id) if isinstance(run_id, str) else None,
        "folder": folder,
        "dataset": plain(run.experiment.dataset),
        "algorithm": plain(run.experiment.algorithm),
        **{name: getattr(run, name) for name in SEEDS},
        "status": run.status,
        "diverged_after_step": run.diverged_after_step,
        "experiment": json.dumps(run.experiment.details, sort_keys=True),
        "hparams": json.dumps(dict(run.hparams)),
        **{name: None if value is None else json.dumps(value) for name, value in parts.items()},
        **found,
    }


def _figures(record: Record) -> dict[str, Any]:
    """Return the columns of one record; values that are not numbers are left out."""
    values = dict(record.values)
    values.pop("step", None)
    logged = values.pop("logged", None)
    columns = {name: _number(values.pop(name, None)) for name in (*COLUMNS, "step_time")}
    return {
        "step": record.step,
        **columns,
        "others": _numbers(values) or None,
        "logged": _numbers(logged) if isinstance(logged, dict) else None,
    }


def _numbers(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    found = ((plain(name), _number(value)) for name, value in values.items())
    return [(name, value) for name, value in found if value is not None]


def _number(value: object) -> float | None:
    """Return a number as float, including NaN and infinities; None for anything else."""
    if is_finite(value) or (isinstance(value, float) and not math.isfinite(value)):
        return float(value)
    return None


def read_results_file(path: Path) -> StoredResults:
    """Read a file that `write_results_file` made; DataError for any other, whatever is wrong with it."""
    with _opened(path) as (file, warnings, sweeps):
        return StoredResults(_build_runs(file.read(), path), warnings, sweeps)


def read_finished(path: Path) -> dict[str, str]:
    """Return the status of every run of a results file that is done or diverged, by its `run_id`."""
    with _opened(path) as (file, _, _):
        columns = file.read(columns=["run_id", "status"]).to_pydict()
    pairs = zip(columns["run_id"], columns["status"], strict=True)
    return {run_id: status for run_id, status in pairs if run_id is not None and status in FINISHED}


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, list[str], dict[str, str]]]:
    """Open a results file and check version, columns and size; yield it with its warnings and sweep files.

    Errors of any kind become a DataError that names the file: pyarrow raises many for damaged files.
    """
    pa, pq = import_pyarrow()
    # Texts stay dictionaries: written out in every row they would take a thousand times the space.
    options = {"read_dictionary": [*TEXTS, *PARTS], "page_checksum_verification": True}
    try:
        described = pq.read_metadata(path)
        metadata, columns = described.metadata or {}, described.schema.to_arrow_schema()
        version = metadata.get(FORMAT_KEY.encode(), b"").decode("ascii", "replace")
        if version != str(SCHEMA):
            found = f"schema {version[:20]!r}" if version else "not made by `plench export`"
            raise ValueError(f"{found}; this version reads schema {SCHEMA}")
        kinds = dict(zip(columns.names, columns.types, strict=True))
        for column in make_schema(pa):
            kind = kinds.get(column.name, "absent")
            if kind != column.type:
                raise ValueError(f"column {column.name!r} must be {column.type}, not {kind}")
        if described.num_rows > MOST_ROWS:
            raise ValueError(f"it is too large: {described.num_rows:,} rows; at most {MOST_ROWS:,}")
        warnings = json.loads(metadata.get(WARNINGS_KEY.encode(), b"[]"))
        sweeps = json.loads(metadata.get(SWEEPS_KEY.encode(), b"{}"))
        if not (isinstance(warnings, list) and isinstance(sweeps, dict)) or not all(
            isinstance(text, str) for text in (*warnings, *sweeps.values())
        ):
            raise ValueError("its warnings or sweep files are not texts")
        # The copies that an export left out say nothing about the runs in the file.
        warnings = [warning for warning in warnings if COUNT_ONCE not in warning]
        with pq.ParquetFile(path, metadata=described, **options) as file:
            yield file, warnings, sweeps
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {str(path)!r}: no such file") from error
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{str(path)!r} cannot be read as a results file: {reason}") from error


def _build_runs(table: Any, path: Path) -> list[Run]:
    """Put the rows of each run together, in any order."""
    import numpy as np  # `sweep status` does not need it

    def number_values(column: Any) -> Any:
        """Number the values of a column by first appearance; null is −1."""
        (chunk,) = column.chunks
        encoded = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
        return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)

    if table.num_rows == 0:
        return []
    table = table.unify_dictionaries().combine_chunks()
    codes = number_values(table["folder"])
    if (codes < 0).any():
        raise ValueError(f"row {int(np.argmin(codes))} names no folder")
    order = np.argsort(codes, kind="stable")
    table, codes = table.take(order), codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    lengths = np.diff(starts, append=len(codes))
    names = [*TEXTS, *PARTS, *SEEDS, "diverged_after_step", *SECONDS]
    for name in names:
        values = number_values(table[name])
        other = np.flatnonzero(values != np.repeat(values[starts], lengths))
        if len(other):
            raise ValueError(f"the rows of run {table['folder'][int(other[0])].as_py()!r} differ in {name}")
    about = table.select(names).take(starts).to_pylist()
    figures = (*COLUMNS, "step_time")
    columns = (table[name].to_pylist() for name in ("step", *MAPS, *figures))
    rows = zip(*columns, strict=True)
    runs = []
    for row, length in zip(about, lengths.tolist(), strict=True):
        records = []
        for step, others, logged, *values in islice(rows, length):
            if step is not None:
                taken = {"step": step, **dict(zip(figures, values, strict=True)), **dict(others or ())}
                records.append(Record(step, taken if logged is None else {**taken, "logged": dict(logged)}))
        try:
            runs.append(_build_run(row, records, path))
        except ValueError as error:
            raise ValueError(f"run {row['folder']!r} {error}") from error
    return runs


def _build_run(row: Mapping[str, Any], records: Sequence[Record], path: Path) -> Run:
    """Build a run from its columns; raise ValueError with the reason if they are inconsistent."""
    parts = {name: _parse_part(name, row[name]) for name in PARTS}
    for name in (*SEEDS, "status"):
        if row[name] is None:
            raise ValueError(f"has no {name}")
    if row["status"] not in STATUSES:
        raise ValueError(f"has status {row['status']!r}; expected one of {', '.join(STATUSES)}")
    experiment = make_experiment(parts["experiment"])
    for name in ("dataset", "algorithm"):
        if row[name] != plain(getattr(experiment, name)):
            raise ValueError(f"is of {name} {row[name]!r}, which is not that of its experiment")
    by_step = {record.step: record for record in records}
    if len(by_step) < len(records) or min(by_step, default=0) < 0:
        raise ValueError("has a step twice or below 0")
    seeds = {name: row[name] for name in SEEDS}
    info: dict[str, Any] = {}
    if row["config"] is not None:  # without it, the run had no run.json
        info = dict(parts["info"])
        timings = {name: row[name] for name in (*MOMENTS, *SECONDS) if row[name] is not None}
        if timings:
            info["timings"] = {**timings, **info.get("timings", {})}
        info |= {name: parts[column] for name, column in IN_PARTS.items() if row[column] is not None}
        if row["run_id"] is not None:
            info["run_id"] = row["run_id"]
        info["status"] = row["status"]
        info["experiment"] = {name: v for name, v in parts["experiment"].items() if name != "origin"}
        info["config"] = {**parts["config"], "hparams": parts["hparams"], **seeds}
    return Run(
        folder=str(path / row["folder"]),
        experiment=experiment,
        **seeds,
        hparams=parts["hparams"],
        status=row["status"],
        records=tuple(by_step[step] for step in sorted(by_step)),
        diverged_after_step=row["diverged_after_step"],
        info=info,
    )


@lru_cache(maxsize=65536)
def _parse_part(name: str, text: str | None) -> dict[str, Any]:
    try:
        content = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has a broken {name}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"has a broken {name}: not a JSON object")
    return content
