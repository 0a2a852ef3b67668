"""The command `plench`: a table of commands, each a module of this package that is imported when called.

A command's module has a docstring, which is its help page (options come before "examples:"),
a function `add_arguments(parser)`, and a function `run(args)` that returns the exit code. A group of commands
adds a parser for each, whose default of `run` is the function of that command.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

from plench.errors import PlenchError, RunFailedError, UsageError
from plench.settings import __version__
from plench.text import check_local, clean_text, unknown_name

HELP = """Benchmark and toolbox for partial-label learning.

examples:
  plench demo                                    compare a few algorithms on built-in data
  plench list algorithms 'SCL_*'                 algorithms, by name or pattern
  plench train -a PRODEN -d Digits_FPS           one run; the same command resumes it
  plench data download Lost --data-dir DIR       download and verify a dataset
  plench train -a PRODEN -d Lost --data-dir DIR  one run on a real dataset (DIR/lost.mat)
  plench check my_file.py:MyAlgorithm            check your algorithm against the contract
  plench collect runs                            tables from a folder of runs

`plench COMMAND --help` shows the options of a command.

exit codes: 0 success (a diverged run counts as finished), 1 a run failed, 2 bad usage or bad data,
            130 interrupted, the same command resumes
"""

COMMANDS = {
    "demo": "compare a few algorithms on built-in data",
    "list": "list algorithms, datasets, criteria or models, or cite papers",
    "data": "describe, download or draw a dataset",
    "train": "train one algorithm on one dataset",
    "sweep": "plan, launch and inspect many runs",
    "collect": "select by every criterion and print the tables",
    "results": "test, plot, export, verify or submit results",
    "report": "write the results as a web page",
    "fit": "fit a model to data with candidate sets",
    "predict": "predict labels of new data with a model",
    "resolve": "resolve candidate sets and find rows to relabel",
    "audit": "measure a model's accuracy by a few labels of a person",
    "info": "describe a model file",
    "check": "check an algorithm against the contract",
    "bench": "measure steps, stacks, evaluations, sweeps and reading",
    "doctor": "report versions, devices, data and missing packages",
}
# Options that name where a command writes.
OUTPUTS = ("output", "output_dir", "paper", "report")
# Earlier spellings, which the help does not show: of commands, and of flags.
COMMAND_ALIASES = {
    "beside-paper": ("results", "compare-paper"),
    "cite": ("list", "citations"),
    "compare": ("results", "compare-paper"),
    "compare-paper": ("results", "compare-paper"),
    "export": ("results", "export"),
    "pilot": ("sweep", "pilot"),
    "plot": ("results", "plot"),
    "refit": ("sweep", "refit"),
    "stats": ("results", "stats"),
    "submit": ("results", "submit"),
    "verify": ("results", "verify"),
}
FLAG_ALIASES = {
    "--fleet": "--stack",
    "--fleet-memory-gb": "--stack-memory-gb",
    "--resume-anyway": "--force-resume",
}


class Parser(argparse.ArgumentParser):
    """A parser that knows options by their full names only, and gets its arguments when it is used.

    An abbreviation would change its meaning, or stop working, when an option is added. `fill` adds the
    arguments; it may import what `plench --help` does not need.
    """

    def __init__(self, *args: Any, fill: Callable[[Parser], None] | None = None, **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)
        self._fill = fill

    def load(self) -> None:
        """Add the arguments, unless they are there."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def set_page(self, page: str) -> None:
        """Set the help page: what it says, and the examples that are shown below the options."""
        head, examples, rest = page.partition("examples:")
        self.description, self.epilog = head.strip(), examples + rest
        self.formatter_class = argparse.RawDescriptionHelpFormatter

    def walk(self) -> Iterator[Parser]:
        """Yield this parser and those of all commands below it, with their arguments."""
        self.load()
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below in dict.fromkeys(action.choices.values()):
                    yield from below.walk()

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse with the arguments of the command; an unknown option is an error of the command itself."""
        self.load()
        found, rest = super().parse_known_args(*args, **kwargs)
        for word in rest:
            if word.startswith("--"):
                name = word.partition("=")[0]
                self.error(str(unknown_name(name, self._option_string_actions, "option")))
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "value" if action.option_strings else str(action.metavar or action.dest).lower()
            raise argparse.ArgumentError(
                action, str(unknown_name(str(value), map(str, action.choices), what))
            )

    def error(self, message: str) -> NoReturn:
        """Exit with a message on bad usage, without control characters of what was given."""
        super().error(clean_text(message))


def build_parser() -> Parser:
    """Build the parser of `plench`, with a parser for each command, whose module has the same name."""
    parser = Parser(prog="plench")
    parser.set_page(HELP)
    parser.add_argument("--version", action="version", version=f"plench {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, fill=partial(fill_from_module, name))
    return parser


def add_command(
    commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int], aliases: Sequence[str] = ()
) -> Parser:
    """Add a command to those of a group; return its parser."""
    parser: Parser = commands.add_parser(name, help=text, description=text, aliases=aliases)
    parser.set_defaults(run=run)
    return parser


def fill_from_module(name: str, parser: Parser) -> None:
    """Add the help page and the arguments of a command's module."""
    module: Any = importlib.import_module(f"{__name__}.{name}")
    parser.set_page(module.__doc__)
    parser.set_defaults(run=getattr(module, "run", None))
    module.add_arguments(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]  # `list` is a module here once it is imported
    place = next((i for i, word in enumerate(words) if not word.startswith("-")), None)
    if place is not None:
        name = words[place].replace("_", "-")
        words[place : place + 1] = COMMAND_ALIASES.get(name, (name,))
    return run_command(build_parser(), words)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """Parse, run the command, and turn our errors into a message and an exit code."""
    warnings = WarningHandler()
    logger = logging.getLogger("plench")
    logger.addHandler(warnings)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        args = parser.parse_args(spell_flags(argv))
        for name in OUTPUTS:  # before any work, not when the result is written
            if getattr(args, name, None) is not None:
                check_local(getattr(args, name))
        code: int = args.run(args)
        return code
    except PlenchError as error:
        print(f"plench: error: {clean_text(str(error))}", file=sys.stderr)
        return 1 if isinstance(error, RunFailedError) else 2
    except KeyboardInterrupt:
        print("plench: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has exited
        sys.stderr.close()
        return 0
    finally:
        logger.removeHandler(warnings)
        logger.setLevel(level)


class WarningHandler(logging.Handler):
    """Prints messages to the standard error of the moment, so that a progress bar shows them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning, or what is only said."""
        start = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{start}{clean_text(self.format(record))}", file=sys.stderr, flush=True)


def spell_flags(argv: Sequence[str]) -> list[str]:
    """Write the names of flags with dashes, and earlier names as the present ones."""
    written: list[str] = []
    for position, word in enumerate(argv):
        if word == "--":
            return [*written, *argv[position:]]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if value == "--":  # argparse would take it for the end of options
                raise UsageError(f"{name} must be followed by a value, not by --")
            name = "--" + name[2:].replace("_", "-")
            word = FLAG_ALIASES.get(name, name) + equals + value
        written.append(word)
    return written
