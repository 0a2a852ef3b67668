"""The runs of folders and results files, with warnings and sweep files; copies of a run count once."""

import gc
import logging
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from plench.errors import DataError, UsageError
from plench.runs.parquet import StoredResults, plain, read_carried_sweeps, read_results_file
from plench.runs.records import FIGURES, Run, read_figures, read_folder

# The file of a sweep is in the folder of its runs.
SWEEP_FILES = "sweep-*.toml"

logger = logging.getLogger("plench")


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
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if os.path.isdir(entry))
    except OSError as error:
        raise UsageError(f"cannot read the results folder {str(output_dir)!r}: {error.strerror}") from error
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
        return {f"{place}/{name}": text for name, text in read_carried_sweeps(place).items()}
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
        if refuse_conflicts and held.finished and run.finished and _list_figures(held) != _list_figures(run):
            raise DataError(f"{held.path} and {run.path} are the same run with different records: remove one")
        if run.finished and not held.finished:
            kept[key], run = run, held
        copies.append(run)
    if not copies:
        return list(kept.values()), []
    shown = ", ".join("/".join(run.path.parts[-2:]) for run in copies[:3]) + (
        ", …" if len(copies) > 3 else ""
    )
    noun = "folder is a copy" if len(copies) == 1 else "folders are copies"
    return list(kept.values()), [f"{len(copies)} {noun} of runs that count once; left out: {shown}"]


def _list_figures(run: Run) -> list[object]:
    """Return the steps of a run's evaluations and their figures."""
    return [[record.step for record in run.records], *(read_figures(run.records, key) for key in FIGURES)]
