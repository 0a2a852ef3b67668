"""What training runs as one saves: processor time of sweeps with fleets, without, and of another commit.

    python benchmarks/fleet.py --data_dir DIR --before CHECKOUT      # writes docs/results/fleet.md
    python benchmarks/fleet.py --data_dir DIR --steps 200 --turns 1 --only Lost

Every arm is a command, `plench sweep launch` with one worker, or `plench train` for a single run; the arms
take turns. `before` is the same command of a checkout of another commit. Test accuracies of the runs of a
sweep are compared in pairs. The floor is what no stack can save: the products of the network and Adam, of all
runs at their batch sizes. The memory of a worker is measured on Italian. What was measured is kept beside the
page, in fleet.json, so that cases can be measured one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plench.algorithms import algorithms
from plench.algorithms.registry import PAPER
from plench.bench.fleet import stack_members, time_alone
from plench.bench.step import build_run
from plench.bench.stretches import time_stretch
from plench.runs.records import read_run
from plench.runs.sweep_spec import SweepSpec
from plench.sweeps.fleets import count_inputs, estimate_gb, form_fleets, read_fleet
from plench.sweeps.plan import DataShelf, expand, settle
from plench.sweeps.suites import make_grids
from plench.training.environment import compute_threads, flush_denormals, name_processor
from plench.training.stack import StackedBatches, StackedNetwork

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "fleet.md"
KEPT = PAGE.with_suffix(".json")
MEMORY = "memory of a worker on Italian"
COLUMNS = ("before", "off", "fleet", "floor")
# The paper's, which the commit before has too.
VANILLA = [n for n, entry in algorithms().items() if n in PAPER and entry.card.family.startswith("vanilla")]


@dataclass(frozen=True)
class Case:
    """A sweep: algorithms on a dataset, configurations × splits; or one run, with its batch size."""

    algorithms: tuple[str, ...]
    dataset: str
    n_hparams: int = 20
    n_trials: int = 5
    steps: int = 2000
    batch_size: int | None = None

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return len(self.algorithms) * self.n_hparams * self.n_trials

    @property
    def label(self) -> str:
        """A name for people."""
        several = len(self.algorithms) > 1
        named = f"{len(self.algorithms)} vanilla algorithms" if several else self.algorithms[0]
        size = "" if self.batch_size is None else f", batch {self.batch_size}"
        many = f"{self.runs} runs" if self.runs > 1 else "1 run"
        return f"{named}, {self.dataset}{size}: {many} of {self.steps:,} steps"

    def command(self, arm: str, data_dir: str, output: Path) -> list[str]:
        """Return the words of an arm's command after `plench`."""
        where = ["--data_dir", data_dir, "--output_dir", str(output), "--device", "cpu", "--skip_model_save"]
        if self.runs == 1:
            hparams = json.dumps({"batch_size": self.batch_size})
            names = ["-a", self.algorithms[0], "-d", self.dataset, "--hparams", hparams]
            return ["train", *names, "--steps", str(self.steps), *where]
        grid = ["--n_hparams", str(self.n_hparams), "--n_trials", str(self.n_trials)]
        fleet = [] if arm == "before" else ["--fleet", "auto" if arm == "fleet" else "off"]
        names = ["--algorithms", *self.algorithms, "--datasets", self.dataset]
        how = ["--steps", str(self.steps), "--workers", "1", "--skip_confirmation"]
        return ["sweep", "launch", *names, *grid, *how, *where, *fleet]


CASES = [
    *(Case((name,), "Lost", 1, 1, 4000, size) for name in ("CC", "PRODEN") for size in (128, 32)),
    *(Case((name,), data) for data in ("Lost", "MSRCv2", "Birdsong") for name in ("CC", "PRODEN")),
    Case(tuple(VANILLA), "Lost", n_trials=2, steps=1000),
]


def spend(words: list[str], checkout: Path) -> float:
    """Return the processor seconds of a command of a checkout, workers included."""
    used = run_command(words, checkout)
    return used.ru_utime + used.ru_stime


