"""What a launch starts before it knows whether there is anything to do. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from plench.sweeps.engines.process import WorkerProcess
from plench.sweeps.engines.ray_start import EarlyRay

# Workers that are started before it is known how many runs there are.
MOST_EARLY = 16


@dataclass(frozen=True)
class EarlyStart:
    """What was started before it was known whether there is anything to do; at most one of them."""

    workers: Sequence[WorkerProcess] = ()
    ray: EarlyRay | None = None

    def close(self) -> None:
        """End what was started."""
        for worker in self.workers:
            worker.kill()
        if self.ray is not None:
            self.ray.close()


@contextmanager
def start_early(
    launcher: str, workers: int, threads: int, *, ray_address: str | None, cpus_per_run: float
) -> Iterator[EarlyStart]:
    """Start workers, or a Ray with room for them, while this process imports torch and plans."""
    early = EarlyStart()
    if launcher in ("local", "multi_gpu"):
        early = EarlyStart([WorkerProcess(threads) for _ in range(min(workers, MOST_EARLY))])
    elif launcher == "ray" and workers and ray_address is None:
        early = EarlyStart(ray=EarlyRay(workers, cpus_per_run))
    try:
        yield early
    finally:
        early.close()
