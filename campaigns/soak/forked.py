"""Commands in forked processes: a child inherits the imports of its parent and starts at once."""

from __future__ import annotations

import importlib
import os
import pkgutil
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

RAISED = 70  # exit code of a process that ended with an unexpected exception
# Modules that only a command line runs: imported, they would hide the functions of the same name.
HIDING = ("plench.train", "plench.sweep", "plench.collect_results")
Command = list[str] | Callable[[], int]  # arguments of `plench`, or a function that returns the exit code
TRACEBACK = "Traceback (most recent call last)"


def warm_up() -> None:
    """Import what commands import when they are called, and train a little."""
    import matplotlib.backends
    import scipy.stats

    import plench

    for package in (plench, scipy.stats, matplotlib.backends):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in HIDING and not {"__main__", "tests"} & {*module.name.split(".")}:
                with suppress(Exception):  # packages that are not installed
                    importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        plench.train("PRODEN", "Digits_FPS", folder, steps=2)


def keep_in_memory() -> str:
    """Put temporary folders into memory if possible, as disks wait at every fsync; return the place."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        tempfile.tempdir = str(memory)
    return tempfile.gettempdir()


class Forked:
    """One running command, in a session of its own; the child calls `prepare` before it starts."""

    def __init__(
        self,
        command: Command,
        place: Path,
        printed: Path,
        *,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.printed = printed
        self.code: int | None = None
        printed.write_bytes(b"")
        self.process = os.fork()
        if self.process == 0:
            if not callable(command):
                command = partial(call_command, command)
            _run_child(command, place, printed, environment or {}, prepare)
        self.descriptor = os.pidfd_open(self.process)

    def wait(self, seconds: float) -> int | None:
        """Wait for the exit; return the exit code (negative: the signal), None if it is still running."""
        if self.code is None and select.select([self.descriptor], [], [], seconds)[0]:
            _, status = os.waitpid(self.process, 0)
            self.code = os.waitstatus_to_exitcode(status)
            os.close(self.descriptor)
        return self.code

    def send(self, number: int) -> bool:
        """Send a signal; return True if the process was still running."""
        if self.wait(0) is not None:
            return False
        os.kill(self.process, number)
        return True

    def end(self) -> None:
        """Kill it and all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        while self.wait(60) is None:
            continue

    def read(self) -> str:
        """Return the first and the last of its output."""
        text = self.printed.read_bytes().decode("utf-8", "replace")
        return text if len(text) < 20_000 else text[:10_000] + text[-10_000:]


def _run_child(
    command: Callable[[], int],
    place: Path,
    printed: Path,
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None,
) -> None:
    """Run the command in the child, and exit."""
    code = RAISED
    try:
        os.setsid()
        os.chdir(place)
        _redirect(printed)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        if prepare is not None:
            prepare()
        code = command()
    except KeyboardInterrupt:  # before the command started
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(printed: Path) -> None:
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


def call_command(words: list[str]) -> int:
    """Call `plench` with arguments and return the exit code that the interpreter would give."""
    from plench.cli import main

    try:
        return int(main(words))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt:
        return 130
