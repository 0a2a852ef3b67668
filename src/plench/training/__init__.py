"""Training: one run from configuration to records, exact and resumable."""

from plench.training.config import RunConfig, RunOutcome, configure_run
from plench.training.data import PreparedData, prepare_data
from plench.training.loop import run_training
from plench.training.repeat import Verdict, verify_runs

__all__ = [
    "PreparedData",
    "RunConfig",
    "RunOutcome",
    "Verdict",
    "configure_run",
    "prepare_data",
    "run_training",
    "verify_runs",
]
