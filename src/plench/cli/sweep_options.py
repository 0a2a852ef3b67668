"""The options of `plench sweep`, and how they are read."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plench.cli.options import add_settings, given_settings, read_hparams
from plench.errors import UsageError
from plench.plain_files import is_folder
from plench.runs.sweep_spec import DEFAULT_FLEET, RANGES, SweepSpec, grid_settings, read_sweep, read_sweeps
from plench.settings import Settings, declared
from plench.sweeps.engines import ENGINES
from plench.sweeps.engines.early import start_early
from plench.text import find_name, flag

if TYPE_CHECKING:  # these import torch, which showing the help does not need
    from plench.runs.sweep_spec import Grid
    from plench.sweeps.engines.base import Engine, Limits
    from plench.sweeps.engines.early import EarlyStart
    from plench.sweeps.fleets import FleetOptions

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
        "what to run", "without any of these: the sweeps launched into the output folder before"
    )
    group.add_argument("--suite", metavar="NAME", help="lite, tabular, image, full or extended")
    group.add_argument("--file", metavar="FILE", help="a sweep file (TOML), as written into output folders")
    group.add_argument("--algorithms", nargs="+", metavar="NAME", help="names, or path/to/file.py:ClassName")
    group.add_argument(
        "--datasets",
        nargs="+",
        metavar="NAME",
        help="names or paths, see `plench list datasets`; with --suite, which of its datasets",
    )
    group.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out datasets whose files are not there, with a notice",
    )
    group.add_argument(
        "--n-hparams-from",
        type=int,
        metavar="N",
        help="first configuration (default: 0, all hyperparameters at their defaults)",
    )
    group.add_argument(
        "--n-hparams",
        type=int,
        metavar="N",
        help="end of the configurations, not their number: up to N-1 (default: 20)",
    )
    group.add_argument("--n-trials-from", type=int, metavar="N", help="first split (default: 0)")
    group.add_argument(
        "--n-trials",
        type=int,
        metavar="N",
        help="end of the splits, not their number: up to N-1 (default: 5 for tabular data, 3 for images)",
    )
    group.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    add_settings(parser, grid_settings())


def add_extend_option(parser: argparse.ArgumentParser) -> None:
    """Add the results files that a sweep extends."""
    parser.add_argument(
        "--extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="results files (`plench results export`) whose done and diverged runs count as finished",
    )


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add how runs are carried out."""
    add_extend_option(parser)
    parser.add_argument(
        "--command-launcher",
        default="local",
        metavar="ENGINE",
        help="engine: local (also called multi_gpu), ray, slurm, or dummy, which prints the commands",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="parallel runs (default: one per GPU or core)"
    )
    parser.add_argument(
        "--run-timeout", type=float, metavar="S", help="time limit of one attempt at a run, in seconds"
    )
    parser.add_argument(
        "--memory-limit-gb", type=float, metavar="G", help="memory limit of a run, or of runs trained as one"
    )
    parser.add_argument(
        "--worker-silence",
        type=float,
        metavar="S",
        help="seconds after which a silent local worker is replaced (default: 120)",
    )
    parser.add_argument(
        "--fleet",
        default=DEFAULT_FLEET,
        metavar="SIZE",
        help="train runs that differ in split and configuration as one: auto (default), off, or how many",
    )
    parser.add_argument(
        "--fleet-memory-gb",
        type=float,
        metavar="G",
        help="memory that runs trained as one may take (default: 1)",
    )
    parser.add_argument("--skip-confirmation", action="store_true", help="do not ask before starting")
    parser.add_argument("--no-progress", action="store_true", help="do not show how far the runs are")
    parser.add_argument("--quiet", action="store_true", help="show and print nothing; the exit code says it")
    add_settings(parser, carrying_out())
    ray = parser.add_argument_group("Ray (plench[ray])")
    ray.add_argument(
        "--ray-address", metavar="ADDRESS", help="auto or HOST:PORT (default: start a Ray on this machine)"
    )
    ray.add_argument("--cpus-per-run", type=float, metavar="N", help="CPUs per run (default: 1)")
    ray.add_argument("--gpus-per-run", type=float, metavar="N", help="GPUs per run (default: 0)")
    slurm = parser.add_argument_group("Slurm (plench[slurm])")
    slurm.add_argument("--slurm-partition", metavar="NAME", help="partition")
    slurm.add_argument("--slurm-minutes", type=int, metavar="M", help="time limit (default: 60)")
    slurm.add_argument("--slurm-memory-gb", type=float, metavar="G", help="memory per job")
    slurm.add_argument("--slurm-gpus", type=int, metavar="N", help="GPUs per job (default: 0)")
    slurm.add_argument("--slurm-max-jobs", type=int, metavar="N", help="array jobs that may run at once")
    slurm.add_argument(
        "--slurm-options",
        nargs="+",
        metavar="NAME=VALUE",
        help="further options of sbatch, such as account=mine qos=low",
    )
    slurm.add_argument("--runs-per-job", type=int, metavar="N", help="runs per job (default: 1)")


