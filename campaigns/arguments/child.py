"""One command line in a forked process, with limits: how it ended, and what is wrong with that."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.arguments.world import Scene
from campaigns.forked import GOOD_CODES, TRACEBACK, Forked

# For a Python of its own, which does not know that connections fail: downloads ask where nobody answers.
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


@dataclass(frozen=True)
class Limits:
    """What a command may take: one that may be long is interrupted as by Ctrl-C after `seconds`.

    Any other has to end by itself within `patience`, and an interrupted one within as much after it.
    """

    seconds: float = 6.0
    patience: float = 60.0
    memory_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class Ending:
    """How a command ended: its exit code (`none` if it did not), and what is wrong with that."""

    code: str
    fault: str = ""
    interrupted: bool = False
    printed: str = ""


def call(
    words: list[str], scene: Scene, printed: Path, limits: Limits, *, long: bool, afresh: bool = False
) -> Ending:
    """Run one command line in a copy of the world; `long`: it may take long; `afresh`: in its own Python."""
    command = Forked(
        words,
        scene.set_up(),
        printed,
        memory_bytes=limits.memory_bytes,
        environment=NO_NETWORK,
        prepare=cut_off_network,
        afresh=afresh,
    )
    code = command.wait(limits.seconds if long else limits.patience)
    interrupted = code is None and long
    if interrupted:
        command.send(signal.SIGINT)
        code = command.wait(limits.patience)
    if code is None:
        command.end()
        fault = f"did not end within {limits.patience:.0f} s{' of Ctrl-C' if long else ''}"
        return Ending("none", fault, interrupted, command.read())
    if interrupted and code == -signal.SIGINT:  # while Python was still starting; shells say 130 of it
        code = 130
    lives = command.leaves_processes(5.0)
    command.end()
    text = command.read()
    return Ending(str(code), find_fault(code, text, lives=lives), interrupted, text)


def find_fault(code: int, text: str, *, lives: bool) -> str:
    """Say what is wrong with an ending; nothing if it is a good one."""
    if TRACEBACK in text:
        lines = [line for line in text.splitlines() if line.strip()]
        return f"a traceback: {lines[-1][:200]}"
    if code not in GOOD_CODES:
        return f"exit code {code}"
    if code == 2 and "error" not in text:
        return "exit code 2 without a word"
    if "\x1b" in text:
        return "an escape was printed"
    return "processes were left behind" if lives else ""


def cut_off_network() -> None:
    """Let every connection fail, at once."""

    def refuse(self: Any, address: object) -> None:
        raise OSError(101, "there is no network in this campaign")

    socket.socket.connect = refuse  # type: ignore[method-assign]
