"""Verifying results: a sample of runs is repeated and compared, and submissions are checked.

A submission is the file of a new algorithm and its runs. Checking it reads records, sweep files and that
file, and executes nothing.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plench.errors import DataError, UsageError
from plench.files import attempt, sha256
from plench.registry import is_third_party
from plench.runs.records import FIGURES, SHARES, Record, Run
from plench.runs.results import StoredResults, drop_copies
from plench.runs.sweep_spec import SweepSpec, parse_sweep

# Largest difference of a criterion or the last test accuracy where conditions differ: training on other
# hardware or versions drifts like another seed.
TOLERANCE = 0.05
# What depends on the clock or the machine.
NOT_COMPARED = ("step", "step_time", "mem_gb", "fleet_size", "logged")


def choose_sample(runs: Sequence[Run], size: int, seed: int, run_code: bool) -> tuple[list[Run], list[str]]:
    """Draw finished runs at random, third-party ones only with `run_code`; return them with warnings."""
    ours = [run for run in runs if run.experiment.origin == "plench" and run.info.get("config")]
    finished = [run for run in ours if run.finished]
    foreign = [run for run in finished if is_foreign(run)]
    eligible = finished if run_code else [run for run in finished if not is_foreign(run)]
    warnings = []
    if len(ours) < len(runs):
        warnings.append(f"{len(runs) - len(ours)} runs have no run.json and cannot be repeated")
    if foreign and not run_code:
        names = ", ".join(sorted({run.experiment.algorithm for run in foreign}))
        warnings.append(
            f"{len(foreign)} runs of {names} are not repeated, since that executes third-party code: "
            "--run-code allows it"
        )
    eligible.sort(key=lambda run: (run.experiment.dataset, run.experiment.algorithm, run.path.name))
    return random.Random(seed).sample(eligible, min(size, len(eligible))), warnings


def is_foreign(run: Run) -> bool:
    """Whether any part of the run is third-party, so that repeating it executes third-party code.

    A forged description may contradict itself, so every place that names code is checked.
    """
    algorithm, config = run.experiment.algorithm, run.info.get("config")
    own = run.info.get("algorithm_spec") == algorithm and run.info.get("network") is None
    if not own or not isinstance(config, dict) or config.get("algorithm", algorithm) != algorithm:
        return True
    hparams = config.get("hparams")
    network = hparams.get("model") if isinstance(hparams, dict) else None
    criteria = str(config.get("more_criteria") or "").split(",")
    named = [algorithm, *([network] if network is not None else []), *(name.strip() for name in criteria)]
    return is_third_party(str(config.get("dataset"))) or any(
        is_third_party(str(name)) or "@" in str(name) for name in named
    )


def compare_conditions(before: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return what differs between the conditions of two runs; what was not recorded counts as different."""
    return [
        f"{key} {before.get(key, 'unknown')} → {now.get(key)}"
        for key in keys
        if key not in before or before[key] != now.get(key)
    ]


def compare_runs(stored: Run, repeated: Run, exact: bool, tolerance: float = TOLERANCE) -> list[str]:
    """Return how a repeated run differs from the stored one: in any bit, or by more than the tolerance."""
    if stored.status != repeated.status:
        return [f"ended as {repeated.status}, not {stored.status}"]
    steps = [[record.step for record in run.records] for run in (stored, repeated)]
    if steps[0] != steps[1] and (exact or stored.status == "done"):
        return [f"has records at other steps: {len(steps[1])} instead of {len(steps[0])}"]
    differences = []
    for before, again in zip(stored.records, repeated.records, strict=True) if exact else ():
        olds, news = _flatten(before), _flatten(again)
        for name in dict.fromkeys([*olds, *news]):
            old, new = olds.get(name), news.get(name)
            if old != new and not (old != old and new != new):  # NaN differs from itself
                differences.append(f"step {before.step}: {name} is {new}, not {old}")
    if exact:
        return differences
    if stored.records and repeated.records:
        for name in (n for n in FIGURES if n in SHARES):
            old, new = stored.records[-1].get(name), repeated.records[-1].get(name)
            if (old is None) != (new is None):
                differences.append(f"{name} is {new}, not {old}")
            elif old is not None and new is not None and abs(old - new) > tolerance:
                differences.append(f"{name} is {new:.4f}, not {old:.4f}: more than {tolerance:g} apart")
    return differences


def find_largest_difference(stored: Run, repeated: Run) -> str:
    """Describe the largest difference of a share in the last record, and in all records of the same steps."""
    again = {record.step: record for record in repeated.records}
    found = [
        (abs(old - new), name, record.step)
        for record in stored.records
        if record.step in again
        for name in FIGURES
        if name in SHARES
        and (old := record.get(name)) is not None
        and (new := again[record.step].get(name)) is not None
    ]
    if not found:
        return ""
    last = [entry for entry in found if entry[2] == stored.records[-1].step]
    size, name, _ = max(last, default=(0.0, "", 0), key=lambda entry: entry[0])
    most, where, step = max(found, key=lambda entry: entry[0])
    shown = f"largest difference of the last record {size:.4f}" + (f" ({name})" if size else "")
    return shown + (f", of all records {most:.4f} ({where} at step {step})" if most > size else "")


