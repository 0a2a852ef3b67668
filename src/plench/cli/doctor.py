"""Say which versions, devices, threads, data, disk space and extras there are, what is missing,
and how to get it.

examples:
  plench doctor
  plench doctor --data-dir data --output-dir runs --json

exit codes: 0 all that every run needs is there, 1 something of it is missing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from plench.data.sources import dataset_names, find_source
from plench.errors import MissingDataError, PlenchError
from plench.settings import __version__

# What extras bring: packages, and what each is for.
EXTRAS = {
    "report": (("matplotlib", "figures"), ("pyarrow", "Parquet files")),
    "images": (("pillow", "folders of image files"),),
    "ray": (("ray", "sweeps on a Ray cluster"),),
    "slurm": (("submitit", "sweeps on a Slurm cluster"),),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--data-dir", metavar="DIR", help="folder of the data files to look for")
    parser.add_argument("--output-dir", default="runs", metavar="DIR", help="folder of runs (default: runs)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found."""
    packages = list_packages()
    found: dict[str, Any] = {
        "plench": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "devices": list_devices(),
        "cores": os.cpu_count(),
        "threads_of_a_run": 1,
        "disk": measure_disk(Path(arguments.output_dir)),
        "extras": list_extras(),
        "data": list_data(arguments.data_dir),
    }
    print(json.dumps(found, indent=1) if arguments.json else format_findings(found, arguments.data_dir))
    return 0 if all(packages.values()) else 1


def list_packages() -> dict[str, str | None]:
    """Return the packages that plench cannot do without, each with its version, None where it is missing."""
    try:
        needed = [text for text in requires("plench") or [] if ";" not in text]
    except PackageNotFoundError:  # run from a folder that is not installed
        needed = ["numpy", "scipy", "torch"]
    names = [
        "".join(c for c in text.split(">")[0].split("=")[0].split("[")[0] if c not in " <~!")
        for text in needed
    ]
    return {name: find_version(name) for name in sorted(names)}


def find_version(package: str) -> str | None:
    """Return a package's version, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def list_devices() -> list[str]:
    """Return the devices that torch can use."""
    try:
        import torch
    except ImportError:
        return []
    names = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    return ["cpu", *names, *(["mps"] if torch.backends.mps.is_available() else [])]


def measure_disk(folder: Path) -> dict[str, Any]:
    """Return the space left where runs would be written, and whether they can be."""
    place = folder.absolute()
    while not os.path.isdir(place) and place != place.parent:
        place = place.parent
    return {
        "folder": str(place),
        "free_gb": round(shutil.disk_usage(place).free / 2**30, 1),
        "writable": os.access(place, os.W_OK),
    }


def list_extras() -> list[dict[str, Any]]:
    """Return what each extra brings, and whether it is there."""
    return [
        {"extra": extra, "package": package, "version": find_version(package), "for": purpose}
        for extra, parts in EXTRAS.items()
        for package, purpose in parts
    ]


def list_data(data_dir: str | None) -> list[dict[str, Any]]:
    """Return the datasets known by name: whether their files are there, and else how to get them."""
    rows = []
    for name in dataset_names(own_only=True):
        source = find_source(name)
        built_in = source.obtain is None
        row: dict[str, Any] = {
            "name": name,
            "found": built_in,
            "how": source.how,
            "problem": None,
        }
        if not built_in and data_dir is not None:
            try:
                source.load(Path(data_dir))
                row["found"] = True
            except MissingDataError:
                pass
            except PlenchError as error:
                row["problem"] = str(error)
        rows.append(row)
    return rows


def format_findings(found: dict[str, Any], data_dir: str | None) -> str:
    """Return the findings as text."""
    disk, packages = found["disk"], found["packages"]
    lines = [
        f"plench {found['plench']}, Python {found['python']}, {found['system']}",
        "packages: " + ", ".join(f"{name} {number or 'MISSING'}" for name, number in packages.items()),
        "devices:  " + (", ".join(found["devices"]) or "none: torch is missing"),
        f"threads:  {found['cores']} cores; a run uses 1 thread unless --threads says otherwise",
        f"disk:     {disk['free_gb']:,} GB free in {disk['folder']}"
        + ("" if disk["writable"] else ", NOT WRITABLE"),
        "extras:",
    ]
    for row in found["extras"]:
        state = row["version"] or f"missing: pip install {row['package']}"
        lines.append(f"  {row['extra']:<8}{row['package']:<12}{state} ({row['for']})")
    lines.append("data:")
    ready = [row["name"] for row in found["data"] if row["found"]]
    lines.append(f"  ready: {', '.join(ready)}")
    lines += [f"  {row['name']}: {row['problem']}" for row in found["data"] if row["problem"]]
    missing = [row for row in found["data"] if not row["found"] and not row["problem"]]
    where = data_dir or "DIR"
    public = [row["name"] for row in missing if row["how"] == "download"]
    if public:
        looked = "not looked for (name their folder with --data-dir)" if data_dir is None else "not found"
        lines.append(f"  {looked}: {', '.join(public)}")
        lines.append(f"    to get them: plench data download NAME … --data-dir {where}")
    by_hand = [row["name"] for row in missing if row["how"] != "download"]
    if by_hand:
        lines.append(f"  no public download: {', '.join(by_hand)}; `plench data info NAME` says more")
    if sys.flags.optimize:
        lines.append("python runs with -O, which switches our own checks off: leave it out")
    return "\n".join(lines)
