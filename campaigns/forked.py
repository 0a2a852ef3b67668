"""The command `plench` in a forked process: plench is imported once, a call takes milliseconds to start.

Linux only: limits and waiting are those of its kernel.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

RAISED = 70  # exit code of a process in which an error came through that is not ours
GOOD_CODES = (0, 1, 2, 130)
# Modules that only a command line runs: imported, they would hide the functions of the same name.
HIDING = ("plench.train", "plench.sweep", "plench.collect_results")
Command = list[str] | Callable[[], int]  # words of `plench`, or what is to be done, which says the exit code
TRACEBACK = "Traceback (most recent call last)"


def warm_up() -> None:
    """Import what commands import when they are called, and train a little: children inherit it."""
    import matplotlib.backends
    import scipy.stats

    import plench

    for package in (plench, scipy.stats, matplotlib.backends):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in HIDING and not {"__main__", "tests"} & {*module.name.split(".")}:
                with suppress(Exception):  # what a machine has not got
                    importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        plench.train("PRODEN", "Digits_FPS", folder, steps=2)


def keep_in_memory() -> str:
    """Make temporary folders in memory where that can be, as disks wait at every fsync; return the place."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        tempfile.tempdir = str(memory)
    return tempfile.gettempdir()


class Forked:
    """One command under way, in a session of its own; `prepare` is called in the child before it begins.

    With `afresh` the child becomes a new Python that runs `python -m plench`, as a user's shell does.
    """

    def __init__(
        self,
        command: Command,
        place: Path,
        printed: Path,
        *,
        memory_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
        afresh: bool = False,
    ) -> None:
        self.printed = printed
        self.code: int | None = None
        printed.write_bytes(b"")
        self.process = os.fork()
        if self.process == 0:
            if not callable(command):
                command = partial(_become_command if afresh else be_command, command)
            _live(command, place, printed, memory_bytes, environment or {}, prepare)
        self.descriptor = os.pidfd_open(self.process)

    def wait(self, seconds: float) -> int | None:
        """Wait for the end; return the exit code (negative: the signal), None if it has not ended."""
        if self.code is None and select.select([self.descriptor], [], [], seconds)[0]:
            _, status = os.waitpid(self.process, 0)
            self.code = os.waitstatus_to_exitcode(status)
            os.close(self.descriptor)
        return self.code

    def send(self, number: int) -> bool:
        """Send a signal; say whether the process was still there."""
        if self.wait(0) is not None:
            return False
        os.kill(self.process, number)
        return True

    def leaves_processes(self, seconds: float) -> bool:
        """Say whether processes that it started are still there so long after its end."""
        end = time.monotonic() + seconds
        while True:
            try:
                os.killpg(self.process, 0)
            except ProcessLookupError:
                return False
            if time.monotonic() > end:
                return True
            time.sleep(0.05)

    def end(self) -> None:
        """End it and whatever it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        while self.wait(60) is None:
            continue

    def read(self) -> str:
        """Return what was printed, the first and the last of it."""
        text = self.printed.read_bytes().decode("utf-8", "replace")
        return text if len(text) < 20_000 else text[:10_000] + text[-10_000:]


def _live(
    command: Callable[[], int],
    place: Path,
    printed: Path,
    memory_bytes: int | None,
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None,
) -> None:
    """Be the command. This is the child's whole life."""
    code = RAISED
    try:
        os.setsid()
        os.chdir(place)
        redirect(printed)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        limit_memory(memory_bytes)
        os.environ.update(environment)
        if prepare is not None:
            prepare()
        code = command()
    except KeyboardInterrupt:  # before it began
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def limit_memory(more_bytes: int | None) -> None:
    """Let this process take so much more memory than it has, and leave no core behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if more_bytes is not None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes,) * 2)


def redirect(printed: Path) -> None:
    """Read from nowhere, and print to a file."""
    sink = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    source = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in ((0, source), (1, sink), (2, sink)):
        os.dup2(descriptor, number)
    os.close(sink)
    os.close(source)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )


def be_command(words: list[str]) -> int:
    """Return the exit code, as Python's own interpreter would make it."""
    from plench.cli import main

    try:
        return int(main(words))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt:  # before the command is under way, or after: the shell sees a signal
        return 130


def _become_command(words: list[str]) -> int:
    """Become a Python that knows nothing of this one."""
    os.execv(sys.executable, [sys.executable, "-m", "plench", *words])
