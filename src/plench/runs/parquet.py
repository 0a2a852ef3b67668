"""Runs written as one Parquet file, a row per record (extra `report`); `parquet_reading` reads it back.

What a run says once (configuration, versions, cards) stands in every one of its rows; dictionaries keep that
small. A run without records has one row whose step is null. docs/results.md describes the columns.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plench.errors import DataError, UsageError, missing_package
from plench.runs.files import write_through
from plench.runs.lines import Record, is_finite
from plench.runs.records import Run
from plench.text import counted

SCHEMA = 1
SUFFIX = ".parquet"
FORMAT_KEY, NOTICES_KEY, SWEEPS_KEY = (f"plench.{name}" for name in ("schema", "notices", "sweeps"))

# Columns that are the same in all rows of a run, by their type.
MOMENTS = ("begun", "written")
TEXTS = ("run_id", "folder", "dataset", "algorithm", "status", *MOMENTS)
PARTS = ("experiment", "hparams", "config", "versions", "algorithm_card", "dataset_card", "info")  # JSON
SEEDS = ("trial_seed", "hparams_seed", "seed")
SECONDS = ("training_seconds", "evaluation_seconds")
# Columns of a record: figures in full, maps for what else it holds.
FIGURES = ("epoch", "loss", "mem_gb", "val_covering_rate", "val_approximated_acc", "val_accuracy", "test_acc")
MAPS = ("others", "logged")
# What has columns of its own; `config` keeps its place with a null.
IN_COLUMNS = ("hparams", *SEEDS)


@dataclass(frozen=True)
class StoredResults:
    """All that a results file or a folder holds: runs, what was wrong with single files, sweep files."""

    runs: list[Run]
    notices: list[str] = field(default_factory=list)
    sweeps: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Say how much there is."""
        algorithms, datasets = (
            {getattr(run.experiment, n) for run in self.runs} for n in ("algorithm", "dataset")
        )
        n_records = sum(len(run.records) for run in self.runs)
        return (
            f"{counted(len(self.runs), 'run')}, {counted(n_records, 'record')}, "
            f"{counted(len(algorithms), 'algorithm')}, {counted(len(datasets), 'dataset')}"
        )


def check_name(path: Path) -> None:
    """Raise UsageError for a file that is not named as results files are."""
    if path.suffix != SUFFIX:
        raise UsageError(f"a results file must end in {SUFFIX}, not {path.name!r}")


def write_results_file(results: StoredResults, path: Path) -> None:
    """Write runs as a Parquet file, whole or not at all."""
    pa, pq = import_pyarrow()
    rows = [row for run, folder in _name_folders(results.runs) for row in _rows(run, folder)]
    content = {
        FORMAT_KEY: str(SCHEMA),
        NOTICES_KEY: json.dumps(list(results.notices)),
        SWEEPS_KEY: json.dumps(dict(results.sweeps)),
    }
    schema = make_schema(pa).with_metadata(content)
    try:
        columns = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names]
    except (pa.ArrowException, OverflowError) as error:  # a seed of a hundred digits
        raise DataError(f"a run has a value that no column can hold: {error}") from error
    table = pa.table(columns, schema=schema)
    # Figures of which hardly any two are alike take less room byte by byte than in a dictionary.
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


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; a UsageError says what to install where they are missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_package("Parquet", "pyarrow", "report") from error
    return pa, pq


def make_schema(pa: Any) -> Any:
    """Return the columns of version 1, in their order."""
    types = {
        **dict.fromkeys(("run_id", "folder", "dataset", "algorithm"), pa.string()),
        **dict.fromkeys(SEEDS, pa.int64()),
        "status": pa.string(),
        "diverged_after_step": pa.int64(),
        "step": pa.int64(),
        **dict.fromkeys(FIGURES, pa.float64()),
        "step_time": pa.float32(),  # a clock is no more exact
        "others": pa.map_(pa.string(), pa.float64()),
        "logged": pa.map_(pa.string(), pa.float32()),  # for the eye only
        **dict.fromkeys(MOMENTS, pa.string()),
        **dict.fromkeys(SECONDS, pa.float64()),
        **dict.fromkeys(PARTS, pa.string()),
    }
    return pa.schema([pa.field(name, kind) for name, kind in types.items()])


def _name_folders(runs: Iterable[Run]) -> Iterator[tuple[Run, str]]:
    """Give each run a name of its own: its folder's, with a number behind where several folders had it."""
    seen: dict[str, int] = {}
    for run in runs:
        name = plain(run.path.name)
        seen[name] = seen.get(name, 0) + 1
        yield run, name if seen[name] == 1 else f"{name}~{seen[name]}"


def _rows(run: Run, folder: str) -> Iterator[dict[str, Any]]:
    """Return a row per record, or one without figures for a run that has none."""
    info = dict(run.info)
    about: dict[str, Any] = {
        "folder": folder,
        "dataset": plain(run.experiment.dataset),
        "algorithm": plain(run.experiment.algorithm),
        "trial_seed": run.trial_seed,
        "hparams_seed": run.hparams_seed,
        "seed": run.seed,
        "status": run.status,
        "diverged_after_step": run.diverged_after_step,
        "experiment": json.dumps(run.experiment.details, sort_keys=True),
        "hparams": json.dumps(dict(run.hparams)),
        **_take_timings(info),
    }
    run_id = info.pop("run_id", None)
    about["run_id"] = plain(run_id) if isinstance(run_id, str) else None
    info.pop("status", None)
    info.pop("experiment", None)
    config = info.pop("config", None)
    if isinstance(config, dict):
        config = {name: None if name in IN_COLUMNS else value for name, value in config.items()}
    for column, value in (
        ("config", config),
        ("versions", info.pop("versions", None)),
        ("algorithm_card", info.pop("algorithm_card", None)),
        ("dataset_card", info.pop("dataset", None)),
        ("info", info or None),
    ):
        about[column] = None if value is None else json.dumps(value)
    for record in run.records or (None,):
        yield {**about, **_figures(record)}


def _take_timings(info: dict[str, Any]) -> dict[str, Any]:
    """Take a run's timings out of its description, as columns."""
    timings = info.get("timings")
    found: dict[str, Any] = {}
    if isinstance(timings, dict):
        found.update({n: plain(v) for n in MOMENTS if isinstance(v := timings.get(n), str)})
        found.update({n: v for n in SECONDS if is_finite(v := timings.get(n))})
        rest = {name: value for name, value in timings.items() if name not in found}
        info["timings"] = rest
        if not rest:
            del info["timings"]
    return {name: found.get(name) for name in (*MOMENTS, *SECONDS)}


def _figures(record: Record | None) -> dict[str, Any]:
    """Return the columns of one record; what is no number is left out."""
    if record is None:
        return dict.fromkeys(("step", "step_time", *FIGURES, *MAPS))
    values = dict(record.values)
    values.pop("step", None)
    logged = values.pop("logged", None)
    columns = {name: _number(values.pop(name, None)) for name in (*FIGURES, "step_time")}
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
    """Return a number as float, NaN and infinities among them; None for anything else."""
    if is_finite(value) or (isinstance(value, float) and not math.isfinite(value)):
        return float(value)
    return None


def plain(text: str) -> str:
    """Return text that can be written as UTF-8: names of files need not be."""
    return text.encode("utf-8", "replace").decode("utf-8")
