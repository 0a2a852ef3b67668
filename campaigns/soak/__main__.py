"""Disturb runs and sweeps for a while and compare them with undisturbed ones: `make soak SECONDS=600`.

A round is one run of some algorithm, or one sweep, with faults of one kind; it is drawn from the seed and its
number. The same command goes on where an earlier one with the same --output ended. Processes are real and so
are the kills; commands of single runs are forked from one process that has imported plench.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

from campaigns.figures import read_figures, write_figures, write_pages
from campaigns.forked import warm_up
from campaigns.soak.bench import Bench, Counted, Round
from campaigns.soak.cases import choose_case, make_case
from campaigns.soak.runs import FAULTS
from campaigns.soak.sweeps import SWEEP_FAULTS, disturb_sweep

SWEEP_SHARE = 0.04  # of the rounds; one takes as long as some twenty of single runs


def main() -> int:
    """Run a campaign; the exit code says whether anything was lost or changed."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--rounds", type=int, help="stop earlier, at so many rounds of this campaign in all")
    parser.add_argument("--seed", type=int, default=0, help="which faults happen to which runs (0)")
    parser.add_argument("--sweeps", type=float, default=SWEEP_SHARE, help=f"share of sweeps ({SWEEP_SHARE})")
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

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warm_up()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        bench = Bench(options.output.absolute(), Path(folder), source_digest())
        make_other(bench)
        if options.only is not None:
            name, done = carry_out(bench, options, options.only)
            print(f"{name}: {done}")
            return 1 if done.differences else 0
        return soak(bench, options)


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
    if random.random() < options.sweeps:
        kind = random.choice(SWEEP_FAULTS)
        return f"sweep, {kind}", disturb_sweep(bench, random, kind)
    case = choose_case(random)
    (fault,) = random.choices([*FAULTS], [*FAULTS.values()])
    return case.algorithm, fault(bench, random, case)


def soak(bench: Bench, options: argparse.Namespace) -> int:
    """Carry out rounds until the time is over, then write the page."""
    known = options.output / "soak.json"
    empty = {"rounds": 0, "refused": 0, "faults": {}, "runs": {}, "skipped": {}, "findings": []}
    figures = read_figures(known, options.seed, empty)
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
        f"{figures['rounds']:,} runs and sweeps with {sum(faults.values()):,} faults, each compared with an "
        f"undisturbed one: records, weights, status. **{hurt:,} lost or changed anything.** "
        f"{figures['refused']:,} commands were refused with a reason, as they should be, and the run was "
        "repaired and continued.",
        "",
        f"    python -m campaigns.soak --seed {figures['seed']} --rounds {figures['rounds']} "
        f"--seconds {figures['seconds']}    # the same command continues it",
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
    single = {name: count for name, count in sorted(runs.items()) if not name.startswith("sweep")}
    many = {name: count for name, count in sorted(runs.items()) if name.startswith("sweep")}
    lines += [
        "",
        f"Runs of {len(single)} algorithms, all phases within a few updates: "
        + ", ".join(f"{name} {count}" for name, count in single.items())
        + ".",
        "",
        "Sweeps: " + (", ".join(f"{name[7:]} {count}" for name, count in many.items()) or "none") + ".",
    ]
    if findings:
        lines += ["", "Findings:", ""]
        lines += [f"- round {found['round']}, {found['of']}: {found['difference']}" for found in findings]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
