"""Named random streams of a run. Nothing outside the run is seeded or disturbed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from plench.settings import seed_hash


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
        position = self._ambient.get(name) or self._fresh(name)
        apply_global(position, self.device)
        self._active.append(name)
        try:
            yield
            position = capture_global(self.device)
        finally:
            self._active.pop()
            self._ambient[name] = position
            apply_global(outside, self.device)

    def _fresh(self, name: str) -> dict[str, Any]:
        seed = seed_hash(self.seed, name)
        state: dict[str, Any] = {
            "torch": torch.Generator().manual_seed(seed).get_state(),
            "numpy": encode_numpy(np.random.RandomState(seed).get_state(legacy=False)),
            "python": encode_python(random.Random(seed).getstate()),
        }
        if self.device.type != "cpu":
            state["device"] = torch.Generator(self.device).manual_seed(seed).get_state()
        return state

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
        "python": encode_python(random.getstate()),
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
    random.setstate(decode_python(state["python"]))
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


def encode_python(state: Any) -> list[Any]:
    """Turn the state of Python's generator into plain lists."""
    version, internal, gauss = state
    return [version, list(internal), gauss]


def decode_python(state: list[Any]) -> Any:
    """Undo `encode_python`."""
    version, internal, gauss = state
    return (version, tuple(internal), gauss)
