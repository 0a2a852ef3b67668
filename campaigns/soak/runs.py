"""Faults of single runs. Each takes the bench, a source of chance and a run, and says what came of it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from campaigns.soak.bench import PATIENCE, Bench, Round
from campaigns.soak.cases import Case
from campaigns.soak.damage import copy_folder, damage_one
from campaigns.soak.forked import TRACEBACK

Fault = Callable[[Bench, Random, Case], Round]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def begin(bench: Bench, random: Random, case: Case) -> tuple[list[str], Path, Round]:
    """Return the words of a run's command in an empty output folder, that folder, and an empty round."""
    output = bench.work / "rough"
    shutil.rmtree(output, ignore_errors=True)
    return bench.command(case, output, random.choice((1, 2, 5))), output, Round()


def kill(bench: Bench, random: Random, case: Case) -> Round:
    """SIGKILL, one to four times."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        bench.kill_somewhere(words, calm, random, done)
    bench.judge(words, output, calm, done)
    return done


def stop(bench: Bench, random: Random, case: Case) -> Round:
    """Ctrl-C, SIGTERM and SIGHUP, which save first."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    for _ in range(random.choice((1, 2, 3))):
        number = random.choice(SIGNALS)
        command = bench.start(words)
        command.wait(random.uniform(0, 1.1 * calm["seconds"]))
        done.faults[f"{number.name} at any moment"] += command.send(number)
        code = command.wait(PATIENCE)
        command.end()
        # Before the run is under way a signal ends the process, as it would any other.
        good = code in (0, 130, -number)
        done.check(good and TRACEBACK not in command.read(), f"exit code {code} after {number.name}")
    bench.judge(words, output, calm, done)
    return done


def tear(bench: Bench, random: Random, case: Case) -> Round:
    """A file of a run that was killed is damaged, in one of many ways."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    for _ in range(10):
        bench.kill_somewhere(words, calm, random, done)
        if any(output.glob("*/run.json")):
            break
    else:
        return done
    suffer(bench, random, words, output, done, "a file of a killed run")
    bench.judge(words, output, calm, done)
    return done


def tear_finished(bench: Bench, random: Random, case: Case) -> Round:
    """A file of a finished run is damaged: it is told, or does not matter."""
    words, output, done = begin(bench, random, case)
    bench.finish(words)
    suffer(bench, random, words, output, done, "a file of a finished run")
    bench.judge(words, output, bench.calm(case), done)
    return done


def suffer(bench: Bench, random: Random, words: list[str], output: Path, done: Round, what: str) -> None:
    """Damage a run's folder and go on; where that is refused nothing may have changed, and it is mended."""
    folder, good, bad = bench.find_run(output), bench.work / "good", bench.work / "bad"
    copy_folder(folder, good)
    how = damage_one(folder, random, bench.other)
    done.faults[f"{what}: {how.partition(' ')[0]}"] += 1
    copy_folder(folder, bad)
    code, text = bench.finish(words)
    done.check(code in (0, 2) and TRACEBACK not in text, f"{how}: exit code {code}: {text[-300:]}")
    if code == 0:
        return
    done.refused += 1
    done.check("error" in text, f"{how}: refused without a word")
    # Where a folder stands in the place of a file, that is seen only when the file is to be written.
    lost = [] if how.startswith("put_") else find_losses(bad, folder)
    done.check(not lost, f"{how}: refused, but {', '.join(lost)} changed")
    shutil.rmtree(folder)
    shutil.copytree(good, folder)


def find_losses(before: Path, after: Path) -> list[str]:
    """Return the files that a refused command has changed or removed, the lock aside."""
    changed = []
    for path in before.iterdir():
        kept = after / path.name
        if path.name == ".lock" or path.suffix == ".tmp" or not path.is_file():
            continue
        # A checkpoint that cannot be read is of no use and may go.
        if path.name.startswith("checkpoint") and not kept.exists():
            continue
        if not kept.is_file() or kept.read_bytes() != path.read_bytes():
            changed.append(path.name)
    return changed


