"""Prints the lowest version that pyproject.toml allows of every dependency, as constraints for pip."""

import re
import tomllib
from pathlib import Path

FILE = Path(__file__).parent.parent / "pyproject.toml"
PROJECT = tomllib.loads(FILE.read_text(encoding="utf-8"))["project"]
EXTRAS = [wanted for group in PROJECT["optional-dependencies"].values() for wanted in group]

for wanted in sorted({*PROJECT["dependencies"], *EXTRAS}):
    found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", wanted)
    if found:
        print(f"{found[1]}=={found[2]}.*")
