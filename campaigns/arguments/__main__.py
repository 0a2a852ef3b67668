"""Call every command with random and contradicting arguments: `python -m campaigns.arguments --calls 5000`.

One process imports plench once and forks for every call; the child is the command `plench`, in a copy of a
small folder, without network, with limits on time and memory. Every twentieth call is a Python of its own,
started as a shell does. Training and the like are interrupted as by Ctrl-C when they take long; every other
command has to end by itself. Ray is asked for by address only, as starting it takes longer than a thousand
other calls.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from campaigns.arguments.child import Ending, Limits, call
from campaigns.arguments.words import Command, list_commands, make_words, may_take_long
from campaigns.arguments.world import make_world
from campaigns.figures import read_figures, write_figures, write_pages
from campaigns.forked import keep_in_memory, warm_up

CODES = ("0", "1", "2", "130")
TURN = 50  # calls after which the figures are written
AFRESH = 20  # every so many calls, one is a Python of its own


def main() -> int:
    """Run a campaign; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.arguments", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long (300)")
    parser.add_argument("--calls", type=int, help="stop earlier, at so many calls of this campaign in all")
    parser.add_argument("--seed", type=int, default=0, help="which arguments are made (0)")
    parser.add_argument("--only", type=int, metavar="N", help="only call number N, and print what it prints")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("arguments-results"),
        help="folder of the page and figures; a campaign whose figures are there is gone on with",
    )
    parser.add_argument("--page", type=Path, help="also write the page here")
    options = parser.parse_args()
    keep_in_memory()
    with tempfile.TemporaryDirectory(prefix="arguments-") as folder:
        world = Path(folder) / "world"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            make_world(world)
            warm_up()
        if options.only is not None:
            return call_one(options, world, Path(folder))
        return attack(options, world, Path(folder))


def call_number(seed: int, number: int, world: Path, folder: Path) -> tuple[Command, list[str], Ending]:
    """Make one call of a campaign; return its command, its words and how it ended."""
    command, words = make_words(seed, number)
    long, afresh = may_take_long(command, words), number % AFRESH == 0
    return command, words, call(words, world, folder / "call", Limits(), long=long, afresh=afresh)


def call_one(options: argparse.Namespace, world: Path, folder: Path) -> int:
    """Repeat one call and show it."""
    _, words, ending = call_number(options.seed, options.only, world, folder)
    print(f"plench {shlex.join(words)}\n{ending.printed}\nexit code {ending.code} {ending.fault}")
    return 1 if ending.fault else 0


def attack(options: argparse.Namespace, world: Path, folder: Path) -> int:
    """Call commands until the time is over or there were enough calls, then write the page."""
    known = options.output / "arguments.json"
    figures = read_figures(
        known, options.seed, {"calls": 0, "interrupted": 0, "commands": {}, "findings": []}
    )
    counts = {command.name: Counter(figures["commands"].get(command.name, {})) for command in list_commands()}
    start, before = time.monotonic(), figures["seconds"]
    while time.monotonic() - start < options.seconds and not (
        options.calls and figures["calls"] >= options.calls
    ):
        command, words, ending = call_number(options.seed, figures["calls"], world, folder)
        counts[command.name][ending.code if ending.code in CODES else "other"] += 1
        figures["interrupted"] += ending.interrupted
        if ending.fault:
            found = {"call": figures["calls"], "words": shlex.join(words), "fault": ending.fault}
            figures["findings"].append(found)
            print(json.dumps(found), file=sys.stderr, flush=True)
        figures["calls"] += 1
        if figures["calls"] % TURN == 0:
            save(figures, counts, before + round(time.monotonic() - start), known)
    save(figures, counts, before + round(time.monotonic() - start), known)
    write_pages(make_page(figures), options.output / "arguments.md", options.page)
    return 1 if figures["findings"] else 0


def save(figures: dict[str, Any], counts: dict[str, Counter[str]], seconds: int, path: Path) -> None:
    """Write the figures as they are now."""
    figures["seconds"] = seconds
    figures["commands"] = {name: dict(count) for name, count in counts.items()}
    write_figures(figures, path)


def make_page(figures: dict[str, Any]) -> str:
    """Return the figures as a page."""
    findings = figures["findings"]
    lines = [
        "# Random and contradicting arguments",
        "",
        f"{figures['calls']:,} calls of {len(figures['commands'])} commands, of which {len(findings):,} "
        "ended in another way than with an exit code of ours (0, 1, 2 or 130) and without a traceback. "
        f"{figures['interrupted']:,} calls of commands that train or repeat themselves went on for more than "
        f"{Limits.seconds:g} s and were interrupted as by Ctrl-C; any other had to end within "
        f"{Limits.patience:g} s, and an interrupted one within as much after it.",
        "",
        f"    python -m campaigns.arguments --seed {figures['seed']} --calls {figures['calls']} "
        f"--seconds {figures['seconds']}    # the same command goes on with it",
        "",
        f"Python {figures['python']}; at commit {', then '.join(figures['commits'])}. How calls are "
        f"made: one in {AFRESH} is a Python of its own (`python -m plench`), "
        f"{-(-figures['calls'] // AFRESH):,} in all; the others are children forked from a process that has "
        "imported plench, and call `main` with the words. There is nothing to read from standard input, and "
        "no network. Training is nearly always asked for a few updates on small data.",
        "",
        f"| command | calls | {' | '.join(CODES)} | other |",
        f"|---|{'---:|' * (len(CODES) + 2)}",
    ]
    for name, counts in figures["commands"].items():
        cells = " | ".join(f"{counts.get(code, 0):,}" for code in (*CODES, "other"))
        lines.append(f"| {name} | {sum(counts.values()):,} | {cells} |")
    totals = [sum(c.get(code, 0) for c in figures["commands"].values()) for code in (*CODES, "other")]
    lines.append(f"| all | {figures['calls']:,} | {' | '.join(f'{total:,}' for total in totals)} |")
    if findings:
        lines += ["", "Findings:", ""]
        lines += [
            f"- {found['fault']}: `plench {found['words']}` (call {found['call']})" for found in findings
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
