"""Options that several commands share, made from the declarations of settings."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from plench.errors import UsageError
from plench.settings import Setting, Settings, declared

if TYPE_CHECKING:  # these import numpy
    from plench.data import CandidateSpec, DatasetCard

# The settings that say how candidate sets are made.
CANDIDATE_SETTINGS = tuple(name for name, setting in declared().items() if setting.block == "candidates")


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str], *, defaults: bool = True) -> None:
    """Add a flag for each of these settings, in the groups of their declarations; `given_settings` reads
    them.

    With `defaults` their help tells the default.
    """
    groups: dict[str, Any] = {"": parser}
    for setting in (declared()[name] for name in names):
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        groups[setting.group].add_argument(f"--{setting.name}", **_flag(setting, defaults))


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given on the command line."""
    given = {name: getattr(arguments, name, None) for name in declared()}
    return {name: value for name, value in given.items() if value is not None}


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings with what was given on the command line."""
    return Settings(**given_settings(arguments))


def read_candidates(arguments: argparse.Namespace, card: DatasetCard) -> CandidateSpec:
    """Return the candidate sets that a user asked for on this dataset."""
    from plench.data import choose_candidates

    return choose_candidates(card.candidates, settings_of(arguments))


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add where data and results are."""
    parser.add_argument(
        "--data_dir", metavar="DIR", help="folder with the data files; built-in data needs none"
    )
    parser.add_argument("--output_dir", default="runs", metavar="DIR", help="folder of runs (default: runs)")


def add_run_code(parser: argparse.ArgumentParser) -> None:
    """Add the permission to run the code that a model file brings along."""
    parser.add_argument(
        "--run_code",
        action="store_true",
        help="run a third party's code in a model file: only if you trust whoever made it",
    )


def add_width_option(parser: argparse.ArgumentParser) -> None:
    """Add the width of a figure."""
    parser.add_argument(
        "--width",
        type=float,
        default=3.3,
        metavar="INCHES",
        help="width of the figure (default 3.3, a column)",
    )


def terminal_width() -> int | None:
    """Return how many characters a line of the terminal has; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def read_hparams(text: str | None) -> dict[str, Any]:
    """Read the JSON object of `--hparams`."""
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--hparams is not JSON ({error}): {text}") from error
    if not isinstance(values, dict):
        raise UsageError(f'--hparams must be a JSON object like {{"lr": 0.01}}, not {text}')
    return values


def _flag(setting: Setting, defaults: bool) -> dict[str, Any]:
    """Return the arguments of argparse for a setting; one that is not given is None."""
    if setting.type is bool:
        return {"action": "store_true", "default": None, "help": setting.help}
    told = f" (default: {setting.default})" if defaults and setting.default not in (None, "") else ""
    return {
        "type": setting.type,
        "metavar": setting.metavar if not setting.choices else None,
        "choices": setting.choices or None,
        "help": (setting.help + told).replace("%", "%%"),
    }
