"""Joining a Ray cluster, or starting one: needs no torch, so that it can run while torch is imported."""

from __future__ import annotations

import importlib
import math
import os
import socket
import sys
import threading
from typing import Any

from plench.errors import UsageError, missing_package
from plench.sweeps.engines.ray_writer import Writer

CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def import_ray() -> Any:
    """Return the module ray; without it, say how to get it."""
    try:
        import ray
    except ImportError as error:
        raise missing_package("the Ray engine", "ray", "ray") from error
    return ray


def connect(address: str | None, workers: int | None, cpus_per_run: float) -> Any:
    """Join the cluster at an address, or start a Ray with room for `workers` runs; return the module ray."""
    keep_to_loopback(address is None)
    ray = import_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # as on the local engine; Ray's default is 15
        cpus = None if workers is None else math.ceil(workers * cpus_per_run)
        settings.update(address="local", num_cpus=cpus, include_dashboard=False)
    else:
        check_address(address)
        settings.update(address=address)
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"cannot connect to Ray at {address or 'this machine'}: {error}") from error
    return ray


def keep_to_loopback(wanted: bool) -> None:
    """Let a Ray that is started here listen on 127.0.0.1 alone, to those who know its token.

    Ray does so on systems on which it has no clusters. Which those are is a variable that it reads when it is
    imported, so what it has read by then is set as well.
    """
    if wanted:
        os.environ[CLUSTERS] = "0"
        if "ray" not in sys.modules:  # read once by Ray; its own default from 2.59 on
            os.environ.setdefault("RAY_AUTH_MODE", "token")
    else:
        os.environ.pop(CLUSTERS, None)
    constants = sys.modules.get("ray._private.ray_constants")
    if constants is not None:
        constants.ENABLE_RAY_CLUSTER = not wanted  # type: ignore[attr-defined]


def check_address(address: str) -> None:
    """Raise UsageError where nothing answers; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"unknown Ray address {address!r}: allowed are auto and HOST:PORT")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot connect to Ray at {address}: {error}") from error


def start_writer(ray: Any) -> Any:
    """Start the actor that writes all results, on this machine."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    here = affinity(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(Writer).options(num_cpus=0, scheduling_strategy=here).remote()


class EarlyRay:
    """A Ray of its own that starts and warms its processes up while the sweep is planned.

    It lives in a thread of its own: on Linux the processes of a Ray end with the thread that started them.
    """

    def __init__(self, workers: int, cpus_per_run: float) -> None:
        self.writer: Any = None
        self._error: Exception | None = None
        self._ready = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(workers, cpus_per_run))
        self._thread.start()

    def _live(self, workers: int, cpus_per_run: float) -> None:
        try:
            ray = connect(None, workers, cpus_per_run)
            self.writer = start_writer(ray)
        except Exception as error:  # raised again in the thread that waits
            self._error = error
            return
        finally:
            self._ready.set()
        warm_up = ray.remote(num_cpus=cpus_per_run)(import_runs)
        warming = [warm_up.remote() for _ in range(workers)]
        self._over.wait()
        del warming  # until here: tasks that nothing refers to are forgotten by Ray
        self.writer = None
        ray.shutdown()

    def wait(self) -> None:
        """Wait until it has started; raise the error if it could not."""
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()


def import_runs() -> None:
    """Import what a run needs."""
    importlib.import_module("plench.sweeps.engines.ray_run")
