"""Engines carry out the runs of a sweep: on this machine, on a Ray cluster, on Slurm, or only in print."""