def carrying_out() -> list[str]:
    """Return the names of the settings that say how the runs of a sweep are carried out."""
    return [name for name, setting in declared().items() if not setting.affects_results]


def read_specs(arguments: argparse.Namespace) -> list[SweepSpec]:
    """Return the sweeps that the options name, with the settings that say how their runs are carried out."""
    given = given_settings(arguments)
    how = {name: given.pop(name) for name in carrying_out() if name in given}
    return [
        replace(spec, grids=tuple(replace(grid, **how) for grid in spec.grids))
        for spec in _read_specs(arguments, given)
    ]


def _read_specs(arguments: argparse.Namespace, given: dict[str, Any]) -> list[SweepSpec]:
    ranges = {name: getattr(arguments, name) for name in RANGES if getattr(arguments, name) is not None}
    changes: dict[str, Any] = {**ranges, **given}
    if arguments.hparams is not None:
        changes["hparams"] = read_hparams(arguments.hparams)
    asked = arguments.suite or arguments.datasets or arguments.algorithms
    if arguments.file:
        if asked or changes:
            raise UsageError(
                "--file already says what to run: leave out --suite, --datasets and --algorithms"
            )
        return [read_sweep(arguments.file)]
    if asked:
        return [SweepSpec(tuple(replace(grid, **changes) for grid in _read_grids(arguments)))]
    if changes:
        raise UsageError(f"{flag(next(iter(changes)))} needs --suite, or --datasets and --algorithms")
    recorded = read_sweeps(arguments.output_dir)
    if not recorded:
        raise UsageError(
            f"{arguments.output_dir} holds no sweep: say what to run with --suite (lite, tabular, image, "
            "full, extended), --file, or --datasets and --algorithms"
        )
    return recorded


def _read_grids(arguments: argparse.Namespace) -> tuple[Grid, ...]:
    """Return the grids of a suite or of named datasets and algorithms."""
    from plench.sweeps.suites import make_grids, make_suite

    if arguments.suite is None:
        if not arguments.datasets or not arguments.algorithms:
            raise UsageError("give both --datasets and --algorithms, or --suite")
        return make_grids(arguments.algorithms, arguments.datasets)
    grids = make_suite(arguments.suite)
    if arguments.datasets:
        known = [name for grid in grids for name in grid.datasets]
        wanted = {
            find_name(name, known, f"dataset of the suite {arguments.suite}") for name in arguments.datasets
        }
        kept = (tuple(name for name in grid.datasets if name in wanted) for grid in grids)
        grids = tuple(replace(grid, datasets=names) for grid, names in zip(grids, kept, strict=True) if names)
    chosen: dict[str, Any] = (
        {} if arguments.algorithms is None else {"algorithms": tuple(arguments.algorithms)}
    )
    return tuple(replace(grid, **chosen) for grid in grids)


def read_limits(arguments: argparse.Namespace) -> Limits:
    """Return the limits of a run."""
    from plench.sweeps.engines.base import Limits

    given: dict[str, float] = {}
    for name in ("run_timeout", "memory_limit_gb", "worker_silence"):
        value = getattr(arguments, name)
        if value is not None and not value > 0:
            raise UsageError(f"{flag(name)} must be above 0, not {value}")
        if value is not None:
            given[name] = value
    return Limits(**given)


def read_fleet_options(arguments: argparse.Namespace) -> FleetOptions:
    """Return how runs are put together."""
    from plench.sweeps.fleets import read_fleet

    return read_fleet(arguments.fleet, arguments.fleet_memory_gb)


def start_engine_early(arguments: argparse.Namespace) -> AbstractContextManager[EarlyStart]:
    """Start workers or Ray while this process imports torch and plans."""
    return start_early(
        arguments.command_launcher,
        max(arguments.workers or 0, 0),
        arguments.threads or Settings.threads,
        ray_address=arguments.ray_address,
        cpus_per_run=1.0 if arguments.cpus_per_run is None else arguments.cpus_per_run,
    )


def read_engine(arguments: argparse.Namespace, early: EarlyStart | None = None) -> Engine:
    """Return the engine that the options ask for; options of another engine are refused."""
    engine: Any = ENGINES.find(arguments.command_launcher).member
    given: dict[str, Any] = {}
    for option, (owners, argument) in ENGINE_OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None and engine.name not in owners:
            raise UsageError(
                f"{flag(option)} belongs to the launcher {' or '.join(owners)}, not to {engine.name}"
            )
        if value is not None:
            given[argument] = value
    if "more" in given:
        given["more"] = read_pairs(given["more"])
    if early is not None and engine.name == "local":
        given["started"] = early.workers
    if early is not None and engine.name == "ray":
        given["started"] = early.ray
    made: Engine = engine(**given)
    return made


def read_pairs(words: list[str]) -> dict[str, str]:
    """Read NAME=VALUE words."""
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--slurm-options takes NAME=VALUE, not {word!r}")
        pairs[name] = value
    return pairs


def describe_folder(output_dir: str) -> Path:
    """Return the output folder; one that is not there is an error."""
    folder = Path(output_dir)
    if not is_folder(folder):
        raise UsageError(f"there is no folder {output_dir}")
    return folder
