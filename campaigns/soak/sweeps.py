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

from campaigns.figures import write_figures
from campaigns.forked import TRACEBACK
from campaigns.soak import damage
from campaigns.soak.bench import PATIENCE, Bench, Round
from campaigns.soak.comparison import compare, summarise

GRIDS = (
    ("PRODEN", "PiCO", "VALEN"),
    ("POP", "DIRK", "CC"),
    ("FREDIS", "LWS", "IDGP"),
    ("CroSel", "ABLE", "ALIM"),
)
SWEEP_FAULTS = (
    "worker killed",
    "worker stopped",
    "driver killed",
    "driver told to stop",
    "files torn",
    "two launches",
)
SILENCE = 10.0  # seconds after which a worker that says nothing is replaced, here


def launch_words(algorithms: tuple[str, ...], output: Path) -> list[str]:
    """Return the words of a sweep's command. Fleets will be one more option here."""
    return [
        *("launch", "--datasets", str(TABULAR), "--algorithms", *algorithms, "--n_hparams", "2"),
        *("--n_trials", "1", "--steps", "60", "--checkpoint_freq", "20", "--hparams", '{"batch_size": 16}'),
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


def read_sweep(output: Path) -> dict[str, Any]:
    """Return what every run of a sweep holds."""
    return {path.parent.name: summarise(path.parent) for path in sorted(output.glob("*/run.json"))}


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
    algorithms = random.choice(GRIDS)
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
        good = (0, 2, 130, -signal.SIGKILL) if kind == "two launches" else (0, 130, -signal.SIGKILL)
        done.check(code in good and TRACEBACK not in text, f"{kind}: exit code {code}: {text[-300:]}")
        wait_for_ends(workers, done)
    if kind == "files torn":
        tear(output, random, done)
    code, text = finish(start(*words))
    done.check(code == 0, f"exit code {code} in the end: {text[-300:]}")
    found = read_sweep(output)
    done.check(found.keys() == calm.keys(), f"{len(found)} runs, not {len(calm)}")
    for name in calm.keys() & found.keys():
        done.differences += [f"{name}: {text}" for text in compare(calm[name], found[name])]
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
    if kind in ("worker killed", "worker stopped") and workers:
        number = signal.SIGKILL if kind == "worker killed" else signal.SIGSTOP
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), number)
            done.faults[f"sweep: {kind}"] += 1
    elif kind in ("driver killed", "files torn", "driver told to stop") and driver.poll() is None:
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
