"""Random and contradicting arguments for every command: our exit codes only, and never a traceback."""
