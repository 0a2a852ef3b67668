"""The Ray engine: runs are tasks of a Ray cluster; records and checkpoints come back to one writer.

The writer is an actor on the driver's machine and the only process that accesses the output folder, so no
file system has to be shared. A task waits until the writer has what it sends, so nothing is lost with a
process that crashes. A run that is started again elsewhere gets its checkpoint from the writer.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from plench.data import Dataset
from plench.errors import StorageError, UsageError, needs_package
from plench.registry import is_path
from plench.settings import Settings
from plench.sweeps.engines.ray_writer import CRASHED, RemoteStore, Writer
from plench.sweeps.executor import RunAttempt, RunEnded, RunExecutor, limit_memory
from plench.sweeps.plan import Task
from plench.sweeps.progress import RunReporter
from plench.sweeps.scheduler import Assignment, Crash, Job, Message, Scheduler, count_cores
from plench.training.loop import StopRequest

CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@dataclass(frozen=True)
class RayEngine:
    """Runs on a Ray cluster: an existing one (`address`), or one that it starts on this machine."""

    name: ClassVar[str] = "ray"
    waits: ClassVar[bool] = True
    writes: ClassVar[bool] = True

    address: str | None = None
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
    memory_gb_per_run: float = 0.0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.cpus_per_run < 0 or self.gpus_per_run < 0 or self.cpus_per_run + self.gpus_per_run == 0:
            raise UsageError("a run needs some CPU or GPU: cpus_per_run and gpus_per_run are too small")
        if self.memory_gb_per_run < 0:
            raise UsageError(f"memory_gb_per_run must be at least 0, not {self.memory_gb_per_run}")
        if self.address is not None and self.workers is not None:
            raise UsageError("workers cannot be set for an existing Ray cluster: its size is given")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers must be at least 1, not {self.workers}")

    @property
    def demands(self) -> dict[str, float]:
        """What a run takes of Ray's resources, by their names."""
        memory = self.memory_gb_per_run * 2**30
        return {"CPU": self.cpus_per_run, "GPU": self.gpus_per_run, "memory": memory}

    def count_slots(self, settings: Settings) -> int | None:
        """Return the number of parallel runs; None for an existing cluster, which is not connected yet."""
        if self.address is not None:
            return None
        return self.workers or max(int(count_cores() / max(self.cpus_per_run, 1e-9)), 1)

    def run(self, assignment: Assignment) -> None:
        """Run all runs as Ray tasks."""
        if not assignment.todo:
            return
        connected = "ray" in sys.modules and sys.modules["ray"].is_initialized()
        ray = sys.modules["ray"] if connected else connect(self.address, self.workers, self.cpus_per_run)
        try:
            backend = RayBackend(ray, self, assignment)
            slots = backend.count_slots()
            assignment.callback.planned(assignment.todo, assignment.finished, slots)
            if slots < 1:
                demand = f"{self.cpus_per_run:g} CPUs, {self.gpus_per_run:g} GPUs"
                demand += f", {self.memory_gb_per_run:g} GB" if self.memory_gb_per_run else ""
                assignment.callback.message(f"no node has room for a run ({demand}); waiting for one")
            with StopRequest() as stop:
                Scheduler(assignment, backend, stop).run()
        finally:
            if not connected:
                ray.shutdown()


def connect(address: str | None, workers: int | None, cpus_per_run: float) -> Any:
    """Join the cluster at an address, or start a Ray with room for `workers` runs; return the module ray."""
    keep_to_loopback(address is None)
    with needs_package("the Ray engine", "ray", "ray"):
        import ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # as on the local engine; Ray's default is 15
        cpus = None if workers is None else math.ceil(workers * cpus_per_run)
        settings.update(address="local", num_cpus=cpus, include_dashboard=False)
    else:
        settings.update(address=address)
    host, _, port = (address or "").rpartition(":")
    if address not in (None, "auto") and not (host and port.isdigit()):
        raise UsageError(f"unknown Ray address {address!r}; expected auto or HOST:PORT")
    try:
        if host:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(**settings)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise UsageError(f"cannot connect to Ray at {address or 'this machine'}: {error}") from error
    return ray


