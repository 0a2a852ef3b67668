"""What all faults need: undisturbed runs to compare with, commands in forked processes, kills of them."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from campaigns.soak.cases import Case
from campaigns.soak.comparison import compare, summarise
from campaigns.soak.figures import write_figures
from campaigns.soak.forked import TRACEBACK, Command, Forked

PATIENCE = 300.0  # seconds that a run may take on a busy machine
OPERATIONS = ("open", "replace", "fsync", "unlink")  # of `os`: before and after each a process may be killed


class Counted:
    """Counts file operations in the child, where the parent can see it, and kills it at one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.kill_at = kill_at
        self.memory = mmap.mmap(-1, 8)

    def __call__(self) -> None:
        """Begin to count, in the child."""
        for name in OPERATIONS:
            setattr(os, name, self.wrap(getattr(os, name)))

    def wrap(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Return the operation with a chance to be killed before it and after it."""

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count()
            try:
                return operation(*arguments, **options)
            finally:
                self.count()

        return counted

    def count(self) -> None:
        """Count one moment; die if it is the one."""
        number = self.number + 1
        self.memory[:] = struct.pack("q", number)
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def number(self) -> int:
        """How many moments there were."""
        return int(struct.unpack("q", self.memory[:])[0])


@dataclass
class Round:
    """What was done to one run or sweep, and how it differs from an undisturbed one in the end."""

    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    differences: list[str] = field(default_factory=list)
    skipped: str = ""

    def check(self, condition: bool, difference: str) -> None:
        """Note a difference unless a condition holds."""
        if not condition:
            self.differences.append(difference[:500])


class Bench:
    """The place where runs are disturbed, and what undisturbed ones gave."""

    def __init__(self, state: Path, work: Path, source: str) -> None:
        self.calm_folder = state / f"calm-{source}"
        self.work = work
        self.other = work / "other"
        self.rounds = 0

    def start(
        self,
        words: Command,
        prepare: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """Start a command."""
        self.rounds += 1
        printed = self.work / f"printed-{self.rounds % 8}"
        return Forked(words, self.work, printed, prepare=prepare, environment=environment)

    def finish(self, words: Command, **options: Any) -> tuple[int | None, str]:
        """Carry out a command; return its exit code, None if it does not end, and what it printed."""
        command = self.start(words, **options)
        code = command.wait(PATIENCE)
        command.end()
        return code, command.read()

    def calm(self, case: Case) -> dict[str, Any]:
        """Return what an undisturbed run gives, with its seconds and file operations; kept from then on."""
        known = self.calm_folder / f"{case.name}.json"
        if not known.exists():
            output = self.work / "calm"
            shutil.rmtree(output, ignore_errors=True)
            counted, began = Counted(), time.monotonic()
            code, text = self.finish(self.command(case, output, 1), prepare=counted)
            if code != 0:
                raise SystemExit(f"{case.name}: an undisturbed run ended with {code}:\n{text}")
            content = {"seconds": time.monotonic() - began, "operations": counted.number}
            write_figures({**content, **summarise(self.find_run(output))}, known)
        found: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
        return found

    def command(self, case: Case, output: Path, save_steps: int) -> list[str]:
        """Return the words of a run's command."""
        return [*case.words, "--output_dir", str(output), "--save_steps", str(save_steps)]

    def find_run(self, output: Path) -> Path:
        """Return the one run's folder below an output folder."""
        (folder,) = (path for path in output.iterdir() if path.is_dir())
        return folder

    def kill_somewhere(self, words: Command, calm: dict[str, Any], random: Random, done: Round) -> None:
        """Start a run and kill it: between two file operations, or at any moment."""
        if random.random() < 0.6:
            at = random.randrange(1, calm["operations"] + 1)
            code, _ = self.finish(words, prepare=Counted(at))
            done.faults["SIGKILL between file operations"] += code == -signal.SIGKILL
        else:
            command = self.start(words)
            command.wait(random.uniform(0, 1.2 * calm["seconds"]))
            done.faults["SIGKILL at any moment"] += command.send(signal.SIGKILL)
            command.end()

    def judge(self, words: list[str], output: Path, calm: dict[str, Any], done: Round) -> None:
        """Let a run end, and compare it with the undisturbed one."""
        code, text = self.finish(words)
        done.check(code == 0, f"exit code {code} in the end: {text[-300:]}")
        done.check(TRACEBACK not in text, f"a traceback: {text[-300:]}")
        if code == 0:
            try:
                found = summarise(self.find_run(output))
            except (OSError, ValueError, KeyError) as error:
                done.check(False, f"a file cannot be read in the end: {error}")
            else:
                done.differences += compare(calm, found)
