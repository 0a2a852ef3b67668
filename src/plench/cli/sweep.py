"""Plan, launch and inspect many runs, and train what was chosen among them on all data.

examples:
  plench sweep plan --suite lite                        how many runs, how long, how much disk
  plench sweep launch --suite lite --output-dir O       the same command resumes it
  plench sweep status --output-dir O                    progress, and what failed
  plench sweep retry --output-dir O                     run the failed ones again
  plench sweep best O --criterion CR                    the run chosen without true labels
  plench sweep launch --file O/sweep-….toml --output-dir P    repeat a published sweep
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plench.cli import add_command, fill_from_module
from plench.cli.options import add_folder_options, add_settings, given_settings, read_hparams
from plench.cli.train import add_refit
from plench.errors import UsageError
from plench.runs.sweep_spec import RANGES, SweepSpec, grid_settings, read_sweep, read_sweeps
from plench.settings import declared
from plench.sweeps.engines import ENGINES, Engine
from plench.sweeps.status import (
    PENDING,
    RunState,
    measure_rates,
    read_extended,
    read_plan,
    read_states,
    stamp_plench,
)
from plench.text import clean, clean_text, counted, find_name, flag

if TYPE_CHECKING:  # these import torch, which the help and a status do not need
    from plench.runs.sweep_spec import Grid
    from plench.sweeps.launch import SweepOutcome
    from plench.sweeps.plan import PlannedRun, StackOptions, Task
    from plench.sweeps.scheduler import Limits

SIZES = "fleets"  # of stacks, in the JSON of a plan
PROBLEMS = ("failed", "foreign", "damaged")
PROBLEMS_SHOWN = 20
# The settings that do not affect results.
EXECUTION_SETTINGS = tuple(name for name, setting in declared().items() if not setting.affects_results)
# Options of single engines: the engines, the engine's argument, type, metavar and help.
ENGINE_OPTIONS: dict[str, tuple[tuple[str, ...], str, type, str, str]] = {
    "workers": (("local", "ray"), "workers", int, "N", "parallel runs (default: one per GPU or core)"),
    "ray_address": (("ray",), "address", str, "ADDRESS", "auto or HOST:PORT (default: start a Ray here)"),
    "cpus_per_run": (("ray",), "cpus_per_run", float, "N", "CPUs per run (default: 1)"),
    "gpus_per_run": (("ray",), "gpus_per_run", float, "N", "GPUs per run (default: 0)"),
    "memory_gb_per_run": (("ray",), "memory_gb_per_run", float, "G", "memory that Ray reserves per run"),
    "slurm_partition": (("slurm",), "partition", str, "NAME", "partition"),
    "slurm_minutes": (("slurm",), "minutes", int, "M", "time limit (default: 60)"),
    "slurm_memory_gb": (("slurm",), "memory_gb", float, "G", "memory per job"),
    "slurm_gpus": (("slurm",), "gpus", int, "N", "GPUs per job (default: 0)"),
    "slurm_max_jobs": (("slurm",), "max_jobs", int, "N", "array jobs that may run at once"),
    "slurm_options": (("slurm",), "more", str, "NAME=VALUE", "more options of sbatch, such as qos=low"),
    "runs_per_job": (("slurm",), "runs_per_job", int, "N", "runs per job (default: 1)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "show how many runs there are, how many are done, and the time and disk the rest needs"
    planning = add_command(commands, "plan", text, plan)
    probe = "seconds for measuring (default: 30; 0: none)"
    planning.add_argument("--probe-seconds", type=float, default=30.0, metavar="S", help=probe)
    text = "run what is not finished; failed runs are not repeated"
    launching = add_command(commands, "launch", text, launch)
    text = "run what failed, and whatever else is not finished"
    retrying = add_command(commands, "retry", text, launch)
    text = "show the run that a criterion chooses among all algorithms, and its folder"
    best = add_command(commands, "best", text, show_best)
    best.add_argument("folder", metavar="DIR", help="folder of runs")
    best.add_argument("--criterion", default="CR", metavar="NAME", help="criterion (default: CR)")
    inspecting = add_command(
        commands, "status", "show the progress of the runs, read from their folders", status
    )
    text = "delete the folders of runs that are not finished"
    deleting = add_command(commands, "delete-incomplete", text, delete_incomplete, ["delete_incomplete"])
    text = "retrain the configuration that a criterion chose on all data"
    commands.add_parser("refit", help=text, fill=add_refit)
    text = "compare clean validation labels for choosing with the same labels for training"
    commands.add_parser("pilot", help=text, fill=partial(fill_from_module, "pilot"))
    for command in (planning, launching, retrying, best, inspecting):
        command.add_argument("--json", action="store_true", help="print JSON")
    for command in (planning, launching, retrying, inspecting, deleting):
        add_grid_options(command)
    text = "results files (`plench results export`) whose done and diverged runs count as finished"
    for command in (planning, launching, retrying, inspecting):
        command.add_argument("--extend", nargs="+", default=[], metavar="FILE", help=text)
    for command in (planning, launching, retrying):
        add_launch_options(command)
        command.set_defaults(retry=command is retrying)
    deleting.add_argument("--skip-confirmation", action="store_true", help="do not ask")
    # As in the public benchmark, a launch command may be repeated with this verb in its place.
    text = "accepted as in the launch command, without effect"
    deleting.add_argument("--command-launcher", metavar="ENGINE", help=text)
    deleting.add_argument("--skip-model-save", action="store_true", help=text)


def add_grid_options(parser: argparse.ArgumentParser) -> None:
    """Add the folders, and what a sweep consists of."""
    add_folder_options(parser)
    group = parser.add_argument_group(
        "what to run", "without any of these: the sweeps launched into the output folder before"
    )
    group.add_argument("--suite", metavar="NAME", help="lite, tabular, image, full or extended")
    group.add_argument("--file", metavar="FILE", help="a sweep file (TOML), as written into output folders")
    group.add_argument("--algorithms", nargs="+", metavar="NAME", help="names, or path/to/file.py:ClassName")
    text = "names or paths, see `plench list datasets`; with --suite, which of its datasets"
    group.add_argument("--datasets", nargs="+", metavar="NAME", help=text)
    text = "skip datasets whose files do not exist, with a warning"
    group.add_argument("--skip-missing", action="store_true", help=text)
    ranges = (
        "first configuration (default: 0, all hyperparameters at their defaults)",
        "configurations 0 … N-1 (default: 20)",
        "first split (default: 0)",
        "splits 0 … N-1 (default: 5 for tabular data, 3 for images)",
    )
    for name, text in zip(RANGES, ranges, strict=True):
        group.add_argument(flag(name), type=int, metavar="N", help=text)
    group.add_argument("--hparams", metavar="JSON", help="hyperparameters to set in every configuration")
    add_settings(parser, grid_settings())


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add how runs are run."""
    for name, metavar, text in (
        ("--run-timeout", "S", "time limit of one attempt at a run, in seconds"),
        ("--memory-limit-gb", "G", "memory limit of a run or stack"),
        ("--worker-silence", "S", "seconds until a silent local worker is replaced (default: 120)"),
        ("--stack-memory-gb", "G", "memory that a stack may take (default: 1)"),
    ):
        parser.add_argument(name, type=float, metavar=metavar, help=text)
    text = "train runs in stacks of up to SIZE: auto (default), off or a number"
    parser.add_argument("--stack", default="auto", metavar="SIZE", help=text)
    parser.add_argument("--skip-confirmation", action="store_true", help="do not ask before starting")
    parser.add_argument("--no-progress", action="store_true", help="do not show progress")
    text = "observers of runs: classes as path/to/file.py:NAME or module:NAME (docs/callbacks.md)"
    parser.add_argument("--callback", nargs="+", default=[], metavar="SPEC", help=text)
    parser.add_argument("--quiet", action="store_true", help="print nothing; see the exit code")
    add_settings(parser, EXECUTION_SETTINGS)
    text = "engine: local (also called multi_gpu), ray, slurm, or dummy, which prints the commands"
    parser.add_argument("--command-launcher", default="local", metavar="ENGINE", help=text)
    groups = {
        name: parser.add_argument_group(f"{name.title()} (plench[{name}])") for name in ("ray", "slurm")
    }
    for option, (engines, _, kind, metavar, text) in ENGINE_OPTIONS.items():
        several: dict[str, Any] = {"nargs": "+"} if option == "slurm_options" else {}
        groups.get(engines[0], parser).add_argument(
            flag(option), type=kind, metavar=metavar, help=text, **several
        )