def _flatten(record: Record) -> dict[str, Any]:
    """Return the values of a record that must be equal; results files keep logged ones as float32."""
    logged = {
        f"logged {name}": float(np.float32(value)) if isinstance(value, float) else value
        for name, value in (record.values.get("logged") or {}).items()
    }
    return {name: value for name, value in record.values.items() if name not in NOT_COMPARED} | logged


def check_submission(
    results: StoredResults, source: Path, protocol: int, others: Iterable[Run] = ()
) -> dict[str, list[str]]:
    """Return the problems that each check finds; `others` are the results to add to."""
    runs, sweeps = results.runs, [parse_sweep(text, name) for name, text in results.sweeps.items()]
    with attempt(f"read the algorithm's file {str(source)!r}", UsageError):
        digest = sha256(source)[:8]
    submitted = [run for run in runs if "@" in run.experiment.algorithm]
    of_source = [
        f"the runs of {algorithm} were made with another file than {source.name}, whose hash is {digest}"
        for algorithm in sorted({run.experiment.algorithm for run in submitted})
        if algorithm.rpartition("@")[2] != digest
    ]
    if not submitted:
        of_source.append("no run is of an algorithm given by its file (such a name has an @ in it)")
    of_protocol = [
        f"runs of protocol version {found}, this is version {protocol}"
        for found in sorted({str(run.experiment.details.get("protocol")) for run in runs})
        if found != str(protocol)
    ]
    n_public = sum(run.experiment.origin != "plench" for run in runs)
    if n_public:
        of_protocol.append(f"{n_public} runs are not plench's")
    cut = [run for run in runs if run.status == "done" and run.last_record is None]
    fingerprints = {run.experiment.dataset: run.experiment.details.get("dataset_fingerprint") for run in runs}
    of_data = [
        *_compare_fingerprints([*runs, *others]),
        *(
            f"{dataset}: runs and sweep file have data of different content"
            for sweep in sweeps
            for dataset, fingerprint in sweep.fingerprints.items()
            if fingerprints.get(dataset, fingerprint) != fingerprint
        ),
        *(
            f"{dataset}: runs without the fingerprint of their data"
            for dataset, f in fingerprints.items()
            if not f
        ),
    ]
    return {
        "source": of_source,
        "protocol": of_protocol,
        "planned runs": list(_check_plan(submitted, sweeps)),
        "records": [*results.warnings, *(f"{run.path.name}: its last record is missing" for run in cut)],
        "data": of_data,
    }


def merge_results(parts: Sequence[StoredResults]) -> StoredResults:
    """Merge results; raise DataError if records of a run differ between them, or the content of a dataset."""
    runs, _ = drop_copies((run for part in parts for run in part.runs), refuse_conflicts=True)
    for problem in _compare_fingerprints(runs):
        raise DataError(f"these results cannot be compared: {problem}")
    warnings = list(dict.fromkeys(warning for part in parts for warning in part.warnings))
    return StoredResults(runs, warnings, {name: text for part in parts for name, text in part.sweeps.items()})


def _check_plan(submitted: Sequence[Run], sweeps: Iterable[SweepSpec]) -> Iterator[str]:
    """Name planned runs that are missing or unfinished, plans with a gap, and runs that were not planned."""
    # (split, configuration) pairs of classes given by file, by class, dataset and steps
    planned: dict[tuple[str, str, int | None], set[tuple[int, int]]] = {}
    for grid in (grid for sweep in sweeps for grid in sweep.grids):
        places = {(trial, hparams) for trial in grid.trial_seeds for hparams in grid.hparams_seeds}
        for algorithm in grid.algorithms:
            _, given_by_path, name = algorithm.rpartition(":")
            for dataset in grid.datasets if given_by_path else ():
                planned.setdefault((name, dataset, grid.steps), set()).update(places)
    if not planned:
        yield "no sweep file says what was planned (launch the runs with `plench sweep launch`)"
        return
    asked_for: set[int] = set()
    for (name, dataset, steps), asked in planned.items():
        found = [
            run
            for run in submitted
            if name == (run.info.get("algorithm_class") or run.experiment.algorithm.rpartition("@")[0])
            and (run.experiment.dataset, steps) in ((dataset, None), (dataset, run.experiment.steps))
        ]
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
    for algorithm in sorted({run.experiment.algorithm for run in submitted if id(run) not in asked_for}):
        yield f"{algorithm}: there are runs that no sweep file lists"


def _show(places: Sequence[tuple[int, int]]) -> str:
    shown = "; ".join(f"split {trial}, configuration {hparams}" for trial, hparams in places[:3])
    return shown + ("; …" if len(places) > 3 else "")


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
