"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["done", "diverged", "failed", "interrupted"]


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, where its records are, and how many updates this call made."""

    status: Status
    folder: Path
    updates_made: int
    message: str = ""
