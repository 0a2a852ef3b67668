"""Files that a command writes are not those that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from plench.data.tables import is_table_file
from plench.errors import UsageError

STREAM = "-"


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str]) -> None:
    """Raise UsageError where a file to write is one to read, or is to be written twice.

    `outputs` are paths by option, `inputs` references by what they are; - and None are no files.
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
    """Yield the paths that a reference may stand for: its own, and those of tables behind the ?."""
    yield reference
    path, _, query = reference.partition("?")
    yield path
    for _, value in parse_qsl(query):
        if is_table_file(value):
            yield from (value, str(Path(path).parent / value), str(Path(path) / value))


def is_same_place(one: str, other: str) -> bool:
    """Say whether two paths lead to one file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
