"""How a run is carried out, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plench.errors import UsageError

Status = Literal["done", "diverged", "failed", "interrupted"]


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; nothing here changes what it computes.

    One compute thread is the default everywhere, in single runs and in sweeps. A checkpoint for resuming is
    written every `save_seconds` and, if set, every `save_steps` updates.
    """

    device: str = "auto"
    threads: int = 1
    save_seconds: float = 60.0
    save_steps: int | None = None
    keep_models: bool = True
    keep_every_model: bool = False
    resume_anyway: bool = False

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UsageError(f"threads must be at least 1, not {self.threads}")
        if not self.save_seconds > 0:
            raise UsageError(f"save_seconds must be above 0, not {self.save_seconds}")
        if self.save_steps is not None and self.save_steps < 1:
            raise UsageError(f"save_steps must be at least 1, not {self.save_steps}")


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, where its records are, and how many updates this call made."""

    status: Status
    folder: Path
    updates_made: int
    message: str = ""
