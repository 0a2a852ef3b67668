"""What training runs as one saves: processor time of sweeps with fleets, without, and before steps by hand.

    python benchmarks/fleet.py --data_dir DIR                      # writes docs/results/fleet.md
    python benchmarks/fleet.py --data_dir DIR --steps 200 --turns 1 --only Lost

Every arm is a process of its own that carries out the runs of a sweep one after the other (fleets as one),
with one thread; the arms take turns. `before` trains as `off` does, but for the step written by hand. Test
accuracies of the runs of a sweep are compared in pairs. The page is written anew after each sweep.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import plench.training.run as loop
from plench.algorithms import algorithms
from plench.storage.records import read_run
from plench.storage.store import RunStore
from plench.sweeps import DataShelf, SweepSpec, make_grids, read_fleet
from plench.sweeps.engines.base import RunAttempt
from plench.sweeps.fleets import estimate_gb, form_fleets
from plench.sweeps.perform import Performer
from plench.sweeps.plan import PlannedRun, expand, settle
from plench.training.callbacks import NoCallback
from plench.training.environment import name_processor

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "fleet.md"
SPENT = "seconds"
ARMS = ("fleet", "off", "before")
VANILLA = [name for name, entry in algorithms().items() if entry.card.family.startswith("vanilla")]


@dataclass(frozen=True)
class Case:
    """A sweep: algorithms on a dataset, configurations × splits, and the batch size if it is not drawn."""

    algorithms: tuple[str, ...]
    dataset: str
    n_hparams: int = 20
    n_trials: int = 5
    steps: int = 2000
    batch_size: int | None = None

    @property
    def label(self) -> str:
        """A name for people."""
        named = (
            self.algorithms[0] if len(self.algorithms) == 1 else f"{len(self.algorithms)} vanilla algorithms"
        )
        size = "" if self.batch_size is None else f", batch {self.batch_size}"
        runs = len(self.algorithms) * self.n_hparams * self.n_trials
        many = f"{runs} runs" if runs > 1 else "1 run"
        return f"{named}, {self.dataset}{size}: {many} of {self.steps:,} steps"

    @property
    def single(self) -> bool:
        """Whether it is one run, which the start of a process would outweigh."""
        return len(self.algorithms) * self.n_hparams * self.n_trials == 1


CASES = [
    *(Case((name,), "Lost", 1, 1, 2000, size) for name in ("CC", "PRODEN") for size in (128, 32)),
    *(Case((name,), data) for data in ("Lost", "MSRCv2", "Birdsong") for name in ("CC", "PRODEN")),
    Case(tuple(VANILLA), "Lost", n_trials=2, steps=1000),
]


def plan(case: Case, shelf: DataShelf) -> list[PlannedRun]:
    """Return the runs of a case."""
    hparams = {} if case.batch_size is None else {"batch_size": case.batch_size}
    grids = make_grids(
        list(case.algorithms),
        [case.dataset],
        n_hparams=case.n_hparams,
        n_trials=case.n_trials,
        steps=case.steps,
        hparams=hparams,
        skip_model_save=True,
        device="cpu",
    )
    return expand(settle(SweepSpec(grids), shelf))


def carry_out(case: Case, arm: str, data_dir: str, output: Path) -> None:
    """Carry out a case in this process."""
    if arm == "before":
        loop.find_step = lambda algorithm: None
    shelf = DataShelf(data_dir)
    runs = plan(case, shelf)
    performer = Performer()
    begun = time.process_time()
    for fleet in form_fleets(runs, shelf, read_fleet("auto" if arm == "fleet" else "off")):
        stores = [RunStore(output / run.folder) for run in fleet]
        quiet = [NoCallback() for _ in fleet]
        performer.perform_fleet(fleet, shelf.get(case.dataset), stores, quiet, partial(check, case))
    (output / SPENT).write_text(str(time.process_time() - begun), encoding="utf-8")


def check(case: Case, run: PlannedRun, attempt: RunAttempt) -> None:
    """Stop if a run did not come to its end."""
    if attempt.status not in ("done", "diverged"):
        raise SystemExit(f"{case.label}: {run.label} {attempt.status}: {attempt.message}")


def measure(case: Case, arm: str, data_dir: str, output: Path) -> float:
    """Return the processor seconds of an arm, as a process of its own; of one run without its start."""
    content = json.dumps(vars(case))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, __file__, "--data_dir", data_dir, "--arm", arm, "--case", content]
    subprocess.run([*words, "--output", str(output)], check=True)
    if case.single:
        return float((output / SPENT).read_text(encoding="utf-8"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_accuracies(output: Path) -> dict[str, float]:
    """Return the test accuracy of each run's last record, by folder."""
    runs = [read_run(folder) for folder in sorted(output.iterdir()) if folder.is_dir()]
    found = ((run.path.name, run.last_record) for run in runs)
    return {name: float(record.get("test_acc") or 0) for name, record in found if record is not None}


