"""Checks submitted runs of a new algorithm: are they complete, and do they match their description?

Only records, sweep files and the source file are looked at; nothing of it is executed. Needs no torch.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plench.errors import DataError, UsageError
from plench.plain_files import read_plain
from plench.runs.copies import have_same_records
from plench.runs.parquet import StoredResults
from plench.runs.records import Run
from plench.runs.sweep_spec import Grid, SweepSpec, parse_sweep

MAX_SOURCE_BYTES = 2**24


@dataclass(frozen=True)
class SubmissionCheck:
    """One check, and the problems it found, if any."""

    name: str
    problems: tuple[str, ...]


def check_submission(
    results: StoredResults, source: Path, protocol: int, others: Iterable[Run] = ()
) -> list[SubmissionCheck]:
    """Check everything that can be checked without running code; `others` are the results to add to."""
    sweeps = {name: parse_sweep(text, name) for name, text in results.sweeps.items()}
    digest = hash_source(source)
    submitted = [run for run in results.runs if "@" in run.experiment.algorithm]
    return [
        SubmissionCheck("source", tuple(_check_source(submitted, digest, source.name))),
        SubmissionCheck("protocol", tuple(_check_protocol(results.runs, protocol))),
        SubmissionCheck("planned runs", tuple(_check_plan(submitted, sweeps.values()))),
        SubmissionCheck("records", tuple(_check_records(results))),
        SubmissionCheck("data", tuple(_check_data(results.runs, sweeps.values(), list(others)))),
    ]


def hash_source(path: Path) -> str:
    """Return the part of an algorithm's name that stands for its file."""
    try:
        return hashlib.sha256(read_plain(path, MAX_SOURCE_BYTES)).hexdigest()[:8]
    except OSError as error:
        raise UsageError(f"cannot read the algorithm's file {str(path)!r}: {error.strerror}") from error


def merge_results(parts: Sequence[StoredResults]) -> StoredResults:
    """Put results together; DataError where the same run has other records, or data of one name differ."""
    kept: dict[str, Run] = {}
    for run in (run for part in parts for run in part.runs):
        key = str(run.info.get("run_id") or f"{run.experiment.identity} {run.path.name}")
        held = kept.get(key)
        if held is not None and held.finished and run.finished and not have_same_records(held, run):
            raise DataError(f"run {run.path.name} is in both, with other records")
        if held is None or (run.finished and not held.finished):
            kept[key] = run
    runs = list(kept.values())
    problems = list(_compare_fingerprints(runs))
    if problems:
        raise DataError(f"these results do not compare: {problems[0]}")
    notices = list(dict.fromkeys(notice for part in parts for notice in part.notices))
    return StoredResults(runs, notices, {name: text for part in parts for name, text in part.sweeps.items()})


def _check_source(submitted: Sequence[Run], digest: str, name: str) -> Iterator[str]:
    if not submitted:
        yield "no run is of an algorithm given by its file (such a name has an @ in it)"
    for algorithm in sorted({run.experiment.algorithm for run in submitted}):
        if algorithm.rpartition("@")[2] != digest:
            yield f"the runs of {algorithm} were made with another file than {name}, whose hash is {digest}"


def _check_protocol(runs: Sequence[Run], protocol: int) -> Iterator[str]:
    public = sum(run.experiment.origin != "plench" for run in runs)
    if public:
        yield f"{public} runs are not plench's"
    for found in sorted({str(run.experiment.details.get("protocol")) for run in runs}):
        if found != str(protocol):
            yield f"runs of protocol version {found}, this is version {protocol}"


