"""The image views of the benchmark, made for a whole batch at once on the device the images are on.

A maker takes uint8 images (B, C, H, W) and the run's generator and returns float32 images of the same shape
with whole numbers 0…255; scaling and normalisation come after. Each image draws its own random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from plench.data.views.constants import constant
from plench.data.views.geometry import ATTEMPTS, PADDING, draw_crop, place_crop, place_shift, resample
from plench.data.views.holes import GRAY, cut_gray, cut_square, draw_gray_box, draw_square_box
from plench.data.views.operations import OPERATIONS, apply_operations
from plench.errors import DataError

__all__ = ["VIEW_MAKERS", "make_distill", "make_original", "make_strong", "make_weak"]

ROUNDS = 3
LOWEST = tuple(operation.low for operation in OPERATIONS)
HIGHEST = tuple(operation.high for operation in OPERATIONS)
CROP_DRAWS = 2 * ATTEMPTS + 2


def make_original(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images as they are."""
    return images.float()


def make_weak(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip with probability ½, pad by 4 black pixels, crop to the old size anywhere."""
    height, width = images.shape[2:]
    flip, top, left = draw(3, images, generator).unbind(1)
    top, left = (2 * PADDING + 1) * top, (2 * PADDING + 1) * left
    return resample(images, *place_shift(top.floor(), left.floor(), flip < 0.5, height, width))


def make_distill(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crop, resize and flip at random, then black out a square."""
    draws = draw(CROP_DRAWS + 3, images, generator)
    cropped = crop_and_flip(images, draws[:, :-2])
    return cut_square(cropped, draw_square_box(draws[:, -2:], *images.shape[2:]))


def make_strong(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crop, resize and flip at random, apply three random operations, then gray out a square."""
    if images.shape[1] not in GRAY:
        raise DataError(f"the strong view is for images of 1 or 3 channels, not {images.shape[1]}")
    draws = draw(CROP_DRAWS + 1 + 2 * ROUNDS + 3, images, generator)
    crop, kinds, amounts, hole = draws.split([CROP_DRAWS + 1, ROUNDS, ROUNDS, 3], dim=1)
    kinds = (kinds * len(OPERATIONS)).long()
    low, high = (constant(ends, images.device)[kinds] for ends in (LOWEST, HIGHEST))
    values = low + (high - low) * amounts
    changed = crop_and_flip(images, crop).to(torch.uint8, memory_format=torch.contiguous_format)
    for kind, value in zip(kinds.unbind(1), values.unbind(1), strict=True):
        changed = apply_operations(changed, kind, value)
    return cut_gray(changed.float(), draw_gray_box(hole, *images.shape[2:]))


VIEW_MAKERS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "original": make_original,
    "weak": make_weak,
    "strong": make_strong,
    "distill": make_distill,
}


def crop_and_flip(images: Tensor, draws: Tensor) -> Tensor:
    """Crop, resize and (with probability ½) flip each image by uniform numbers (B, 23)."""
    height, width = images.shape[2:]
    box = draw_crop(draws[:, :-1], height, width)
    return resample(images, *place_crop(box, draws[:, -1] < 0.5, height, width))


def draw(count: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """Draw `count` uniform numbers for each image in one call, on the generator's own device."""
    numbers = torch.rand(len(images), count, generator=generator, device=generator.device)
    return numbers.to(images.device, non_blocking=True)
