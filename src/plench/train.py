"""`python -m plench.train …`: the command of the paper, the same as `plench train …`."""

import sys

from plench.cli import Parser, run_command
from plench.cli.train import DESCRIPTION, add_options

if __name__ == "__main__":
    parser = Parser(prog="python -m plench.train", description=DESCRIPTION)
    add_options(parser)
    sys.exit(run_command(parser, None))
