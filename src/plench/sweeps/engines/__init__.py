"""Engines run the runs of a sweep: on this machine, on a Ray cluster, on Slurm, or only in print.

One file here is one engine, found automatically. Finding one imports torch, importing this package does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from plench.registry import Registry
from plench.settings import Settings

if TYPE_CHECKING:
    from plench.sweeps.scheduler import Assignment


class Engine(Protocol):
    """Runs an assignment.

    `run` returns when nothing is left to do or a stop was requested (Ctrl-C, SIGTERM). It raises StorageError
    if the output folder cannot be written. How the runs ended is in their folders.
    """

    name: ClassVar[str]
    # Whether runs have ended when `run` returns; False for engines that submit them to a queue.
    waits: ClassVar[bool]
    # Whether anything is written to the output folder; False for an engine that only prints.
    writes: ClassVar[bool]

    @property
    def gpus_per_run(self) -> float:
        """How many GPUs the engine assigns to a run; 0 if it assigns none, or a run takes what it finds."""

    def count_slots(self, settings: Settings) -> int | None:
        """Return the number of parallel runs; None if only the cluster knows."""

    def run(self, assignment: Assignment) -> None:
        """Run the runs of an assignment."""


ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    __name__,
    "a class with the methods of plench.sweeps.engines.Engine",
    lambda value: isinstance(value, type) and hasattr(value, "count_slots") and hasattr(value, "run"),
    lambda engine: getattr(engine, "name", None),
    aliases_of=lambda engine: getattr(engine, "aliases", ()),
)
