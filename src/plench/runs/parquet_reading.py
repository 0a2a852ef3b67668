"""Reading results files without trusting them: the runs that were written, or a DataError."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plench.errors import DataError, UsageError
from plench.parquet_limits import allow_bytes, check_claims
from plench.plain_files import open_plain
from plench.runs.description import FINISHED, STATUSES
from plench.runs.lines import Record
from plench.runs.parquet import (
    FIGURES,
    FORMAT_KEY,
    MAPS,
    MOMENTS,
    NOTICES_KEY,
    PARTS,
    SCHEMA,
    SECONDS,
    SEEDS,
    SWEEPS_KEY,
    TEXTS,
    StoredResults,
    import_pyarrow,
    make_schema,
    plain,
)
from plench.runs.records import Run, make_experiment

# A larger file is not read: nobody has that many runs.
MOST_ROWS = 5_000_000
MOST_METADATA_BYTES = 64 * 2**20


def read_results_file(path: Path) -> StoredResults:
    """Read a file that `write_results_file` made; DataError for any other, whatever is wrong with it."""
    pa, _ = import_pyarrow()
    with _open(path) as file:
        notices, sweeps = _check_file(file, make_schema(pa), path)
    # Texts stay dictionaries: written out in every row they would take a thousand times the room.
    with _open(path, dictionaries=[*TEXTS, *PARTS]) as file:
        return StoredResults(_build_runs(pa, file.read(), path), notices, sweeps)


def read_carried_sweeps(path: Path) -> dict[str, str]:
    """Return the sweep files that a results file carries, by their names, without reading its runs."""
    pa, _ = import_pyarrow()
    with _open(path) as file:
        return _check_file(file, make_schema(pa), path)[1]


def read_finished(path: Path) -> dict[str, str]:
    """Return the status of every run of a results file that is done or diverged, by its `run_id`."""
    pa, _ = import_pyarrow()
    with _open(path) as file:
        _check_file(file, make_schema(pa), path)
        columns = file.read(columns=["run_id", "status"]).to_pydict()
    pairs = zip(columns["run_id"], columns["status"], strict=True)
    return {run_id: status for run_id, status in pairs if run_id is not None and status in FINISHED}


@contextmanager
def _open(path: Path, dictionaries: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file; whatever goes wrong with it inside the block is a DataError that names it."""
    _, pq = import_pyarrow()
    try:
        with open_plain(path) as source:
            check_claims(source, os.fstat(source.fileno()).st_size)
            source.seek(0)
            with pq.ParquetFile(
                source,
                read_dictionary=list(dictionaries),
                page_checksum_verification=True,
                thrift_string_size_limit=MOST_METADATA_BYTES,
                thrift_container_size_limit=1_000_000,
            ) as file:
                yield file
    except DataError:
        raise
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or 'no such file'}") from error
    except Exception as error:  # damaged files make pyarrow raise errors of many kinds
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{str(path)!r} cannot be read as a results file: {reason}") from error


def _check_file(file: Any, schema: Any, path: Path) -> tuple[list[str], dict[str, str]]:
    """Check version, columns and size before anything is unpacked; return notices and sweep files."""
    metadata = file.metadata.metadata or {}
    version = metadata.get(FORMAT_KEY.encode(), b"").decode("ascii", "replace")
    if version != str(SCHEMA):
        said = f"has schema {version[:20]!r}" if version else "is no results file of plench"
        raise DataError(
            f"{str(path)!r} {said}: this version reads schema {SCHEMA} of `plench results export`"
        )
    found = file.schema_arrow
    for column in schema:
        index = found.get_field_index(column.name)
        kind = None if index < 0 else found.field(index).type
        if kind != column.type:
            raise DataError(
                f"{str(path)!r}: column {column.name!r} must be {column.type}, not {kind or 'absent'}"
            )
    if file.metadata.num_rows > MOST_ROWS:
        raise DataError(
            f"{str(path)!r} is too large: {file.metadata.num_rows:,} rows, at most {MOST_ROWS:,} are read"
        )
    notices, sweeps = (json.loads(metadata.get(key.encode(), b"null")) for key in (NOTICES_KEY, SWEEPS_KEY))
    notices, sweeps = notices or [], sweeps or {}
    known = isinstance(notices, list) and isinstance(sweeps, dict)
    if not known or not all(isinstance(text, str) for text in (*notices, *sweeps.values())):
        raise DataError(f"{str(path)!r}: its notices or sweep files are not texts")
    return notices, sweeps