def run_command(words: list[str], checkout: Path) -> resource.struct_rusage:
    """Carry out a command of a checkout; return what it and its workers used."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "plench", *words],
        cwd=checkout,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return used


def measure_start(case: Case, arm: str, data_dir: str, checkout: Path) -> float:
    """Return the processor seconds of the same run with but one step."""
    with tempfile.TemporaryDirectory(prefix="plench-fleet-") as folder:
        return spend(replace(case, steps=1).command(arm, data_dir, Path(folder)), checkout)


def measure_floor(case: Case, data_dir: str) -> float:
    """Return the seconds of the products and of Adam of all runs of a sweep, in stacks of ten."""
    grids = make_grids(case.algorithms, [case.dataset], n_hparams=case.n_hparams, n_trials=case.n_trials)
    planned = expand(settle(SweepSpec(grids), DataShelf(data_dir)))
    sizes = Counter(int(run.config.hparams["batch_size"]) for run in planned)
    return sum(count * case.steps * time_products(case, data_dir, size) for size, count in sizes.items())


def time_products(case: Case, data_dir: str, batch_size: int, runs: int = 10) -> float:
    """Return the seconds of a step of one run in a stack, the least seen: products and Adam alone."""
    with compute_threads(1), flush_denormals():
        hparams = {"batch_size": batch_size}
        members = [
            build_run(case.algorithms[0], case.dataset, Path(data_dir), hparams, seed=n, trial_seed=n)
            for n in range(runs)
        ]
        stack = stack_members(members)
        batch = StackedBatches([run.training_set for run in members]).next()
        stack.update(batch)
        assert isinstance(stack.network, StackedNetwork)
        network, inputs = stack.network.by_hand, batch.view("weak")
        gradient = 1e-3 * torch.randn_like(network.predict(inputs))

        def work() -> None:
            network.forward(inputs)
            network.backward(gradient)
            stack.adam.step()

        return min(time_stretch(work, 50) for _ in range(7)) / 1000 / runs


def compare_forms(case: Case, data_dir: str, turns: int = 25) -> dict[str, float]:
    """Return the milliseconds of a step through autograd and of the one written by hand, and their ratio."""
    with compute_threads(1), flush_denormals():
        hparams = {"batch_size": case.batch_size}
        forms = [build_run(case.algorithms[0], case.dataset, Path(data_dir), hparams) for _ in range(2)]
        forms[1].choose_step()
        for run in forms:
            time_alone(run, 200)
        pairs = [tuple(time_alone(run, 100) for run in forms) for _ in range(turns)]
    autograd, by_hand = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(first / second for first, second in pairs)
    return {"autograd": autograd, "by hand": by_hand, "ratio": ratio}


def read_accuracies(output: Path) -> dict[str, float]:
    """Return the test accuracy of each run's last record, by folder."""
    runs = [read_run(folder) for folder in sorted(output.iterdir()) if folder.is_dir()]
    found = ((run.path.name, run.last_record) for run in runs)
    accuracies = {name: record.get("test_acc") for name, record in found if record is not None}
    return {name: accuracy for name, accuracy in accuracies.items() if accuracy is not None}


def compare(case: Case, data_dir: str, checkouts: dict[str, Path], turns: int) -> dict[str, Any]:
    """Measure the arms of a case in turns."""
    seconds, starts = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    accuracies: dict[str, dict[str, float]] = {}
    for _ in range(turns):
        for arm, checkout in checkouts.items():
            if arm == "fleet" and case.runs == 1:
                continue
            with tempfile.TemporaryDirectory(prefix="plench-fleet-") as folder:
                seconds[arm].append(spend(case.command(arm, data_dir, Path(folder)), checkout))
                accuracies[arm] = read_accuracies(Path(folder))
            starts[arm].append(measure_start(case, arm, data_dir, checkout) if case.runs == 1 else 0.0)
        if case.runs > 1:
            seconds["floor"].append(measure_floor(case, data_dir))
            starts["floor"].append(0.0)
    spent = {arm: min(values) - min(starts[arm]) for arm, values in seconds.items()}
    row: dict[str, Any] = {"seconds": spent, "turns": turns}
    if case.runs == 1:
        row["forms"] = compare_forms(case, data_dir)
    if "fleet" in accuracies:
        both = sorted(accuracies["fleet"].keys() & accuracies["off"].keys())
        apart = np.array([accuracies["fleet"][name] - accuracies["off"][name] for name in both])
        interval = 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5
        row |= {"apart": float(apart.mean()), "interval": interval, "equal": int((apart == 0).sum())}
        row["pairs"] = len(both)
    print(case.label, json.dumps(row), flush=True)
    return row


def ratio(row: dict[str, Any], above: str, below: str) -> str:
    """Return the ratio of two arms as a cell."""
    seconds = row["seconds"]
    return f"{seconds[above] / seconds[below]:.2f}" if above in seconds and below in seconds else ""


