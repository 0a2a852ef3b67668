"""A process that reads damaged files within limits, and the one that keeps it alive."""

from __future__ import annotations

import io
import logging
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from campaigns.fuzz.mutations import MARK, mutate, zeros
from campaigns.fuzz.readers import READERS, Reader
from campaigns.fuzz.samples import make_run

OUTCOMES = ("accepted", "refused", "raw", "hang", "crash", "memory", "executed")
GOOD = ("accepted", "refused")
FILES_OF_A_CHILD = 500
STARTS_PROCESSES = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "subprocess.Popen",
    "pty.spawn",
)


@dataclass(frozen=True)
class Limits:
    """What a reader may take for one file: seconds of the processor, and a few times as many by the clock."""

    seconds: float = 20.0
    memory_bytes: int = 2**30

    @property
    def clock_seconds(self) -> float:
        """How long one file may take by the clock, on a machine that has other things to do as well."""
        return 6 * self.seconds


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `where` tells findings of one cause from those of another."""

    kind: str
    where: str = ""
    seconds: float = 0.0


def make_input(reader: Reader, seed: int, number: int) -> bytes:
    """Return a damaged file, always the same for the same numbers."""
    random = Random(f"{seed} {reader.name} {number}")
    return mutate(random.choice(reader.samples()), reader.own, random)


class Watch:
    """Listens to what Python is asked to do while a file is read: no process, no code out of files."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what no reader may do."""
        if self.folder is None:
            return
        if event in STARTS_PROCESSES and arguments[0] != "uname":  # Python's own way to name the machine
            self.seen.append(f"{event} {str(arguments)[:100]}")
        elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(self.folder):
            self.seen.append(f"code of {arguments[0].co_filename}")
        elif event == "compile" and arguments[0] in (b"1+1+1", "1+1+1"):
            self.seen.append("eval")
        elif event == "open" and "w" in str(arguments[1]) and self.is_elsewhere(arguments[0]):
            self.seen.append(f"writing {arguments[0]}")

    def is_elsewhere(self, path: object) -> bool:
        """Say whether a path lies where no reader has anything to write."""
        allowed = (self.folder or "", tempfile.gettempdir(), "/dev/")
        return isinstance(path, str) and not os.path.abspath(path).startswith(allowed)


def read_one(reader: Reader, content: bytes, watch: Watch) -> Outcome:
    """Let a reader read one damaged file in a folder of its own."""
    from plench.errors import PlenchError

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    start = time.monotonic()
    try:
        os.chdir(folder)
        path = folder / reader.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        watch.seen.clear()
        watch.folder = str(folder)
        try:
            reader.read(folder)
            kind, where = "accepted", ""
        except PlenchError:
            kind, where = "refused", ""
        except MemoryError as error:
            kind, where = "memory", describe(error)
        except Exception as error:
            kind, where = "raw", describe(error)
        finally:
            watch.folder = None
        if watch.seen or any(folder.rglob(MARK)):
            kind, where = "executed", watch.seen[0] if watch.seen else MARK
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(kind, where, time.monotonic() - start)


def describe(error: BaseException) -> str:
    """Return an error's type and the innermost place of plench that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "plench" in frame.filename] or frames
    place = ours[-1]
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.name}: {str(error)[:100]!r}"


def work(connection: Connection, others_end: Connection, limits: Limits) -> None:
    """Read files until there is nobody to send any. This is the child's whole life."""
    others_end.close()  # this process has it too, and would never hear that the other has ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    logging.disable()
    warnings.simplefilter("ignore")
    watch = Watch()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    by_name = {reader.name: reader for reader in READERS}
    while True:
        try:
            name, content = connection.recv()
        except EOFError:
            return
        reader = by_name[name]
        limit_processor(limits.seconds)
        connection.send(read_one(reader, content, watch))


def limit_processor(seconds: float) -> None:
    """Let the kernel end this process (SIGXCPU) after so many more seconds of the processor."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


class Keeper:
    """Keeps one child reading, and replaces it when it dies, does not answer or has read enough.

    What a file does in a child that has read others may be due to those: harm is tried again in a new child.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.context = multiprocessing.get_context("fork")  # a new child is there at once, all imported
        self.process: Any = None
        self.connection: Connection | None = None
        self.n_read = 0

    def read(self, reader: Reader, content: bytes) -> Outcome:
        """Return what becomes of a file."""
        if self.n_read >= FILES_OF_A_CHILD:
            self.stop()
        outcome = self.read_once(reader, content)
        if outcome.kind in GOOD or self.n_read == 1:
            return outcome
        self.stop()
        alone = self.read_once(reader, content)
        self.stop()
        return replace(outcome, where=f"{outcome.where} (after other files)") if alone.kind in GOOD else alone

    def read_once(self, reader: Reader, content: bytes) -> Outcome:
        """Return what becomes of a file in the child that there is, or in a new one."""
        if self.connection is None:
            self.start()
        assert self.connection is not None
        self.n_read += 1
        try:
            self.connection.send((reader.name, content))
            if self.connection.poll(self.limits.clock_seconds):
                return self.connection.recv()
            outcome = Outcome("hang", f"more than {self.limits.clock_seconds:g} s", self.limits.clock_seconds)
        except (EOFError, ConnectionError):
            self.process.join()
            if self.process.exitcode == -signal.SIGXCPU:
                outcome = Outcome("hang", f"more than {self.limits.seconds:g} s", self.limits.seconds)
            else:
                outcome = Outcome("crash", f"exit code {self.process.exitcode}")
        self.close()
        return outcome

    def start(self) -> None:
        """Start a child."""
        self.connection, theirs = self.context.Pipe()
        arguments = (theirs, self.connection, self.limits)
        self.process = self.context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        self.n_read = 0
        theirs.close()

    def stop(self) -> None:
        """End the child."""
        self.close()
        self.n_read = 0

    def close(self) -> None:
        """End the child; how many files it has read is still known."""
        if self.connection is not None:
            self.process.kill()
            self.process.join()
            self.connection.close()
            self.connection = None


def warm_up(readers: tuple[Reader, ...], tell: Callable[[str], None]) -> None:
    """Let every reader read its good files, in this process: what children inherit is imported by then."""
    watch = Watch()
    zeros()
    make_run()
    logging.getLogger("plench").setLevel(logging.ERROR)  # notices, that a file is not the public one
    for reader in readers:
        for sample in reader.samples():
            with redirect_stdout(io.StringIO()):
                outcome = read_one(reader, sample, watch)
            if outcome.kind != "accepted":
                tell(f"{reader.name}: a good file is {outcome.kind} {outcome.where}")
