"""Sweeps: thousands of runs from one command, on one machine, a Ray cluster or Slurm.

The names below are imported when they are first used: what only reads sweeps needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.runs.sweep_spec import Grid as Grid
    from plench.runs.sweep_spec import SweepSpec as SweepSpec
    from plench.runs.sweep_spec import read_sweep as read_sweep
    from plench.runs.sweep_spec import read_sweeps as read_sweeps
    from plench.sweeps.engines.base import Limits as Limits
    from plench.sweeps.engines.early import EarlyStart as EarlyStart
    from plench.sweeps.engines.early import start_early as start_early
    from plench.sweeps.engines.local import LocalEngine as LocalEngine
    from plench.sweeps.engines.slurm import read_slurm_queue as read_slurm_queue
    from plench.sweeps.fleets import FleetOptions as FleetOptions
    from plench.sweeps.fleets import find_largest_gb as find_largest_gb
    from plench.sweeps.fleets import read_fleet as read_fleet
    from plench.sweeps.launch import SweepOutcome as SweepOutcome
    from plench.sweeps.launch import delete_runs as delete_runs
    from plench.sweeps.launch import hold_folder as hold_folder
    from plench.sweeps.launch import launch_sweep as launch_sweep
    from plench.sweeps.launch import plan_fleets as plan_fleets
    from plench.sweeps.look import is_ours as is_ours
    from plench.sweeps.look import look_at_runs as look_at_runs
    from plench.sweeps.plan import DataShelf as DataShelf
    from plench.sweeps.plan import PlannedRun as PlannedRun
    from plench.sweeps.plan import plan_runs as plan_runs
    from plench.sweeps.probe import CostEstimate as CostEstimate
    from plench.sweeps.probe import estimate_cost as estimate_cost
    from plench.sweeps.progress import format_duration as format_duration
    from plench.sweeps.progress import watch_sweep as watch_sweep
    from plench.sweeps.remembered import recall as recall
    from plench.sweeps.run_states import PENDING as PENDING
    from plench.sweeps.run_states import RunState as RunState
    from plench.sweeps.run_states import count_states as count_states
    from plench.sweeps.run_states import read_extended as read_extended
    from plench.sweeps.run_states import read_states as read_states
    from plench.sweeps.suites import make_grids as make_grids
    from plench.sweeps.suites import make_suite as make_suite
    from plench.sweeps.suites import own_algorithms as own_algorithms

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
