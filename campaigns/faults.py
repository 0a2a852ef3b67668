"""Faults of runs, stacks and sweeps. Each disturbs one of them and compares it with an undisturbed one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from tests.golden.cases import (
    ALGORITHMS,
    ANSWERED,
    FITTED,
    IMAGE_LR,
    IMAGES,
    OF_ANSWERS,
    ON_SCHEDULE,
    TABULAR,
)
from tests.sweep.driving import find_workers, is_alive, start

from campaigns.folders import compare, damage, damage_one, find_losses, summarise_all
from campaigns.processes import Command, Counted, Forked
from plench.algorithms import find_algorithm
from plench.callbacks import Callback
from plench.data import load_dataset
from plench.runs.folder import RunStore
from plench.training import RunOutcome, configure_run, prepare_data
from plench.training.loop import RunTask, train_runs

PATIENCE = 300.0  # seconds that a run may take on a busy machine
TRACEBACK = "Traceback (most recent call last)"
STEPS = 16
IMAGE_SHARE = 0.1  # of the runs of networks
STACK = 4
ALL = (*ALGORITHMS, *FITTED)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Round:
    """What was done to one run, stack or sweep, and how it differs from an undisturbed one in the end."""

    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    differences: list[str] = field(default_factory=list)
    skipped: str = ""

    def check(self, condition: bool, difference: str) -> None:
        """Record a difference unless a condition holds."""
        if not condition:
            self.differences.append(difference[:500])


@dataclass(frozen=True)
class Case:
    """A run or a stack, by the command that makes it in an output folder with a number of save steps."""

    name: str
    command: Callable[[Path, int], Command]


def choose_run(random: Random, algorithm: str) -> Case:
    """Return a run of an algorithm; golden runs with these hyperparameters enter every phase."""
    seed = random.randrange(2)
    if algorithm in FITTED:
        data, hparams = ANSWERED if algorithm in OF_ANSWERS else TABULAR, FITTED[algorithm]
    else:
        data, hparams = TABULAR, {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {})}
        if random.random() < IMAGE_SHARE:
            data, hparams = IMAGES, {**hparams, "model": "CNN", "lr": IMAGE_LR}
    words = [
        *("train", "-a", algorithm, "-d", str(data), "--hparams", json.dumps(hparams), "--seed", str(seed)),
        *(() if algorithm in FITTED else ("--steps", str(STEPS), "--checkpoint-freq", "3")),
        *("--device", "cpu", "--threads", "1"),
    ]

    def command(output: Path, save_steps: int) -> Command:
        return [*words, "--output-dir", str(output), "--save-steps", str(save_steps)]

    return Case(f"{data.stem}-{algorithm}-{seed}", command)


def choose_stack(random: Random) -> Case:
    """Return a stack of runs of different seeds, splits and learning rates."""
    algorithm = random.choice(ALGORITHMS)
    return Case(f"stack-{algorithm}", lambda output, save: partial(train_stack, algorithm, output, save))


def train_stack(algorithm: str, output: Path, save_steps: int) -> int:
    """Train a stack in this process; return an exit code."""
    entry, dataset = find_algorithm(algorithm), load_dataset(str(TABULAR))
    ended: list[Any] = []
    tasks = []
    for number in range(STACK):
        hparams = {"batch_size": 16, **ON_SCHEDULE.get(algorithm, {}), "lr": 10.0 ** -(2 + number % 3)}
        settings: dict[str, Any] = {"steps": STEPS, "checkpoint_freq": 3, "save_steps": save_steps}
        place = {"seed": number, "trial_seed": number // 2, "device": "cpu", "threads": 1}
        config = configure_run(entry, dataset.card, hparams=hparams, **settings, **place)
        store = RunStore(output / config.folder_name(dataset.fingerprint))
        prepare = partial(prepare_data, dataset, config, torch.device("cpu"))
        tasks.append(RunTask(config, entry, store, Callback(), prepare, ended.append))
    train_runs(tasks, dataset)
    for error in ended:
        if not isinstance(error, RunOutcome):
            print(f"error: {type(error).__name__}: {error}")
    return 0 if all(isinstance(one, RunOutcome) and one.status == "done" for one in ended) else 1


class Bench:
    """The folder where runs are disturbed, and what undisturbed ones gave."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.known: dict[str, dict[str, Any]] = {}
        self.commands = 0
        # A run whose files can be put in the place of another's, with a checkpoint from its middle.
        words = choose_run(Random(7), "PRODEN").command(work / "others", 1)
        assert isinstance(words, list)
        words += ["--trial-seed", "7", "--steps", "30"]
        for kill_at in range(50, 400, 50):
            self.run(words, prepare=Counted(kill_at))
            if any(work.glob("others/*/checkpoint.pt")):
                break
        (self.other,) = (work / "others").iterdir()
        checkpoint = (self.other / "checkpoint.pt").read_bytes()
        code, text = self.run(words)
        if code != 0:
            raise SystemExit(f"the other run cannot be made: {text}")
        (self.other / "checkpoint.pt").write_bytes(checkpoint)

    def start(self, words: Command, **options: Any) -> Forked:
        """Start a command."""
        self.commands += 1
        return Forked(words, self.work, self.work / f"printed-{self.commands % 8}", **options)

    def run(self, words: Command, **options: Any) -> tuple[int | None, str]:
        """Run a command; return its exit code, None if it does not end, and its output."""
        return self.start(words, **options).finish(PATIENCE)

    def calm(self, case: Case) -> dict[str, Any]:
        """Return what undisturbed runs give, with seconds and file operations; made once."""
        if case.name not in self.known:
            output = self.empty("calm")
            counted, start = Counted(), time.monotonic()
            code, text = self.run(case.command(output, 1), prepare=counted)
            if code != 0:
                raise SystemExit(f"{case.name}: an undisturbed run ended with {code}:\n{text}")
            content = {"seconds": time.monotonic() - start, "operations": counted.number}
            self.known[case.name] = {**content, "runs": summarise_all(output)}
        return self.known[case.name]

    def empty(self, name: str) -> Path:
        """Return an empty output folder."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        return self.work / name


class Trial:
    """A disturbed run or stack: its command, output folder and round."""

    def __init__(self, bench: Bench, random: Random, case: Case) -> None:
        self.bench, self.random, self.done = bench, random, Round()
        self.calm = bench.calm(case)
        self.output = bench.empty("rough")
        self.words = case.command(self.output, random.choice((1, 2, 5)))
        self.regrouped = False  # some members of a stack had ended at a kill and others had not

    def kill(self) -> None:
        """Start the command and kill it: between two file operations, or at any moment."""
        if self.random.random() < 0.6:
            at = self.random.randrange(1, self.calm["operations"] + 1)
            code, _ = self.bench.run(self.words, prepare=Counted(at))
            self.done.faults["SIGKILL between file operations"] += code == -signal.SIGKILL
        else:
            self.send_signal(signal.SIGKILL)
        self.regrouped |= 0 < len([*self.output.glob("*/done")]) < len(self.calm["runs"])

    def send_signal(self, number: signal.Signals, **options: Any) -> None:
        """Start the command and send it a signal at any moment."""
        command = self.bench.start(self.words, **options)
        command.wait(self.random.uniform(0, 1.2 * self.calm["seconds"]))
        self.done.faults[f"{number.name} at any moment"] += command.send(number)
        code, text = command.finish(PATIENCE)
        # Before the run is under way a signal ends the process, as it would any other.
        good = code in (0, 130, -number) or (len(self.calm["runs"]) > 1 and code == 1)
        self.done.check(good and TRACEBACK not in text, f"exit code {code} after {number.name}")
        self.regrouped |= 0 < len([*self.output.glob("*/done")]) < len(self.calm["runs"])

    def kill_until(self, pattern: str, without: str = "") -> bool:
        """Kill the command until its folder has a file, and not another one; return False if it never has."""
        for _ in range(10):
            self.kill()
            if any(self.output.glob(pattern)) and not (without and any(self.output.glob(without))):
                return True
        return False

    def refuse(self, what: str, reason: str, **options: Any) -> None:
        """Run the command under conditions in which it may end, or be refused with a reason."""
        code, text = self.bench.run(self.words, **options)
        self.done.faults[what] += code == 2
        self.done.refused += code == 2
        good = code == 0 or (code == 2 and reason in text)
        self.done.check(good and TRACEBACK not in text, f"{what}: exit code {code}: {text[-300:]}")

    def judge(self) -> Round:
        """Let the command end, and compare its runs with the undisturbed ones."""
        code, text = self.bench.run(self.words)
        self.done.check(code == 0 and TRACEBACK not in text, f"exit code {code} in the end: {text[-300:]}")
        if code == 0:
            try:
                found = summarise_all(self.output)
            except (OSError, ValueError, KeyError) as error:
                self.done.check(False, f"a file cannot be read in the end: {error}")
            else:
                compare_all(self.calm["runs"], found, self.done, exactly=not self.regrouped)
        return self.done


def compare_all(calm: dict[str, Any], found: dict[str, Any], done: Round, *, exactly: bool) -> None:
    """Compare runs by name: bits, or to rounding."""
    done.check(found.keys() == calm.keys(), f"{len(found)} runs, not {len(calm)}")
    for name in calm.keys() & found.keys():
        differences = compare(calm[name], found[name], exactly=exactly)
        done.differences += [f"{name}: {text}" for text in differences]


# Faults of single runs; kill and stop are also those of stacks -------------------------------------------


def kill(trial: Trial) -> None:
    """SIGKILL, one to four times."""
    for _ in range(trial.random.choice((1, 1, 2, 3, 4))):
        trial.kill()


def stop(trial: Trial) -> None:
    """Ctrl-C, SIGTERM and SIGHUP, which save first."""
    for _ in range(trial.random.choice((1, 2, 3))):
        trial.send_signal(trial.random.choice(SIGNALS))


def tear(trial: Trial) -> None:
    """A file of a run that was killed is damaged, in one of many ways."""
    if trial.kill_until("*/run.json"):
        suffer(trial, "a file of a killed run")


def tear_finished(trial: Trial) -> None:
    """A file of a finished run is damaged: the command says so, or it does not matter."""
    trial.bench.run(trial.words)
    suffer(trial, "a file of a finished run")


def suffer(trial: Trial, what: str) -> None:
    """Damage the folder and resume; where that is refused nothing may have changed, and it is repaired."""
    bench, done = trial.bench, trial.done
    (folder,) = (path for path in trial.output.iterdir() if path.is_dir())
    good, bad = bench.empty("good"), bench.empty("bad")
    shutil.copytree(folder, good)
    how = damage_one(folder, trial.random, bench.other)
    done.faults[f"{what}: {how.partition(' ')[0]}"] += 1
    shutil.copytree(folder, bad)
    code, text = bench.run(trial.words)
    done.check(code in (0, 2) and TRACEBACK not in text, f"{how}: exit code {code}: {text[-300:]}")
    if code != 0:
        done.refused += 1
        done.check("error" in text, f"{how}: refused without a reason")
        lost = find_losses(bad, folder)
        done.check(not lost, f"{how}: refused, but {', '.join(lost)} changed")
        shutil.rmtree(folder)
        shutil.copytree(good, folder)


def crowd(trial: Trial) -> None:
    """The same command two or three times at once."""
    if trial.random.random() < 0.5:
        trial.kill()
    commands = []
    for _ in range(trial.random.choice((2, 2, 3))):
        commands.append(trial.bench.start(trial.words))
        time.sleep(trial.random.uniform(0, 0.3 * trial.calm["seconds"]))
    for command in commands:
        code, text = command.finish(PATIENCE)
        busy = code == 2 and "another process is working on" in text
        trial.done.check(code == 0 or busy, f"exit code {code} with another command: {text[-300:]}")
    trial.done.faults["commands at once"] += len(commands)


def turn_clock(trial: Trial) -> None:
    """The clock and the times of files jump by years while a run is killed and resumed."""

    def jump(seconds: float) -> None:
        real = time.time
        time.time = lambda: real() + seconds

    for _ in range(trial.random.choice((1, 2, 3))):
        trial.send_signal(signal.SIGKILL, prepare=partial(jump, trial.random.uniform(-3e8, 3e8)))
        trial.done.faults["clock jumps"] += 1
        for path in sorted(trial.output.glob("*/*")):
            moment = trial.random.uniform(0, 4e9)
            os.utime(path, (moment, moment), follow_symlinks=False)


def change_conditions(trial: Trial) -> None:
    """Other threads or other instructions of the processor: a run that has begun is not resumed."""
    if not trial.kill_until("*/checkpoint.pt", without="*/done") or not isinstance(trial.words, list):
        return
    own = trial.words
    options: dict[str, Any] = {"environment": {"MKL_CBWR": "COMPATIBLE"}}
    if trial.random.random() < 0.5:
        trial.words, options = [*own, "--threads", "2"], {}
    before = trial.done.refused
    trial.refuse("other conditions", "other conditions", **options)
    trial.done.check(trial.done.refused > before, "resumed under other conditions")
    trial.words = own


def limit_files(trial: Trial) -> None:
    """Files may not grow beyond some size, as under a quota, and later may."""
    size = 1024 * trial.random.choice((1, 4, 16, 64, 256))
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    trial.refuse("files limited in size", "File too large", prepare=limit)


def fill_disk(trial: Trial) -> None:
    """The output folder's disk is full at some moment, and later is not: a small one, which needs root."""
    trial.output.mkdir()
    size = trial.random.choice((16, 32, 64, 128, 256, 512))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(trial.output)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        trial.done.skipped = "full disks: mounting a small disk needs root"
        return
    try:
        trial.refuse("full disk", "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=200m", str(trial.output)], check=True)
        trial.judge()
    finally:
        subprocess.run(["umount", str(trial.output)], check=True)
        trial.output.rmdir()


