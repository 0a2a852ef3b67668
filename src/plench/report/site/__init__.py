"""The results as a static site, made from records alone: `write_site`.

Data come in chunks that are loaded when they are needed. A page opened from disk may load scripts from its
folder, but not fetch files, so data come as scripts. Content of records is not trusted: it becomes JSON in
which every character that HTML or JavaScript could read as more than text is escaped, and the page shows it
as text nodes only.
"""

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from plench.errors import DataError, UsageError
from plench.files import write_text
from plench.report.criteria_quality import judge_criteria
from plench.report.dataset_stats import CandidateStats
from plench.report.figures import StepCost
from plench.report.leaderboard import group_by, part_of, warn_of_defects
from plench.report.results import Results, render_csv, run_rows
from plench.report.site import content
from plench.report.site.content import as_text, launch_command
from plench.runs.folder import STATUSES
from plench.runs.records import Experiment, Run
from plench.runs.results import StoredResults, import_pyarrow, read_sweep_texts, write_results_file
from plench.settings import __version__
from plench.text import clean

GENERATOR = "plench report"
PAGE = "index.html"
RECORDS = "results.parquet"
MOST_FAILURES = 200
SIMILAR = 3
_VERSIONS = (
    *("plench", "source", "python", "torch", "numpy", "scipy", "scikit-learn"),
    *("platform", "device", "threads"),
)
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'"}


def write_site(
    results: Results,
    folder: Path,
    sweeps: Sequence[tuple[str, str]],
    command: str,
    costs: Sequence[StepCost],
    data_dir: Path | None,
) -> tuple[Path, bool, list[str]]:
    """Write the site into a folder of its own: new, empty, or one that an earlier call wrote.

    The data of each writing have a folder of their own, named after their content. The page, which names it,
    is replaced last, so that a reader never sees half of one. `sweeps` are the names and texts of the sweep
    files, `command` the one that makes the page, `data_dir` the folder of the data: candidate sets of
    settings whose data are there are measured.

    Returns the page, whether all planned runs are in it, and all warnings.
    """
    check_folder(folder)
    measured, missed = content.measure_candidates(results, data_dir)
    warnings = [*results.warnings, *missed]
    downloads = {
        "cells.csv": render_csv(results.cells()),
        "choices.csv": render_csv(results.chosen()),
        "runs.csv": render_csv(run_rows(results.runs, results.board)),
    }
    offered = [*downloads, RECORDS]
    # All records as a results file, which others read like our folders. It needs pyarrow; the page does not.
    records = folder / "download" / RECORDS
    try:
        import_pyarrow()
        write_results_file(StoredResults(results.runs, warnings, dict(sweeps)), records)
    except (UsageError, DataError) as error:  # no pyarrow, or a value that no column can hold
        records.unlink(missing_ok=True)  # that of an earlier writing
        offered.remove(RECORDS)
        warnings = [*warnings, f"{RECORDS} is not among the downloads: {error}"]
    progress = describe_progress(results)
    said = group_warnings([*warnings, *warn_of_defects(results.board)])
    launches = [[name, text, launch_command(name, text, data_dir)] for name, text in sweeps]
    chunks = {
        "provenance": {"command": command, "sweeps": launches}
        | describe_provenance(results.runs)
        | {"warnings": said},
        **dict(make_chunks(results, measured, costs, data_dir)),
    }
    chunks["index"] |= {"progress": progress, "downloads": offered}
    scripts = {name: as_script(name, value) for name, value in chunks.items()}
    stamp = digest({**scripts, **downloads, "version": __version__})
    for name, text in scripts.items():
        write_text(folder / "data" / stamp / f"{name}.js", text)
    for name, text in downloads.items():
        write_text(folder / "download" / name, text)
    page = write_assets(folder, stamp)
    write_text(folder / "stamp.txt", stamp + "\n")
    for entry in (folder / "data").iterdir():  # those of earlier writings, which no page names any more
        if entry.name != stamp and len(entry.name) == len(stamp):
            shutil.rmtree(entry, ignore_errors=True)
    return page, progress["complete"], warnings


