"""What the accuracy benchmarks share: runs carried out by a few processes, and tables from their records."""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scipy.stats import t

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conftest import ROOT, real_data_dir

from plench.algorithms import find_algorithm
from plench.data import CandidateSpec, Dataset, dataset_card, load_dataset
from plench.runs import Run, read_runs
from plench.runs.folder import RunStore
from plench.runs.parquet import StoredResults, write_results_file
from plench.seeds import seed_hash
from plench.training import RunConfig, configure_run
from plench.training.callbacks import NoCallback
from plench.training.environment import compute_threads, flush_denormals
from plench.training.run import TrainingRun

RESULTS = ROOT / "docs" / "results"
INSPECTED = "inspected.json"
THIRDS = ("test_acc_many", "test_acc_medium", "test_acc_few")

# Looks at a finished run's algorithm and data, for figures that records do not hold.
Inspect = Callable[[TrainingRun], Mapping[str, float]]


@dataclass(frozen=True)
class Setting:
    """What one cell of a table is about: an algorithm (by name or path) on a dataset in a configuration.

    Runs are seeded as a sweep would seed them, or as it would the algorithm `seeded_as`.
    """

    label: str
    algorithm: str
    dataset: str
    steps: int | None = None
    hparams: Mapping[str, Any] = field(default_factory=dict)
    candidates: CandidateSpec | None = None
    seeded_as: str | None = None
    imbalance: float | None = None

    def configure(self, trial_seed: int, configuration: int = 0) -> RunConfig:
        """Describe the run on one split, seeded as a sweep would seed this configuration."""
        entry, card = find_algorithm(self.algorithm), dataset_card(self.dataset)
        return configure_run(
            entry,
            card,
            hparams=self.hparams,
            steps=self.steps,
            **({} if self.candidates is None else vars(self.candidates)),
            imbalance=self.imbalance,
            device="cpu",
            skip_model_save=True,
            trial_seed=trial_seed,
            seed=seed_hash(card.name, self.seeded_as or entry.name, configuration, trial_seed),
        )


@dataclass(frozen=True)
class Figures:
    """What a finished run says: test accuracy after the last step in percent, seconds of training, more.

    `thirds` is the accuracy on classes with many, medium and few training examples, of a long-tailed run.
    """

    accuracy: float
    seconds: float
    steps: int
    logged: Mapping[str, float]
    inspected: Mapping[str, float]
    notices: Sequence[str]
    thirds: Sequence[float]


def add_options(parser: argparse.ArgumentParser, name: str, trials: int) -> None:
    """Add the options that all of these benchmarks take."""
    parser.add_argument("--output_dir", type=Path, default=Path("runs") / name)
    parser.add_argument("--data_dir", type=Path, default=real_data_dir())
    parser.add_argument("--trials", type=int, default=trials, help=f"splits 0 … trials−1 (default {trials})")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes, one thread each")
    parser.add_argument("--report_only", action="store_true", help="run nothing; write the page from records")


def carry_out(
    settings: Sequence[Setting], options: argparse.Namespace, inspect: Inspect | None = None
) -> list[list[Figures | None]]:
    """Carry out every setting on every split, and return their figures; None stands for a run not finished.

    A run that is there is not made again, and one that was interrupted is continued: the same command
    always completes the table.
    """
    tasks = [(setting, trial) for trial in range(options.trials) for setting in settings]
    if not options.report_only:
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            waiting = [
                pool.submit(perform, setting, trial, options.output_dir, options.data_dir, inspect)
                for setting, trial in tasks
            ]
            for number, (future, (setting, trial)) in enumerate(zip(waiting, tasks, strict=True), 1):
                status = future.result()
                print(f"{number}/{len(tasks)} {setting.label} on {setting.dataset}, split {trial}: {status}")
    return [
        [
            read_figures(setting, trial, options.output_dir, options.data_dir)
            for trial in range(options.trials)
        ]
        for setting in settings
    ]


def pair_up(apart: Sequence[float]) -> tuple[float, float]:
    """Return the mean of differences over splits and half of its 95 % interval by Student (0 of one)."""
    if len(apart) < 2:
        return statistics.mean(apart), 0.0
    half = t.ppf(0.975, len(apart) - 1) * statistics.stdev(apart) / len(apart) ** 0.5
    return statistics.mean(apart), float(half)


@cache
def load(name: str, data_dir: Path | None) -> Dataset:
    """Load a dataset once per process."""
    return load_dataset(name, data_dir)


def find_store(config: RunConfig, dataset: Dataset, output_dir: Path) -> RunStore:
    """Return the place of a run."""
    return RunStore(output_dir / config.folder_name(dataset.fingerprint))


