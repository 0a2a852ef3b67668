"""Calls in a row: one forked process carries out several quick commands, each in a world as it has to be."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from campaigns.arguments.child import NO_NETWORK, Ending, Limits, cut_off_network, find_fault
from campaigns.arguments.world import Scene
from campaigns.forked import RAISED, be_command, limit_memory, redirect


def call_in_row(calls: list[list[str]], scene: Scene, printed: Path, limits: Limits) -> list[Ending]:
    """Carry out commands one after the other; return how they ended, fewer if the process did not last."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    scene.set_up()
    process: Any = context.Process(target=live, args=(calls, scene, printed, limits, theirs))
    process.start()
    theirs.close()
    endings: list[Ending] = []
    try:
        while len(endings) < len(calls) and ours.poll(limits.patience):
            code, text = ours.recv()
            endings.append(Ending(str(code), find_fault(code, text, lives=False), printed=text))
        if len(endings) == len(calls):
            process.join(limits.patience)
    except EOFError:
        pass
    finally:
        ours.close()
        process.kill()
        process.join()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return endings
    return [Ending(one.code, one.fault or "processes were left behind") for one in endings]


def live(calls: list[list[str]], scene: Scene, printed: Path, limits: Limits, answers: Connection) -> None:
    """Carry out the calls. This is the child's whole life."""
    os.setsid()
    limit_memory(limits.memory_bytes)
    cut_off_network()
    environment = {**os.environ, **NO_NETWORK}
    for words in calls:
        os.chdir(scene.set_up())
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        printed.write_bytes(b"")
        redirect(printed)
        try:
            code = be_command(words)
        except BaseException:
            code = RAISED
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
        text = printed.read_bytes().decode("utf-8", "replace")
        answers.send((code, text if len(text) < 20_000 else text[:10_000] + text[-10_000:]))
    os._exit(0)
