"""`python -m plench.collect_results --input_dir DIR`: the public benchmark's name of `plench collect`."""

import sys
from collections.abc import Sequence

from plench.cli import Parser, collect, run_command
from plench.cli.options import add_input_options


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and print the tables."""
    parser = Parser(prog="python -m plench.collect_results")
    parser.set_page(collect.__doc__)
    add_input_options(parser, folder_option=True)
    collect.add_table_options(parser)
    parser.set_defaults(run=collect.run)
    return run_command(parser, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
