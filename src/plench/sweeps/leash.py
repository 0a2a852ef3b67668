"""Ends a worker process with its parent. Imports nothing slow."""

import ctypes
import os
import signal
import sys
import threading
import time

SECONDS_BETWEEN_LOOKS = 0.25
PR_SET_PDEATHSIG = 1


def put_on() -> None:
    """End this process soon after its parent, whose number is the last word of the command line.

    The end of the socket says so too, but is heard only once torch is imported.
    """
    parent = int(sys.argv[-1])
    if sys.platform == "linux":
        # The kernel does it at once. What counts is the end of the thread that started this process, which is
        # the one that drives the sweep.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=watch, args=(parent,), daemon=True).start()


def watch(parent: int) -> None:
    """Look for the parent again and again."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
