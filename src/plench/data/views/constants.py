"""Constants as tensors, made once per device: making them in every step would wait for the device."""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return numbers as a float32 tensor on a device. It is shared: do not change it."""
    return torch.tensor(values, dtype=torch.float32, device=device)
