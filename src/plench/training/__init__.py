"""Training: one run from configuration to records, exact and resumable."""

from plench.training.config import RunConfig, configure_run
from plench.training.data import PreparedData, prepare_data
from plench.training.outcome import RunOutcome
from plench.training.repeat import Verdict, verify_runs
from plench.training.run import run_training

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
