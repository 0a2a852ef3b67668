"""Check an algorithm against the contract: required checks, and advice.

examples:
  plench check my_algorithm.py:MyAlgorithm
  plench check PRODEN --json

exit codes: 0 every required check passed, 1 one failed, 2 bad usage
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

if TYPE_CHECKING:  # imports torch, which showing the help does not need
    from plench.contract import Outcome

MARKS = {"passed": "ok", "failed": "FAILS", "advice": "advice", "skipped": "skipped"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("algorithm", help="path/to/file.py:ClassName, module:ClassName or a name")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")


def run(args: argparse.Namespace) -> int:
    """Run the suite on an algorithm and print what fails and why."""
    from plench.algorithms import find_algorithm
    from plench.contract import AlgorithmUnderTest, checks, run_suite
    from plench.training.environment import choose_device

    entry = find_algorithm(args.algorithm)
    choose_device(args.device)
    console = Console(file=sys.stderr)  # of now: the checks replace the stream by their own
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("checks", total=len(checks()))

        def report(outcome: Outcome) -> None:
            progress.update(task, advance=1, description=outcome.check.name.replace("_", " "))

        outcomes = run_suite(AlgorithmUnderTest(entry, args.device), report)
    passed = all(outcome.status != "failed" for outcome in outcomes)
    if args.json:
        rows = [
            {
                **{key: getattr(outcome.check, key) for key in ("name", "level", "demand")},
                **{key: getattr(outcome, key) for key in ("status", "detail")},
            }
            for outcome in outcomes
        ]
        print(json.dumps({"algorithm": entry.name, "passed": passed, "checks": rows}, indent=1))
    else:
        print(format_outcomes(entry.name, outcomes))
    return 0 if passed else 1


def format_outcomes(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return one line per check, what is wrong under those that did not pass, and a summary."""

    def indent(text: str) -> str:
        space = " " * 11
        return fill(text, 100, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)

    lines = [name]
    trains = outcomes[0].status == "passed"
    for outcome in outcomes:
        line = f"  {MARKS[outcome.status]:<8} {outcome.check.name.replace('_', ' ')}"
        if outcome.status in ("failed", "advice"):
            lines += [line, indent(outcome.check.demand), indent(f"Found: {outcome.detail}")]
        elif trains:
            lines.append(f"{line} ({outcome.detail})" if outcome.detail else line)
    if not trains:
        lines.append("  The other checks were skipped: they need an algorithm that trains and predicts.")
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in MARKS}
    failed = f"{counts['passed']} passed, {counts['failed']} failed"
    lines.append(f"{failed}, {counts['advice']} with advice, {counts['skipped']} skipped")
    return "\n".join(lines)
