"""The command `plench`. Each file here is one sub-command, found automatically, imported when called.

A command's file has an `add_options(parser)`, and a docstring whose first line is "`plench NAME`: what it
does." for the list of commands. Constants `DESCRIPTION` and `EXAMPLES` are shown by its help.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import io
import logging
import pkgutil
import sys
import tokenize
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from plench.errors import PlenchError, RunFailedError, UsageError
from plench.text import clean_text
from plench.version import __version__

EXAMPLES = """examples:
  plench demo                                    compare a few algorithms on built-in data
  plench list algorithms 'SCL_*'                 algorithms, by name or pattern
  plench train -a PRODEN -d Digits_FPS           one run, resumable with the same command
  plench data download Lost --data_dir DIR       a real dataset, verified
  plench train -a PRODEN -d Lost --data_dir DIR  the same on a real dataset (DIR/lost.mat)
  plench check my_file.py:MyAlgorithm            does your algorithm keep the contract?
  plench collect runs                            tables from a folder of runs

`plench COMMAND --help` shows the options of a command.

exit codes: 0 success (a diverged run counts as finished), 1 a run failed, 2 bad usage or bad data,
            130 interrupted, the same command continues
"""


# Earlier names of sub-commands.
ALIASES = {"compare": "compare-paper", "beside-paper": "compare-paper"}


class Parser(argparse.ArgumentParser):
    """A parser that knows options by their full names only, and prints examples (`epilog`) as written.

    An abbreviation would change its meaning, or stop working, when an option is added.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        if "epilog" in kwargs:
            kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """End with a message on bad usage, without control characters of what was given."""
        super().error(clean_text(message))


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser with every sub-command by name, and with the options of one; None: of all of them."""
    parser = Parser(
        prog="plench",
        description="Benchmark and toolbox for partial-label learning.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"plench {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in list_commands():
        if command is None or name == command:
            add_command(subparsers, name)
        else:
            subparsers.add_parser(name, help=describe_command(name))
    return parser


def list_commands() -> list[str]:
    """Return the names of the sub-commands: the files of this folder, with dashes."""
    return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__) if not info.ispkg)


def module_of(command: str) -> str:
    """Return the name of a sub-command's module."""
    return f"{__name__}.{command.replace('-', '_')}"


@cache
def describe_command(name: str) -> str:
    """Return what a sub-command does, from the first line of its file.

    Every call of `plench` asks this of every command: their files are not imported, nor parsed beyond it.
    """
    spec = importlib.util.find_spec(module_of(name))
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    tokens = tokenize.generate_tokens(io.StringIO(source or "").readline)
    first = next((token.string for token in tokens if token.type == tokenize.STRING), '""')
    docstring: str = ast.literal_eval(first)
    return docstring.strip().partition("\n")[0].partition(": ")[2].rstrip(".")


def add_command(subparsers: Any, name: str) -> None:
    """Import a sub-command and add it with its options."""
    module = importlib.import_module(module_of(name))
    text = describe_command(name)
    parser = subparsers.add_parser(
        name,
        help=text,
        description=getattr(module, "DESCRIPTION", text[:1].upper() + text[1:] + "."),
        epilog=getattr(module, "EXAMPLES", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]  # `list` is a sub-command here once it is imported
    place = next((i for i, word in enumerate(words) if not word.startswith("-")), None)
    command = ""
    if place is not None:
        command = words[place] = ALIASES.get(words[place], words[place].replace("_", "-"))
    return run_command(build_parser(command), words)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse, run the chosen handler, and turn our errors into a message and an exit code."""
    notices = NoticeHandler()
    logger = logging.getLogger("plench")
    logger.addHandler(notices)
    try:
        arguments = parser.parse_args(with_underscores(sys.argv[1:] if argv is None else argv))
        code: int = arguments.handler(arguments)
        return code
    except PlenchError as error:
        print(f"plench: error: {clean_text(str(error))}", file=sys.stderr)
        return 1 if isinstance(error, RunFailedError) else 2
    except KeyboardInterrupt:
        print("plench: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        sys.stderr.close()
        return 0
    finally:
        logger.removeHandler(notices)


class NoticeHandler(logging.Handler):
    """Writes notices to what standard error is at the time: a progress bar lets them through above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one notice."""
        print(f"notice: {clean_text(self.format(record))}", file=sys.stderr, flush=True)


def with_underscores(argv: Sequence[str]) -> list[str]:
    """Write option names with underscores, so that `--data-dir` and `--data_dir` are the same option."""
    written: list[str] = []
    for position, word in enumerate(argv):
        if word == "--":
            return [*written, *argv[position:]]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = "--" + name[2:].replace("-", "_") + equals + value
            if value == "--":  # argparse would take it for the end of options, and the value for no value
                raise UsageError(f"{name} must be followed by a value, not by --")
        written.append(word)
    return written
