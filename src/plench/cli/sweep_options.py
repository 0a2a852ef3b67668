"""The options of `plench sweep`, and how they are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.cli.options import (
    add_candidate_options,
    add_compute_options,
    add_precision_options,
    read_hparams,
)
from plench.errors import UsageError

if TYPE_CHECKING:
    from plench.sweeps.engines.base import Engine, Limits
    from plench.sweeps.engines.process import WorkerProcess
    from plench.sweeps.engines.ray_start import EarlyRay
    from plench.sweeps.spec import SweepSpec
    from plench.training import RunOptions

# Workers that are started before it is known how many runs there are.
MOST_EARLY = 16

LAUNCHERS = ("local", "multi_gpu", "ray", "slurm", "dummy")

# Options that change a grid, under the names of its fields.
GRID_FIELDS = (
    "n_hparams_from",
    "n_hparams",
    "n_trials_from",
    "n_trials",
    "steps",
    "checkpoint_freq",
    "holdout_fraction",
    "tabular_test_fraction",
    "pl_type",
    "fps_rate",
    "id_rate",
    "drop_true_rate",
    "precision",
    "compile",
)

# Options of single engines: the launchers that know them, and the name of the engine's argument.
ENGINE_OPTIONS = {
    "workers": (("local", "ray"), "workers"),
    "ray_address": (("ray",), "address"),
    "cpus_per_run": (("ray",), "cpus_per_run"),
    "gpus_per_run": (("ray",), "gpus_per_run"),
    "slurm_partition": (("slurm",), "partition"),
    "slurm_minutes": (("slurm",), "minutes"),
    "slurm_memory_gb": (("slurm",), "memory_gb"),
    "slurm_gpus": (("slurm",), "gpus"),
    "slurm_max_jobs": (("slurm",), "max_jobs"),
    "slurm_options": (("slurm",), "more"),
    "runs_per_job": (("slurm",), "runs_per_job"),
}


def add_grid_options(parser: argparse.ArgumentParser) -> None:
    """Add what a sweep consists of."""
    group = parser.add_argument_group(
        "what to run", "without any of these: what was launched into the output folder before"
    )
    group.add_argument("--suite", metavar="NAME", help="lite, tabular, image or full")
    group.add_argument("--file", metavar="FILE", help="a sweep file (TOML), as written into output folders")
    group.add_argument("--algorithms", nargs="+", metavar="NAME", help="names, or path/to/file.py:ClassName")
    group.add_argument("--datasets", nargs="+", metavar="NAME", help="names, see `plench list datasets`")
    group.add_argument(
        "--n_hparams_from", type=int, metavar="N", help="first configuration (default: 0, the default one)"
    )
    group.add_argument("--n_hparams", type=int, metavar="N", help="end of configurations (default: 20)")
    group.add_argument("--n_trials_from", type=int, metavar="N", help="first split (default: 0)")
    group.add_argument(
        "--n_trials", type=int, metavar="N", help="end of splits (default: 5 for tabular data, 3 for images)"
    )
    group.add_argument("--steps", type=int, metavar="N", help="updates a run (default: by the dataset)")
    group.add_argument("--checkpoint_freq", type=int, metavar="N", help="updates between evaluations (1000)")
    group.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    group.add_argument("--holdout_fraction", type=float, metavar="F", help="validation share (0.1)")
    group.add_argument("--tabular_test_fraction", type=float, metavar="F", help="test share (0.1)")
    add_candidate_options(parser)
    add_precision_options(parser)
    parser.set_defaults(precision=None, compile=None)  # not given: as the suite or the protocol has it


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add where data and results are."""
    parser.add_argument("--output_dir", default="runs", metavar="DIR", help="folder of runs (default: runs)")
    parser.add_argument("--data_dir", metavar="DIR", help="folder with the data files")


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add how runs are carried out."""
    parser.add_argument(
        "--command_launcher",
        choices=LAUNCHERS,
        default="local",
        help="engine: local (also called multi_gpu), ray, slurm, or dummy, which prints the commands",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="runs at once (default: one a GPU or core)")
    parser.add_argument("--run_timeout", type=float, metavar="S", help="seconds an attempt at a run may take")
    parser.add_argument("--memory_limit_gb", type=float, metavar="G", help="memory that a run may take")
    parser.add_argument("--skip_model_save", action="store_true", help="keep no models after the runs")
    parser.add_argument("--skip_confirmation", action="store_true", help="do not ask before starting")
    add_compute_options(parser)
    ray = parser.add_argument_group("Ray (plench[ray])")
    ray.add_argument("--ray_address", metavar="ADDRESS", help="auto or HOST:PORT (default: a Ray of its own)")
    ray.add_argument("--cpus_per_run", type=float, metavar="N", help="CPUs a run (default: 1)")
    ray.add_argument("--gpus_per_run", type=float, metavar="N", help="GPUs a run (default: 0)")
    slurm = parser.add_argument_group("Slurm (plench[slurm])")
    slurm.add_argument("--slurm_partition", metavar="NAME", help="partition")
    slurm.add_argument("--slurm_minutes", type=int, metavar="M", help="time limit (default: 60)")
    slurm.add_argument("--slurm_memory_gb", type=float, metavar="G", help="memory of a job")
    slurm.add_argument("--slurm_gpus", type=int, metavar="N", help="GPUs of a job (default: 0)")
    slurm.add_argument("--slurm_max_jobs", type=int, metavar="N", help="jobs of an array running at once")
    slurm.add_argument(
        "--slurm_options", nargs="+", metavar="NAME=VALUE", help="more of sbatch, as account=mine qos=low"
    )
    slurm.add_argument("--runs_per_job", type=int, metavar="N", help="runs of a job (default: 1)")


def read_specs(arguments: argparse.Namespace) -> list[SweepSpec]:
    """Return the sweeps that the options name."""
    from plench.sweeps.spec import SweepSpec, read_sweep, read_sweeps

    changes = {name: getattr(arguments, name) for name in GRID_FIELDS if getattr(arguments, name) is not None}
    if arguments.hparams is not None:
        changes["hparams"] = read_hparams(arguments.hparams)
    asked = arguments.suite or arguments.datasets or arguments.algorithms
    if arguments.file:
        if asked or changes:
            raise UsageError("--file says all there is to run; give no suite and no grid beside it")
        return [read_sweep(arguments.file)]
    if asked:
        return [SweepSpec(tuple(replace(grid, **changes) for grid in _read_grids(arguments)))]
    if changes:
        raise UsageError(f"--{next(iter(changes))} needs --suite, or --datasets and --algorithms")
    recorded = read_sweeps(arguments.output_dir)
    if not recorded:
        raise UsageError(
            f"nothing to run is named, and {arguments.output_dir} holds no sweep: give --suite (lite, "
            "tabular, image, full), --file, or --datasets and --algorithms"
        )
    return recorded


def _read_grids(arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Return the grids of a suite or of named datasets and algorithms."""
    from plench.sweeps.suites import make_grids, make_suite

    if arguments.suite is None:
        if not arguments.datasets or not arguments.algorithms:
            raise UsageError("give both --datasets and --algorithms, or --suite")
        return make_grids(arguments.algorithms, arguments.datasets)
    if arguments.datasets:
        raise UsageError("a suite has its own datasets; give --datasets and --algorithms without --suite")
    chosen: dict[str, Any] = (
        {} if arguments.algorithms is None else {"algorithms": tuple(arguments.algorithms)}
    )
    return tuple(replace(grid, **chosen) for grid in make_suite(arguments.suite))


