"""`python -m plench.sweep launch|delete_incomplete …`: the paper's command, the same as `plench sweep …`."""

import sys

from plench.cli import Parser, run_command
from plench.cli.sweep import add_options

if __name__ == "__main__":
    parser = Parser(prog="python -m plench.sweep")
    add_options(parser)
    sys.exit(run_command(parser, None))
