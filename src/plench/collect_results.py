"""The public benchmark's name of `plench collect`: `python -m plench.collect_results --input_dir DIR`."""

import argparse
import sys
from collections.abc import Sequence

from plench.cli.collect import add_table_options, collect
from plench.cli.results_input import add_input_options
from plench.errors import PlenchError


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m plench.collect_results",
        description="Select by every criterion and print the tables (the same as plench collect).",
    )
    add_input_options(parser, folder_option=True)
    add_table_options(parser)
    given = sys.argv[1:] if argv is None else argv
    args = parser.parse_args([_underscored(word) for word in given])
    try:
        return collect(args)
    except PlenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _underscored(word: str) -> str:
    """Let dashes in the name of an option stand for underscores."""
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else word


if __name__ == "__main__":
    sys.exit(main())
