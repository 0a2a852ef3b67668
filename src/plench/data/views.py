"""The image views of the benchmark, made for a whole batch at once on the device the images are on.

A maker takes uint8 images (B, C, H, W) and the run's generator and returns float32 images of the same shape
with whole numbers 0…255; scaling and normalisation come after. Each image draws its own random numbers.

A view that moves rows and columns independently of each other is two small matrix products per image:
matrices of zeros and ones for a shift, of bilinear weights for a crop.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plench.data.view_operations import OPERATIONS, apply_operations
from plench.errors import DataError, UsageError, missing_package

PADDING = 4
SCALE = (0.2, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
CROP_DRAWS = 2 * ATTEMPTS + 2
SQUARE = 16
GRAY_SHARE = 0.5
GRAY = {3: (125.0, 123.0, 114.0), 1: (123.0,)}  # for one channel: the gray value of the colour
ROUNDS = 3
LOWEST = tuple(operation.low for operation in OPERATIONS)
HIGHEST = tuple(operation.high for operation in OPERATIONS)
# The contact sheet, in pixels.
CELL = 96
GAP = 4
LABEL_WIDTH = 190
DRAWS_PER_VIEW = 3


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
    height, width = images.shape[2:]
    draws = draw(CROP_DRAWS + 3, images, generator)
    cropped = crop_and_flip(images, draws[:, :-2])
    box = square_box((draws[:, -2] * height).floor(), (draws[:, -1] * width).floor(), height, width)
    return cropped.masked_fill(cover(cropped, box), 0)


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


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return numbers as a float32 tensor on a device, cached: creating it in every step would synchronise.

    The tensor is shared: do not change it.
    """
    return torch.tensor(values, dtype=torch.float32, device=device)


def place_shift(top: Tensor, left: Tensor, flip: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the source rows (B, H) and columns (B, W) of images flipped, padded by 4 and cropped.

    `top` and `left` are the crop's corner in the padded image; positions outside the image mean black.
    """
    rows = _span(height, top) + (top - PADDING)[:, None]
    columns = _span(width, left) + (left - PADDING)[:, None]
    return rows, torch.where(flip[:, None], width - 1 - columns, columns)


def place_crop(box: Tensor, flip: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the source rows (B, H) and columns (B, W) of crops resized to the full image, then flipped.

    `box` (B, 4) is top, left, height and width of the crops. Positions are fractions where the output
    pixel lies between two pixels, and never leave the crop.
    """
    top, left, crop_height, crop_width = box.float()[:, :, None].unbind(1)
    rows = ((_span(height, box) + 0.5) * crop_height / height - 0.5).clamp_min(0)
    columns = ((_span(width, box) + 0.5) * crop_width / width - 0.5).clamp_min(0)
    rows = top + torch.minimum(rows, crop_height - 1)
    columns = left + torch.minimum(columns, crop_width - 1)
    return rows, torch.where(flip[:, None], columns.flip(1), columns)


def draw_crop(draws: Tensor, height: int, width: int) -> Tensor:
    """Draw crops of 20 to 100 % of the area, ratio 3:4 to 4:3: boxes (B, 4) from uniform numbers (B, 22).

    The first of ten attempts that fits is taken, the whole image if none does.
    """
    tries = draws[:, : 2 * ATTEMPTS].view(-1, 2, ATTEMPTS)
    area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * tries[:, 0])
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = (low + (high - low) * tries[:, 1]).exp()
    widths = (area * ratio).sqrt().round()
    heights = (area / ratio).sqrt().round()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.int().argmax(1, keepdim=True)
    found = fits.gather(1, first)
    crop_width = torch.where(found, widths.gather(1, first), width)
    crop_height = torch.where(found, heights.gather(1, first), height)
    top = (draws[:, -2:-1] * (height + 1 - crop_height)).floor()
    left = (draws[:, -1:] * (width + 1 - crop_width)).floor()
    return torch.cat([top, left, crop_height, crop_width], dim=1)


def resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Take output pixels from source rows and columns, bilinear, black outside; whole numbers as float32.

    Columns first, then rows, rounded to nearest after each, which is what Pillow does. On 8-bit images whose
    side is a power of two all of it is exact in float32, so the result is Pillow's bit for bit; for other
    sides Pillow's own rounding of the weights decides ties.
    """
    batch, channels, height, width = images.shape
    by_row = images.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    # Autocast would round the pixels to eight bits of mantissa, and the weights with them.
    with torch.autocast(images.device.type, enabled=False):
        source = _span(width, columns)[:, None]
        weights = (1 - (source - columns[:, None, :]).abs_()).clamp_min_(0)
        wide = torch.bmm(by_row.view(batch, height * channels, width), weights)
        _round(wide, width)
        source = _span(height, rows)
        weights = (1 - (source - rows[:, :, None]).abs_()).clamp_min_(0)
        full = torch.bmm(weights, wide.view(batch, height, -1))
    return _round(full, height).view(batch, height, channels, width).permute(0, 2, 1, 3)


def _round(values: Tensor, side: int) -> Tensor:
    """Round in place to nearest, ties up, values that but for float32's error are multiples of 1/(2·side)."""
    return values.add_(0.5 + 0.25 / side).floor_()


def _span(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, device=like.device, dtype=torch.float32)


def square_box(y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Return the square of side 16 about the pixel (y, x), clipped at the border.

    A box is first row, last row + 1, first column, last column + 1.
    """
    half = SQUARE // 2
    ends = [(y - half).clamp_min(0), (y + half).clamp_max(height)]
    ends += [(x - half).clamp_min(0), (x + half).clamp_max(width)]
    return torch.stack(ends, dim=1)


def draw_gray_box(draws: Tensor, height: int, width: int) -> Tensor:
    """Draw the hole of the strong view from uniform numbers (B, 3): size, column, row of the centre.

    The centre is uniform on (1, side], the side of the hole on 1…16 (of 32). At the left and top border the
    hole moves inside, at the right and bottom border it is cut: the benchmark's rule, kept as it is.
    """
    size = GRAY_SHARE * width * draws[:, 0]
    x = (width - (width - 1) * draws[:, 1] - size / 2).clamp_min(0).floor()
    y = (height - (height - 1) * draws[:, 2] - size / 2).clamp_min(0).floor()
    side = torch.where(size > 0, size.floor() + 1, 0)
    ends = [y, (y + side).clamp_max(height), x, (x + side).clamp_max(width)]
    return torch.stack(ends, dim=1)


def cut_gray(images: Tensor, box: Tensor) -> Tensor:
    """Fill a box of each float image with gray."""
    gray = constant(GRAY[images.shape[1]], images.device).view(1, -1, 1, 1)
    return torch.where(cover(images, box), gray, images)


def cover(images: Tensor, box: Tensor) -> Tensor:
    """Return the mask (B, 1, H, W) of the pixels inside each image's box."""
    top, bottom, left, right = box[:, :, None].unbind(1)
    rows = torch.arange(images.shape[2], device=images.device)
    columns = torch.arange(images.shape[3], device=images.device)
    in_rows, in_columns = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return (in_rows[:, :, None] & in_columns[:, None, :])[:, None]


def draw_sheet(images: np.ndarray, seed: int, path: Path) -> None:
    """Write a contact sheet of images (N, C, H, W): every view, then each operation alone."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise missing_package("drawing views", "pillow", "images") from None
    given, generator = torch.from_numpy(images.copy()), torch.Generator().manual_seed(seed)
    rows: list[tuple[str, Tensor]] = []
    for name, make in VIEW_MAKERS.items():
        for _ in range(1 if name == "original" else DRAWS_PER_VIEW):
            rows.append((name, make(given, generator).to(torch.uint8)))
    for operation in OPERATIONS:
        draws = torch.rand(len(given), generator=generator)
        values = operation.low + (operation.high - operation.low) * draws
        span = f" {operation.low:g} … {operation.high:g}" if operation.high > operation.low else ""
        rows.append((operation.name + span, operation.apply(given, values)))
    step = CELL + GAP
    sheet = Image.new("RGB", (LABEL_WIDTH + len(given) * step, GAP + len(rows) * step), "white")
    pen = ImageDraw.Draw(sheet)
    for place, (label, views) in enumerate(rows):
        top = GAP + place * step
        pen.text((GAP, top + CELL // 2 - 6), label, fill="black")
        for column, view in enumerate(views.numpy()):
            picture = Image.fromarray(view[0] if len(view) == 1 else view.transpose(1, 2, 0)).convert("RGB")
            picture = picture.resize((CELL, CELL), Image.Resampling.NEAREST)
            sheet.paste(picture, (LABEL_WIDTH + column * step, top))
    temporary = path.with_name(f".{path.name}.part")
    try:
        sheet.save(temporary, format="PNG")
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)