def _check_plan(submitted: Sequence[Run], sweeps: Iterable[SweepSpec]) -> Iterator[str]:
    """Name planned runs that are missing or unfinished, plans with a hole, and runs that none asks for."""
    planned = _list_planned(grid for sweep in sweeps for grid in sweep.grids)
    if not planned:
        yield "no sweep file says what was planned (launch the runs with `plench sweep launch`)"
        return
    asked_for: set[int] = set()
    for (name, dataset, steps), asked in planned.items():
        found = [run for run in submitted if _is_of(run, name, dataset, steps)]
        asked_for.update(map(id, found))
        where = f"{name} on {dataset}"
        if len({run.experiment for run in found}) > 1:
            yield f"{where}: its runs differ in more than split and configuration"
        there = {
            (run.trial_seed, run.hparams_seed): run for run in sorted(found, key=lambda run: run.finished)
        }
        missing = sorted(place for place in asked if place not in there)
        if missing:
            yield f"{where}: {len(missing)} of {len(asked)} planned runs are missing, {_show(missing)}"
        unfinished = sorted(place for place in asked & there.keys() if not there[place].finished)
        if unfinished:
            states = ", ".join(sorted({there[place].status for place in unfinished}))
            yield f"{where}: {len(unfinished)} planned runs are not finished ({states}), {_show(unfinished)}"
        for what, numbers in (("splits", {t for t, _ in asked}), ("configurations", {h for _, h in asked})):
            if numbers != set(range(len(numbers))):
                yield f"{where}: the planned {what} are {sorted(numbers)}, not 0, 1, 2, … without a gap"
    extra = {run.experiment.algorithm for run in submitted if id(run) not in asked_for}
    for algorithm in sorted(extra):
        yield f"{algorithm}: there are runs that no sweep file asks for"


def _is_of(run: Run, class_name: str, dataset: str, steps: int | None) -> bool:
    """Whether a grid that names this class, dataset and number of steps asks for the run."""
    named = run.info.get("algorithm_class") or run.experiment.algorithm.rpartition("@")[0]
    return named == class_name and run.experiment.dataset == dataset and steps in (None, run.experiment.steps)


def _list_planned(grids: Iterable[Grid]) -> dict[tuple[str, str, int | None], set[tuple[int, int]]]:
    """Return the planned (split, configuration) pairs of classes given by file, by class, dataset, steps."""
    planned: dict[tuple[str, str, int | None], set[tuple[int, int]]] = {}
    for grid in grids:
        places = {(trial, hparams) for trial in grid.trial_seeds for hparams in grid.hparams_seeds}
        for algorithm in grid.algorithms:
            _, given_by_path, name = algorithm.rpartition(":")
            for dataset in grid.datasets if given_by_path else ():
                planned.setdefault((name, dataset, grid.steps), set()).update(places)
    return planned


def _show(places: Sequence[tuple[int, int]]) -> str:
    shown = "; ".join(f"split {trial}, configuration {hparams}" for trial, hparams in places[:3])
    return shown + ("; …" if len(places) > 3 else "")


def _check_records(results: StoredResults) -> Iterator[str]:
    """Name what was wrong with files, and finished runs whose last record is missing."""
    yield from results.notices
    for run in results.runs:
        if run.status == "done" and run.last_record is None:
            yield f"{run.path.name}: its last record is missing"


def _check_data(runs: Sequence[Run], sweeps: Iterable[SweepSpec], others: Sequence[Run]) -> Iterator[str]:
    yield from _compare_fingerprints([*runs, *others])
    of_dataset = {
        run.experiment.dataset: str(run.experiment.details.get("dataset_fingerprint")) for run in runs
    }
    for sweep in sweeps:
        for dataset, fingerprint in sweep.fingerprints.items():
            if dataset in of_dataset and of_dataset[dataset] != fingerprint:
                yield f"{dataset}: runs and sweep file have data of different content"
    unverified = {
        run.experiment.dataset for run in runs if run.experiment.details.get("dataset_fingerprint") is None
    }
    for dataset in sorted(unverified):
        yield f"{dataset}: runs that do not say the fingerprint of their data"


def _compare_fingerprints(runs: Iterable[Run]) -> Iterator[str]:
    """Name datasets whose runs were made on data of different content."""
    found: dict[str, set[str]] = {}
    for run in runs:
        fingerprint = str(run.experiment.details.get("dataset_fingerprint"))
        found.setdefault(run.experiment.dataset, set()).add(fingerprint)
    for dataset, fingerprints in sorted(found.items()):
        if len(fingerprints) > 1:
            shown = ", ".join(sorted(text[:12] for text in fingerprints))
            yield f"{dataset} has runs on data of different content (fingerprints {shown})"
