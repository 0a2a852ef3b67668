"""What a run is computed with: device, threads, precision, versions, commit."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plench.algorithms import Algorithm
from plench.errors import UsageError
from plench.networks import FeatureExtractor
from plench.settings import __version__

# A run is only resumed under the same of these: another value can change its results.
MUST_AGREE = (
    *("plench", "source", "python", "torch", "numpy", "scipy", "scikit-learn"),
    *("device", "threads", "arithmetic"),
)
# Variables that keep libraries below torch and numpy from using the processor's best instructions.
STEERING = (
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OPENBLAS_CORETYPE"),
)
# The parts of the package that affect results.
AFFECTS_RESULTS = (
    *("algorithms", "criteria.py", "data", "networks.py", "training"),
    *("batch.py", "hparams.py", "settings.py"),
)


def choose_device(name: str) -> torch.device:
    """Return the device a user asked for; `auto` takes CUDA, then MPS, then the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))
    kind, _, number = name.partition(":")
    if kind not in available or (number and not number.isdigit()):
        raise UsageError(f"unknown device {name!r}; expected one of auto, cpu, cuda, cuda:N, mps")
    if not available[kind]:
        raise UsageError(f"device {name} is not available on this machine")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"device {name} does not exist: there are {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


@contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Use this many compute threads inside the block."""
    if count < 1:
        raise UsageError(f"threads must be at least 1, not {count}")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormal float32 numbers to 0 inside the block, where the processor can.

    Adam's averages of gradients that have become 0 (constant features, dead units) decay into that range,
    and arithmetic there is so slow that a long run takes several times as long.
    """
    before = float(torch.tensor(1e-40) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def describe_environment(device: torch.device, threads: int) -> dict[str, Any]:
    """Return the versions and settings that exact results may depend on."""
    steered = [f"{name}={os.environ[name]}" for name in STEERING if os.environ.get(name)]
    return {
        "plench": __version__,
        "source": source_digest(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # not torch's own class, which safe files refuse
        "numpy": np.__version__,
        "scipy": package_version("scipy"),
        "scikit-learn": package_version("scikit-learn"),
        "platform": platform.platform(),
        "device": device.type,
        "threads": threads,
        "processor": name_processor(),
        # The instruction set of sums: another one rounds in another order.
        "arithmetic": ", ".join([torch.backends.cpu.get_cpu_capability(), *steered]),
    }


@cache
def package_version(package: str) -> str:
    """Return the version of a package; finding it takes as long as several updates of a small network."""
    return version(package)


@cache
def name_processor() -> str:
    """Return the processor's name, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


@cache
def source_digest() -> str:
    """Return a hash of the code that affects results: it changes where a version number does not."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for part in AFFECTS_RESULTS:
        place = package / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@cache
def source_commit() -> str | None:
    """Return the commit of plench's own checkout, or None if it runs from an installed package."""
    package = Path(__file__).parent.parent
    try:
        for arguments in (["ls-files", "--error-unmatch", "__init__.py"], ["rev-parse", "HEAD"]):
            command = ["git", "-C", str(package), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def set_execution(algorithm: Algorithm, precision: str, compiled: bool) -> None:
    """Set the precision of an algorithm's networks and, if asked, compile them."""
    featurizers = [module for module in algorithm.modules() if isinstance(module, FeatureExtractor)]
    if not featurizers and (compiled or precision != "float32"):
        raise UsageError(
            f"{type(algorithm).__name__} has no network made by plench.networks.Featurizer, "
            "so precision and compile have nothing to act on"
        )
    for featurizer in featurizers:
        featurizer.precision = precision
        if compiled:
            # For each shape anew: code for dynamic shapes would depend on which shapes came first, so that a
            # resumed run could differ.
            featurizer.compile(dynamic=False)