def keep_to_loopback(wanted: bool) -> None:
    """Make a Ray that is started here listen on 127.0.0.1 only, for clients with its token.

    Ray does so on systems without Ray clusters. It reads from a variable which those are when it is imported,
    so the value that an imported Ray has read is changed too.
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


class RayBackend:
    """Submits jobs to the cluster and receives what comes back."""

    def __init__(self, ray: Any, engine: RayEngine, assignment: Assignment) -> None:
        self.ray = ray
        self.engine = engine
        self.assignment = assignment
        self.jobs: dict[Any, Job] = {}
        self.data: dict[str, Any] = {}
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        here = affinity(ray.get_runtime_context().get_node_id(), soft=False)
        self.writer = ray.remote(Writer).options(num_cpus=0, scheduling_strategy=here).remote()
        self.task = ray.remote(
            num_cpus=engine.cpus_per_run,
            num_gpus=engine.gpus_per_run,
            memory=engine.demands["memory"] or None,
            max_retries=0,
            max_calls=0,
        )(run_remotely)

    def count_slots(self) -> int:
        """Return how many runs the cluster has room for, node by node; nodes come and go."""
        demands = {kind: demand for kind, demand in self.engine.demands.items() if demand > 0}
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        rooms = sum(min(int(node.get(kind, 0) / demands[kind]) for kind in demands) for node in nodes)
        return rooms if self.engine.workers is None else min(rooms, self.engine.workers)

    def has_room(self) -> bool:
        """Return True if the cluster has room: where tasks queue, Ray starts processes that are not warm."""
        return len(self.jobs) < max(self.count_slots(), 1)

    def start(self, job: Job) -> None:
        """Submit a job; its dataset is put into the object store once."""
        name = job.task[0].dataset
        if name not in self.data:
            self.data[name] = self.ray.put(self.assignment.datasets.get(name))
        run = job.task[0]
        specs = (run.algorithm, run.network, *run.criteria.split(","), *run.callbacks)
        paths = {spec.strip().rpartition(":")[0] for spec in specs}
        # Other nodes may not have the files of third-party code.
        sources = {path: Path(path).read_bytes() for path in paths if is_path(path)}
        reference = self.task.remote(
            job.task,
            self.data[name],
            sources,
            self.writer,
            self.assignment.output_dir,
            self.assignment.limits.memory_limit_gb,
        )
        self.jobs[reference] = job

    def poll(self, timeout: float) -> list[tuple[Job, Message]]:
        """Return progress, ends and crashes."""
        ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=timeout)
        ends: list[tuple[Job, Message]] = []
        for reference in ready:
            job = self.jobs[reference]
            try:
                attempts: dict[str, RunAttempt] = self.ray.get(reference)
                ends += [(job, RunEnded(folder, attempt)) for folder, attempt in attempts.items()]
            except self.ray.exceptions.RayError as error:
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                ends.append((job, Crash(f"its process crashed ({reason})")))
        # What a task sent before its end counts for the crash.
        messages: list[tuple[Job, Message]] = []
        by_folder = {run.folder: job for job in self.jobs.values() for run in job.task}
        try:
            events = self.ray.get(self.writer.take_events.remote())
        except self.ray.exceptions.RayActorError as error:
            raise StorageError(CRASHED) from error
        for event in events:
            opened = isinstance(event, str)
            of_event = by_folder.get(event if opened else event.folder)
            if of_event is not None and opened:
                of_event.started_at = min(of_event.started_at, time.monotonic())
            elif of_event is not None:
                messages.append((of_event, event))
        for reference in ready:
            del self.jobs[reference]
        return messages + ends

    def finish(self, job: Job) -> None:
        """Do nothing: Ray keeps the process for other tasks."""

    def kill(self, job: Job) -> None:
        """End a job; the writer refuses what it may still send."""
        for reference, other in list(self.jobs.items()):
            if other is job:
                del self.jobs[reference]
                self.ray.cancel(reference, force=True)
        self.ray.get([self.writer.release.remote(run.folder) for run in job.task])

    def ask_to_stop(self) -> None:
        """Ask all tasks to write checkpoints and stop."""
        for reference in self.jobs:
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(reference, force=False, recursive=False)


def run_remotely(
    task: Task,
    dataset: Dataset,
    sources: dict[str, bytes],
    writer: Any,
    output_dir: Path,
    memory_limit_gb: float | None,
) -> dict[str, RunAttempt]:
    """Run a task in a process of the cluster; all that it writes goes through the writer."""
    limit_memory(memory_limit_gb)
    placed = list(task)
    for path, content in sources.items():
        here = Path(_own_folder().name, hashlib.sha256(content).hexdigest()[:16], Path(path).name)
        here.parent.mkdir(exist_ok=True)
        here.write_bytes(content)
        for i, run in enumerate(placed):
            specs = {name: getattr(run, name) for name in ("algorithm", "network", "criteria")}
            placed[i] = replace(
                run,
                **{name: s.replace(path, str(here)) for name, s in specs.items()},
                callbacks=tuple(spec.replace(path, str(here)) for spec in run.callbacks),
            )
    attempts: dict[str, RunAttempt] = {}
    _warm_executor().run_task(
        tuple(placed),
        dataset,
        [RemoteStore(writer, output_dir / run.folder) for run in task],
        [RunReporter(writer.report.remote, run.folder) for run in task],
        lambda run, attempt: attempts.update({run.folder: attempt}),
    )
    return attempts


# The executor of a process keeps prepared data from task to task; its folder has files of third-party code.
_warm_executor = cache(RunExecutor)
_own_folder = cache(partial(tempfile.TemporaryDirectory, prefix="plench-"))