def read_kept(name: str) -> dict[str, Run]:
    """Return the runs that are kept beside a page, by their ids.

    A page whose runs take hours keeps them there: no other machine makes them again, and readers can look
    into them (`plench collect`).
    """
    path = RESULTS / f"{name}.parquet"
    return {run.info["run_id"]: run for run in read_runs(path)} if path.exists() else {}


def keep_finished(
    name: str, output_dir: Path, wanted: Callable[[Run], bool] = lambda run: True
) -> dict[str, Run]:
    """Return the finished runs that are kept or in a folder; keep those of the folder that are wanted."""
    kept = read_kept(name)
    found = read_runs(output_dir) if output_dir.is_dir() else []
    finished = {run.info["run_id"]: run for run in found if run.finished and "run_id" in run.info}
    runs = kept | {run_id: run for run_id, run in finished.items() if wanted(run)}
    if runs:
        ordered = sorted(runs.values(), key=lambda run: run.path.name)
        write_results_file(StoredResults(ordered), RESULTS / f"{name}.parquet")
    return kept | finished


class InspectedRun(TrainingRun):
    """A run that is inspected before it counts as finished, so that no kill can come in between."""

    def __init__(self, *arguments: Any, inspect: Inspect | None) -> None:
        super().__init__(*arguments)
        self.inspect = inspect

    def describe(self, status: str, error: Mapping[str, str] | None = None) -> None:
        """Write run.json, after what the inspection of a completed run has found."""
        if status == "done" and self.inspect is not None:
            self.store.write_file(INSPECTED, json.dumps(dict(self.inspect(self))).encode())
        super().describe(status, error)


def perform(
    setting: Setting, trial: int, output_dir: Path, data_dir: Path | None, inspect: Inspect | None
) -> str:
    """Carry out one run in this process, unless it is finished, and keep what the inspection finds."""
    config, dataset = setting.configure(trial), load(setting.dataset, data_dir)
    store = find_store(config, dataset, output_dir)
    if store.finished:
        return "already done"
    entry = find_algorithm(setting.algorithm)
    with store.locked(), compute_threads(config.threads), flush_denormals():
        run = InspectedRun(config, dataset, entry, store, NoCallback(), None, inspect=inspect)
        return run.carry_out().status


def read_figures(setting: Setting, trial: int, output_dir: Path, data_dir: Path | None) -> Figures | None:
    """Read a run's records."""
    config, dataset = setting.configure(trial), load(setting.dataset, data_dir)
    store = find_store(config, dataset, output_dir)
    run = store.read_run()
    if not store.finished or run is None or run["status"] != "done":
        return None
    last = json.loads((store.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    inspected = store.folder / INSPECTED
    return Figures(
        accuracy=100 * last["test_acc"],
        seconds=run["timings"]["training_seconds"],
        steps=config.steps,
        logged=last["logged"],
        inspected=json.loads(inspected.read_text(encoding="utf-8")) if inspected.exists() else {},
        notices=run["notices"],
        thirds=[100 * last[key] for key in THIRDS if last.get(key) is not None],
    )


def name_diverged(settings: Sequence[Setting], options: argparse.Namespace) -> str:
    """Return a sentence on the runs that ended because their loss was no longer finite."""
    found = []
    for setting in settings:
        for trial in range(options.trials):
            dataset = load(setting.dataset, options.data_dir)
            run = find_store(setting.configure(trial), dataset, options.output_dir).read_run()
            if run is not None and run["status"] == "diverged":
                name = setting.algorithm.rpartition(":")[2]
                found.append(f"{name} on {setting.dataset}, split {trial}")
    return "Runs that diverged, which tables leave out: " + ("; ".join(found) or "none") + "."


def render_command(name: str, parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """Return the sentence with the command that makes a page: options that decide numbers, if not default."""
    words = ["python", f"benchmarks/{name}.py"]
    for key in ("trials", "steps", "datasets", "ratios"):
        value = getattr(options, key, None)
        if value is not None and value != parser.get_default(key):
            words += [f"--{key}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return f"Written by `{' '.join(words)}` from the records of its runs."


def summarise(values: Sequence[float], digits: int = 1) -> str:
    """Return mean ± sample standard deviation."""
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def summarise_accuracy(figures: Sequence[Figures | None]) -> str:
    """Return the mean accuracy ± its standard deviation, and how many splits it lacks, if any."""
    found = [each.accuracy for each in figures if each is not None]
    missing = len(figures) - len(found)
    return summarise(found) + (f" ({len(found)} of {len(figures)} splits)" if missing else "")


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(name: str, parts: Sequence[str]) -> None:
    """Write a page of docs/results: parts separated by empty lines, with the machine at the end."""
    import torch

    versions = f"Python {platform.python_version()} and torch {torch.__version__} on {platform.machine()}"
    note = f"Made with {versions}, one thread per run. Seconds depend on the other load of the machine."
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.md"
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n\n".join([*parts, note]) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    print(f"wrote {path}")