def read_specs(args: argparse.Namespace) -> list[SweepSpec]:
    """Return the sweeps that the options name, with the settings that do not affect results."""
    given = given_settings(args)
    execution = {name: given.pop(name) for name in EXECUTION_SETTINGS if name in given}
    ranges = {name: getattr(args, name) for name in RANGES if getattr(args, name) is not None}
    changes: dict[str, Any] = {**ranges, **given}
    if args.hparams is not None:
        changes["hparams"] = read_hparams(args.hparams)
    named = args.suite or args.datasets or args.algorithms
    if args.file:
        if named or changes:
            raise UsageError("--file already says what to run: omit --suite, --datasets and --algorithms")
        specs = [read_sweep(args.file)]
    elif named:
        specs = [SweepSpec(tuple(replace(grid, **changes) for grid in name_grids(args)))]
    elif changes:
        raise UsageError(f"{flag(next(iter(changes)))} needs --suite, or --datasets and --algorithms")
    else:
        specs = read_sweeps(args.output_dir)
    if not specs:
        raise UsageError(
            f"{args.output_dir} has no sweep file: say what to run with --suite (lite, tabular, image, full, "
            "extended), --file, or --datasets and --algorithms"
        )
    return [replace(spec, grids=tuple(replace(grid, **execution) for grid in spec.grids)) for spec in specs]


