"""Where the pixels of a view come from: shifts, flips, resized crops and affine maps of a whole batch.

Images are (B, C, H, W) with values 0…255. A view that moves rows and columns independently of each other is
two small matrix products per image: matrices of zeros and ones for a shift, of bilinear weights for a crop.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PADDING = 4
SCALE = (0.2, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


def place_shift(top: Tensor, left: Tensor, flip: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the source rows (B, H) and columns (B, W) of images flipped, padded by 4 and cropped.

    `top` and `left` are the crop's corner in the padded image; positions outside the image mean black.
    """
    rows = _span(height, top) + (top - PADDING)[:, None]
    columns = _span(width, left) + (left - PADDING)[:, None]
    return rows, torch.where(flip[:, None], width - 1 - columns, columns)


def place_crop(box: Tensor, flip: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the source rows (B, H) and columns (B, W) of crops resized to the full image, then flipped.

    `box` (B, 4) holds top, left, height and width of the crops. Positions are fractions where the output
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


def identity_maps(images: Tensor) -> Tensor:
    """Return affine maps (B, 2, 3) that leave every pixel where it is, in double precision."""
    maps = torch.eye(2, 3, dtype=wide_float(images.device), device=images.device)
    return maps.expand(len(images), 2, 3).clone()


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """Apply affine maps (B, 2, 3) to uint8 images, nearest neighbour, black outside.

    With the rows (a, b, c) and (d, e, f) of a map, the output pixel (x, y) is the input pixel
    (⌊a(x+½) + b(y+½) + c⌋, ⌊d(x+½) + e(y+½) + f⌋). Computed in 16.16 fixed point like Pillow, so that the
    same pixels are picked.
    """
    batch, channels, height, width = images.shape
    along_x, along_y, shift = maps.unbind(2)
    maps = torch.stack([along_x, along_y, shift + along_x / 2 + along_y / 2], dim=2)
    fixed = (65536 * maps).add_(torch.where(maps >= 0, 0.5, -0.5)).to(torch.int32)  # the cast cuts fractions
    by_x, by_y, start = fixed[:, :, :, None, None].unbind(2)
    x = torch.arange(width, device=images.device, dtype=torch.int32)
    y = torch.arange(height, device=images.device, dtype=torch.int32)[:, None]
    place = (by_x * x + (by_y * y + start)) >> 16
    columns, rows = place.unbind(1)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    source = (rows * width + columns).mul_(inside).long().view(batch, 1, -1)
    picked = images.flatten(2).gather(2, source.expand(-1, channels, -1))
    return picked.view(images.shape).mul_(inside[:, None])


def wide_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on the one kind of device that has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _round(values: Tensor, side: int) -> Tensor:
    """Round in place to nearest, ties up, values that but for float32's error are multiples of 1/(2·side)."""
    return values.add_(0.5 + 0.25 / side).floor_()


def _span(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, device=like.device, dtype=torch.float32)
