"""Run folders on disk: the schema of their records, and reading them without torch."""

from plench.results.records import Experiment, Record, Run, read_run, read_runs, read_runs_with_notices

__all__ = ["Experiment", "Record", "Run", "read_run", "read_runs", "read_runs_with_notices"]