def format_rows(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables."""
    pairs = [("before", "off"), ("off", "fleet"), ("before", "fleet"), ("off", "floor")]
    heads = ["before, s", "`off`, s", "fleets, s", "floor, s"]
    heads += ["before / off", "off / fleets", "before / fleets", "off / floor"]
    yield f"| what | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for label, row in rows.items():
        spent = [f"{row['seconds'][arm]:.1f}" if arm in row["seconds"] else "" for arm in COLUMNS]
        ratios = [ratio(row, *arms) for arms in pairs]
        yield f"| {label} | {' | '.join([*spent, *ratios])} |"
    yield ""
    yield "A step of a single run through autograd and written by hand: medians of stretches that took turns"
    yield "in one process, and the median of their ratios."
    yield ""
    yield "| run | autograd, ms | by hand, ms | ratio |"
    yield "|---|---|---|---|"
    for label, row in rows.items():
        if "forms" in row:
            forms = row["forms"]
            yield f"| {label} | {forms['autograd']:.2f} | {forms['by hand']:.2f} | {forms['ratio']:.2f} |"
    yield ""
    yield "Test accuracy of the last record, fleets less `--fleet off`, over the runs of each sweep in pairs:"
    yield ""
    yield "| sweep | pairs | equal | mean difference in points | 95 % interval |"
    yield "|---|---|---|---|---|"
    for label, row in rows.items():
        if "apart" in row:
            yield (
                f"| {label} | {row['pairs']} | {row['equal']} | {100 * row['apart']:+.3f} | "
                f"± {100 * row['interval']:.3f} |"
            )


def write_page(rows: dict[str, dict[str, Any]]) -> None:
    """Write the page."""
    lines = [
        "# Runs trained as one",
        "",
        "Written by `python benchmarks/fleet.py --data_dir DIR --before CHECKOUT`. Processor seconds of",
        "whole commands with one worker of one thread, start and end included; of a single run, `plench",
        "train` less a run of one step. The arms took turns; the least of the turns is shown. *Before* is",
        "the same command of another commit (here 3c81bb1, before fleets and the step written by hand, which",
        "`--fleet off` has already). *Floor*: the products of the network and Adam of all runs, at their",
        "batch sizes and in stacks of ten, without loss, batches, evaluation and start. No stack is below",
        "it, so off / floor bounds what fleets can gain on this processor. CC and PRODEN have the same floor",
        "but for their batch sizes: where theirs differ on a dataset, the machine's speed drifted that much.",
        "Cases are measured one by one, some on other days than others: ratios hold within a row.",
        f"Processor: {name_processor()}; torch {torch.__version__}, Python {platform.python_version()}.",
        "",
        *format_rows({label: row for label, row in rows.items() if label != MEMORY}),
        *(["", describe_memory(rows[MEMORY])] if MEMORY in rows else []),
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_memory(data_dir: str) -> dict[str, Any]:
    """Return what a worker takes at most on Italian with default fleets and without, and the estimate."""
    case = Case(("PRODEN",), "Italian", steps=20)
    peaks = {}
    for arm in ("fleet", "off"):
        with tempfile.TemporaryDirectory(prefix="plench-fleet-") as folder:
            used = run_command(case.command(arm, data_dir, Path(folder)), ROOT)
        peaks[arm] = used.ru_maxrss * 1024 / 1e9  # of the largest process, on Linux in KiB
    shelf = DataShelf(data_dir)
    grids = make_grids(
        case.algorithms, [case.dataset], n_hparams=case.n_hparams, n_trials=case.n_trials, device="cpu"
    )
    dataset = shelf.get(case.dataset)
    fleets = form_fleets(expand(settle(SweepSpec(grids), shelf)), shelf, read_fleet("auto"))
    width = count_inputs(dataset)
    estimate, size = max((estimate_gb(fleet, dataset, width), len(fleet)) for fleet in fleets)
    return {**peaks, "estimate": estimate, "runs": size}


def describe_memory(found: dict[str, Any]) -> str:
    """Say what a worker takes with default fleets."""
    return (
        "Memory of the largest process of a sweep of PRODEN on Italian, at its peak: "
        f"{found['fleet']:.2f} GB with default fleets, {found['off']:.2f} GB with `--fleet off`. "
        f"The largest fleet, of {found['runs']} runs, is estimated at {found['estimate']:.2f} GB beside "
        "the process itself; `--fleet_memory_gb` bounds that estimate."
    )


def main() -> None:
    """Measure the cases and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--before", type=Path, help="checkout of another commit")
    parser.add_argument("--steps", type=int, help="other steps than the sweeps have")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name has one of these in it")
    arguments = parser.parse_args()
    checkouts = {"fleet": ROOT, "off": ROOT}
    if arguments.before:
        checkouts["before"] = arguments.before.resolve()
    rows = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    data_dir = str(Path(arguments.data_dir).resolve())
    for case in CASES:
        if not any(part in case.label for part in arguments.only):
            continue
        if arguments.steps and case.runs > 1:  # a trial: it is printed, and has no place on the page
            compare(replace(case, steps=arguments.steps), data_dir, checkouts, arguments.turns)
        else:
            keep(case.label, compare(case, data_dir, checkouts, arguments.turns), rows)
    if any(part in MEMORY for part in arguments.only):
        keep(MEMORY, measure_memory(data_dir), rows)


def keep(label: str, row: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    """Keep a row, and write the page with it."""
    rows[label] = row
    KEPT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    write_page(rows)


if __name__ == "__main__":
    main()
