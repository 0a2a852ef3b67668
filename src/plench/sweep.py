"""`python -m plench.sweep launch|delete_incomplete …`: the paper's command, the same as `plench sweep …`."""

import argparse
import sys

from plench.cli import run_command
from plench.cli.sweep import add_commands

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m plench.sweep", allow_abbrev=False)
    add_commands(parser)
    sys.exit(run_command(parser, None))
