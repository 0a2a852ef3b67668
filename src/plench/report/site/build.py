"""Writes the site: data in chunks that are loaded when they are needed, downloads, provenance."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plench.errors import DataError, UsageError
from plench.report.criteria_quality import judge_criteria
from plench.report.dataset_stats import CandidateStats
from plench.report.figures import StepCost
from plench.report.leaderboard import group_by, part_of, warn_of_defects
from plench.report.results import Results, render_csv, run_rows
from plench.report.site.cells import describe_cells, describe_index, describe_runs, launch_command
from plench.report.site.files import as_script, as_text, check_folder, digest, write_assets
from plench.report.site.pages import describe_algorithm, describe_dataset, describe_pairs, describe_quality
from plench.runs.files import write_text
from plench.runs.folder import STATUSES
from plench.runs.records import Experiment, Run
from plench.runs.results import StoredResults, import_pyarrow, read_sweep_texts, write_results_file
from plench.settings import __version__

RECORDS = "results.parquet"
MOST_FAILURES = 200
SIMILAR = 3
_VERSIONS = (
    *("plench", "source", "python", "torch", "numpy", "scipy", "scikit-learn"),
    *("platform", "device", "threads"),
)


@dataclass(frozen=True)
class SiteInput:
    """What a site is made of: results, warnings, and further information.

    `sweeps` are the names and texts of the sweep files, `command` the one that makes the page, `measured` the
    candidate sets of settings whose data were at hand, `data_dir` the folder of the data, if it is known.
    """

    results: Results
    warnings: Sequence[str] = ()
    sweeps: Sequence[tuple[str, str]] = ()
    command: str = ""
    costs: Sequence[StepCost] = ()
    measured: Mapping[Experiment, CandidateStats] = field(default_factory=dict)
    data_dir: str | None = None


@dataclass(frozen=True)
class SiteOutput:
    """Where the page is, how large the site is, whether all planned runs are in it, and all warnings."""

    page: Path
    n_files: int
    n_bytes: int
    complete: bool
    warnings: Sequence[str]


def write_site(content: SiteInput, folder: Path) -> SiteOutput:
    """Write the site into a folder of its own: new, empty, or one that an earlier call wrote.

    The data of each writing have a folder of their own, named after their content. The page, which names it,
    is replaced last, so that a reader never sees half of one.
    """
    check_folder(folder)
    results = content.results
    left_out = write_records(content, folder / "download" / RECORDS)
    content = replace(content, warnings=(*content.warnings, *left_out))
    downloads = {
        "cells.csv": render_csv(results.cells()),
        "choices.csv": render_csv(results.chosen()),
        "runs.csv": render_csv(run_rows(results.runs, results.board)),
    }
    progress = describe_progress(results)
    offered = [*downloads, *([] if left_out else [RECORDS])]
    chunks = {name: as_script(name, value) for name, value in make_chunks(content, progress, offered)}
    stamp = digest({**chunks, **downloads, "version": __version__})
    for name, text in chunks.items():
        write_text(folder / "data" / stamp / f"{name}.js", text)
    for name, text in downloads.items():
        write_text(folder / "download" / name, text)
    page = write_assets(folder, stamp)
    write_text(folder / "stamp.txt", stamp + "\n")
    for entry in (folder / "data").iterdir():  # those of earlier writings, which no page names any more
        if entry.name != stamp and len(entry.name) == len(stamp):
            shutil.rmtree(entry, ignore_errors=True)
    written = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in written)
    return SiteOutput(page, len(written), size, progress["complete"], content.warnings)


def make_chunks(
    content: SiteInput, progress: Mapping[str, Any], downloads: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and value of every chunk: `index` is loaded first, the others when they are needed."""
    all_runs, board = content.results.runs, content.results.board
    judged = judge_criteria(all_runs, board.criteria)
    by_experiment = group_by(all_runs, lambda run: run.experiment)
    # The runs behind each row of each setting; those of a fitted method may stand in several.
    groups = {
        (setting, algorithm): by_experiment.get(cell.experiment, [])
        for (setting, algorithm, _), cell in board.cells.items()
    }
    first_runs: dict[Experiment, Run] = {}  # one that describes its data, if there is one
    for (setting, _), runs in groups.items():
        for run in runs:
            held = first_runs.setdefault(setting, run)
            if not isinstance(held.info.get("dataset"), dict) and run.info.get("dataset"):
                first_runs[setting] = run
    yield (
        "index",
        {
            "version": __version__,
            **describe_index(board, first_runs),
            "cells": describe_cells(board, judged),
            "runs": len(all_runs),
            "progress": progress,
            "downloads": downloads,
        },
    )
    for s, setting in enumerate(board.settings):
        yield f"dataset-{s}", describe_dataset(setting, first_runs[setting], content.measured.get(setting))
        for a, algorithm in enumerate(board.algorithms):
            if groups.get((setting, algorithm)):
                cells = [board.cells[setting, algorithm, criterion.name] for criterion in board.criteria]
                yield f"cell-{s}-{a}", describe_runs(groups[setting, algorithm], cells, content.data_dir)
    for a, algorithm in enumerate(board.algorithms):
        by_setting = [groups.get((setting, algorithm), []) for setting in board.settings]
        card = board.cards.get(algorithm, {})
        yield f"algorithm-{a}", describe_algorithm(card, by_setting, board.criteria, content.costs)
    yield "criteria", describe_quality(board, groups, judged)
    for c, criterion in enumerate(board.criteria):
        yield f"pairs-{c}", describe_pairs(board, criterion)
    yield "provenance", describe_provenance(content, [*content.warnings, *warn_of_defects(board)])