def read_run_options(arguments: argparse.Namespace) -> RunOptions:
    """Return how each run is carried out."""
    from plench.training import RunOptions

    return RunOptions(
        device=arguments.device,
        threads=arguments.threads,
        save_seconds=arguments.save_seconds,
        save_steps=arguments.save_steps,
        keep_models=not arguments.skip_model_save,
        resume_anyway=arguments.resume_anyway,
    )


def read_limits(arguments: argparse.Namespace) -> Limits:
    """Return what a run may take."""
    from plench.sweeps.engines.base import Limits

    for name in ("run_timeout", "memory_limit_gb"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name} must be above 0, not {value}")
    return Limits(arguments.run_timeout, arguments.memory_limit_gb)


@dataclass(frozen=True)
class EarlyStart:
    """What was started before it was known whether there is anything to do; at most one of them."""

    workers: Sequence[WorkerProcess] = ()
    ray: EarlyRay | None = None

    def close(self) -> None:
        """End what was started."""
        for worker in self.workers:
            worker.kill()
        if self.ray is not None:
            self.ray.close()


@contextmanager
def start_early(arguments: argparse.Namespace) -> Iterator[EarlyStart]:
    """Start workers, or a Ray with room for them, while this process imports torch and plans."""
    from plench.sweeps.engines.process import WorkerProcess
    from plench.sweeps.engines.ray_start import EarlyRay

    launcher, wanted = arguments.command_launcher, max(arguments.workers or 0, 0)
    early = EarlyStart()
    if launcher in ("local", "multi_gpu"):
        early = EarlyStart([WorkerProcess(arguments.threads) for _ in range(min(wanted, MOST_EARLY))])
    elif launcher == "ray" and wanted and arguments.ray_address is None:
        early = EarlyStart(
            ray=EarlyRay(wanted, 1.0 if arguments.cpus_per_run is None else arguments.cpus_per_run)
        )
    try:
        yield early
    finally:
        early.close()


def read_engine(arguments: argparse.Namespace, early: EarlyStart | None = None) -> Engine:
    """Return the engine that the options ask for; options of another engine are refused."""
    from plench.sweeps.engines import ENGINES

    early = early or EarlyStart()
    entry = ENGINES.find(arguments.command_launcher)
    launcher = entry.name
    given: dict[str, Any] = {}
    for option, (owners, argument) in ENGINE_OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None and launcher not in owners:
            raise UsageError(f"--{option} belongs to the launcher {' or '.join(owners)}, not to {launcher}")
        if value is not None:
            given[argument] = value
    if "more" in given:
        given["more"] = read_pairs(given["more"])
    ready: dict[str, dict[str, Any]]
    ready = {"local": {"started": early.workers}, "ray": {"started": early.ray}, "dummy": {"show": print}}
    engine: Callable[..., Engine] = entry.member
    return engine(**given, **ready.get(launcher, {}))


def read_pairs(words: list[str]) -> dict[str, str]:
    """Read NAME=VALUE words."""
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--slurm_options takes NAME=VALUE, not {word!r}")
        pairs[name] = value
    return pairs


def describe_folder(output_dir: str) -> Path:
    """Return the output folder; one that is not there is an error."""
    folder = Path(output_dir)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {output_dir}")
    return folder
