"""Command lines at random, made from the commands' own parsers: good values, odd ones, too few, too many."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

# Commands that start processes of their own, which takes seconds, are called less often than others.
SELDOM = ("demo", "pilot", "fit", "sweep launch", "sweep retry", "check", "verify", "submit check", "bench")
ODD_TEXTS = (
    "",
    " ",
    "x",
    "-",
    "--",
    "-1",
    "nan",
    "ä",
    "\udcff",
    "a" * 300,
    "\x1b[2J",
    "../x",
    "*",
    "[",
    "%s",
    "=",
)
NUMBERS = ("0", "1", "2", "3", "5", "1", "2")
ODD_NUMBERS = (
    *("-1", "-7", "1.5", "1e3", "nan", "inf", "-inf", "", "x", " 2", "٣", "1_0", "0x10", "9" * 30, "1e-320"),
    *("2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
)
FRACTIONS = ("0", "0.1", "0.3", "0.5", "0.9", "1", "0.05")
# Values by the name of an option or argument, or of one command's own; good ones and bad ones. All others
# are taken for text.
FOLDERS = (
    ("runs", "results.parquet"),
    ("empty", "nowhere", "mine.csv", "broken", "runs/none", "pipe", "runs/broken"),
)
ALGORITHMS = (
    ("PRODEN", "cc", "LWS", "POP", "VALEN", "PiCO", "own.py:Mean", "own.py:Failing"),
    (
        "SCL_*",
        "own.py:None",
        "nothing.py:X",
        "json:loads",
        "os:system",
        "broken/x.py:X",
        "pipe.py:X",
        "Mean@00000000",
    ),
)
DATA = (
    ("Digits_FPS", "digits-uss", "small.npz", "mine.csv", "./mine.csv", "DigitImages", "images"),
    (
        "Lost",
        "CIFAR10",
        "empty",
        "broken/x.npz",
        "pipe",
        "mine",
        "PLCIFAR10_Vaguest",
        "x.py:Data",
        "results.parquet",
    ),
)
BAD_OUTPUTS = ("out", "out.pdf", "nowhere/deep/out.svg", "mine.csv/x.svg", "runs", "out.x", "pipe")
HPARAMS = (
    ("{}", '{"lr": 0.01}', '{"model": "Linear"}', '{"batch_size": 7}'),
    (
        *(
            '{"lr": -1}',
            "[]",
            "{",
            "1",
            '{"x": 1}',
            "null",
            '{"lr": 1e999}',
            '{"batch_size": 0}',
            '{"lr": "x"}',
        ),
        *(
            '{"batch_size": 1000000000}',
            '{"lr": null}',
            '{"model": 1}',
            '{"lr": {}}',
            "[" * 5000,
            '{"lr": NaN}',
        ),
    ),
)
POOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("algorithm", "algorithms", "leave_out"), ALGORITHMS),
    "names": (("PRODEN", "cc", "SURE", "PiCO"), ("own.py:Mean", "nobody")),
    "pattern": (("*", "SCL_*", "p*", "Digits_*"), ("[", "x")),
    **dict.fromkeys(("dataset", "datasets", "name"), DATA),
    "data": (("mine.csv", "new.npy", "images"), ("-", "pipe", "nowhere.csv", "results.parquet")),
    **dict.fromkeys(("folder", "folders", "results", "into", "against"), FOLDERS),
    "output_dir": (("runs", "new"), ("empty", "mine.csv", "pipe", "nowhere/deep", "results.parquet")),
    "data_dir": (("empty", "."), ("images", "nowhere", "mine.csv")),
    "predict folder": (("one", "model.plench"), ("runs", *FOLDERS[1])),
    "model": (("model.plench", "one"), FOLDERS[1]),
    "fit data": DATA,
    "fit algorithm": (("auto", *ALGORITHMS[0]), ALGORITHMS[1]),
    "fit output": (("out.plench",), BAD_OUTPUTS),
    "refit folder": (("one", "runs"), FOLDERS[1]),
    **dict.fromkeys(("plot output", "pilot output", "data output"), (("out.svg", "out.png"), BAD_OUTPUTS)),
    **dict.fromkeys(("export output", "submit output"), (("out.parquet",), BAD_OUTPUTS)),
    "report output": (("new",), BAD_OUTPUTS),
    "output": (("out.csv",), BAD_OUTPUTS),
    "costs": (("costs.json",), ("mine.csv", "nowhere", "pipe")),
    "file": (("runs/sweep.toml",), ("broken/sweep.toml", "nowhere.toml", "pipe", "mine.csv")),
    "source": (("own.py",), ("nowhere.py", "empty", "pipe")),
    "hparams": HPARAMS,
    "criterion": (("CR", "AA", "OA"), ("last", "step1", "OA_ES", "X")),
    "criteria": (("CR", "AA", "OA"), ("X",)),
    "more_criteria": (("",), ("own.py:Own", "own.py:None", "x", ",", "CR")),
    "where": (("steps=3", "seed=0"), ("model=MLP", "steps", "=", "x=1", "steps=x")),
    "device": (("cpu", "auto"), ("cuda", "cuda:9", "mps", "tpu")),
    "command_launcher": (("local", "dummy", "multi_gpu"), ("slurm", "x")),
    "suite": (("lite",), ("tabular", "image", "full", "extended", "x")),
    "ray_address": (("127.0.0.1:1",), ("x",)),
    "slurm_options": (("account=x",), ("x", "=", "time=1")),
    "fleet": (("off", "auto", "2", "4"), ("0", "-1", "x", "1e9")),
    "parts": (("step", "evaluation", "reading"), ("x", "sweep")),
}
# Values of these are small unless they are bad: otherwise calls would only take long.
SMALL = {
    **{"steps": ("1", "2", "3"), "n_hparams": ("1", "2"), "n_trials": ("1", "2"), "workers": ("1", "2")},
    **{
        "n_runs": ("1",),
        "repeats": ("1",),
        "runs": ("3",),
        "time": ("1",),
        "sample": ("1",),
        "probe_seconds": ("0", "0.1"),
        "every": ("0.5",),
        "threads": ("1", "2"),
    },
}
# Commands that train: they are given those nearly always. Sweeps need both of the others.
TRAINING = (
    "train",
    "fit",
    "demo",
    "pilot",
    "sweep launch",
    "sweep retry",
    "sweep plan",
    "verify",
    "submit check",
    "bench",
)
# What may go on for longer than a caller waits: training, the contract's checks, and whatever repeats itself.
LONG = (*TRAINING, "check")
LONG_OPTIONS = ("every", "compile")
COMPILE_SHARE = 0.1  # of the calls that would compile do: it takes a minute of a processor
TOGETHER = ("algorithms", "datasets")


@dataclass(frozen=True)
class Command:
    """A command: its words, and the options and arguments that its parser knows."""

    words: tuple[str, ...]
    actions: tuple[argparse.Action, ...]

    @property
    def name(self) -> str:
        """Its words as one."""
        return " ".join(self.words)


@cache
def list_commands() -> tuple[Command, ...]:
    """Return every command and sub-command of `plench`."""
    from plench.cli import build_parser

    return tuple(find_commands(build_parser(), ()))


def find_commands(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> list[Command]:
    """Return the commands below a parser, or itself as the only one."""
    found: list[Command] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                found += find_commands(below, (*words, word))
    known = (argparse._HelpAction, argparse._VersionAction)
    own = tuple(action for action in parser._actions if not isinstance(action, known))
    return found or [Command(words, own)]


def make_words(seed: int, number: int) -> tuple[Command, list[str]]:
    """Return a command and a command line for it, always the same for the same numbers."""
    random = Random(f"{seed} arguments {number}")
    commands = list_commands()
    weights = [0.15 if command.name in SELDOM else 1.0 for command in commands]
    (command,) = random.choices(commands, weights)
    odd = random.choice((0.0, 0.0, 0.05, 0.15, 0.4))  # how likely a value is a bad one
    places = [action for action in command.actions if not action.option_strings]
    options = [action for action in command.actions if action.option_strings]
    chosen = [action for action in options if action.required and random.random() > odd / 4]
    more = [action for action in options if action not in chosen]
    chosen += random.choices(more, k=random.choice((0, 0, 1, 1, 2, 5))) if more else []
    if random.random() > COMPILE_SHARE:
        chosen = [action for action in chosen if action.dest != "compile"]
    if command.name in TRAINING:
        wanted = SMALL if command.words[0] != "sweep" else (*SMALL, *TOGETHER)
        rest = [action for action in options if action.dest in wanted and action not in chosen]
        chosen += [action for action in rest if random.random() > 0.05]
    pieces = [make_option(command, action, odd, random) for action in chosen]
    pieces += [make_values(command, action, odd, random) for action in places]
    if random.random() < 0.3:
        random.shuffle(pieces)
    words = [*command.words, *(word for piece in pieces for word in piece)]
    return command, spoil(words, odd, random)


def may_take_long(command: Command, words: list[str]) -> bool:
    """Say whether a command line asks for something that nobody promises to be quick."""
    return command.name in LONG or any(
        word.startswith(f"--{name}") for name in LONG_OPTIONS for word in words
    )


def make_option(command: Command, action: argparse.Action, odd: float, random: Random) -> list[str]:
    """Return an option with its values, in one of the ways in which it may be written."""
    name = random.choice(action.option_strings)
    if name.startswith("--") and random.random() < 0.2:
        name = name.replace("_", "-")
    if action.nargs == 0:
        return [name]
    values = make_values(command, action, odd, random)
    if len(values) == 1 and name.startswith("--") and random.random() < 0.3:
        return [f"{name}={values[0]}"]
    return [name, *values]


def make_values(command: Command, action: argparse.Action, odd: float, random: Random) -> list[str]:
    """Return one value or several."""
    several = action.nargs in ("+", "*")
    count = random.choice((1, 1, 2, 3)) if several else 1
    if several and random.random() < odd / 2:
        count = random.choice((0, 30))
    return [make_value(command, action, odd, random) for _ in range(count)]


def make_value(command: Command, action: argparse.Action, odd: float, random: Random) -> str:
    """Return a value that fits an option, or one that does not."""
    kind: Any = action.type
    good, bad = POOLS.get(f"{command.words[0]} {action.dest}", POOLS.get(action.dest, ((), ())))
    if random.random() < odd:
        return random.choice(ODD_NUMBERS if kind in (int, float) else bad or ODD_TEXTS)
    if action.choices:
        return str(random.choice([*action.choices]))
    if action.dest in SMALL:
        return random.choice(SMALL[action.dest])
    if kind is int:
        return random.choice(NUMBERS)
    if kind is float:
        return random.choice(FRACTIONS)
    return random.choice(good or ODD_TEXTS)


def spoil(words: list[str], odd: float, random: Random) -> list[str]:
    """Leave out, repeat or add a word, now and then."""
    if random.random() < odd:
        change, place = random.randrange(3), random.randrange(len(words))
        if change == 0:
            del words[place]
        elif change == 1:
            words.insert(place, words[place])
        else:
            words.insert(place, random.choice((*ODD_TEXTS, "--json", "-o", "-a", "--unknown", "--help")))
    return words