def write_records(content: SiteInput, path: Path) -> list[str]:
    """Write all records as a results file, for others to read like our folders; return why it is not there.

    It needs pyarrow, which the page does not: without it the page offers tables alone.
    """
    stored = StoredResults(content.results.runs, list(content.warnings), dict(content.sweeps))
    try:
        import_pyarrow()
        write_results_file(stored, path)
    except (UsageError, DataError) as error:  # no pyarrow, or a value that no column can hold
        path.unlink(missing_ok=True)  # that of an earlier writing
        return [f"{RECORDS} is not among the downloads: {error}"]
    return []


def describe_progress(results: Results) -> dict[str, Any]:
    """Count planned runs and how far they are."""
    finished = {
        (run.experiment, run.trial_seed, run.hparams_seed)
        for run in results.runs
        if run.finished and (run.trial_seed, run.hparams_seed) in results.plans[run.experiment].places
    }
    planned = results.n_absent + sum(plan.n_runs for plan in results.plans.values())
    statuses = Counter(run.status for run in results.runs)
    return {
        "planned": planned,
        "finished": len(finished),
        "statuses": [[status, statuses[status]] for status in STATUSES if statuses[status]],
        "complete": len(finished) >= planned,
    }


def list_sweep_files(folders: Iterable[str | Path]) -> list[tuple[str, str]]:
    """Return the names and texts of the sweep files in these folders and results files."""
    texts = [text for folder in folders for text in read_sweep_texts(Path(folder), []).items()]
    return [(Path(name).name, text) for name, text in texts]


def describe_provenance(content: SiteInput, warnings: Iterable[str]) -> dict[str, Any]:
    """Return everything that the page of provenance shows."""
    runs = content.results.runs
    timings = [part_of(run.info, "timings") for run in runs]
    seconds = [timing.get("training_seconds") for timing in timings]
    begun, written = (
        [timing[name] for timing in timings if isinstance(timing.get(name), str) and timing[name]]
        for name in ("begun", "written")
    )

    def count(values: Iterable[Any]) -> list[list[Any]]:
        """Return each value with its number, the most frequent first."""
        counts = Counter(as_text(value) for value in values if value is not None)
        return [[value, n] for value, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]

    def list_runs(status: Sequence[str], describe: Callable[[Run], list[Any]]) -> list[list[Any]]:
        """Return the place of the first runs of a status, with more about each."""
        chosen = [run for run in runs if run.status in status][:MOST_FAILURES]
        places = [
            [
                run.path.name,
                run.experiment.algorithm,
                run.experiment.dataset,
                run.trial_seed,
                run.hparams_seed,
            ]
            for run in chosen
        ]
        return [[*place, *describe(run)] for place, run in zip(places, chosen, strict=True)]

    def describe_failure(run: Run) -> list[Any]:
        error = part_of(run.info, "error") or {"message": run.info.get("error")}
        what = f"{as_text(error.get('type') or 'error')}: {as_text(error.get('message') or 'no message')}"
        return [what, as_text(error.get("traceback") or "")]

    def describe_unfinished(run: Run) -> list[Any]:
        return [run.status, run.records[-1].step + 1 if run.records else 0, run.experiment.steps]

    versions = [(name, count(part_of(run.info, "versions").get(name) for run in runs)) for name in _VERSIONS]
    return {
        "command": content.command,
        "sweeps": [
            [name, text, launch_command(name, text, content.data_dir)] for name, text in content.sweeps
        ],
        "protocols": count(run.experiment.details.get("protocol") for run in runs),
        "versions": [entry for entry in versions if entry[1]],
        "commits": count(run.info.get("commit") or None for run in runs),
        "origins": count(run.experiment.origin for run in runs),
        "records": sum(len(run.records) for run in runs),
        "seconds": sum(float(value) for value in seconds if isinstance(value, int | float)),
        "begun": min(begun, default=None),
        "written": max(written, default=None),
        "failures": list_runs(["failed"], describe_failure),
        "diverged": list_runs(["diverged"], lambda run: [run.diverged_after_step]),
        "unfinished": list_runs(["running", "interrupted"], describe_unfinished),
        "warnings": group_warnings(warnings),
    }


def group_warnings(warnings: Iterable[str]) -> list[str]:
    """Return warnings, the same one about many files in one line, which names a few of them."""
    parts = [warning.partition(": ") for warning in warnings]
    lines = []
    for said, group in group_by(parts, lambda part: part[2] if part[1] else part[0]).items():
        if len(group) > SIMILAR:
            named = ", ".join(file for file, _, _ in group[:2])
            lines.append(f"{said}: in {len(group):,} files, such as {named}")
        else:
            lines.extend("".join(part) for part in group)
    return lines
