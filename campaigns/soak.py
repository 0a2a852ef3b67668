"""Disturb runs and sweeps for a while and compare them with undisturbed ones: `make soak SECONDS=600`.

A round is one run, one stack or one sweep, with faults of one kind; it is drawn from the seed and its number.
Algorithms and faults are dealt like cards: all of them come before one comes again. Processes are real and so
are the kills; single runs and stacks are forked from one process that has imported plench, sweeps are started
as a user starts them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from campaigns.faults import (
    ALL,
    FAULTS,
    STACK,
    SWEEP_FAULTS,
    Bench,
    Round,
    Trial,
    choose_run,
    choose_stack,
    disturb_sweep,
    kill,
    stop,
)
from campaigns.processes import warm_up

Card = TypeVar("Card")
STACK_EVERY = 8  # rounds
SWEEP_EVERY = 25  # rounds; one takes as long as some twenty of single runs


def main() -> int:
    """Run a campaign; the exit code is 1 if anything was lost or changed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--rounds", type=int, help="stop earlier, after so many rounds")
    parser.add_argument("--seed", type=int, default=0, help="which faults happen to which runs (0)")
    parser.add_argument(
        "--sweep_every", type=int, default=SWEEP_EVERY, help=f"rounds per sweep, 0: no sweeps ({SWEEP_EVERY})"
    )
    parser.add_argument("--only", type=int, metavar="N", help="only round number N")
    parser.add_argument(
        "--output", type=Path, default=Path("soak-results"), help="folder of page and figures"
    )
    options = parser.parse_args()
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and os.access(memory, os.W_OK)
    if in_memory:  # disks wait at every fsync
        tempfile.tempdir = str(memory)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warm_up()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        bench = Bench(Path(folder))
        if options.only is not None:
            name, done = make_round(bench, options, options.only)
            print(f"{name}: {done}")
            return 1 if done.differences else 0
        return soak(bench, options, "in memory" if in_memory else "on a disk")


def make_round(bench: Bench, options: argparse.Namespace, number: int) -> tuple[str, Round]:
    """Make a round; return what was disturbed, and the outcome."""
    random = Random(f"{options.seed} soak {number}")
    kinds = [choose_kind(earlier, options.sweep_every) for earlier in range(number + 1)]
    place = kinds.count(kinds[-1]) - 1  # how many of its kind there were before
    if kinds[-1] == "sweep":
        kind = SWEEP_FAULTS[place % len(SWEEP_FAULTS)]
        return f"sweep, {kind}", disturb_sweep(bench, random, kind)
    if kinds[-1] == "stack":
        case, fault = choose_stack(random), stop if random.random() < 0.3 else kill
        name = case.name.replace("-", ", ")
    else:
        name = deal(ALL, options.seed, place)
        case = choose_run(random, name)
        fault = deal([fault for fault, count in FAULTS.items() for _ in range(count)], options.seed, place)
    trial = Trial(bench, random, case)
    fault(trial)
    return name, trial.done if trial.done.skipped else trial.judge()


def choose_kind(number: int, sweep_every: int) -> str:
    """Return what a round disturbs."""
    if sweep_every and number % sweep_every == sweep_every - 1:
        return "sweep"
    return "stack" if number % STACK_EVERY == STACK_EVERY // 2 else "run"


def deal(cards: Sequence[Card], seed: int, place: int) -> Card:
    """Return one of the cards: each comes once before any comes again, in an order of the seed."""
    turn, within = divmod(place, len(cards))
    return Random(f"{seed} cards {turn}").sample(cards, len(cards))[within]


def soak(bench: Bench, options: argparse.Namespace, place: str) -> int:
    """Make rounds until the time is over, then write figures and page. `place` says where files are."""
    from plench.training.environment import source_commit

    faults: Counter[str] = Counter()
    names: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    refused, start = 0, time.monotonic()
    while time.monotonic() - start < options.seconds and names.total() < (options.rounds or 10**9):
        number = names.total()
        name, done = make_round(bench, options, number)
        faults += done.faults
        names[name] += 1
        refused += done.refused
        skipped.update([done.skipped] if done.skipped else [])
        for difference in done.differences:
            found = {"round": number, "of": name, "faults": dict(done.faults), "difference": difference}
            findings.append(found)
            print(json.dumps(found), file=sys.stderr, flush=True)
    figures = {
        **{"rounds": names.total(), "refused": refused, "seconds": round(time.monotonic() - start)},
        **{"seed": options.seed, "every": options.sweep_every, "place": place, "commit": source_commit()},
        **{"faults": dict(faults), "runs": dict(names), "skipped": dict(skipped), "findings": findings},
    }
    page = make_page(figures)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "soak.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (options.output / "soak.md").write_text(page, encoding="utf-8")
    print(page)
    return 1 if findings else 0


def make_page(figures: dict[str, Any]) -> str:
    """Return the figures as a page."""
    faults, runs, findings = figures["faults"], figures["runs"], figures["findings"]
    hurt = len({found["round"] for found in findings})

    def count(kind: str) -> str:
        chosen = {name: number for name, number in sorted(runs.items()) if name.partition(", ")[0] == kind}
        if not kind:
            chosen = {name: number for name, number in sorted(runs.items()) if ", " not in name}
        return ", ".join(f"{name.partition(', ')[2] or name} {n}" for name, n in chosen.items()) or "none"

    lines = [
        "# Runs and sweeps under faults",
        "",
        f"{figures['rounds']:,} runs, stacks and sweeps with {sum(faults.values()):,} faults, each compared "
        f"with an undisturbed one: records, weights, status. **{hurt:,} lost or changed anything.** "
        f"{figures['refused']:,} commands were refused with a reason, as they should be, and the run was "
        "repaired and resumed.",
        "",
        f"    python -m campaigns.soak --seed {figures['seed']} --sweep_every {figures['every']} "
        f"--rounds {figures['rounds']} --seconds {figures['seconds']}",
        "",
        f"Python {platform.python_version()}; at commit {figures['commit']}.",
        "",
        "| fault | times |",
        "|---|---:|",
        *(f"| {name} | {number:,} |" for name, number in sorted(faults.items())),
        f"| all | {sum(faults.values()):,} |",
        "",
        *(f"Skipped {number:,} times: {reason}." for reason, number in figures["skipped"].items()),
        "",
        f"Single runs, all phases within a few updates: {count('')}.",
        "",
        f"Stacks of {STACK} runs in a process of their own: {count('stack')}. Their bits are compared, "
        "unless some members had ended at a kill and others had not: then numbers are compared to rounding, "
        "and so are those of stacks in sweeps.",
        "",
        f"Sweeps with two workers: {count('sweep')}.",
        "",
        f"Files were {figures['place']}: processes were killed, not machines. A clock that jumps is the one "
        "that Python reads. A full disk is a small one of its own, for root; files limited in size are so by "
        "the kernel, as under a quota.",
    ]
    if findings:
        lines += ["", "Findings:", ""]
        lines += [f"- round {found['round']}, {found['of']}: {found['difference']}" for found in findings]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