def compare(case: Case, data_dir: str, turns: int) -> dict[str, Any]:
    """Measure the arms of a case in turns."""
    seconds = defaultdict[str, list[float]](list)
    accuracies: dict[str, dict[str, float]] = {}
    for _ in range(turns):
        for arm in ARMS:
            with tempfile.TemporaryDirectory(prefix="plench-fleet-") as folder:
                seconds[arm].append(measure(case, arm, data_dir, Path(folder)))
                accuracies[arm] = read_accuracies(Path(folder))
    best = {arm: min(values) for arm, values in seconds.items()}
    both = accuracies["fleet"].keys() & accuracies["off"].keys()
    apart = np.array([accuracies["fleet"][name] - accuracies["off"][name] for name in sorted(both)])
    row = {
        "case": case.label,
        **best,
        "runs": len(apart),
        "apart": float(apart.mean()) if len(apart) else 0.0,
    }
    row["interval"] = 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    row["equal"] = int((apart == 0).sum())
    print(json.dumps(row), flush=True)
    return row


def format_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    columns = (
        "before, s",
        "`--fleet off`, s",
        "fleets, s",
        "off / fleets",
        "before / off",
        "before / fleets",
    )
    yield f"| sweep | {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        before, off, fleet = row["before"], row["off"], row["fleet"]
        ratios = " | ".join(f"{ratio:.2f}" for ratio in (off / fleet, before / off, before / fleet))
        yield f"| {row['case']} | {before:.1f} | {off:.1f} | {fleet:.1f} | {ratios} |"


def write_page(rows: list[dict[str, Any]], memory: str, turns: int) -> None:
    """Write the page."""
    several = [row for row in rows if row["runs"] > 1]
    lines = [
        "# Runs trained as one",
        "",
        "Written by `benchmarks/fleet.py`. Processor seconds of a process that carries out a sweep, from",
        "import to the last record (of one run: without import), with one thread; the arms took turns, the",
        f"least of {turns} is shown. *Before* is `--fleet off` without the step written by hand.",
        f"Processor: {name_processor()}; torch {torch.__version__}, Python {platform.python_version()}.",
        "",
        *format_rows(rows),
        "",
        "Test accuracy of the last record, fleets less `--fleet off`, over the runs of each sweep in pairs:",
        "",
        "| sweep | pairs | equal | mean difference in points | 95 % interval |",
        "|---|---|---|---|---|",
        *(
            f"| {row['case']} | {row['runs']} | {row['equal']} | {100 * row['apart']:+.3f} | "
            f"± {100 * row['interval']:.3f} |"
            for row in several
        ),
        "",
        memory,
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def describe_memory(data_dir: str) -> str:
    """Say what the largest default fleet on Italian takes, by the estimate that bounds it."""
    shelf = DataShelf(data_dir)
    case = Case(("PRODEN",), "Italian")
    dataset = shelf.get("Italian")
    fleets = form_fleets(plan(case, shelf), shelf, read_fleet("auto"))
    most = max((estimate_gb(fleet, dataset), len(fleet)) for fleet in fleets)
    return (
        f"Memory: the largest default fleet on Italian, {most[1]} runs, is estimated at {most[0]:.2f} GB "
        "beside the process itself; `--fleet_memory_gb` bounds that estimate."
    )


def main() -> None:
    """Measure the cases, or carry out one arm of one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--steps", type=int, help="other steps than the cases have")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name has one of these in it")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.arm:
        given = json.loads(arguments.case)
        case = Case(**{**given, "algorithms": tuple(given["algorithms"])})
        carry_out(case, arguments.arm, arguments.data_dir, arguments.output)
        return
    rows = []
    memory = describe_memory(arguments.data_dir)
    for case in CASES:
        if arguments.steps and not case.single:
            case = replace(case, steps=arguments.steps)
        if any(part in case.label for part in arguments.only):
            rows.append(compare(case, arguments.data_dir, arguments.turns))
            write_page(rows, memory, arguments.turns)


if __name__ == "__main__":
    main()
