"""The runs behind the cells of one algorithm in one setting: curves, configurations, choices, commands."""

from collections.abc import Mapping, Sequence
from typing import Any

from plench.criteria import Criterion
from plench.report.site.commands import repeat_command
from plench.report.site.scripts import as_text
from plench.runs.lines import is_finite
from plench.runs.records import Run
from plench.runs.select import Cell, choose_checkpoint

# Curves are drawn: a ten-thousandth is less than a pixel, and a whole number takes little room.
SCALE = 10_000
NOT_VARIED = ("max_steps",)


def describe_runs(
    runs: Sequence[Run], cells: Mapping[str, Cell], shown: Sequence[Criterion]
) -> dict[str, Any]:
    """Return the runs of one experiment and what each criterion chose among them, by its position."""
    ordered = sorted(runs, key=lambda run: (run.trial_seed, run.hparams_seed, run.seed, run.path.name))
    place = {id(run): number for number, run in enumerate(ordered)}
    names = sorted({name for run in ordered for name in run.hparams if name not in NOT_VARIED})
    steps = _common_steps(ordered)
    keys = list(dict.fromkeys([*(criterion.record_key for criterion in shown), "test_acc"]))
    choices = [
        [
            [
                trial,
                None if choice is None else place[id(choice.run)],
                None if choice is None else choice.record.step,
            ]
            for trial, choice in cells[criterion.name].by_split()
        ]
        for criterion in shown
    ]
    chosen = {entry[1] for by_split in choices for entry in by_split}
    return {
        "hparams": names,
        "steps": steps,
        "keys": keys,
        "scale": SCALE,
        "choices": choices,
        "runs": [
            {
                **_describe_run(run, names, steps, keys, shown),
                "command": repeat_command(run) if number in chosen else None,
            }
            for number, run in enumerate(ordered)
        ],
    }


def _describe_run(
    run: Run, names: Sequence[str], steps: list[int], keys: Sequence[str], shown: Sequence[Criterion]
) -> dict[str, Any]:
    own_steps = [record.step for record in run.records]
    described: dict[str, Any] = {
        "split": run.trial_seed,
        "configuration": run.hparams_seed,
        "status": run.status,
        "folder": run.path.name,
        "hparams": [_hparam(run.hparams.get(name)) for name in names],
        "curves": [[_scaled(record.get(key)) for record in run.records] for key in keys],
        "loss": [_short(record.get("loss")) for record in run.records],
        "offers": [_offer(run, criterion) for criterion in shown],
    }
    if own_steps != steps:
        described["steps"] = own_steps
    if run.diverged:
        described["diverged"] = run.diverged_after_step
    return described


def _common_steps(runs: Sequence[Run]) -> list[int]:
    """Return the steps that most runs were evaluated at, so that only others have to say theirs."""
    counts: dict[tuple[int, ...], int] = {}
    for run in runs:
        steps = tuple(record.step for record in run.records)
        counts[steps] = counts.get(steps, 0) + 1
    if not counts:
        return []
    most, _ = max(counts.items(), key=lambda item: (item[1], len(item[0])))
    return list(most)


def _offer(run: Run, criterion: Criterion) -> list[float | int | None] | None:
    """Return the step, score and test accuracy of the checkpoint a run offers; None if it offers none."""
    offered = choose_checkpoint(run, criterion) if run.finished else None
    if offered is None:
        return None
    record, score = offered
    return [record.step, score, record.get("test_acc")]


def _hparam(value: object) -> float | int | str:
    return value if is_finite(value) else as_text(value)


def _scaled(value: float | None) -> int | None:
    return None if value is None else round(SCALE * value)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