def name_grids(args: argparse.Namespace) -> tuple[Grid, ...]:
    """Return the grids of a suite or of named datasets and algorithms."""
    from plench.sweeps.plan import make_grids, make_suite

    if args.suite is None:
        if not args.datasets or not args.algorithms:
            raise UsageError("give both --datasets and --algorithms, or --suite")
        return make_grids(args.algorithms, args.datasets)
    grids = make_suite(args.suite)
    if args.datasets:
        known = [name for grid in grids for name in grid.datasets]
        wanted = {find_name(name, known, f"dataset of the suite {args.suite}") for name in args.datasets}
        kept = [(grid, tuple(name for name in grid.datasets if name in wanted)) for grid in grids]
        grids = tuple(replace(grid, datasets=names) for grid, names in kept if names)
    if args.algorithms:
        grids = tuple(replace(grid, algorithms=tuple(args.algorithms)) for grid in grids)
    return grids


def read_launch(args: argparse.Namespace) -> tuple[Engine, Limits, StackOptions]:
    """Return the engine, the limits of a run and how runs are stacked; refuse options of other engines."""
    from plench.sweeps.plan import read_stack_options
    from plench.sweeps.scheduler import Limits

    engine: Any = ENGINES.find(args.command_launcher).member
    given: dict[str, Any] = {}
    for option, (engines, argument, *_) in ENGINE_OPTIONS.items():
        value = getattr(args, option)
        if value is not None and engine.name not in engines:
            raise UsageError(
                f"{flag(option)} is an option of the launcher {' or '.join(engines)}, not of {engine.name}"
            )
        if value is not None:
            given[argument] = value
    for word in given.get("more", ()):
        if word.find("=") < 1:
            raise UsageError(f"--slurm-options takes NAME=VALUE, not {word!r}")
    if "more" in given:
        given["more"] = dict(word.split("=", 1) for word in given["more"])
    limits = {}
    for name in ("run_timeout", "memory_limit_gb", "worker_silence"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise UsageError(f"{flag(name)} must be above 0, not {value}")
        if value is not None:
            limits[name] = value
    return engine(**given), Limits(**limits), read_stack_options(args.stack, args.stack_memory_gb)


def launch(args: argparse.Namespace) -> int:
    """Run what is not finished; with `retry`, failed runs too."""
    from plench.sweeps.launch import launch_sweep
    from plench.sweeps.progress import watch_sweep

    specs = read_specs(args)
    engine, limits, stack = read_launch(args)
    if engine.writes and not args.skip_confirmation and sys.stdin.isatty():
        n_runs = sum(
            len(grid.algorithms) * len(grid.datasets) * len(grid.hparams_seeds) * len(grid.trial_seeds)
            for spec in specs
            for grid in spec.grids
        )
        confirm(f"Launch up to {counted(n_runs, 'run')} into {args.output_dir}?")
    with nullcontext() if args.quiet or args.no_progress else watch_sweep() as callback:
        outcome = launch_sweep(
            specs,
            args.output_dir,
            data_dir=args.data_dir,
            engine=engine,
            limits=limits,
            callback=callback,
            retry=args.retry,
            stack=stack,
            skip_missing=args.skip_missing,
            extend=args.extend,
            callbacks=args.callback,
        )
    if engine.writes and args.json:
        content = {**summarise(outcome.states), "failures": list_problems(outcome.states)}
        print(json.dumps({**content, "left_alone": outcome.busy, "exit_code": outcome.exit_code}, indent=1))
    elif engine.writes and not args.quiet:
        print_outcome(outcome)
    return outcome.exit_code if engine.writes else 0


def plan(args: argparse.Namespace) -> int:
    """Print what a launch would do, and its cost."""
    specs = read_specs(args)
    named = args.suite or args.algorithms
    extended = read_extended(args.extend)
    cached = None if named else read_cached_states(specs, args.output_dir, extended)
    if cached is not None and not any(entry.state in PENDING for entry in cached):
        show_plan(cached, {**summarise(cached), "to_do": 0, "workers": 0, SIZES: []}, args.json)
        return 0
    from plench.sweeps.plan import DatasetCache, PlannedRun, estimate_gb, group_runs, plan_runs, scan_runs
    from plench.sweeps.probe import estimate_cost

    datasets = DatasetCache(args.data_dir, skip_missing=args.skip_missing)
    engine, _, options = read_launch(args)
    slots = engine.count_slots(specs[0].grids[0])
    runs = plan_runs(specs, datasets) if named else scan_runs(specs, datasets, args.output_dir)
    states = read_states(runs, args.output_dir, extended)
    todo = [entry.run for entry in states if entry.state in PENDING]
    # Third-party code that a file names is not imported; what the command names is.
    usable = [entry.run for entry in states if not entry.in_extended and isinstance(entry.run, PlannedRun)]
    measured = {run.folder for run in usable}.intersection(run.folder for run in todo)
    probes = bool(measured) and args.probe_seconds > 0
    content = {**summarise(states), "to_do": len(todo), "workers": slots}
    stacks: list[Task] = []
    if named or probes:  # the data are available, or must be
        grouped = group_runs(usable, datasets, options, engine)
        left = (tuple(run for run in stack if run.folder in measured) for stack in grouped)
        stacks = [stack for stack in left if len(stack) > 1]
        content[SIZES] = [len(stack) for stack in stacks]
        content["fleet_gigabytes"] = max((estimate_gb(stack, datasets) for stack in stacks), default=0.0)
    if probes:
        wanted = [run for run in todo if run.folder in measured]
        estimate = estimate_cost(wanted, datasets, args.probe_seconds, stacks)
        if estimate is not None:
            content["hours"] = estimate.seconds / (slots or 1) / 3600
            content["gigabytes"] = estimate.bytes / 2**30
            content["measured_pairs"], content["pairs"] = estimate.pairs_measured, estimate.pairs
            content["fleets_measured"] = estimate.stacks_measured
    show_plan(states, content, args.json)
    return 0


def show_plan(states: Sequence[RunState], content: dict[str, Any], as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print(json.dumps(content, indent=1))
        return
    print_states(states)
    print(f"to do: {content['to_do']}")
    sizes, slots = content.get(SIZES), content["workers"]
    if sizes:
        print(
            f"stacked: {sum(sizes)} runs in {counted(len(sizes), 'stack')} of up to {max(sizes)}, "
            f"about {1024 * content['fleet_gigabytes']:.0f} MB of memory each at most"
        )
    if "hours" in content:
        from plench.sweeps.progress import format_duration

        at_once = f"{counted(slots, 'run')} at a time" if slots else "one run at a time, more on a cluster"
        how = ", in stacks" if content["fleets_measured"] else ", runs separately" if sizes else ""
        print(
            f"estimate: {format_duration(content['hours'] * 3600)} ({content['hours']:.2f} hours) with "
            f"{at_once}, {content['gigabytes']:.2f} GB of disk; measured on {content['measured_pairs']} of "
            f"{content['pairs']} pairs of algorithm and dataset{how}"
        )


def show_best(args: argparse.Namespace) -> int:
    """Name what a criterion chooses in each setting."""
    from plench.report.leaderboard import describe_choice, find_best
    from plench.report.results import read_results

    board = read_results(args.folder, criteria=[args.criterion]).board
    (criterion,) = board.criteria
    rows = []
    for setting in board.settings:
        chosen, label = find_best(board, setting, criterion), clean(board.labels[setting], None)
        if chosen is None:
            raise UsageError(f"{label}: no finished run has a checkpoint that {criterion.name} could choose")
        rows.append(
            {
                "setting": label,
                "algorithm": chosen.run.experiment.algorithm,
                "criterion": criterion.name,
                "criterion_value": chosen.score,
                "trial_seed": chosen.trial_seed,
                "hparams_seed": chosen.run.hparams_seed,
                "step": chosen.record.step,
                "folder": str(chosen.run.path),
            }
        )
        if not args.json:
            print(f"{label}: {criterion.name} {100 * chosen.score:.2f} %")
            print(f"  {clean(describe_choice(chosen, criterion), None)}")
            print(f"  {clean(str(chosen.run.path), None)}")
    if args.json:
        print(json.dumps(rows, indent=2))
    return 0


def status(args: argparse.Namespace) -> int:
    """Print the progress of the runs."""
    folder = find_folder(args.output_dir)
    extended = read_extended(args.extend)
    states = read_cached_states(read_specs(args), folder, extended)
    if states is None:
        states = scan_states(args, extended)
    queue = {}
    if (folder / ".slurm").is_dir():
        from plench.sweeps.engines.slurm import read_slurm_queue

        wanted = {entry.run.folder for entry in states if not entry.finished}
        found = read_slurm_queue(folder)
        queue = {"slurm": dict(Counter(state for name, state in found.items() if name in wanted))}
    rates = measure_rates(states)
    if args.json:
        content = {**summarise(states), **rates, **queue, "failures": list_problems(states)}
        print(json.dumps(content, indent=1))
        return 0
    print_states(states)
    if rates["runs_per_minute"] is not None and any(entry.state in PENDING for entry in states):
        from plench.sweeps.progress import format_duration  # imports numpy

        left = rates["seconds_left"]
        remaining = "" if left is None else f", about {format_duration(left)} left"
        print(f"{rates['runs_per_minute']:.1f} runs/min within the last hour{remaining}")
    if queue:
        print("in Slurm's queue: " + ", ".join(f"{name} {count}" for name, count in queue["slurm"].items()))
    print_problems(states)
    return 0


def delete_incomplete(args: argparse.Namespace) -> int:
    """Delete the folders of runs that are neither finished nor running."""
    from plench.sweeps.launch import delete_runs, lock_folder

    folder = find_folder(args.output_dir)
    with lock_folder(folder.absolute()):
        states = scan_states(args)
        incomplete = [entry for entry in states if entry.state in ("failed", "interrupted", "damaged")]
        counts = Counter(entry.state for entry in incomplete)
        print("incomplete: " + (", ".join(f"{n} {state}" for state, n in counts.items()) or "none"))
        if not incomplete:
            return 0
        if not args.skip_confirmation:
            if not sys.stdin.isatty():
                raise UsageError("there is no terminal to confirm on: give --skip-confirmation")
            confirm(f"Delete {counted(len(incomplete), 'folder')} in {args.output_dir}?")
        deleted = delete_runs(incomplete, folder)
    print(f"deleted {counted(deleted, 'folder')}")
    if deleted < len(incomplete):
        print(f"kept {len(incomplete) - deleted} that have started or finished since")
    return 0


def find_folder(output_dir: str) -> Path:
    """Return the output folder; raise UsageError if it does not exist."""
    if not os.path.isdir(output_dir):  # not Path.is_dir, which raises for a name that is too long
        raise UsageError(f"there is no folder {output_dir}")
    return Path(output_dir)


def read_cached_states(
    specs: list[SweepSpec], folder: str | Path, extended: Mapping[str, str]
) -> list[RunState] | None:
    """Return the states of the runs that launches have listed; None without a list. Needs no torch."""
    stamp = stamp_plench()
    listed = [read_plan(spec, folder, stamp) for spec in specs]
    if None in listed:
        return None
    runs = list({run.folder: run for part in listed for run in part or ()}.values())
    return read_states(cast("list[PlannedRun]", runs), folder, extended)


def scan_states(args: argparse.Namespace, extended: Mapping[str, str] | None = None) -> list[RunState]:
    """Return the states of the runs of sweeps, without importing third-party code."""
    from plench.sweeps.plan import DatasetCache, scan_runs

    datasets = DatasetCache(args.data_dir, skip_missing=args.skip_missing)
    runs = scan_runs(read_specs(args), datasets, args.output_dir)
    return read_states(runs, args.output_dir, extended)


def summarise(states: Sequence[RunState]) -> dict[str, Any]:
    """Return the counts of states as plain data."""
    return {"runs": len(states), "states": dict(Counter(entry.state for entry in states))}


def list_problems(states: Sequence[RunState]) -> list[dict[str, str]]:
    """Return failed, foreign and damaged runs with their reasons, as plain data."""
    return [
        {"folder": entry.run.folder, "state": entry.state, "message": entry.message}
        for entry in states
        if entry.state in PROBLEMS
    ]


def print_states(states: Sequence[RunState], axes: bool = True) -> None:
    """Print how many runs there are, of what, and in which states."""
    if axes:
        configs = [entry.run.config for entry in states]
        counts: dict[str, set[Any]] = {
            "dataset": {config.dataset for config in configs},
            "algorithm": {config.algorithm for config in configs},
            "configuration": {config.hparams_seed for config in configs},
            "split": {config.trial_seed for config in configs},
        }
        listed = ", ".join(counted(len(values), noun) for noun, values in counts.items())
        print(f"{counted(len(states), 'run')}: {listed}")
    by_state = sorted(summarise(states)["states"].items())
    in_files = sum(entry.in_extended for entry in states)
    where = f" ({counted(in_files, 'run')} in the extended results)" if in_files else ""
    print(", ".join(f"{state} {count}" for state, count in by_state) + where)


def print_problems(states: Sequence[RunState]) -> None:
    """Print failed, foreign and damaged runs with their reasons."""
    found = [entry for entry in states if entry.state in PROBLEMS]
    for entry in found[:PROBLEMS_SHOWN]:
        reason = next(iter(entry.message.splitlines()), "")
        print(clean_text(f"{entry.state}: {entry.run.label}: {reason} ({entry.run.folder})"))
    if len(found) > PROBLEMS_SHOWN:
        print(f"… and {len(found) - PROBLEMS_SHOWN} more")


def print_outcome(outcome: SweepOutcome) -> None:
    """Print how a launch ended; the last lines say what needs attention."""
    print_states(outcome.states, axes=False)
    print_problems(outcome.states)
    for reason in outcome.busy.values():
        print(clean_text(f"skipped: {reason}"))
    left = len(outcome.unfinished)
    unfinished = f"{counted(left, 'run')} {'is' if left == 1 else 'are'}"
    if left and outcome.waits:
        print(f"{unfinished} not finished: repeat the command to resume")
    elif left:
        print(f"{unfinished} in the queue: see `plench sweep status`")
    if outcome.failed:
        print(f"{counted(len(outcome.failed), 'run')} failed: `plench sweep retry` runs them again")


def confirm(question: str) -> None:
    """Ask; any answer but yes stops the command."""
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed, nothing was done")