Fault = Callable[[Trial], None]
# How often each is drawn.
FAULTS: dict[Fault, int] = {
    **{kill: 6, stop: 2, tear: 6, tear_finished: 3, crowd: 2},
    **{turn_clock: 1, change_conditions: 1, fill_disk: 2, limit_files: 1},
}


# Faults of sweeps on the local engine --------------------------------------------------------------------

GRIDS = (
    *(("PRODEN", "PiCO", "VALEN"), ("POP", "DIRK", "CC")),
    *(("FREDIS", "LWS", "IDGP"), ("CroSel", "ABLE", "ALIM")),
)
# All runs of one algorithm, so that they are stacked.
STACKED = (("PRODEN",), ("CC",), ("POP",), ("PC",))
SWEEP_FAULTS = (
    *("worker killed", "worker of a stack killed", "driver killed", "two launches"),
    *("files torn", "driver of a stack killed", "worker stopped", "driver asked to stop"),
)
# Further codes that a driver may end with.
ENDS = {"two launches": (2,), "driver asked to stop": (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)}
TEARS = {
    "results.jsonl": ("cut", "empty", "drop_line", "lose"),
    "run.json": ("cut", "empty", "lose"),
    "checkpoint.pt": ("cut", "flip", "empty", "lose"),
    "model_last.pt": ("cut", "lose"),
    "model_CR.pt": ("cut", "lose"),
}


