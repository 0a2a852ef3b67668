"""Disturb runs and sweeps for a while and compare them with undisturbed ones: `make soak SECONDS=600`.

A round is one run, one fleet or one sweep, with faults of one kind; it is drawn from the seed and its number.
Algorithms and faults are dealt like cards: all of them come before one comes again. The same command goes on
where an earlier one with the same --output ended. Processes are real and so are the kills; single runs and
fleets are forked from one process that has imported plench, sweeps are started as a user starts them.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from campaigns.soak.bench import Bench, Counted, Round
from campaigns.soak.cases import ALL, choose_case, make_case
from campaigns.soak.figures import read_figures, write_figures, write_pages
from campaigns.soak.fleets import SIZE, disturb_fleet
from campaigns.soak.forked import keep_in_memory, warm_up
from campaigns.soak.runs import FAULTS
from campaigns.soak.sweeps import SWEEP_FAULTS, disturb_sweep

Card = TypeVar("Card")
FLEET_EVERY = 8  # rounds
SWEEP_EVERY = 25  # rounds; one takes as long as some twenty of single runs


def main() -> int:
    """Run a campaign; the exit code says whether anything was lost or changed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--rounds", type=int, help="stop earlier, at so many rounds of this campaign in all")
    parser.add_argument("--seed", type=int, default=0, help="which faults happen to which runs (0)")
    parser.add_argument(
        "--sweep_every",
        type=int,
        default=SWEEP_EVERY,
        help=f"rounds from sweep to sweep, 0: none ({SWEEP_EVERY})",
    )
    parser.add_argument("--only", type=int, metavar="N", help="only round number N")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("soak-results"),
        help="folder of the page and figures; a campaign whose figures are there is gone on with",
    )
    parser.add_argument("--page", type=Path, help="also write the page here")
    options = parser.parse_args()
    from plench.training.environment import source_digest

    memory = keep_in_memory()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warm_up()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        bench = Bench(options.output.absolute(), Path(folder), source_digest())
        make_other(bench)
        if options.only is not None:
            name, done = carry_out(bench, options, options.only)
            print(f"{name}: {done}")
            return 1 if done.differences else 0
        return soak(bench, options, "in memory" if memory == "/dev/shm" else "on a disk")


def make_other(bench: Bench) -> None:
    """Make a run whose files can be put in the place of another's, with a checkpoint from its middle."""
    case = make_case("PRODEN", "tabular", {"batch_size": 16, "lr": 0.01}, 30, 7)
    output = bench.work / "others"
    words = bench.command(case, output, 1)
    bench.finish(words, prepare=Counted(150))
    folder = bench.find_run(output)
    checkpoint = (folder / "checkpoint.pt").read_bytes()
    code, text = bench.finish(words)
    if code != 0:
        raise SystemExit(f"the other run cannot be made: {text}")
    (folder / "checkpoint.pt").write_bytes(checkpoint)
    folder.rename(bench.other)


def carry_out(bench: Bench, options: argparse.Namespace, number: int) -> tuple[str, Round]:
    """Carry out a round; return what it was of, and what came of it."""
    random = Random(f"{options.seed} soak {number}")
    kinds = [choose_kind(earlier, options.sweep_every) for earlier in range(number + 1)]
    place = kinds.count(kinds[-1]) - 1  # how many of its kind there were before
    if kinds[-1] == "sweep":
        kind = SWEEP_FAULTS[place % len(SWEEP_FAULTS)]
        return f"sweep, {kind}", disturb_sweep(bench, random, kind)
    if kinds[-1] == "fleet":
        algorithm, done = disturb_fleet(bench, random)
        return f"fleet, {algorithm}", done
    case = choose_case(random, deal(ALL, options.seed, place))
    faults = [fault for fault, count in FAULTS.items() for _ in range(count)]
    return case.algorithm, deal(faults, options.seed, place)(bench, random, case)


def choose_kind(number: int, sweep_every: int) -> str:
    """Return what a round is of."""
    if sweep_every and number % sweep_every == sweep_every - 1:
        return "sweep"
    return "fleet" if number % FLEET_EVERY == FLEET_EVERY // 2 else "run"


