"""What several commands share: options, many of them made from the declarations of settings."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import parse_qsl

from plench.errors import UsageError
from plench.settings import declared
from plench.text import clean, flag, guard_formula

if TYPE_CHECKING:  # imports numpy
    from plench.report.results import Results

STREAM = "-"  # standard input or output
# The settings that say how candidate sets are made.
CANDIDATE_SETTINGS = tuple(name for name, setting in declared().items() if setting.block == "candidates")


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add a flag for each of these settings, in the groups of their declarations (see `given_settings`)."""
    groups: dict[str, Any] = {"": parser}
    for setting in (declared()[name] for name in names):
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        details: dict[str, Any] = {"action": "store_true", "default": None, "help": setting.help}
        if setting.type is not bool:
            default = f" (default: {setting.default})" if setting.default not in (None, "") else ""
            details = {
                "type": setting.type,
                "metavar": None if setting.choices else setting.metavar,
                "choices": setting.choices or None,
                "help": (setting.help + default).replace("%", "%%"),
            }
        groups[setting.group].add_argument(flag(setting.name), **details)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given on the command line."""
    given = {name: getattr(arguments, name, None) for name in declared()}
    return {name: value for name, value in given.items() if value is not None}


def add_folder_options(parser: argparse.ArgumentParser, output: str = "runs") -> None:
    """Add the folders of data and runs."""
    data = "folder with the data files; built-in data needs none"
    parser.add_argument("--data-dir", metavar="DIR", help=data)
    text = f"folder of runs (default: {output})"
    parser.add_argument("--output-dir", default=output, metavar="DIR", help=text)


def given_encoders(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the encoders that were given on the command line."""
    return {name: getattr(arguments, name) for name in ("text_encoder", "image_encoder")}


def add_encoder_options(parser: argparse.ArgumentParser, auto: str = "") -> None:
    """Add the pretrained encoders of texts and images (see `given_encoders`)."""
    text = "encoder of texts: MiniLM, sentence-transformers:FOLDER or file.py:NAME (default: TF-IDF)"
    parser.add_argument("--text-encoder", metavar="SPEC", help=text)
    text = "encoder of images: EfficientNet-Lite0, transformers:FOLDER or file.py:NAME"
    parser.add_argument("--image-encoder", metavar="SPEC", help=text + auto)


def add_model_options(parser: argparse.ArgumentParser, data: str) -> None:
    """Add model, data, output and device of commands that apply a model."""
    parser.add_argument("model", metavar="MODEL", help="model file (.plench), or folder of a run")
    parser.add_argument("data", metavar="DATA", help=data)
    text = "CSV file to write (default: standard output)"
    parser.add_argument("-o", "--output", default=STREAM, metavar="FILE", help=text)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")
    text = "run third-party code in the model file, or an encoder it names: only if you trust its author"
    parser.add_argument("--run-code", action="store_true", help=text)
    for kind in ("text", "image"):
        text = f"where the {kind} encoder of the model is now, if it was moved"
        parser.add_argument(f"--{kind}-encoder", metavar="SPEC", help=text)


def add_width_option(parser: argparse.ArgumentParser) -> None:
    """Add the width of a figure."""
    text = "width of the figure (default: 3.3, a column)"
    parser.add_argument("--width", type=float, default=3.3, metavar="INCHES", help=text)


def terminal_width() -> int | None:
    """Return the number of characters per line of the terminal; None if the output goes elsewhere."""
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


def add_input_options(parser: argparse.ArgumentParser, *, folder_option: bool = False) -> None:
    """Add the folders (as arguments, or as the public benchmark's --input_dir) and the filters."""
    from plench.criteria import criteria

    many: dict[str, Any] = {"metavar": "DIR", "help": "folder of runs, or results file"}
    if folder_option:
        parser.add_argument("--input-dir", dest="folders", action="append", required=True, **many)
    else:
        parser.add_argument("folders", nargs="+", **many)
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="only these (patterns like 'Digits_*')")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="only these (patterns like 'SCL_*')")
    text = "only experiments with these values, such as steps=10000 model=ResNet"
    parser.add_argument("--where", nargs="+", metavar="KEY=VALUE", help=text)
    parser.add_argument("--criteria", nargs="+", metavar="NAME", help=f"only these of {', '.join(criteria)}")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the numbers of planned runs, for commands that report missing ones."""
    for name, what in (("trials", "splits"), ("hparams", "configurations")):
        text = f"how many {what} were planned"
        parser.add_argument(f"--planned-{name}", type=int, metavar="N", help=text)


def read_input(args: argparse.Namespace, *, folders_apart: bool = False) -> Results:
    """Read the folders a command was given and keep what its filters ask for."""
    from plench.report.results import read_results

    return read_results(
        args.folders,
        datasets=args.datasets,
        algorithms=args.algorithms,
        where=args.where,
        criteria=args.criteria,
        planned_trials=getattr(args, "planned_trials", None),
        planned_hparams=getattr(args, "planned_hparams", None),
        folders_apart=folders_apart,
    )


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings to standard error, without empty ones."""
    for text in filter(None, warnings):
        print(f"warning: {clean(text, None)}", file=sys.stderr)


def write_csv(output: str, rows: Iterable[Sequence[object]]) -> None:
    """Write rows to a CSV file, whole or not at all, or to standard output (`-`), as they come."""
    from plench.files import write_through

    def write(sink: TextIO) -> None:
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerows([guard_formula(str(cell)) for cell in row] for row in rows)

    def write_file(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            write(file)

    if output == STREAM:
        write(sys.stdout)
    else:
        write_through(Path(output), write_file)


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str]) -> None:
    """Raise UsageError if a file to write is also read, or is written twice.

    `outputs` are paths by option, `inputs` references by what they are; `-` and None are skipped.
    """
    written: dict[str, str] = {}
    for option, output in outputs.items():
        if output is None or output == STREAM:
            continue
        for other, path in written.items():
            if is_same_place(output, path):
                raise UsageError(f"{option} {output} is what {other} writes: name another file")
        written[option] = output
        for what, reference in inputs.items():
            if reference != STREAM and any(is_same_place(output, path) for path in list_files(reference)):
                raise UsageError(f"{option} {output} is {what}: name another file")


def list_files(reference: str) -> Iterator[str]:
    """Yield the paths that a reference may stand for: its own, and those of tables after the `?`."""
    from plench.data.tables import is_table_file

    yield reference
    path, _, query = reference.partition("?")
    yield path
    for _, value in parse_qsl(query):
        if is_table_file(value):
            yield from (value, str(Path(path).parent / value), str(Path(path) / value))


def is_same_place(one: str, other: str) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
