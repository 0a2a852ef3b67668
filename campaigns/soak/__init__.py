"""Runs and sweeps that are killed, damaged and crowded, and must end like undisturbed ones."""