def crowd(bench: Bench, random: Random, case: Case) -> Round:
    """The same command two or three times at once."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    if random.random() < 0.5:
        bench.kill_somewhere(words, calm, random, done)
    commands = []
    for _ in range(random.choice((2, 2, 3))):
        commands.append(bench.start(words))
        time.sleep(random.uniform(0, 0.3 * calm["seconds"]))
    for command in commands:
        code = command.wait(PATIENCE)
        command.end()
        text = command.read()
        busy = code == 2 and "another process is working on" in text
        done.check(code == 0 or busy, f"exit code {code} beside another: {text[-300:]}")
    done.faults["commands at once"] += len(commands)
    bench.judge(words, output, calm, done)
    return done


@dataclass(frozen=True)
class ClockJump:
    """Lets a child's clock be wrong."""

    seconds: float

    def __call__(self) -> None:
        """Set it."""
        real, seconds = time.time, self.seconds
        time.time = lambda: real() + seconds


def turn_clock(bench: Bench, random: Random, case: Case) -> Round:
    """The clock and the times of files jump by years while a run is killed and continued."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)

    for _ in range(random.choice((1, 2, 3))):
        command = bench.start(words, prepare=ClockJump(random.uniform(-3e8, 3e8)))
        command.wait(random.uniform(0, 1.1 * calm["seconds"]))
        done.faults["clock jumps"] += 1
        command.send(signal.SIGKILL)
        command.end()
        for path in sorted(output.glob("*/*")):
            moment = random.uniform(0, 4e9)
            os.utime(path, (moment, moment), follow_symlinks=False)
    bench.judge(words, output, calm, done)
    return done


def change_conditions(bench: Bench, random: Random, case: Case) -> Round:
    """Other threads or other instructions of the processor: a run that was begun is not continued."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    for _ in range(10):
        bench.kill_somewhere(words, calm, random, done)
        if any(output.glob("*/checkpoint.pt")) and not any(output.glob("*/done")):
            break
    else:
        return done
    if random.random() < 0.5:
        code, text = bench.finish([*words, "--threads", "2"])
    else:
        code, text = bench.finish(words, environment={"MKL_CBWR": "COMPATIBLE"})
    done.faults["other conditions"] += 1
    done.refused += code == 2
    done.check(code == 2 and "other conditions" in text, f"exit code {code} under other conditions")
    bench.judge(words, output, calm, done)
    return done


@dataclass(frozen=True)
class SmallFiles:
    """Lets no file of a child be larger than this, which its owner hears as an error of the disk."""

    size: int

    def __call__(self) -> None:
        """Set it."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


def limit_files(bench: Bench, random: Random, case: Case) -> Round:
    """Files may not grow beyond some size, as under a quota, and later may."""
    words, output, done = begin(bench, random, case)
    size = 1024 * random.choice((1, 4, 16, 64, 256))
    code, text = bench.finish(words, prepare=SmallFiles(size))
    done.faults["files limited in size"] += code == 2
    done.refused += code == 2
    large = code == 2 and "File too large" in text
    done.check((code == 0 or large) and TRACEBACK not in text, f"{size} B: exit code {code}: {text[-300:]}")
    bench.judge(words, output, bench.calm(case), done)
    return done


def fill_disk(bench: Bench, random: Random, case: Case) -> Round:
    """The output folder's disk is full at some moment, and later is not: a small one, which needs root."""
    words, output, done = begin(bench, random, case)
    calm = bench.calm(case)
    output.mkdir()
    size = random.choice((16, 32, 64, 128, 256, 512))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(output)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        return Round(skipped="full disks: mounting a small disk needs root")
    try:
        code, text = bench.finish(words)
        done.faults["full disk"] += code == 2
        done.refused += code == 2
        full = code == 2 and "No space left on device" in text
        done.check(
            (code == 0 or full) and TRACEBACK not in text, f"{size} kB: exit code {code}: {text[-300:]}"
        )
        subprocess.run(["mount", "-o", "remount,size=200m", str(output)], check=True)
        bench.judge(words, output, calm, done)
    finally:
        subprocess.run(["umount", str(output)], check=True)
    return done


# How often each is drawn.
FAULTS: dict[Fault, int] = {
    kill: 6,
    stop: 2,
    tear: 6,
    tear_finished: 3,
    crowd: 2,
    turn_clock: 1,
    change_conditions: 1,
    fill_disk: 2,
    limit_files: 1,
}