def deal(cards: Sequence[Card], seed: int, place: int) -> Card:
    """Return one of the cards: each comes once before any comes again, in an order of the seed."""
    turn, within = divmod(place, len(cards))
    return Random(f"{seed} cards {turn}").sample(cards, len(cards))[within]


def soak(bench: Bench, options: argparse.Namespace, place: str) -> int:
    """Carry out rounds until the time is over, then write the page. `place` says where files are."""
    known = options.output / "soak.json"
    empty = {"rounds": 0, "refused": 0, "faults": {}, "runs": {}, "skipped": {}, "findings": []}
    figures = {**read_figures(known, options.seed, empty), "place": place, "every": options.sweep_every}
    start, before = time.monotonic(), figures["seconds"]
    while time.monotonic() - start < options.seconds and not (
        options.rounds and figures["rounds"] >= options.rounds
    ):
        number = figures["rounds"]
        name, done = carry_out(bench, options, number)
        figures["faults"] = dict(Counter(figures["faults"]) + done.faults)
        figures["runs"][name] = figures["runs"].get(name, 0) + 1
        figures["refused"] += done.refused
        if done.skipped:
            figures["skipped"][done.skipped] = figures["skipped"].get(done.skipped, 0) + 1
        for difference in done.differences:
            found = {"round": number, "of": name, "faults": dict(done.faults), "difference": difference}
            figures["findings"].append(found)
            print(json.dumps(found), file=sys.stderr, flush=True)
        figures["rounds"] = number + 1
        figures["seconds"] = before + round(time.monotonic() - start)
        write_figures(figures, known)
    write_pages(make_page(figures), options.output / "soak.md", options.page)
    return 1 if figures["findings"] else 0


def make_page(figures: dict[str, Any]) -> str:
    """Return the figures as a page."""
    faults, runs, findings = figures["faults"], figures["runs"], figures["findings"]
    hurt = len({found["round"] for found in findings})
    lines = [
        "# Runs and sweeps under faults",
        "",
        f"{figures['rounds']:,} runs, fleets and sweeps with {sum(faults.values()):,} faults, each compared "
        f"with an undisturbed one: records, weights, status. **{hurt:,} lost or changed anything.** "
        f"{figures['refused']:,} commands were refused with a reason, as they should be, and the run was "
        "repaired and continued.",
        "",
        f"    python -m campaigns.soak --seed {figures['seed']} --sweep_every {figures['every']} "
        f"--rounds {figures['rounds']} --seconds {figures['seconds']}    # the same command continues it",
        "",
        f"Python {figures['python']}; at commit {', then '.join(figures['commits'])}.",
        "",
        "| fault | times |",
        "|---|---:|",
        *(f"| {name} | {count:,} |" for name, count in sorted(faults.items())),
        f"| all | {sum(faults.values()):,} |",
        "",
    ]
    lines += [f"Skipped {count:,} times: {reason}." for reason, count in figures["skipped"].items()]
    single, fleets, sweeps = (
        {name.removeprefix(kind): count for name, count in sorted(runs.items()) if name.startswith(kind)}
        for kind in ("", "fleet, ", "sweep, ")
    )
    single = {name: count for name, count in single.items() if ", " not in name}
    lines += [
        "",
        f"Single runs of {len(single)} of {len(ALL)} algorithms, all phases within a few updates: "
        f"{say(single)}.",
        "",
        f"Fleets of {SIZE} runs trained as one in a process of their own: {say(fleets)}. Their bits are "
        "compared, unless some members had ended at a kill and others had not: then numbers are, to "
        "rounding; and so are those of fleets of sweeps.",
        "",
        f"Sweeps with two workers: {say(sweeps)}.",
        "",
        f"Files were {figures['place']}: what is tried are deaths of processes, not of machines. A clock "
        "that jumps is one that Python is told. A full disk is a small one of its own, for root; files "
        "limited in size are so by the kernel, as under a quota.",
    ]
    if findings:
        lines += ["", "Findings:", ""]
        lines += [f"- round {found['round']}, {found['of']}: {found['difference']}" for found in findings]
    return "\n".join(lines) + "\n"


def say(counts: dict[str, int]) -> str:
    """Return counts as words."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


if __name__ == "__main__":
    sys.exit(main())
