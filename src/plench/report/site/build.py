"""Writes the site: assets, data in chunks that are loaded when they are needed, downloads."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from plench.errors import DataError, PlenchError, UsageError
from plench.report.criteria_quality import judge_criteria
from plench.report.dataset_stats import CandidateStats
from plench.report.figures.costs import StepCost
from plench.report.leaderboard import warn_of_defects
from plench.report.results import Results, render_csv
from plench.report.site.cells import (
    describe_cells,
    describe_columns,
    describe_criteria,
    describe_escapes,
    describe_rows,
    describe_runs,
    find_first_runs,
    group_runs,
    run_rows,
)
from plench.report.site.pages import describe_algorithm, describe_dataset, describe_pairs, describe_quality
from plench.report.site.provenance import describe_progress, describe_provenance
from plench.report.site.scripts import as_script
from plench.runs.files import write_text
from plench.runs.parquet import StoredResults, import_pyarrow, write_results_file
from plench.runs.records import Experiment
from plench.settings import __version__

GENERATOR = "plench report"
PAGE = "index.html"
STAMP = "stamp.txt"


@dataclass(frozen=True)
class SiteInput:
    """What a site is made of: results, warnings, and further information.

    `sweeps` are the names and texts of the sweep files, `command` the one that makes the page, `measured` the
    candidate sets of settings whose data were at hand.
    """

    results: Results
    warnings: Sequence[str] = ()
    sweeps: Sequence[tuple[str, str]] = ()
    command: str = ""
    costs: Sequence[StepCost] = ()
    measured: Mapping[Experiment, CandidateStats] = field(default_factory=dict)


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
    progress = describe_progress(results.runs, results.plans, results.n_absent)
    left_out = write_records(content, folder / "download" / RECORDS)
    content = replace(content, warnings=(*content.warnings, *left_out))
    offered = [*TABLES, *([] if left_out else [RECORDS])]
    texts = {name: as_script(name, value) for name, value in make_chunks(content, progress, offered)}
    downloads = make_downloads(results)
    stamp = _digest({**texts, **downloads, "version": __version__})
    data = folder / "data" / stamp
    for name, text in texts.items():
        write_text(data / f"{name}.js", text)
    for name, text in downloads.items():
        write_text(folder / "download" / name, text)
    page = copy_assets(folder, stamp)
    write_text(folder / STAMP, stamp + "\n")
    _remove_older(folder / "data", stamp)
    written = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in written)
    return SiteOutput(page, len(written), size, progress["complete"], content.warnings)


def make_chunks(
    content: SiteInput, progress: Mapping[str, Any], downloads: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and value of every chunk: `index` is loaded first, the others when they are needed."""
    all_runs, board = content.results.runs, content.results.board
    judged = judge_criteria(all_runs, board.criteria)
    groups = group_runs(board, all_runs)
    first_runs = find_first_runs(groups)
    yield (
        "index",
        {
            "version": __version__,
            "criteria": describe_criteria(board),
            "escapes": describe_escapes(),
            "settings": describe_columns(board, first_runs),
            "algorithms": describe_rows(board),
            "cells": describe_cells(board, judged),
            "runs": len(all_runs),
            "progress": progress,
            "downloads": list(downloads),
        },
    )
    for s, setting in enumerate(board.settings):
        yield f"dataset-{s}", describe_dataset(setting, first_runs[setting], content.measured.get(setting))
        for a, algorithm in enumerate(board.algorithms):
            runs = groups.get((setting, algorithm))
            if runs:
                cells = {c.name: board.cells[setting, algorithm, c.name] for c in board.criteria}
                yield f"cell-{s}-{a}", describe_runs(runs, cells, board.criteria)
    for a, algorithm in enumerate(board.algorithms):
        by_setting = [groups.get((setting, algorithm), []) for setting in board.settings]
        card = board.cards.get(algorithm, {})
        described = describe_algorithm(card, by_setting, board.criteria, content.costs)
        yield f"algorithm-{a}", described
    yield "criteria", describe_quality(board, groups, judged)
    for c, criterion in enumerate(board.criteria):
        yield f"pairs-{c}", describe_pairs(board, criterion)
    warnings = [*content.warnings, *warn_of_defects(board)]
    yield "provenance", describe_provenance(all_runs, warnings, content.sweeps, content.command)


TABLES = ("cells.csv", "choices.csv", "runs.csv")
RECORDS = "results.parquet"


def make_downloads(results: Results) -> dict[str, str]:
    """Return the tables that the page offers: cells, choices and runs, a row each."""
    rows = (results.cells(), results.chosen(), run_rows(results.runs, results.board))
    return dict(zip(TABLES, map(render_csv, rows), strict=True))


def write_records(content: SiteInput, path: Path) -> list[str]:
    """Write all records as a results file, for others to read like our folders; return why it is not there.

    It needs pyarrow, which the page does not: without it the page offers tables alone.
    """
    stored = StoredResults(content.results.runs, list(content.warnings), dict(content.sweeps))
    reason: PlenchError
    try:
        import_pyarrow()
    except UsageError as error:
        reason = error
    else:
        try:
            write_results_file(stored, path)
            return []
        except DataError as error:  # a value that no column can hold
            reason = error
    path.unlink(missing_ok=True)  # that of an earlier writing
    return [f"{RECORDS} is not among the downloads: {reason}"]


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else: a user's files are never mixed with the site or replaced."""
    try:
        there = sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write the site to {str(folder)!r}: {error.strerror}") from error
    if not there:
        return
    try:
        ours = GENERATOR.encode() in (folder / PAGE).read_bytes()
    except OSError:
        ours = False
    if not ours:
        raise UsageError(
            f"{str(folder)!r} contains {there[0]!r} and is not a site of plench report; "
            "give a new or empty folder with --output"
        )


def copy_assets(folder: Path, stamp: str) -> Path:
    """Write style and scripts, then the page that names them and the data; return its path."""
    assets = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in files(__package__).joinpath("assets").iterdir()
    }
    template = assets.pop(PAGE)
    for name, text in assets.items():
        write_text(folder / "assets" / name, text)
    # All our own text: a version, a hash.
    for place, text in (("VERSION", __version__), ("DATA", f"data/{stamp}"), ("ASSETS", _digest(assets)[:8])):
        template = template.replace("{{" + place + "}}", text)
    write_text(folder / PAGE, template)
    return folder / PAGE


def _digest(texts: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(f"{name}\0{texts[name]}\0".encode())
    return digest.hexdigest()[:16]


def _remove_older(data: Path, stamp: str) -> None:
    """Remove the data of earlier writings, which no page names any more."""
    for entry in data.iterdir():
        if entry.name != stamp and len(entry.name) == len(stamp):
            shutil.rmtree(entry, ignore_errors=True)
