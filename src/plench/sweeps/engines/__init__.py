"""Engines carry out the runs of a sweep: on this machine, on a Ray cluster, on Slurm, or only in print.

One file here is one engine, found automatically. Looking one up imports torch, importing this package does
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.registry import Registry

if TYPE_CHECKING:
    from plench.sweeps.engines.base import Engine

ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    __name__,
    "a class with what plench.sweeps.engines.base.Engine asks for",
    lambda value: isinstance(value, type) and callable(getattr(value, "carry_out", None)),
    lambda engine: engine.name,
    aliases_of=lambda engine: getattr(engine, "aliases", ()),
)
