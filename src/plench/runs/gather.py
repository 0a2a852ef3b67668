"""Everything that folders of runs and results files hold, together: runs, notices, sweep files."""

import os
from collections.abc import Iterable
from pathlib import Path

from plench.errors import UsageError
from plench.plain_files import is_plain, read_plain
from plench.runs.copies import drop_copies
from plench.runs.parquet import StoredResults
from plench.runs.records import Run, read_runs_with_notices

# What a sweep was asked to do lies beside its runs.
SWEEP_FILES = "sweep-*.toml"
MAX_SWEEP_BYTES = 2**20


def gather_results(places: Iterable[str | os.PathLike[str]]) -> StoredResults:
    """Read folders of runs and results files; copies of a run count once, and must have the same records."""
    runs: list[Run] = []
    notices: list[str] = []
    sweeps: dict[str, str] = {}
    named = list(dict.fromkeys(Path(place).resolve() for place in places))
    for place in named:
        found, said = read_runs_with_notices(place)
        runs.extend(found)
        notices.extend(f"{place.name}/{notice}" if len(named) > 1 else notice for notice in said)
        sweeps.update({Path(name).name: text for name, text in read_sweep_texts(place, notices).items()})
    if not runs:
        raise UsageError(f"no runs in {', '.join(map(str, named))} (folders with results.jsonl)")
    runs, copies = drop_copies(runs, refuse_conflicts=True)
    return StoredResults(runs, [*notices, *copies], sweeps)


def read_sweep_texts(place: Path, notices: list[str]) -> dict[str, str]:
    """Return the sweep files of a folder or results file by their paths; one that is not read is a notice."""
    if is_plain(place):
        from plench.runs.parquet_reading import read_carried_sweeps as read_from_file

        return {f"{place}/{name}": text for name, text in read_from_file(place).items()}
    texts = {}
    for path in sorted(place.glob(SWEEP_FILES)):
        try:
            texts[str(path)] = read_plain(path, MAX_SWEEP_BYTES).decode("utf-8")
        except OSError as error:
            notices.append(f"cannot read the sweep file {path}: {error.strerror}")
        except ValueError as error:
            notices.append(f"{path} is not a TOML file: {error}")
    return texts
