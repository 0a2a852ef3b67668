"""The provenance of results: versions, commands, numbers of runs, failures, runs still to do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plench.report.site.scripts import as_text
from plench.runs import gather
from plench.runs.folder import STATUSES
from plench.runs.records import Experiment, Run
from plench.runs.select import Plan

MOST_FAILURES = 200
SIMILAR = 3
_VERSIONS = (
    "plench",
    "source",
    "python",
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "platform",
    "device",
    "threads",
)


def describe_progress(runs: Sequence[Run], plans: Mapping[Experiment, Plan], n_absent: int) -> dict[str, Any]:
    """Count planned runs and how far they are. `n_absent` were planned of experiments without any run."""
    there: dict[Experiment, set[tuple[int, int]]] = {}
    for run in runs:
        if run.finished:
            there.setdefault(run.experiment, set()).add((run.trial_seed, run.hparams_seed))
    planned = n_absent + sum(plan.n_runs for plan in plans.values())
    finished = sum(len(places & plans[e].places) if e in plans else 0 for e, places in there.items())
    statuses = Counter(run.status for run in runs)
    return {
        "planned": planned,
        "finished": finished,
        "statuses": [[status, statuses[status]] for status in STATUSES if statuses[status]],
        "complete": finished >= planned,
    }


def list_sweep_files(folders: Iterable[str | Path]) -> list[tuple[str, str]]:
    """Return the names and texts of the sweep files in these folders and results files."""
    texts = [text for folder in folders for text in gather.read_sweep_texts(Path(folder), []).items()]
    return [(Path(name).name, text) for name, text in texts]


def describe_provenance(
    runs: Sequence[Run], warnings: Iterable[str], sweeps: Sequence[tuple[str, str]], command: str
) -> dict[str, Any]:
    """Return everything that the page of provenance shows."""
    return {
        "command": command,
        "sweeps": [list(sweep) for sweep in sweeps],
        "protocols": _count(_protocol(run) for run in runs),
        "versions": [
            [name, values] for name in _VERSIONS if (values := _count(_version(run, name) for run in runs))
        ],
        "commits": _count(as_text(run.info["commit"]) for run in runs if run.info.get("commit")),
        "origins": _count(run.experiment.origin for run in runs),
        "records": sum(len(run.records) for run in runs),
        "seconds": sum(filter(None, map(_seconds, runs))),
        "begun": min(filter(None, (_time(run, "begun") for run in runs)), default=None),
        "written": max(filter(None, (_time(run, "written") for run in runs)), default=None),
        "failures": [_failure(run) for run in runs if run.status == "failed"][:MOST_FAILURES],
        "diverged": [_diverged(run) for run in runs if run.diverged][:MOST_FAILURES],
        "unfinished": [_unfinished(run) for run in runs if run.status in ("running", "interrupted")][
            :MOST_FAILURES
        ],
        "warnings": group_warnings(warnings),
    }


def group_warnings(warnings: Iterable[str]) -> list[str]:
    """Return warnings, the same one about many files in one line, which names a few of them."""
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        file, colon, said = warning.partition(": ")
        groups.setdefault(said if colon else warning, []).append(file)
    lines = []
    for said, found in groups.items():
        if len(found) > SIMILAR:
            lines.append(f"{said}: in {len(found):,} files, such as {', '.join(found[:2])}")
        else:
            lines.extend(said if file == said else f"{file}: {said}" for file in found)
    return lines


def _count(values: Iterable[str | None]) -> list[list[Any]]:
    """Return each value with its number, the most frequent first."""
    counts = Counter(value for value in values if value is not None)
    return [[value, n] for value, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _protocol(run: Run) -> str | None:
    protocol = run.experiment.details.get("protocol")
    return None if protocol is None else as_text(protocol)


def _version(run: Run, name: str) -> str | None:
    versions = run.info.get("versions")
    value = versions.get(name) if isinstance(versions, Mapping) else None
    return None if value is None else as_text(value)


def _timing(run: Run, name: str) -> Any:
    timings = run.info.get("timings")
    return timings.get(name) if isinstance(timings, Mapping) else None


def _time(run: Run, name: str) -> str | None:
    value = _timing(run, name)
    return value if isinstance(value, str) else None


def _seconds(run: Run) -> float | None:
    value = _timing(run, "training_seconds")
    return float(value) if isinstance(value, int | float) else None


def _place(run: Run) -> list[Any]:
    experiment = run.experiment
    return [run.path.name, experiment.algorithm, experiment.dataset, run.trial_seed, run.hparams_seed]


def _failure(run: Run) -> list[Any]:
    error = run.info.get("error")
    told = error if isinstance(error, Mapping) else {"message": error}
    message = f"{as_text(told.get('type') or 'error')}: {as_text(told.get('message') or 'no message')}"
    return [*_place(run), message, as_text(told.get("traceback") or "")]


def _diverged(run: Run) -> list[Any]:
    return [*_place(run), run.diverged_after_step]


def _unfinished(run: Run) -> list[Any]:
    done = run.records[-1].step + 1 if run.records else 0
    return [*_place(run), run.status, done, run.experiment.steps]
