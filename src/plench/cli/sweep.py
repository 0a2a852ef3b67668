"""Many runs: plan, launch, status, best, retry, delete-incomplete.

examples:
  plench sweep plan --suite lite                        how many runs, how long, how much disk
  plench sweep launch --suite lite --output-dir O       the same command continues it
  plench sweep status --output-dir O                    progress, and what failed
  plench sweep retry --output-dir O                     run the failed ones again
  plench sweep best O --criterion CR                    the run chosen without true labels
  plench sweep launch --file O/sweep-….toml --output-dir P    repeat a published sweep
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plench.cli import add_commands
from plench.cli.options import add_folder_options
from plench.cli.sweep_options import (
    add_extend_option,
    add_grid_options,
    add_launch_options,
    describe_folder,
    read_engine,
    read_fleet_options,
    read_limits,
    read_specs,
    start_engine_early,
)
from plench.errors import UsageError
from plench.report.leaderboard import describe_choice, find_best
from plench.report.results import read_results
from plench.sweeps.progress import format_duration, watch_sweep
from plench.sweeps.remembered import recall
from plench.sweeps.run_states import PENDING, count_states, read_extended, read_states
from plench.text import clean, clean_text, counted

if TYPE_CHECKING:  # these import torch, which showing the help does not need
    from plench.runs.sweep_spec import SweepSpec
    from plench.sweeps.engines.early import EarlyStart
    from plench.sweeps.launch import SweepOutcome
    from plench.sweeps.plan import PlannedRun
    from plench.sweeps.probe import CostEstimate
    from plench.sweeps.run_states import RunState

MORE_COMMANDS = {
    "refit": "retrain the configuration that a criterion chose on all data",
    "pilot": "compare clean validation labels for choosing with the same labels for training",
}
_FAILURES_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, handler: Any, text: str, **more: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, **more)
        command.set_defaults(run=handler)
        add_folder_options(command)
        add_grid_options(command)
        return command

    command = add(
        "plan", plan, "show how many runs there are, how many are done, and the time and disk the rest needs"
    )
    add_launch_options(command)
    command.add_argument(
        "--probe-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds to spend on measuring (0: none)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    for name, handler, text in (
        ("launch", launch, "run what is not finished; failed runs are not repeated"),
        ("retry", retry, "run what failed, and whatever else is not finished"),
    ):
        command = add(name, handler, text)
        add_launch_options(command)
        command.add_argument("--json", action="store_true", help="print how it ended as JSON")
    best = "show the run that a criterion chooses among all algorithms, and its folder"
    command = commands.add_parser("best", help=best, description=best)
    command.set_defaults(run=show_best)
    command.add_argument("folder", metavar="DIR", help="folder of runs")
    command.add_argument("--criterion", default="CR", metavar="NAME", help="criterion (default: CR)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = add("status", status, "show the progress of the runs, read from their folders")
    add_extend_option(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command = add(
        "delete-incomplete",
        delete_incomplete,
        "delete the folders of runs that are not finished",
        aliases=["delete_incomplete"],
    )
    command.add_argument("--skip-confirmation", action="store_true", help="do not ask")
    # As in the public benchmark, a launch command may be repeated with this verb in its place.
    same = "accepted as in the launch command, without effect"
    command.add_argument("--command-launcher", metavar="ENGINE", help=same)
    command.add_argument("--skip-model-save", action="store_true", help=same)
    add_commands(commands, MORE_COMMANDS)


def launch(arguments: argparse.Namespace, retry_failed: bool = False) -> int:
    """Carry out what is not finished."""
    with start_engine_early(arguments) as early:
        return _launch(arguments, early, retry_failed)


def _launch(arguments: argparse.Namespace, early: EarlyStart, retry_failed: bool) -> int:
    from plench.sweeps.launch import launch_sweep

    specs = read_specs(arguments)
    engine = read_engine(arguments, early)
    limits, fleet = read_limits(arguments), read_fleet_options(arguments)
    if engine.writes and not arguments.skip_confirmation and sys.stdin.isatty():
        confirm(f"Launch up to {counted(count_runs(specs), 'run')} into {arguments.output_dir}?")
    shown = nullcontext() if arguments.quiet or arguments.no_progress else watch_sweep()
    with shown as callback:
        outcome = launch_sweep(
            specs,
            arguments.output_dir,
            data_dir=arguments.data_dir,
            engine=engine,
            limits=limits,
            callback=callback,
            retry=retry_failed,
            fleet=fleet,
            skip_missing=arguments.skip_missing,
            extend=arguments.extend,
        )
    if engine.writes and arguments.json:
        content = {**summarise_states(outcome.states), "failures": list_failures(outcome.states)}
        print(json.dumps({**content, "left_alone": outcome.busy, "exit_code": outcome.exit_code}, indent=1))
    elif engine.writes and not arguments.quiet:
        report_outcome(outcome, arguments.output_dir)
    return outcome.exit_code if engine.writes else 0


def show_best(arguments: argparse.Namespace) -> int:
    """Name what a criterion chooses in each setting."""
    board = read_results(arguments.folder, criteria=[arguments.criterion]).board
    (criterion,) = board.criteria
    rows = []
    for setting in board.settings:
        chosen = find_best(board, setting, criterion)
        if chosen is None:
            raise UsageError(
                f"{clean(board.labels[setting], None)}: no finished run has a checkpoint that "
                f"{criterion.name} "
                "could choose"
            )
        rows.append(
            {
                "setting": clean(board.labels[setting], None),
                "algorithm": chosen.run.experiment.algorithm,
                "criterion": criterion.name,
                "criterion_value": chosen.score,
                "trial_seed": chosen.trial_seed,
                "hparams_seed": chosen.run.hparams_seed,
                "step": chosen.record.step,
                "folder": str(chosen.run.path),
            }
        )
        if not arguments.json:
            print(f"{rows[-1]['setting']}: {criterion.name} {100 * chosen.score:.2f} %")
            print(f"  {clean(describe_choice(chosen, criterion), None)}")
            print(f"  {clean(str(chosen.run.path), None)}")
    if arguments.json:
        print(json.dumps(rows, indent=2))
    return 0


def retry(arguments: argparse.Namespace) -> int:
    """Carry out failed runs again, and what else is not finished."""
    return launch(arguments, retry_failed=True)


def plan(arguments: argparse.Namespace) -> int:
    """Print what a launch would do, and its cost."""
    specs = read_specs(arguments)
    named = arguments.suite or arguments.algorithms
    extended = read_extended(arguments.extend)
    known = None if named else recall_states(specs, Path(arguments.output_dir), extended)
    if known is not None and not any(entry.state in PENDING for entry in known):
        content: dict[str, Any] = {**summarise_states(known), "to_do": 0, "workers": 0, "fleets": []}
        show_plan(known, content, None, arguments.json)
        return 0
    from plench.sweeps.fleets import find_largest_gb
    from plench.sweeps.launch import plan_fleets
    from plench.sweeps.look import is_ours, look_at_runs
    from plench.sweeps.plan import DataShelf, plan_runs
    from plench.sweeps.probe import estimate_cost

    shelf = DataShelf(arguments.data_dir, skip_missing=arguments.skip_missing)
    read_limits(arguments)
    engine, options = read_engine(arguments), read_fleet_options(arguments)
    slots = engine.count_slots(specs[0].grids[0])
    folder = arguments.output_dir
    runs = plan_runs(specs, shelf) if named else look_at_runs(specs, shelf, folder)
    states = read_states(runs, folder, extended)
    todo = [entry.run for entry in states if entry.state in PENDING]
    # What a file names is not run for measuring, nor imported to look at; what the command names is.
    runs = [entry.run for entry in states if not entry.in_extended]
    ours = runs if named else [run for run in runs if is_ours(run)]
    measured = {run.folder for run in ours}.intersection(run.folder for run in todo)
    probes = bool(measured) and arguments.probe_seconds > 0
    content = {**summarise_states(states), "to_do": len(todo), "workers": slots}
    fleets: list[tuple[PlannedRun, ...]] = []
    if named or probes:  # the data are there, or must be
        formed = plan_fleets(ours, shelf, options, engine)
        left = (tuple(run for run in fleet if run.folder in measured) for fleet in formed)
        fleets = [fleet for fleet in left if len(fleet) > 1]
        content["fleets"] = [len(fleet) for fleet in fleets]
        content["fleet_gigabytes"] = find_largest_gb(fleets, shelf)
    estimate = None
    if probes:
        wanted = [run for run in todo if run.folder in measured]
        estimate = estimate_cost(wanted, shelf, arguments.probe_seconds, fleets)
    if estimate is not None:
        content["hours"] = estimate.seconds / (slots or 1) / 3600
        content["gigabytes"] = estimate.bytes / 2**30
        content["measured_pairs"], content["pairs"] = estimate.pairs_measured, estimate.pairs
        content["fleets_measured"] = estimate.fleets_measured
    show_plan(states, content, estimate, arguments.json)
    return 0


def show_plan(
    states: list[RunState], content: dict[str, Any], estimate: CostEstimate | None, as_json: bool
) -> None:
    """Print a plan."""
    if as_json:
        print(json.dumps(content, indent=1))
        return
    print(f"{counted(len(states), 'run')}: {describe_axes([entry.run for entry in states])}")
    print_states(states)
    print(f"to do: {content['to_do']}")
    sizes, slots = content.get("fleets"), content.get("workers")
    if sizes:
        print(
            f"trained as one: {sum(sizes)} runs in {counted(len(sizes), 'fleet')} of up to {max(sizes)}, "
            f"about {1024 * content['fleet_gigabytes']:.0f} MB of memory each at most"
        )
    if estimate is None:
        return
    at_once = (
        f"{counted(slots, 'run')} at a time"
        if slots
        else "one run after the other, many at once on a cluster"
    )
    how = ", fleets as one" if estimate.fleets_measured else ", each run alone" if sizes else ""
    print(
        f"estimate: {format_duration(content['hours'] * 3600)} ({content['hours']:.2f} hours) with "
        f"{at_once}, {content['gigabytes']:.2f} GB of disk; measured on "
        f"{estimate.pairs_measured} of {estimate.pairs} pairs of algorithm and dataset "
        f"in {estimate.probe_seconds:.0f} s{how}"
    )


def recall_states(specs: list[SweepSpec], folder: Path, extended: Mapping[str, str]) -> list[RunState] | None:
    """Return the states of runs that are remembered, which needs no torch; None if they are not."""
    remembered = recall(specs, folder)
    if remembered is None:
        return None
    runs = cast("list[PlannedRun]", remembered)  # they have all that a look at states needs
    return read_states(runs, folder, extended)


def status(arguments: argparse.Namespace) -> int:
    """Print the progress of the runs."""
    folder = describe_folder(arguments.output_dir)
    extended = read_extended(arguments.extend)
    states = recall_states(read_specs(arguments), folder, extended)
    if states is None:
        states = read_planned(arguments, extended)
    content = summarise_states(states)
    queue = read_queue(states, arguments.output_dir)
    content.update(queue)
    if arguments.json:
        content["failures"] = list_failures(states)
        print(json.dumps(content, indent=1))
        return 0
    print(f"{counted(len(states), 'run')}: {describe_axes([entry.run for entry in states])}")
    print_states(states)
    if queue:
        print("in Slurm's queue: " + ", ".join(f"{name} {count}" for name, count in queue["slurm"].items()))
    print_failures(states, arguments.output_dir)
    return 0


def delete_incomplete(arguments: argparse.Namespace) -> int:
    """Delete the folders of runs that are neither finished nor running."""
    from plench.sweeps.launch import delete_runs, hold_folder

    folder = describe_folder(arguments.output_dir)
    with hold_folder(folder.absolute()):
        states = read_planned(arguments)
        doomed = [entry for entry in states if entry.state in ("failed", "interrupted", "damaged")]
        counts = Counter(entry.state for entry in doomed)
        print("incomplete: " + (", ".join(f"{n} {state}" for state, n in counts.items()) or "none"))
        if not doomed:
            return 0
        if not arguments.skip_confirmation:
            if not sys.stdin.isatty():
                raise UsageError("there is no terminal to confirm on: give --skip-confirmation")
            confirm(f"Delete {counted(len(doomed), 'folder')} in {arguments.output_dir}?")
        deleted = delete_runs(doomed, folder)
    print(f"deleted {counted(deleted, 'folder')}")
    if deleted < len(doomed):
        print(f"left {len(doomed) - deleted} that have been taken up or finished since")
    return 0


def read_planned(arguments: argparse.Namespace, extended: Mapping[str, str] | None = None) -> list[RunState]:
    """Return the states of the runs of sweeps in the output folder, without importing third-party code."""
    from plench.sweeps.look import look_at_runs
    from plench.sweeps.plan import DataShelf

    shelf = DataShelf(arguments.data_dir, skip_missing=arguments.skip_missing)
    runs = look_at_runs(read_specs(arguments), shelf, arguments.output_dir)
    return read_states(runs, arguments.output_dir, extended)


def read_queue(states: list[RunState], output_dir: str) -> dict[str, Any]:
    """Return what Slurm has queued or running of these runs, if Slurm was ever used here."""
    from plench.sweeps.engines.slurm import read_slurm_queue

    if not (Path(output_dir) / ".slurm").is_dir():
        return {}
    wanted = {entry.run.folder for entry in states if not entry.finished}
    queue = {name: state for name, state in read_slurm_queue(Path(output_dir)).items() if name in wanted}
    return {"slurm": dict(Counter(queue.values()))}


def summarise_states(states: list[RunState]) -> dict[str, Any]:
    """Return the counts of states as plain data."""
    return {"runs": len(states), "states": dict(count_states(states))}


def list_failures(states: list[RunState]) -> list[dict[str, str]]:
    """Return the runs that did not go well, with their reasons, as plain data."""
    return [
        {"folder": entry.run.folder, "state": entry.state, "message": entry.message}
        for entry in states
        if entry.state in ("failed", "foreign", "damaged")
    ]


def count_runs(specs: list[SweepSpec]) -> int:
    """Return how many runs sweeps have at most (the same run may be in two of them)."""
    return sum(
        len(grid.algorithms) * len(grid.datasets) * len(grid.hparams_seeds) * len(grid.trial_seeds)
        for spec in specs
        for grid in spec.grids
    )


def describe_axes(runs: list[PlannedRun]) -> str:
    """Say how many of what a sweep has."""
    configs = [run.config for run in runs]
    axes: dict[str, set[Any]] = {
        "dataset": {config.dataset for config in configs},
        "algorithm": {config.algorithm for config in configs},
        "configuration": {config.hparams_seed for config in configs},
        "split": {config.trial_seed for config in configs},
    }
    return ", ".join(counted(len(values), noun) for noun, values in axes.items())


def print_states(states: list[RunState]) -> None:
    """Print how many runs are in each state."""
    counts = summarise_states(states)["states"]
    in_files = sum(entry.in_extended for entry in states)
    where = f" ({counted(in_files, 'run')} in the extended results)" if in_files else ""
    print(", ".join(f"{state} {count}" for state, count in sorted(counts.items())) + where)


def print_failures(states: list[RunState], output_dir: str) -> None:
    """Print the runs that did not go well, with their reasons."""
    bad = [entry for entry in states if entry.state in ("failed", "foreign", "damaged")]
    for entry in bad[:_FAILURES_SHOWN]:
        reason = next(iter(entry.message.splitlines()), "")
        print(clean_text(f"{entry.state}: {entry.run.label}: {reason} ({entry.run.folder})"))
    if len(bad) > _FAILURES_SHOWN:
        print(f"… and {len(bad) - _FAILURES_SHOWN} more")


def report_outcome(outcome: SweepOutcome, output_dir: str) -> None:
    """Print how a launch ended; the last lines say what needs attention."""
    print_states(outcome.states)
    print_failures(outcome.states, output_dir)
    for reason in outcome.busy.values():
        print(clean_text(f"left alone: {reason}"))
    unfinished = (
        f"{counted(len(outcome.unfinished), 'run')} {'is' if len(outcome.unfinished) == 1 else 'are'}"
    )
    if outcome.unfinished and outcome.waits:
        print(f"{unfinished} not finished: repeat the command to continue")
    elif outcome.unfinished:
        print(f"{unfinished} in the queue: see `plench sweep status`")
    if outcome.failed:
        print(f"{counted(len(outcome.failed), 'run')} failed: `plench sweep retry` carries them out again")


def confirm(question: str) -> None:
    """Ask; anything but yes stops the command."""
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed, nothing was done")