def launch_words(algorithms: tuple[str, ...], output: Path) -> list[str]:
    """Return the words of a sweep's command; runs of a single algorithm are stacked."""
    shape = (
        ("--n-trials", "4", "--stack", "4")
        if algorithms in STACKED
        else ("--n-trials", "1", "--stack", "off")
    )
    return [
        *("launch", "--datasets", str(TABULAR), "--algorithms", *algorithms, "--n-hparams", "2", *shape),
        *("--steps", "60", "--checkpoint-freq", "20", "--hparams", '{"batch_size": 16}', "--workers", "2"),
        *("--save-steps", "5", "--worker-silence", "10", "--output-dir", str(output)),
    ]


def finish(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Wait for a command; return its exit code, None if it does not end, and its output."""
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        return None, text
    return process.returncode, text


def disturb_sweep(bench: Bench, random: Random, kind: str) -> Round:
    """Launch a sweep, disturb it once or twice, let it end, and compare every run."""
    stacked = "of a stack" in kind
    algorithms = random.choice(STACKED if stacked else GRIDS)
    name = f"sweep-{'-'.join(algorithms)}"
    if name not in bench.known:
        calm_folder = bench.empty("calm-sweep")
        code, text = finish(start(*launch_words(algorithms, calm_folder)))
        if code != 0:
            raise SystemExit(f"an undisturbed sweep ended with {code}:\n{text}")
        bench.known[name] = summarise_all(calm_folder)
    calm, done, output = bench.known[name], Round(), bench.empty("rough-sweep")
    words = launch_words(algorithms, output)
    for _ in range(random.choice((1, 2))):
        driver = start(*words)
        ended, until = random.randrange(len(calm)), time.monotonic() + PATIENCE
        while driver.poll() is None and time.monotonic() < until:
            if len([*output.glob("*/done")]) >= ended and len([*output.glob("*/run.json")]) > ended:
                break
            time.sleep(0.02)
        time.sleep(random.uniform(0, 1))
        workers = find_workers(driver.pid)
        disturb(driver, workers, words, random, kind, done)
        code, text = finish(driver)
        # A signal may arrive before a driver handles it, or after it has finished.
        good = {0, 130, -signal.SIGKILL, *ENDS.get(kind, ())}
        done.check(code in good and TRACEBACK not in text, f"{kind}: exit code {code}: {text[-300:]}")
        until = time.monotonic() + 20
        while any(map(is_alive, workers)) and time.monotonic() < until:
            time.sleep(0.1)
        done.check(not any(map(is_alive, workers)), "workers outlived their driver")
    if kind == "files torn":  # of single runs, finished or not: the next launch repairs them
        folders = sorted(path.parent for path in output.glob("*/run.json"))
        for folder in random.sample(folders, min(3, len(folders))):
            torn = random.choice([file for file in TEARS if (folder / file).is_file()])
            damage(folder / torn, random.choice(TEARS[torn]), random, folder)
            done.faults["sweep: file torn"] += 1
    code, text = finish(start(*words))
    done.check(code == 0, f"exit code {code} in the end: {text[-300:]}")
    compare_all(calm, summarise_all(output), done, exactly=not stacked)
    return done


def disturb(
    driver: subprocess.Popen[str],
    workers: list[int],
    words: list[str],
    random: Random,
    kind: str,
    done: Round,
) -> None:
    """Kill or stop a worker or the driver, or launch the sweep a second time."""
    if "worker" in kind and workers:
        number = signal.SIGSTOP if kind == "worker stopped" else signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), number)
            done.faults[f"sweep: {kind}"] += 1
    elif ("driver" in kind or kind == "files torn") and driver.poll() is None:
        driver.send_signal(signal.SIGTERM if kind == "driver asked to stop" else signal.SIGKILL)
        done.faults[f"sweep: {'driver killed' if kind == 'files torn' else kind}"] += 1
    elif kind == "two launches":
        code, text = finish(start(*words))
        done.faults["sweep: two launches"] += 1
        busy = code == 2 and "another launch is working on" in text
        done.check(code == 0 or busy, f"exit code {code} with another launch: {text[-300:]}")
