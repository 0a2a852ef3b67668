"""The public benchmark's name of `plench collect`: `python -m plench.collect_results --input_dir DIR`."""

import argparse
import sys
from collections.abc import Sequence

from plench.cli import run_command
from plench.cli.collect import add_table_options, collect
from plench.cli.shared.results_input import add_input_options


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m plench.collect_results",
        description="Select by every criterion and print the tables (the same as plench collect).",
    )
    add_input_options(parser, folder_option=True)
    add_table_options(parser)
    parser.set_defaults(handler=collect)
    return run_command(parser, argv)


if __name__ == "__main__":
    sys.exit(main())
