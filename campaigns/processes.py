"""Commands in forked processes, which inherit the imports of this one, start at once, and can be killed."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Command = list[str] | Callable[[], int]  # arguments of `plench`, or a function that returns the exit code
RAISED = 70  # exit code of a process that ended with an unexpected exception
OPERATIONS = ("open", "replace", "fsync", "unlink")  # of `os`: before and after each a process may be killed
FORK = multiprocessing.get_context("fork")


def warm_up() -> None:
    """Import what commands import when they are called, by running some."""
    import plench
    from plench.algorithms import algorithms

    assert algorithms()
    with tempfile.TemporaryDirectory() as folder:
        plench.train("PRODEN", "Digits_FPS", folder, progress=False, steps=2)
        plench.train("ET_AVG", "Digits_FPS", folder, progress=False)


class Forked:
    """One running command, in a session of its own; the child calls `prepare` before it starts."""

    def __init__(
        self,
        command: Command,
        place: Path,
        printed: Path,
        prepare: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.printed = printed
        printed.write_bytes(b"")
        sys.stdout.flush()
        self.process = FORK.Process(target=run_child, args=(command, place, printed, prepare, environment))
        self.process.start()

    def wait(self, seconds: float) -> int | None:
        """Wait for the exit; return the exit code (negative: the signal), None if it is still running."""
        self.process.join(seconds)
        return self.process.exitcode

    def send(self, number: int) -> bool:
        """Send a signal; return True if the process was still running."""
        if self.wait(0) is not None or self.process.pid is None:
            return False
        os.kill(self.process.pid, number)
        return True

    def finish(self, seconds: float = 0) -> tuple[int | None, str]:
        """Wait, then kill what still runs; return the exit code, None if it had not ended, and the output."""
        code = self.wait(seconds)
        with suppress(ProcessLookupError, TypeError):
            os.killpg(self.process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        self.process.join()
        text = self.printed.read_bytes().decode("utf-8", "replace")
        return code, text if len(text) < 20_000 else text[:10_000] + text[-10_000:]


def run_child(
    command: Command,
    place: Path,
    printed: Path,
    prepare: Callable[[], None] | None,
    environment: Mapping[str, str] | None,
) -> None:
    """Run the command in the child, and exit as the interpreter would."""
    from plench.cli import main

    code = RAISED
    try:
        os.setsid()
        os.chdir(place)
        sink = os.open(printed, os.O_WRONLY | os.O_APPEND)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), sink, sink)):
            os.dup2(descriptor, number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment or {})
        if prepare is not None:
            prepare()
        code = command() if callable(command) else int(main(command))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


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
