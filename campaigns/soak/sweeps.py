"""Faults of sweeps on the local engine: workers and drivers killed or stopped, files torn, two launches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.golden.cases import TABULAR
from tests.sweep.driving import find_workers, is_alive, start

from campaigns.soak import damage
from campaigns.soak.bench import PATIENCE, Bench, Round
from campaigns.soak.comparison import read_sweep
from campaigns.soak.figures import write_figures
from campaigns.soak.fleets import judge
from campaigns.soak.forked import TRACEBACK

GRIDS = (
    ("PRODEN", "PiCO", "VALEN"),
    ("POP", "DIRK", "CC"),
    ("FREDIS", "LWS", "IDGP"),
    ("CroSel", "ABLE", "ALIM"),
)
# All runs of one algorithm, so that they are trained as one.
FLEETS = (("PRODEN",), ("CC",), ("POP",), ("PC",))
SWEEP_FAULTS = (
    "worker killed",
    "fleet's worker killed",
    "driver killed",
    "two launches",
    "files torn",
    "fleet's driver killed",
    "worker stopped",
    "driver told to stop",
)
# Further codes that a driver may end with.
ENDS = {"two launches": (2,), "driver told to stop": (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)}
SILENCE = 10.0  # seconds after which a worker that says nothing is replaced, here


def launch_words(algorithms: tuple[str, ...], output: Path) -> list[str]:
    """Return the words of a sweep's command; runs of a single algorithm are trained as one."""
    shape = (
        ("--n_trials", "4", "--fleet", "4") if algorithms in FLEETS else ("--n_trials", "1", "--fleet", "off")
    )
    return [
        *("launch", "--datasets", str(TABULAR), "--algorithms", *algorithms, "--n_hparams", "2", *shape),
        *("--steps", "60", "--checkpoint_freq", "20", "--hparams", '{"batch_size": 16}'),
        *(
            "--workers",
            "2",
            "--save_steps",
            "5",
            "--worker_silence",
            str(SILENCE),
            "--output_dir",
            str(output),
        ),
    ]


def finish(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Wait for a command; return its exit code and what it printed."""
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        return None, text
    return process.returncode, text


def find_calm(bench: Bench, algorithms: tuple[str, ...]) -> dict[str, Any]:
    """Return what an undisturbed sweep gives; kept from then on."""
    known = bench.calm_folder / f"sweep-{'-'.join(algorithms)}.json"
    if not known.exists():
        output = bench.work / "calm-sweep"
        shutil.rmtree(output, ignore_errors=True)
        code, text = finish(start(*launch_words(algorithms, output)))
        if code != 0:
            raise SystemExit(f"an undisturbed sweep ended with {code}:\n{text}")
        write_figures(read_sweep(output), known)
    found: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
    return found


def disturb_sweep(bench: Bench, random: Random, kind: str) -> Round:
    """Launch a sweep, disturb it one to three times, let it end, and compare every run."""
    fleet = kind.startswith("fleet's ")
    algorithms = random.choice(FLEETS if fleet else GRIDS)
    calm, done, output = find_calm(bench, algorithms), Round(), bench.work / "rough-sweep"
    shutil.rmtree(output, ignore_errors=True)
    words = launch_words(algorithms, output)
    for _ in range(random.choice((1, 2))):
        driver = start(*words)
        wait_for_runs(driver, output, random.randrange(len(calm)))
        time.sleep(random.uniform(0, 1))
        workers = find_workers(driver.pid)
        disturb(driver, workers, words, random, kind, done)
        code, text = finish(driver)
        # A signal may come before a driver listens to it, or after it has done all.
        good = {0, 130, -signal.SIGKILL, *ENDS.get(kind, ())}
        done.check(code in good and TRACEBACK not in text, f"{kind}: exit code {code}: {text[-300:]}")
        wait_for_ends(workers, done)
    if kind == "files torn":
        tear(output, random, done)
    code, text = finish(start(*words))
    done.check(code == 0, f"exit code {code} in the end: {text[-300:]}")
    found = read_sweep(output)
    judge(calm, found, done, exactly=not fleet)
    return done


def wait_for_runs(driver: subprocess.Popen[str], output: Path, count: int) -> None:
    """Wait until so many runs have ended, and one more has begun."""
    end = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < end:
        if len([*output.glob("*/done")]) >= count and len([*output.glob("*/run.json")]) > count:
            return
        time.sleep(0.02)


def disturb(
    driver: subprocess.Popen[str],
    workers: list[int],
    words: list[str],
    random: Random,
    kind: str,
    done: Round,
) -> None:
    """Do it."""
    if "worker" in kind and workers:
        number = signal.SIGSTOP if kind == "worker stopped" else signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), number)
            done.faults[f"sweep: {kind}"] += 1
    elif ("driver" in kind or kind == "files torn") and driver.poll() is None:
        driver.send_signal(signal.SIGTERM if kind == "driver told to stop" else signal.SIGKILL)
        done.faults[f"sweep: {'driver killed' if kind == 'files torn' else kind}"] += 1
    elif kind == "two launches":
        code, text = finish(start(*words))
        done.faults["sweep: two launches"] += 1
        busy = code == 2 and "another launch is working on" in text
        done.check(code == 0 or busy, f"exit code {code} beside another launch: {text[-300:]}")


def wait_for_ends(workers: list[int], done: Round) -> None:
    """Demand that workers end soon after their driver (in two seconds, on a machine that is not busy)."""
    end = time.monotonic() + 20
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    done.check(not any(map(is_alive, workers)), "workers outlived their driver")


def tear(output: Path, random: Random, done: Round) -> None:
    """Damage files of single runs, finished or not: the next launch mends them."""
    folders = sorted(path.parent for path in output.glob("*/run.json"))
    ways = {
        "results.jsonl": (damage.cut, damage.empty, damage.drop_line, damage.lose),
        "run.json": (damage.cut, damage.empty, damage.lose),
        "checkpoint.pt": (damage.cut, damage.flip, damage.empty, damage.lose),
        "model_last.pt": (damage.cut, damage.lose),
        "model_CR.pt": (damage.cut, damage.lose),
    }
    for folder in random.sample(folders, min(3, len(folders))):
        name = random.choice([name for name in ways if (folder / name).is_file()])
        random.choice(ways[name])(folder / name, random, folder)
        done.faults["sweep: file torn"] += 1
