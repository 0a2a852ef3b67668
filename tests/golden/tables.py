"""Tables and other views of the kept folders, as text."""

import contextlib
import shutil
from itertools import product
from pathlib import Path

from tests.golden.adapter import as_recorded, command
from tests.golden.cases import FOLDERS

FORMATS = ("text", "latex", "csv", "json")
ALL = ("sweep", "timed_out", "unfinished", "models", "public")


def make_tables(place: Path) -> dict[str, list[str]]:
    """Return what the viewing commands say of the kept folders, line by line, by command."""
    shutil.copytree(FOLDERS, place, dirs_exist_ok=True)
    commands = [
        ["collect", *ALL, "--format", form, *chosen]
        for form, chosen in product(FORMATS, ([], ["--chosen"]))
        if (form, chosen) != ("json", ["--chosen"])  # JSON has the chosen runs in any case
    ]
    commands += [
        ["collect", *ALL, "--by", "criterion"],
        ["collect", "sweep", "--format", "markdown"],
        ["collect", *ALL, "--datasets", "Digits_*", "--algorithms", "CC", "--criteria", "CR", "OA"],
        ["collect", "sweep", "--planned_trials", "3", "--where", "steps=6"],
        ["stats", *ALL, "--pairs"],
        ["compare", *ALL],
        ["sweep", "status", "--output_dir", "sweep"],
        ["sweep", "status", "--output_dir", "sweep", "--json"],
        ["sweep", "status", "--output_dir", "timed_out"],
    ]
    return {" ".join(words): run_in(place, words) for words in commands}


def run_in(place: Path, words: list[str]) -> list[str]:
    """Run a command in a folder; return exit code, output and errors as lines."""
    with contextlib.chdir(place):
        code, out, err = command(*words)
    out, err = as_recorded(out), as_recorded(err)
    return [f"exit code {code}", *out.splitlines(), *(f"stderr: {line}" for line in err.splitlines())]
