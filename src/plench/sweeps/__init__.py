"""Sweeps: thousands of runs from one command, on one machine, a Ray cluster or Slurm."""
