"""Squares cut out of images (B, C, H, W) of values 0…255.

Boxes are (B, 4): first row, last row + 1, first column, last column + 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plench.data.views.constants import constant

SQUARE = 16
GRAY_SHARE = 0.5
GRAY = {3: (125.0, 123.0, 114.0), 1: (123.0,)}  # for one channel: the gray value of the colour


def draw_square_box(draws: Tensor, height: int, width: int) -> Tensor:
    """Draw the hole of the distill view from uniform numbers (B, 2): its centre may be any pixel."""
    return square_box((draws[:, 0] * height).floor(), (draws[:, 1] * width).floor(), height, width)


def square_box(y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Return the square of side 16 about the pixel (y, x), clipped at the border."""
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


def cut_square(images: Tensor, box: Tensor) -> Tensor:
    """Black out a box of each float image."""
    return images.masked_fill(cover(images, box), 0)


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
