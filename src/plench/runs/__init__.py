"""Run folders on disk: the schema of their records, and reading them without torch."""

from plench.runs.copies import drop_copies
from plench.runs.lines import Record
from plench.runs.records import Experiment, Run, read_run, read_runs, read_runs_with_notices

__all__ = ["Experiment", "Record", "Run", "drop_copies", "read_run", "read_runs", "read_runs_with_notices"]
