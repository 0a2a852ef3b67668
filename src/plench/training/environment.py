"""What a run is computed with: random streams, device, threads, precision, versions, commit."""

from __future__ import annotations

import hashlib
import os
import platform
import random
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
from plench.settings import __version__, seed_hash

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
    *("hparams.py", "settings.py"),
)
# Finding the version of a package takes as long as several updates of a small network.
version_of = cache(version)


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
        "scipy": version_of("scipy"),
        "scikit-learn": version_of("scikit-learn"),
        "platform": platform.platform(),
        "device": device.type,
        "threads": threads,
        "processor": name_processor(),
        # The instruction set of sums: another one rounds in another order.
        "arithmetic": ", ".join([torch.backends.cpu.get_cpu_capability(), *steered]),
    }


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


class Streams:
    """The random streams of one run, each seeded by the run's seed and its own name.

    `generator(name)` is a torch generator to be passed explicitly. `ambient(name)` is for code that draws
    from the global generators of torch, numpy and Python (module initialisation, third parties): inside,
    those generators are the stream; outside they are as they were.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self._generators: dict[str, torch.Generator] = {}
        self._ambient: dict[str, dict[str, Any]] = {}
        self._active: list[str] = []

    def generator(self, name: str, device: torch.device | None = None) -> torch.Generator:
        """Return the generator of a stream, made on first use (on the CPU unless a device is named)."""
        if name not in self._generators:
            made = torch.Generator(device or torch.device("cpu"))
            self._generators[name] = made.manual_seed(seed_hash(self.seed, name))
        return self._generators[name]

    @contextmanager
    def ambient(self, name: str) -> Iterator[None]:
        """Let the global generators be the stream `name` inside the block.

        A block that raises leaves the stream where it was, so that it can be repeated.
        """
        outside = capture_global(self.device)
        position = self._ambient.get(name)
        if position is None:
            seed = seed_hash(self.seed, name)
            position = {
                "torch": torch.Generator().manual_seed(seed).get_state(),
                "numpy": encode_numpy(np.random.RandomState(seed).get_state(legacy=False)),
                "python": random.Random(seed).getstate(),
            }
            if self.device.type != "cpu":
                position["device"] = torch.Generator(self.device).manual_seed(seed).get_state()
        apply_global(position, self.device)
        self._active.append(name)
        try:
            yield
            position = capture_global(self.device)
        finally:
            self._active.pop()
            self._ambient[name] = position
            apply_global(outside, self.device)

    def state(self) -> dict[str, Any]:
        """Return every stream's position; inside `ambient` blocks the innermost is read from the globals."""
        ambient = dict(self._ambient)
        if self._active:
            ambient[self._active[-1]] = capture_global(self.device)
        return {
            "generators": {
                name: (made.device.type, made.get_state()) for name, made in self._generators.items()
            },
            "ambient": ambient,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume every stream from `state()`, including the active ambient stream."""
        for name, (device, position) in state["generators"].items():
            generator = self.generator(name)
            # On another device, which the user asked for, the stream starts anew.
            if generator.device.type == device:
                generator.set_state(position)
        self._ambient = dict(state["ambient"])
        if self._active and self._active[-1] in self._ambient:
            apply_global(self._ambient[self._active[-1]], self.device)


def capture_global(device: torch.device) -> dict[str, Any]:
    """Return the positions of the global generators."""
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": encode_numpy(np.random.get_state(legacy=False)),  # noqa: NPY002 - the global one is meant
        "python": random.getstate(),
    }
    if device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state["device"] = torch.mps.get_rng_state()
    return state


def apply_global(state: dict[str, Any], device: torch.device) -> None:
    """Set the global generators to captured positions."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(decode_numpy(state["numpy"]))  # noqa: NPY002 - the global one is meant
    random.setstate(state["python"])
    if "device" not in state:  # captured on the CPU
        return
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state["device"])


def encode_numpy(state: Any) -> dict[str, Any]:
    """Turn numpy's generator state into plain numbers and a tensor."""
    return {
        **state,
        "state": {**state["state"], "key": torch.from_numpy(state["state"]["key"].astype(np.int64))},
    }


def decode_numpy(state: dict[str, Any]) -> dict[str, Any]:
    """Undo `encode_numpy`."""
    key = state["state"]["key"].numpy().astype(np.uint32)
    return {**state, "state": {**state["state"], "key": key}}
