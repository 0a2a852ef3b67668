"""The contract suite: what every algorithm must do, as checks whose messages say what to fix.

`plench check` runs it on any algorithm; the package's tests run the same checks over the registry. A check is
a function marked `@required` or `@advised` in `training`, `state` or `speed`. Its docstring is the demand.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from plench.contract import speed, state, training
from plench.contract.under_test import AlgorithmUnderTest, Check, ContractViolation, NotChecked, Outcome
from plench.training.environment import compute_threads

__all__ = ["AlgorithmUnderTest", "Check", "Outcome", "checks", "run_check", "run_suite"]


# Checks that compare a run with the same run done otherwise.
COMPARING = ("is_not_disturbed_by_evaluation", "resumes_exactly", "trains_in_a_stack")


def checks() -> dict[str, Check]:
    """Return every check by name, `trains_and_predicts` first."""
    members = (value for module in (training, state, speed) for value in vars(module).values())
    return {member.name: member for member in members if isinstance(member, Check)}


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
        text = f"{type(error).__name__}: {error}" + (line := next(lines, ""))
        if isinstance(error, KeyError) and "hparams" in line:
            text += ". Hyperparameters are declared: @register(…, hyperparameters=(Hyperparameter(…),))"
        detail = ". ".join([text, *getattr(error, "__notes__", [])])
    return Outcome(check, "failed" if check.level == "required" else "advice", detail)
