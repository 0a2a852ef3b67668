"""Sweeps: thousands of runs from one command, on one machine, a Ray cluster or Slurm.

The names below are imported when they are first used: what only reads sweeps needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.sweeps.engines.base import Limits
    from plench.sweeps.engines.early import EarlyStart, start_early
    from plench.sweeps.engines.local import LocalEngine
    from plench.sweeps.engines.slurm import read_slurm_queue
    from plench.sweeps.launch import SweepOutcome, delete_runs, hold_folder, launch_sweep
    from plench.sweeps.pilot import run_pilot
    from plench.sweeps.plan import DataShelf, PlannedRun, plan_runs
    from plench.sweeps.probe import estimate_cost
    from plench.sweeps.progress import format_duration, watch_sweep
    from plench.sweeps.spec import Grid, SweepSpec, read_sweep, read_sweeps
    from plench.sweeps.state import PENDING, RunState, count_states, read_states
    from plench.sweeps.suites import make_grids, make_suite

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
