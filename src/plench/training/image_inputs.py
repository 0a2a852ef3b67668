"""Network inputs of images: kept once as uint8, turned into views a batch at a time on the device."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from plench.data.dataset import check_features
from plench.data.views import VIEW_MAKERS
from plench.data.views.constants import constant
from plench.data.views.holes import SQUARE
from plench.errors import UsageError
from plench.training.stored import EVERY_ROW, Rows, SelectedRows, Stored

# The public benchmark's constants (R, G, B) for every view and split; not the usual ones of CIFAR-10.
BENCHMARK_MEAN = (0.4922, 0.4832, 0.4486)
BENCHMARK_STD = (0.2456, 0.2419, 0.2605)

logger = logging.getLogger("plench")


class ImageInputs:
    """Images (C, H, W) scaled to 0…1 and normalised per channel, in channels-last memory.

    Colour images use the benchmark's constants. Images with another number of channels use mean and standard
    deviation of their training split.
    """

    kind: ClassVar[str] = "image"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.warned = False

    @classmethod
    def fit(cls, features: np.ndarray, rows: Rows = EVERY_ROW) -> Self:
        """Take the benchmark's constants for colour images, else those of the training split."""
        channels = features.shape[1]
        if channels == len(BENCHMARK_MEAN):
            return cls(BENCHMARK_MEAN, BENCHMARK_STD)
        levels = np.arange(256) / 255
        means, stds = [], []
        for channel in range(channels):
            count = np.bincount(features[rows, channel].ravel(), minlength=256)
            mean = float(count @ levels / count.sum())
            means.append(mean)
            stds.append(float(count @ (levels - mean) ** 2 / count.sum()) ** 0.5 + 1e-6)
        return cls(means, stds)

    def accept(self, features: Any) -> Any:
        """Return images (n, C, H, W) of uint8."""
        return check_features(features, self.kind, "X")

    def store(self, features: np.ndarray, device: torch.device, rows: Rows = EVERY_ROW) -> Stored:
        """Return the images as uint8 (n, C, H, W). On the CPU they stay where they are, without a copy."""
        if features.ndim != 4 or features.shape[1] != len(self.mean) or features.dtype != np.uint8:
            raise UsageError(
                f"images of shape {features.shape} and type {features.dtype} do not fit: "
                f"expected uint8 of shape (n, {len(self.mean)}, height, width)"
            )
        if device.type != "cpu":
            return torch.from_numpy(features[rows]).to(device)
        with warnings.catch_warnings():
            # A dataset's arrays are read-only, and nothing here writes to them.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            images = torch.from_numpy(np.ascontiguousarray(features))
        return images if isinstance(rows, slice) else SelectedRows(images, torch.from_numpy(rows))

    def original(self, stored: Tensor) -> Tensor:
        """Return the images as they are, normalised."""
        return self.normalise(stored.float())

    def views(
        self, stored: Stored, index: Tensor, names: Sequence[str], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the named views of the examples `index`, each image with random numbers of its own."""
        images = stored.index_select(0, index)
        if "distill" in names and not self.warned:
            self.warn_if_cutout_covers_image(*images.shape[2:])
        return {name: self.normalise(VIEW_MAKERS[name](images, generator)) for name in names}

    def warn_if_cutout_covers_image(self, height: int, width: int) -> None:
        """Warn, once, of images so small that the cutout of the distill view covers them."""
        self.warned = True
        if max(height, width) <= SQUARE // 2:
            logger.warning(
                "images of %d×%d pixels are all black in the distill view: its cutout of %d covers them",
                height,
                width,
                SQUARE,
            )

    def normalise(self, images: Tensor) -> Tensor:
        """Scale values 0…255 to 0…1 and normalise them; the result is channels-last. Works in place."""
        mean, std = (constant(values, images.device).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def state(self) -> dict[str, Any]:
        """Return the constants."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild from `state()`."""
        return cls(state["mean"], state["std"])
