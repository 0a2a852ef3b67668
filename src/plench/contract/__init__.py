"""The contract suite: what every algorithm must do, as checks whose messages say what to fix.

`plench check` runs it on any algorithm; the package's tests run the same checks over the registry. A check is
a function marked `@required` or `@advised` in `training`, `state` or `speed`. Its docstring is the demand.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from textwrap import fill

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from plench.algorithms import Algorithm, find_algorithm
from plench.contract import speed, state, training
from plench.contract.under_test import AlgorithmUnderTest, Check, ContractViolation, NotChecked, Outcome
from plench.training.environment import choose_device, compute_threads

__all__ = [
    "AlgorithmUnderTest",
    "Check",
    "CheckReport",
    "Outcome",
    "check",
    "checks",
    "format_checks",
    "run_check",
    "run_suite",
]

MARKS = {"passed": "ok", "failed": "FAILS", "advice": "advice", "skipped": "skipped"}


# Checks that compare a run with the same run done otherwise.
COMPARING = ("is_not_disturbed_by_evaluation", "resumes_exactly", "trains_in_a_stack")


@dataclass(frozen=True, repr=False)
class CheckReport:
    """The outcomes of all checks of an algorithm; `print` shows one line per check, and what is wrong."""

    algorithm: str
    outcomes: list[Outcome]

    @property
    def passed(self) -> bool:
        """Whether every required check passed."""
        return all(outcome.status != "failed" for outcome in self.outcomes)

    def __repr__(self) -> str:
        def indent(text: str) -> str:
            space = " " * 11
            return fill(text, 100, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)

        lines = [self.algorithm]
        trains = self.outcomes[0].status == "passed"
        for outcome in self.outcomes:
            line = f"  {MARKS[outcome.status]:<8} {outcome.check.name.replace('_', ' ')}"
            if outcome.status in ("failed", "advice"):
                lines += [line, indent(outcome.check.demand), indent(f"Found: {outcome.detail}")]
            elif trains:
                lines.append(f"{line} ({outcome.detail})" if outcome.detail else line)
        if not trains:
            lines.append("  The other checks were skipped: they need an algorithm that trains and predicts.")
        counts = {status: sum(outcome.status == status for outcome in self.outcomes) for status in MARKS}
        failed = f"{counts['passed']} passed, {counts['failed']} failed"
        lines.append(f"{failed}, {counts['advice']} with advice, {counts['skipped']} skipped")
        return "\n".join(lines)


def check(algorithm: str | type[Algorithm], *, device: str = "cpu") -> CheckReport:
    """Check an algorithm against the contract (docs/add-an-algorithm.md): required checks, and advice.

    Parameters
    ----------
    algorithm : str or class
        A name, `path/to/file.py:ClassName`, or a class, also one of a notebook.
    device : str, default "cpu"
        Device to train on.

    Returns
    -------
    CheckReport
        `passed`, and `outcomes` with check, status and detail each. Printing it shows them.

    Examples
    --------
    >>> print(plench.check(MyAlgorithm))
    """
    entry = find_algorithm(algorithm)
    choose_device(device)
    console = Console(file=sys.stderr)  # of now: the checks replace the stream by their own
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("checks", total=len(checks()))

        def report(outcome: Outcome) -> None:
            progress.update(task, advance=1, description=outcome.check.name.replace("_", " "))

        return CheckReport(entry.name, run_suite(AlgorithmUnderTest(entry, device), report))


def checks() -> dict[str, Check]:
    """Return every check by name, `trains_and_predicts` first."""
    members = (value for module in (training, state, speed) for value in vars(module).values())
    return {member.name: member for member in members if isinstance(member, Check)}


def format_checks() -> str:
    """Return the table of checks in Markdown, for docs/checks.md."""
    rows = [f"| {each.name.replace('_', ' ')} | {each.level} | {each.demand} |" for each in checks().values()]
    return "\n".join(["| check | level | demand |", "|---|---|---|", *rows])


def run_suite(tested: AlgorithmUnderTest, report: Callable[[Outcome], None] | None = None) -> list[Outcome]:
    """Run every check and call `report` with each outcome.

    An algorithm that does not train and predict at all has nothing that the other checks could examine, and
    one that does not repeat itself nothing that could be compared.
    """
    outcomes: list[Outcome] = []
    for check in checks().values():
        failed = {outcome.check.name for outcome in outcomes if outcome.status == "failed"}
        if "trains_and_predicts" in failed:
            outcomes.append(Outcome(check, "skipped", "it does not train and predict yet"))
        elif "repeats_with_the_same_seed" in failed and check.name in COMPARING:
            outcomes.append(Outcome(check, "skipped", "two runs with the same seed differ already"))
        else:
            outcomes.append(run_check(check, tested))
        if report is not None:
            report(outcomes[-1])
    return outcomes


def run_check(check: Check, tested: AlgorithmUnderTest) -> Outcome:
    """Run one check. Whatever the algorithm raises is a violation, reported with the line it comes from.

    What it prints is not shown (`prints_nothing` reports it).
    """
    if reason := check.why_not_applicable(tested):
        return Outcome(check, "skipped", reason)
    output = io.StringIO()
    try:
        with compute_threads(1), redirect_stdout(output), redirect_stderr(output):
            return Outcome(check, "passed", check.function(tested) or "")
    except NotChecked as reason:
        return Outcome(check, "skipped", str(reason))
    except ContractViolation as violation:
        detail = str(violation)
    except (Exception, SystemExit) as error:  # third-party code: anything may be raised
        frames = reversed(traceback.extract_tb(error.__traceback__))
        lines = (
            f" (line {frame.lineno}, in {frame.name}: {frame.line})"
            for frame in frames
            if frame.filename == tested.file
        )
        text = f"{type(error).__name__}: {error}".rstrip(".") + (line := next(lines, ""))
        if isinstance(error, KeyError) and "hparams" in line:
            text += ". Hyperparameters are declared: @register(…, hyperparameters=(Hyperparameter(…),))"
        if "modified by an inplace operation" in text:
            text += ". Views and candidates of a batch must not be changed: write to a clone"
        detail = ". ".join([text, *getattr(error, "__notes__", [])])
    return Outcome(check, "failed" if check.level == "required" else "advice", detail)
