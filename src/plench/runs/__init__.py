"""Run folders and results files: reading them, and choosing among runs. Nothing here imports torch."""

from plench.runs.records import Experiment, Record, Run, read_run
from plench.runs.results import drop_copies, read_runs, read_runs_with_warnings

__all__ = ["Experiment", "Record", "Run", "drop_copies", "read_run", "read_runs", "read_runs_with_warnings"]
