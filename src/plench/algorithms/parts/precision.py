"""Where numbers of double precision can be had."""

from __future__ import annotations

import torch


def device_with_doubles(device: torch.device) -> torch.device:
    """Return the device itself, or the CPU if it has no float64 (MPS)."""
    return torch.device("cpu") if device.type == "mps" else device
