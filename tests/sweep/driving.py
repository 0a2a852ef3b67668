"""Plans of small sweeps, and launching sweeps as a user does, in processes of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plench.callbacks import Callback
from plench.runs.folder import RunStore
from plench.runs.sweep_spec import Grid, SweepSpec
from plench.sweeps.executor import RunExecutor
from plench.sweeps.plan import DatasetCache, PlannedRun, expand, make_grids, resolve_names

DATASETS = DatasetCache(None)
ODD = Path(__file__).with_name("odd_algorithms.py")
# Methods fitted in rounds: linear, forest and neighbours.
FITTED = ("LR_EM", "RF_EM", "PL_KNN")
Process = subprocess.Popen[str]


def odd(name: str) -> str:
    """Return how to name an algorithm of `odd_algorithms.py`."""
    return f"{ODD}:{name}"


def expand_grid(*grids: Grid) -> list[PlannedRun]:
    """Return the runs of grids."""
    return expand(resolve_names(SweepSpec(grids), DATASETS))


def plan_runs(*algorithms: str, n_hparams: int = 20, n_trials: int = 3, **changes: Any) -> list[PlannedRun]:
    """Return the runs of algorithms on Digits_USS."""
    changes |= {"n_hparams": n_hparams, "n_trials": n_trials}
    return expand_grid(*make_grids(algorithms, ["Digits_USS"], **changes))


def plan_one(algorithm: str = "CC", steps: int = 20) -> PlannedRun:
    """Return a run of an algorithm on Digits_USS."""
    (run,) = plan_runs(algorithm, n_hparams=1, n_trials=1, steps=steps, checkpoint_freq=10)
    return run


def run_here(run: PlannedRun, output_dir: Path) -> str:
    """Run a run in this process; return how it ended."""
    run = replace(run, config=replace(run.config, device="cpu", skip_model_save=True))
    ends: list[str] = []
    store, dataset = RunStore(output_dir / run.folder), DATASETS.get(run.dataset)
    RunExecutor().run_task(
        (run,), dataset, [store], [Callback()], lambda _, attempt: ends.append(attempt.status)
    )
    return ends[0]


def grid_of(
    algorithms: Sequence[str] = ("PRODEN", "CC", "LWS"),
    n_hparams: int = 2,
    n_trials: int = 2,
    steps: int = 200,
    checkpoint_freq: int = 50,
    stack: str = "off",
) -> list[str]:
    """Return the options of a small grid on built-in data."""
    return [
        *("--datasets", "Digits_USS", "--algorithms", *algorithms),
        *("--n_hparams", str(n_hparams), "--n_trials", str(n_trials)),
        *("--steps", str(steps), "--checkpoint_freq", str(checkpoint_freq), "--stack", stack),
    ]


# Two stacks of four runs.
STACKS = grid_of(["PRODEN", "CC"], 1, 4, steps=2000, checkpoint_freq=20, stack="4")


def start(*arguments: object, **environment: object) -> Process:
    """Start `python -m plench.sweep …` without waiting for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "plench.sweep", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )


def finish(process: Process, timeout: float = 300) -> tuple[int, str]:
    """Wait for a command; return its exit code and all it printed."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the command did not end within {timeout} s:\n{output}") from None
    return process.returncode, output


def sweep(*arguments: object, timeout: float = 300, **environment: object) -> tuple[int, str]:
    """Run a sweep command to its end."""
    return finish(start(*arguments, **environment), timeout)


def succeed(process: Process) -> str:
    """Wait for a command that succeeds; return all it printed."""
    code, output = finish(process)
    assert code == 0, output
    return output


def launch(grid: Sequence[str], folder: Path, *more: object, **environment: object) -> dict[str, Any]:
    """Launch a grid on the local engine, undisturbed; return its outcomes."""
    options = () if "--workers" in more else ("--workers", 2)
    succeed(start("launch", *grid, "--output_dir", folder, *options, *more, **environment))
    return read_outcomes(folder)


def read_outcomes(output_dir: Path) -> dict[str, Any]:
    """Return status and records of every run, by folder, without times."""
    outcomes = {}
    for folder in sorted(path for path in output_dir.iterdir() if (path / "run.json").exists()):
        lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            del record["step_time"], record["mem_gb"]
        status = json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"]
        outcomes[folder.name] = (status, (folder / "done").exists(), records)
    return outcomes


def compare_stacks(folder: Path, calm: dict[str, Any], separate: dict[str, Any]) -> None:
    """Stacked runs have the records of undisturbed stacks, and start as runs that were trained separately."""
    outcomes = read_outcomes(folder)
    assert outcomes == calm
    for name, (status, done, records) in outcomes.items():
        assert (status, done) == separate[name][:2] == ("done", True)
        assert {record["fleet_size"] for record in records} == {4}
        for record, expected in zip(records[:2], separate[name][2], strict=False):  # of steps 0 and 20
            assert record["step"] == expected["step"]
            assert record["loss"] == pytest.approx(expected["loss"], rel=1e-4)
            assert record["val_covering_rate"] == pytest.approx(expected["val_covering_rate"], abs=0.02)


def read_run_json(output_dir: Path) -> dict[str, dict[str, Any]]:
    """Return run.json of every run, by the algorithm's bare name."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in output_dir.glob("*/run.json")]
    return {content["config"]["algorithm"].split("@")[0]: content for content in contents}


def count(folder: Path, name: str = "done") -> int:
    """Return how many runs have a file of this name."""
    return len(list(folder.glob(f"*/{name}")))


def find_workers(driver: int) -> list[int]:
    """Return the ids of the worker processes of a driver (Linux)."""
    workers = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == driver and b"plench.sweeps.executor" in (entry / "cmdline").read_bytes():
                workers.append(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    return workers


def is_alive(process: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(
    condition: Callable[[], Any], timeout: float = 60, what: str = "", driver: Process | None = None
) -> Any:
    """Wait until a condition holds, or a driver has exited; return the condition's value."""
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if value or (driver is not None and driver.poll() is not None):
            return value
        if time.monotonic() > until:
            raise AssertionError(f"{what or condition} did not happen within {timeout} s")
        time.sleep(0.05)
