"""Copies of one run, as merged folders have them: each run counts once."""

from collections.abc import Hashable, Iterable

from plench.errors import DataError
from plench.runs.records import Run


def have_same_records(one: Run, other: Run) -> bool:
    """Return True if two runs were evaluated after the same steps with the same losses and criteria."""
    keys = ("loss", "val_covering_rate", "val_approximated_acc", "val_accuracy", "test_acc")
    figures = ([(r.step, *(r.get(key) for key in keys)) for r in run.records] for run in (one, other))
    return next(figures) == next(figures)


def drop_copies(runs: Iterable[Run], *, refuse_conflicts: bool = False) -> tuple[list[Run], list[str]]:
    """Keep one folder of each run, the first that finished, and say in one warning which were left out.

    Runs of ours are known by their `run_id`. Those without one (the public benchmark's) are all kept. With
    `refuse_conflicts`, finished copies of one run with different records raise DataError.
    """
    kept: dict[Hashable, Run] = {}
    left_out: list[Run] = []
    for number, run in enumerate(runs):
        run_id = run.info.get("run_id")
        # The experiment and the seeds are in the key so that a faulty run_id never hides another run.
        named = (run_id, run.experiment, run.trial_seed, run.hparams_seed, run.seed)
        key: Hashable = named if isinstance(run_id, str) and run_id else number
        held = kept.get(key)
        if held is None:
            kept[key] = run
            continue
        conflict = refuse_conflicts and held.finished and run.finished and not have_same_records(held, run)
        if conflict:
            raise DataError(f"{held.path} and {run.path} are the same run with different records: remove one")
        if run.finished and not held.finished:
            kept[key] = run
            left_out.append(held)
        else:
            left_out.append(run)
    if not left_out:
        return list(kept.values()), []
    shown = ", ".join("/".join(run.path.parts[-2:]) for run in left_out[:3])
    more = ", …" if len(left_out) > 3 else ""
    noun = "folder is a copy" if len(left_out) == 1 else "folders are copies"
    return list(kept.values()), [f"{len(left_out)} {noun} of runs that count once; left out: {shown}{more}"]