def _build_runs(pa: Any, table: Any, path: Path) -> list[Run]:
    """Put the rows of each run together, whatever their order."""
    if table.num_rows == 0:
        return []
    table = table.unify_dictionaries().combine_chunks()
    codes = _codes(table["folder"])
    if (codes < 0).any():
        raise DataError(f"{str(path)!r}: row {int(np.argmin(codes))} names no folder")
    order = np.argsort(codes, kind="stable")
    if (np.diff(order) != 1).any():
        table, codes = table.take(pa.array(order)), codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    lengths = np.diff(starts, append=len(codes))
    _check_texts(table, starts, path)
    about = {}
    for name in (*TEXTS, *PARTS, *SEEDS, "diverged_after_step", *SECONDS):
        marks = _codes(table[name])
        other = np.flatnonzero(marks != np.repeat(marks[starts], lengths))
        if len(other):
            folder = table["folder"][int(other[0])].as_py()
            raise DataError(f"{str(path)!r}: the rows of run {folder!r} differ in {name}")
        about[name] = table[name].take(pa.array(starts)).to_pylist()
    records = _read_records(table)
    runs = []
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        row = {name: values[number] for name, values in about.items()}
        mine = records[start : start + length]
        try:
            runs.append(_build_run(row, [record for record in mine if record is not None], path))
        except ValueError as error:
            raise DataError(f"{str(path)!r}: run {row['folder']!r} {error}") from error
    return runs


def _check_texts(table: Any, starts: NDArray[np.int64], path: Path) -> None:
    """Raise DataError if texts that many runs share would take too much room, once for every run."""
    n_bytes = 0
    for name in (*TEXTS, *PARTS):
        (chunk,) = table[name].chunks
        lengths = np.array([len(text) for text in chunk.dictionary.to_pylist()] or [0], dtype=np.int64)
        codes = _codes(table[name])[starts]
        n_bytes += int(lengths[codes[codes >= 0]].sum())
    allowed = allow_bytes(path.stat().st_size)
    if n_bytes > allowed:
        raise DataError(
            f"{str(path)!r} is too large: texts of its runs take {n_bytes:,} bytes; allowed are {allowed:,}"
        )


def _codes(column: Any) -> NDArray[np.int64]:
    """Number the values of a column by first appearance; null is −1."""
    (chunk,) = column.chunks
    encoded = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _read_records(table: Any) -> list[Record | None]:
    """Return the record of every row, None where it has no step."""
    names = (*FIGURES, "step_time")
    figures = zip(*(table[name].to_pylist() for name in names), strict=True)
    maps = [table[name].to_pylist() for name in MAPS]
    records: list[Record | None] = []
    for step, row, others, logged in zip(table["step"].to_pylist(), figures, *maps, strict=True):
        if step is None:
            records.append(None)
            continue
        values = {"step": step, **dict(zip(names, row, strict=True))}
        if others:
            values.update(others)  # pairs
        if logged is not None:
            values["logged"] = dict(logged)
        records.append(Record(step, values))
    return records


def _build_run(row: Mapping[str, Any], records: Sequence[Record], path: Path) -> Run:
    """Build a run from its columns; ValueError with the reason if they make no sense."""
    parts = {name: _parse(row[name], name) for name in PARTS}
    for name in (*SEEDS, "status"):
        if row[name] is None:
            raise ValueError(f"has no {name}")
    if row["status"] not in STATUSES:
        raise ValueError(f"has status {row['status']!r}, which is none of {', '.join(STATUSES)}")
    experiment = make_experiment(parts["experiment"])
    for name in ("dataset", "algorithm"):
        if row[name] != plain(getattr(experiment, name)):
            raise ValueError(f"is of {name} {row[name]!r}, but its experiment says otherwise")
    by_step = {record.step: record for record in records}
    if len(by_step) < len(records) or min(by_step, default=0) < 0:
        raise ValueError("has a step twice or below 0")
    return Run(
        folder=str(path / row["folder"]),
        experiment=experiment,
        **{name: row[name] for name in SEEDS},
        hparams=parts["hparams"],
        status=row["status"],
        records=tuple(by_step[step] for step in sorted(by_step)),
        diverged_after_step=row["diverged_after_step"],
        info=_build_info(row, parts),
    )


def _build_info(row: Mapping[str, Any], parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Put run.json together again; empty for a run that had none."""
    if row["config"] is None:
        return {}
    info = dict(parts["info"])
    timings = {name: row[name] for name in (*MOMENTS, *SECONDS) if row[name] is not None}
    if timings:
        info["timings"] = {**timings, **info.get("timings", {})}
    for name, part in (("versions", "versions"), ("algorithm_card",) * 2, ("dataset", "dataset_card")):
        if row[part] is not None:
            info[name] = parts[part]
    if row["run_id"] is not None:
        info["run_id"] = row["run_id"]
    experiment = {name: value for name, value in parts["experiment"].items() if name != "origin"}
    seeds = {name: row[name] for name in SEEDS}
    config = {**parts["config"], "hparams": parts["hparams"], **seeds}
    return {**info, "status": row["status"], "experiment": experiment, "config": config}


@lru_cache(maxsize=65536)
def _parse_text(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def _parse(text: str | None, name: str) -> dict[str, Any]:
    try:
        return {} if text is None else _parse_text(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has a broken {name}: {error}") from error