def make_chunks(
    results: Results,
    measured: Mapping[Experiment, CandidateStats],
    costs: Sequence[StepCost],
    data_dir: Path | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and value of every chunk: `index` is loaded first, the others when they are needed."""
    all_runs, board = results.runs, results.board
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
    index = content.describe_index(board, first_runs)
    cells = content.describe_cells(board, judged)
    yield "index", {"version": __version__, **index, "cells": cells, "runs": len(all_runs)}
    for s, setting in enumerate(board.settings):
        run = first_runs[setting]
        yield f"dataset-{s}", content.describe_dataset(setting, run, measured.get(setting))
        for a, algorithm in enumerate(board.algorithms):
            if own := groups.get((setting, algorithm)):
                chosen = [board.cells[setting, algorithm, criterion.name] for criterion in board.criteria]
                yield f"cell-{s}-{a}", content.describe_runs(own, chosen, data_dir)
    for a, algorithm in enumerate(board.algorithms):
        by_setting = [groups.get((setting, algorithm), []) for setting in board.settings]
        card = board.cards.get(algorithm, {})
        yield f"algorithm-{a}", content.describe_algorithm(card, by_setting, board.criteria, costs)
    yield "criteria", content.describe_quality(board, groups, judged)
    for c, criterion in enumerate(board.criteria):
        yield f"pairs-{c}", content.describe_pairs(board, criterion)


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


def describe_provenance(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the page of provenance shows of the runs."""
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
        listed = []
        for run in [run for run in runs if run.status in status][:MOST_FAILURES]:
            what = (run.experiment.algorithm, run.experiment.dataset, run.trial_seed, run.hparams_seed)
            listed.append([run.path.name, *what, *describe(run)])
        return listed

    def describe_failure(run: Run) -> list[Any]:
        error = part_of(run.info, "error") or {"message": run.info.get("error")}
        what = f"{as_text(error.get('type') or 'error')}: {as_text(error.get('message') or 'no message')}"
        return [what, as_text(error.get("traceback") or "")]

    def describe_unfinished(run: Run) -> list[Any]:
        return [run.status, run.records[-1].step + 1 if run.records else 0, run.experiment.steps]

    versions = [(name, count(part_of(run.info, "versions").get(name) for run in runs)) for name in _VERSIONS]
    return {
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


def as_script(name: str, value: object) -> str:
    """Return a script that hands a value to the page under a name of ours. It is plain ASCII."""
    text = json.dumps(make_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"plench.receive({json.dumps(name)},{text.translate(_ESCAPES)});\n"


def make_plain(value: Any) -> Any:
    """Return a value as JSON can hold it: text without control characters, no NaN, no key from a record.

    Objects are for keys of our own: a record's name as a key could be `__proto__`, so names come as lists.
    """
    if isinstance(value, str):
        return "\n".join(clean(line, None) for line in value.split("\n"))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: make_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(entry) for entry in value]
    return value


def check_folder(folder: Path, page: str = PAGE, option: str = "--output") -> None:
    """Refuse a folder that holds something else: a user's files are never mixed with ours or replaced."""
    try:
        there = sorted(entry.name for entry in folder.iterdir())
        is_ours = page in there and GENERATOR.encode() in (folder / page).read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write the site to {str(folder)!r}: {error.strerror}") from error
    if there and not is_ours:
        raise UsageError(
            f"{str(folder)!r} contains {there[0]!r} and is not a folder of plench report; "
            f"give a new or empty folder with {option}"
        )


def write_assets(folder: Path, stamp: str) -> Path:
    """Write style and scripts, then the page that names them and the data; return its path."""
    source = files(__package__).joinpath("assets")
    assets = {entry.name: entry.read_text(encoding="utf-8") for entry in source.iterdir()}
    template = assets.pop(PAGE)
    for name, text in assets.items():
        write_text(folder / "assets" / name, text)
    # All our own text: a version, a hash.
    for place, text in (("VERSION", __version__), ("DATA", f"data/{stamp}"), ("ASSETS", digest(assets)[:8])):
        template = template.replace("{{" + place + "}}", text)
    write_text(folder / PAGE, template)
    return folder / PAGE


def digest(texts: Mapping[str, str]) -> str:
    """Return a hash of named texts, whatever their order."""
    found = hashlib.sha256()
    for name in sorted(texts):
        found.update(f"{name}\0{texts[name]}\0".encode())
    return found.hexdigest()[:16]
