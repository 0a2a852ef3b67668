"""Verifying stored records by repeating runs: which to repeat, and how to compare."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plench.registry import is_third_party
from plench.runs.lines import FIGURES, SHARES, Record
from plench.runs.records import Run

# Largest difference of a criterion or the last test accuracy where conditions differ: training on other
# hardware or versions drifts like another seed.
TOLERANCE = 0.05
# What a clock or the machine decides.
NOT_COMPARED = ("step", "step_time", "mem_gb", "fleet_size", "logged")


@dataclass(frozen=True)
class Sample:
    """The runs to repeat, and why others could not be among them."""

    runs: list[Run]
    notices: list[str]


def choose_sample(runs: Sequence[Run], size: int, seed: int, run_code: bool) -> Sample:
    """Draw finished runs of ours at random; others' algorithms only where their code may be run."""
    ours = [run for run in runs if run.experiment.origin == "plench" and run.info.get("config")]
    finished = [run for run in ours if run.finished]
    foreign = [run for run in finished if is_foreign(run)]
    eligible = finished if run_code else [run for run in finished if not is_foreign(run)]
    notices = []
    if len(ours) < len(runs):
        notices.append(f"{len(runs) - len(ours)} runs do not say how to repeat them")
    if foreign and not run_code:
        names = ", ".join(sorted({run.experiment.algorithm for run in foreign}))
        notices.append(
            f"{len(foreign)} runs of {names} are not repeated, since that executes their authors' code: "
            "--run-code allows it"
        )
    eligible.sort(key=lambda run: (run.experiment.dataset, run.experiment.algorithm, run.path.name))
    return Sample(random.Random(seed).sample(eligible, min(size, len(eligible))), notices)


def is_foreign(run: Run) -> bool:
    """Whether anything that the run is made of is not plench's own, so that repeating it runs others' code.

    What a description says in one place it may contradict in another: all that is looked up is looked at.
    """
    algorithm, config = run.experiment.algorithm, run.info.get("config")
    own = run.info.get("algorithm_spec") == algorithm and run.info.get("network") is None
    if not own or not isinstance(config, dict) or config.get("algorithm", algorithm) != algorithm:
        return True
    hparams = config.get("hparams")
    network = hparams.get("model") if isinstance(hparams, dict) else None
    criteria = str(config.get("more_criteria") or "").split(",")
    named = [algorithm, *([network] if network is not None else []), *(name.strip() for name in criteria)]
    return is_third_party(str(config.get("dataset"))) or any(
        is_third_party(str(name)) or "@" in str(name) for name in named
    )


def compare_conditions(before: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return what differs between the conditions of two runs; what was not recorded counts as different."""
    return [
        f"{key} {before.get(key, 'unknown')} → {now.get(key)}"
        for key in keys
        if key not in before or before[key] != now.get(key)
    ]


def compare_runs(stored: Run, repeated: Run, exact: bool, tolerance: float = TOLERANCE) -> list[str]:
    """Return how a repeated run differs from the stored one: in any bit, or by more than the tolerance."""
    if stored.status != repeated.status:
        return [f"ended as {repeated.status}, not {stored.status}"]
    steps = [[record.step for record in run.records] for run in (stored, repeated)]
    if steps[0] != steps[1] and (exact or stored.status == "done"):
        return [f"has records at other steps: {len(steps[1])} instead of {len(steps[0])}"]
    if exact:
        pairs = zip(stored.records, repeated.records, strict=True)
        return [text for before, again in pairs for text in _compare_bits(before, again)]
    if not stored.records or not repeated.records:
        return []
    return _compare_figures(stored.records[-1], repeated.records[-1], tolerance)


def _compare_bits(stored: Record, repeated: Record) -> list[str]:
    names = [n for n in dict.fromkeys([*stored.values, *repeated.values]) if n not in NOT_COMPARED]
    found = [(n, stored.values.get(n), repeated.values.get(n)) for n in names]
    logged = [record.values.get("logged") or {} for record in (stored, repeated)]
    for name in dict.fromkeys([*logged[0], *logged[1]]):
        # Results files keep what is logged to the digits of float32.
        before, again = (_round(values.get(name)) for values in logged)
        found.append((f"logged {name}", before, again))
    return [
        f"step {stored.step}: {name} is {again}, not {before}"
        for name, before, again in found
        if before != again and not (_is_nan(before) and _is_nan(again))
    ]


def _compare_figures(stored: Record, repeated: Record, tolerance: float) -> list[str]:
    found = []
    for name in (n for n in FIGURES if n in SHARES):
        before, again = stored.get(name), repeated.get(name)
        if (before is None) != (again is None):
            found.append(f"{name} is {again}, not {before}")
        elif before is not None and again is not None and abs(before - again) > tolerance:
            found.append(f"{name} is {again:.4f}, not {before:.4f}: more than {tolerance:g} apart")
    return found


def _round(value: object) -> object:
    return float(np.float32(value)) if isinstance(value, float) else value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value
