"""Training: one run from configuration to records, exact and resumable.

The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.training.config import RunConfig as RunConfig
    from plench.training.config import configure_run as configure_run
    from plench.training.outcome import RunOutcome as RunOutcome
    from plench.training.prepare import PreparedData as PreparedData
    from plench.training.prepare import prepare_data as prepare_data
    from plench.training.repeat import Verdict as Verdict
    from plench.training.repeat import verify_runs as verify_runs
    from plench.training.run import run_training as run_training

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
