"""Call every command with random and contradicting arguments: `python -m campaigns.arguments --calls 5000`.

One process imports plench once and forks; the child is the command `plench`, in a copy of a small folder,
without network, with limits on time and memory. Commands that train have a child each, quick ones share one
with a few others; what goes wrong there is tried again alone. Every twentieth call is a Python of its own,
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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaigns.arguments.child import Ending, Limits, call
from campaigns.arguments.row import call_in_row
from campaigns.arguments.words import Command, list_commands, make_words, may_take_long
from campaigns.arguments.world import Scene, make_world
from campaigns.figures import read_figures, write_figures, write_pages
from campaigns.forked import keep_in_memory, warm_up

CODES = ("0", "1", "2", "130")
IN_A_ROW = 25  # quick calls that share a process, at most
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
        scene, printed = Scene(world, Path(folder) / "call"), Path(folder) / "printed"
        if options.only is not None:
            return call_one(options, scene, printed)
        return attack(options, scene, printed)


@dataclass(frozen=True)
class Call:
    """One call of a campaign: its number, its command and words, and how it is made."""

    number: int
    command: Command
    words: list[str]
    long: bool
    afresh: bool

    @property
    def quick(self) -> bool:
        """Whether it may share a process with others."""
        return not self.long and not self.afresh


def plan(seed: int, number: int) -> Call:
    """Return one call of a campaign, always the same for the same numbers."""
    command, words = make_words(seed, number)
    return Call(number, command, words, may_take_long(command, words), number % AFRESH == 0)


def call_one(options: argparse.Namespace, scene: Scene, printed: Path) -> int:
    """Repeat one call and show it."""
    planned = plan(options.seed, options.only)
    ending = call_alone(planned, scene, printed)
    print(f"plench {shlex.join(planned.words)}\n{ending.printed}\nexit code {ending.code} {ending.fault}")
    return 1 if ending.fault else 0


def call_alone(planned: Call, scene: Scene, printed: Path) -> Ending:
    """Make a call in a process of its own."""
    return call(planned.words, scene, printed, Limits(), long=planned.long, afresh=planned.afresh)


def call_next(
    seed: int, number: int, count: int, scene: Scene, printed: Path
) -> Iterator[tuple[Call, Ending]]:
    """Make the next call, and if it is quick those after it, up to `count`; yield how each ended."""
    row = [plan(seed, number)]
    while row[-1].quick and len(row) < count:
        row.append(plan(seed, number + len(row)))
    if len(row) > 1 and not row[-1].quick:
        row.pop()
    if len(row) == 1:
        yield row[0], call_alone(row[0], scene, printed)
        return
    endings = call_in_row([planned.words for planned in row], scene, printed, Limits())
    for place, planned in enumerate(row):
        ending = endings[place] if place < len(endings) else None
        if ending is not None and not ending.fault:
            yield planned, ending
            continue
        alone = call_alone(planned, scene, printed)
        if place <= len(endings) and not alone.fault:  # it is this one that went wrong
            fault = "the process ended" if ending is None else ending.fault
            alone = replace(alone, fault=f"{fault} (after other calls)")
        yield planned, alone


def attack(options: argparse.Namespace, scene: Scene, printed: Path) -> int:
    """Call commands until the time is over or there were enough calls, then write the page."""
    known = options.output / "arguments.json"
    empty = {"calls": 0, "interrupted": 0, "commands": {}, "findings": [], "made": {}}
    figures = read_figures(known, options.seed, empty)
    figures.setdefault("mended", [])
    counts = {command.name: Counter(figures["commands"].get(command.name, {})) for command in list_commands()}
    start, before = time.monotonic(), figures["seconds"]
    call_again(figures, scene, printed)

    def left() -> int:
        return (options.calls or sys.maxsize) - figures["calls"]

    while time.monotonic() - start < options.seconds and left() > 0:
        for planned, ending in call_next(
            options.seed, figures["calls"], min(left(), IN_A_ROW), scene, printed
        ):
            counts[planned.command.name][ending.code if ending.code in CODES else "other"] += 1
            figures["interrupted"] += ending.interrupted
            made = "afresh" if planned.afresh else "row" if planned.quick else "forked"
            figures["made"][made] = figures["made"].get(made, 0) + 1
            if ending.fault:
                found = {
                    "call": planned.number,
                    "words": shlex.join(planned.words).encode("utf-8", "backslashreplace").decode(),
                    "fault": ending.fault,
                }
                figures["findings"].append(found)
                print(json.dumps(found), file=sys.stderr, flush=True)
            figures["calls"] += 1
        save(figures, counts, before + round(time.monotonic() - start), known)
    write_pages(make_page(figures), options.output / "arguments.md", options.page)
    return 1 if figures["findings"] else 0


def call_again(figures: dict[str, Any], scene: Scene, printed: Path) -> None:
    """Make the calls that ended badly once more, alone: one that ends well now is mended."""
    for found in [*figures["findings"]]:
        if not call_alone(plan(figures["seed"], found["call"]), scene, printed).fault:
            figures["findings"].remove(found)
            figures["mended"].append(found)


def save(figures: dict[str, Any], counts: dict[str, Counter[str]], seconds: int, path: Path) -> None:
    """Write the figures as they are now."""
    figures["seconds"] = seconds
    figures["commands"] = {name: dict(count) for name, count in counts.items()}
    write_figures(figures, path)


def make_page(figures: dict[str, Any]) -> str:
    """Return the figures as a page."""
    findings, made = figures["findings"], figures["made"]
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
        f"--seconds {figures['seconds']}    # the same command continues it",
        "",
        f"Python {figures['python']}; at commit {', then '.join(figures['commits'])}. How calls are "
        f"made: {made.get('afresh', 0):,} (one in {AFRESH}) are a Python of their own (`python -m plench`). "
        "The others are forked from a process that has imported plench, and call `main` with the words: "
        f"{made.get('forked', 0):,} of commands that train or repeat themselves in a process each, "
        f"{made.get('row', 0):,} of quick commands in processes of up to {IN_A_ROW}; what goes wrong there "
        "is tried again alone, and counts in any case. There is nothing to read from standard input, and no "
        "network. Training is nearly always asked for a few updates on small data.",
        "",
        f"| command | calls | {' | '.join(CODES)} | other |",
        f"|---|{'---:|' * (len(CODES) + 2)}",
    ]
    for name, counts in figures["commands"].items():
        cells = " | ".join(f"{counts.get(code, 0):,}" for code in (*CODES, "other"))
        lines.append(f"| {name} | {sum(counts.values()):,} | {cells} |")
    totals = [sum(c.get(code, 0) for c in figures["commands"].values()) for code in (*CODES, "other")]
    lines.append(f"| all | {figures['calls']:,} | {' | '.join(f'{total:,}' for total in totals)} |")
    titles = {
        "findings": "Findings:",
        "mended": "Found, and ended well when called again after mending (the table has the first end):",
    }
    for name, title in titles.items():
        if figures[name]:
            lines += ["", title, ""]
            lines += [
                f"- {found['fault']}: `plench {found['words']}` (call {found['call']})"
                for found in figures[name]
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
