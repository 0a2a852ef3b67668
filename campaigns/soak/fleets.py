"""Faults of fleets: runs trained as one in one process that is killed, stopped and begun again."""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from tests.golden.cases import ALGORITHMS, ON_SCHEDULE, TABULAR

from campaigns.soak.bench import PATIENCE, Bench, Counted, Round
from campaigns.soak.cases import STEPS
from campaigns.soak.comparison import compare, read_sweep
from campaigns.soak.figures import write_figures
from campaigns.soak.forked import TRACEBACK
from plench.algorithms import find_algorithm
from plench.data import load_dataset
from plench.runs.folder import RunStore
from plench.training import RunOutcome, configure_run, prepare_data
from plench.training.callbacks import NoCallback
from plench.training.loop import RunTask, train_runs

SIZE = 4
# Between fleets of other members: numbers agree to rounding, which is all that is promised then.
LOSS_RTOL, ACCURACY_ATOL = 1e-3, 0.05


def train_fleet(algorithm: str, output: Path, save_steps: int) -> int:
    """Carry out runs of different seeds, splits and learning rates as one; return an exit code."""
    entry, dataset = find_algorithm(algorithm), load_dataset(str(TABULAR))
    ended: list[Any] = []
    tasks = []
    for number in range(SIZE):
        hparams = {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {}), "lr": 10.0 ** -(2 + number % 3)}
        settings: dict[str, Any] = {"steps": STEPS, "checkpoint_freq": 3, "save_steps": save_steps}
        place = {"seed": number, "trial_seed": number // 2, "device": "cpu", "threads": 1}
        config = configure_run(entry, dataset.card, hparams=hparams, **settings, **place)
        store = RunStore(output / config.folder_name(dataset.fingerprint))
        prepare = partial(prepare_data, dataset, config, torch.device("cpu"))
        tasks.append(RunTask(config, entry, store, NoCallback(), prepare, ended.append))
    train_runs(tasks, dataset)
    for error in ended:
        if not isinstance(error, RunOutcome):
            print(f"error: {type(error).__name__}: {error}")
    return 0 if all(isinstance(one, RunOutcome) and one.status == "done" for one in ended) else 1


def find_calm(bench: Bench, algorithm: str) -> dict[str, Any]:
    """Return what an undisturbed fleet gives, with its seconds and file operations; kept from then on."""
    known = bench.calm_folder / f"fleet-{algorithm}.json"
    if not known.exists():
        output = bench.work / "calm-fleet"
        shutil.rmtree(output, ignore_errors=True)
        counted, began = Counted(), time.monotonic()
        code, text = bench.finish(partial(train_fleet, algorithm, output, 1), prepare=counted)
        if code != 0:
            raise SystemExit(f"an undisturbed fleet of {algorithm} ended with {code}:\n{text}")
        content = {"seconds": time.monotonic() - began, "operations": counted.number}
        write_figures({**content, "runs": read_sweep(output)}, known)
    found: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
    return found


def disturb_fleet(bench: Bench, random: Random) -> tuple[str, Round]:
    """Kill or stop a fleet one to four times, let it end, and compare every run; return its algorithm too."""
    algorithm = random.choice(ALGORITHMS)
    calm, done, output = find_calm(bench, algorithm), Round(), bench.work / "rough-fleet"
    shutil.rmtree(output, ignore_errors=True)
    train = partial(train_fleet, algorithm, output, random.choice((1, 2, 5)))
    regrouped = False
    for _ in range(random.choice((1, 2, 3, 4))):
        if random.random() < 0.7:
            faults = Round()
            bench.kill_somewhere(train, calm, random, faults)
            done.faults["fleet: SIGKILL"] += sum(faults.faults.values())
        else:
            stop(bench, random, train, calm, done)
        regrouped |= 0 < len([*output.glob("*/done")]) < SIZE
    code, text = bench.finish(train)
    done.check(code == 0 and TRACEBACK not in text, f"exit code {code} in the end: {text[-300:]}")
    judge(calm["runs"], read_sweep(output), done, exactly=not regrouped)
    return algorithm, done


def stop(bench: Bench, random: Random, train: Any, calm: dict[str, Any], done: Round) -> None:
    """Ask a fleet to stop, which saves first."""
    command = bench.start(train)
    command.wait(random.uniform(0, 1.1 * calm["seconds"]))
    done.faults["fleet: SIGTERM"] += command.send(signal.SIGTERM)
    code = command.wait(PATIENCE)
    command.end()
    good = code in (0, 1, -signal.SIGTERM)
    done.check(good and TRACEBACK not in command.read(), f"exit code {code} after SIGTERM")


def judge(calm: dict[str, Any], found: dict[str, Any], done: Round, *, exactly: bool) -> None:
    """Compare the runs of fleets: bits if the members stayed the same, else to rounding."""
    done.check(found.keys() == calm.keys(), f"{len(found)} runs, not {len(calm)}")
    for name in calm.keys() & found.keys():
        expected, run = calm[name], found[name]
        if exactly:
            done.differences += [f"{name}: {text}" for text in compare(expected, run)]
        else:
            done.differences += [f"{name}: {text}" for text in compare_closely(expected, run)]


def compare_closely(calm: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say how a run differs by more than rounding from one that was trained among others."""
    same = {"records": [], "models": dict.fromkeys(calm["models"], "")}
    differences = compare({**calm, **same}, {**found, **same, "models": dict.fromkeys(found["models"], "")})
    if len(calm["records"]) != len(found["records"]):
        differences.append(f"{len(found['records'])} records, not {len(calm['records'])}")
    for one, other in zip(calm["records"], found["records"], strict=False):
        near = math.isclose(one["loss"], other["loss"], rel_tol=LOSS_RTOL)
        near &= math.isclose(one["test_acc"], other["test_acc"], abs_tol=ACCURACY_ATOL)
        if one["step"] != other["step"] or not near:
            differences.append(f"the record of step {one['step']} differs by more than rounding")
    return differences
