"""Workers that a launch starts before its plan is known, to save time. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from plench.sweeps.engines.process import WorkerProcess
from plench.sweeps.engines.ray_start import EarlyRay

# Workers started before the number of runs is known.
MOST_EARLY = 16


@dataclass(frozen=True)
class EarlyStart:
    """What was started before the plan was known: workers or a Ray, at most one of them."""

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
