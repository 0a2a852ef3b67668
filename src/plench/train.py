"""`python -m plench.train …`: the command of the paper, the same as `plench train …`."""

import argparse
import sys

from plench.cli import run_command
from plench.cli.train import add_options

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m plench.train", allow_abbrev=False)
    add_options(parser)
    sys.exit(run_command(parser, None))
