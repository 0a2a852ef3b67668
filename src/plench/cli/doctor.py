"""Report versions, devices, threads, data, disk space and extras, what is missing, and how to get it.

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
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from plench.cli.options import add_folder_options
from plench.data.sources import dataset_names, find_source
from plench.errors import MissingDataError, PlenchError
from plench.settings import __version__

# Packages of extras, and what each is for.
EXTRAS = {
    "report": (("matplotlib", "figures"), ("pyarrow", "Parquet files")),
    "images": (("pillow", "folders of image files"),),
    "encoders": (
        ("pillow", "image files"),
        ("transformers", "pretrained encoders of images"),
        ("sentence-transformers", "pretrained encoders of texts"),
    ),
    "ray": (("ray", "sweeps on a Ray cluster"),),
    "slurm": (("submitit", "sweeps on a Slurm cluster"),),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_folder_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print what was found."""
    try:
        needed = [text for text in requires("plench") or [] if ";" not in text]
    except PackageNotFoundError:  # run from a folder that is not installed
        needed = ["numpy", "scipy", "torch"]
    names = sorted(re.split(r"[^\w.-]", text)[0] for text in needed)
    packages = {name: find_version(name) for name in names}
    try:
        import torch

        cards = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
        devices = ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]
    except ImportError:
        devices = []
    place = Path(args.output_dir).absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    found: dict[str, Any] = {
        "plench": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "devices": devices,
        "cores": os.cpu_count(),
        "threads_of_a_run": 1,
        "disk": {
            "folder": str(place),
            "free_gb": round(shutil.disk_usage(place).free / 2**30, 1),
            "writable": os.access(place, os.W_OK),
        },
        "extras": [
            {"extra": extra, "package": package, "version": find_version(package), "for": purpose}
            for extra, parts in EXTRAS.items()
            for package, purpose in parts
        ],
        "data": [describe_data(name, args.data_dir) for name in dataset_names(own_only=True)],
    }
    print(json.dumps(found, indent=1) if args.json else format_findings(found, args.data_dir))
    return 0 if all(packages.values()) else 1


def find_version(package: str) -> str | None:
    """Return a package's version, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_data(name: str, data_dir: str | None) -> dict[str, Any]:
    """Return whether the files of a dataset are there, and how to get them."""
    source = find_source(name)
    row: dict[str, Any] = {"name": name, "found": source.obtain is None, "how": source.how, "problem": None}
    if not row["found"] and data_dir is not None:
        try:
            source.load(Path(data_dir))
            row["found"] = True
        except MissingDataError:
            pass
        except PlenchError as error:
            row["problem"] = str(error)
    return row


def format_findings(found: dict[str, Any], data_dir: str | None) -> str:
    """Return the findings as text."""
    disk = found["disk"]
    read_only = "" if disk["writable"] else ", NOT WRITABLE"
    versions = ", ".join(f"{name} {number or 'MISSING'}" for name, number in found["packages"].items())
    lines = [
        f"plench {found['plench']}, Python {found['python']}, {found['system']}",
        f"packages: {versions}",
        f"devices:  {', '.join(found['devices']) or 'none: torch is missing'}",
        f"threads:  {found['cores']} cores; a run uses 1 thread unless --threads is given",
        f"disk:     {disk['free_gb']:,} GB free in {disk['folder']}{read_only}",
        "extras:",
    ]
    for row in found["extras"]:
        state = row["version"] or f"missing: pip install {row['package']}"
        lines.append(f"  {row['extra']:<10}{row['package']:<22}{state} ({row['for']})")
    ready = ", ".join(row["name"] for row in found["data"] if row["found"])
    lines += ["data:", f"  ready: {ready}"]
    lines += [f"  {row['name']}: {row['problem']}" for row in found["data"] if row["problem"]]
    missing = [row for row in found["data"] if not row["found"] and not row["problem"]]
    public = ", ".join(row["name"] for row in missing if row["how"] == "download")
    by_hand = ", ".join(row["name"] for row in missing if row["how"] != "download")
    if public:
        searched = "not searched (name their folder with --data-dir)" if data_dir is None else "not found"
        lines.append(f"  {searched}: {public}")
        lines.append(f"    to get them: plench data download NAME … --data-dir {data_dir or 'DIR'}")
    if by_hand:
        lines.append(f"  no public download: {by_hand}; see `plench data info NAME`")
    if sys.flags.optimize:
        lines.append("python runs with -O, which disables internal checks: leave it out")
    return "\n".join(lines)
