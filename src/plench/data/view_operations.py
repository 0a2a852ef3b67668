"""The fourteen operations of the strong view, each on a batch of 8-bit images with one value per image.

Images are uint8 (B, C, H, W) with one or three channels, values are (B,). Every result is rounded to 8 bits
the way Pillow rounds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """An operation by name, the range its value is drawn from, and what it does."""

    name: str
    low: float
    high: float
    apply: Callable[[Tensor, Tensor], Tensor]


def stretch_contrast(images: Tensor, value: Tensor) -> Tensor:
    """AutoContrast: stretch each channel to 0…255, leaving a constant channel alone."""
    bounds = images.flatten(2).aminmax(dim=2)
    low, high = (bound[..., None, None].to(wide_float(images.device)) for bound in bounds)
    # A number over a tensor is its reciprocal times the number in torch, which rounds differently.
    scale = torch.where(high > low, torch.full_like(high, 255) / (high - low), 1)
    offset = torch.where(high > low, low * scale, 0)
    return (images * scale).sub_(offset).clamp_(0, 255).to(torch.uint8)


def reduce_brightness(images: Tensor, value: Tensor) -> Tensor:
    """Brightness: blend with black."""
    return (images * per_image(value)).to(torch.uint8)


def reduce_color(images: Tensor, value: Tensor) -> Tensor:
    """Color: blend each pixel with its gray value."""
    return blend(to_gray(images), images, value)


def reduce_contrast(images: Tensor, value: Tensor) -> Tensor:
    """Contrast: blend with the image's mean gray value."""
    gray = to_gray(images).flatten(1)
    count = gray.shape[1]
    mean = (2 * gray.sum(1) + count) // (2 * count)  # the mean rounded to nearest, in whole numbers
    return blend(per_image(mean), images, value)


def equalize(images: Tensor, value: Tensor) -> Tensor:
    """Equalize: make each channel's histogram as flat as whole numbers allow."""
    channels = images.flatten(2)
    pixels = channels.long()
    histogram = torch.zeros(*channels.shape[:2], 256, dtype=torch.int32, device=images.device)
    histogram.scatter_add_(
        2, pixels, torch.ones((), dtype=torch.int32, device=images.device).expand_as(pixels)
    )
    count_of_largest = histogram.gather(2, pixels.amax(2, keepdim=True))
    step = (channels.shape[2] - count_of_largest) // 255
    below = histogram.cumsum(2, dtype=torch.int32).sub_(histogram)
    table = below.add_(step // 2).div_(step.clamp_min(1), rounding_mode="floor").clamp_max_(255)
    changed = table.to(torch.uint8).gather(2, pixels)
    return torch.where(step > 0, changed, channels).view(images.shape)


def keep(images: Tensor, value: Tensor) -> Tensor:
    """Identity."""
    return images


def posterize(images: Tensor, value: Tensor) -> Tensor:
    """Posterize: keep the top ⌊value⌋ bits."""
    mask = 256 - 2 ** (8 - value.floor())
    return images & per_image(mask.to(torch.uint8))


def rotate(images: Tensor, value: Tensor) -> Tensor:
    """Rotate by `value` degrees about the centre, counter-clockwise."""
    maps = identity_maps(images)
    angle = value.to(maps) * (math.pi / 180)
    cosine, sine = angle.cos(), angle.sin()
    x, y = images.shape[3] / 2, images.shape[2] / 2
    maps[:, 0] = torch.stack([cosine, -sine, x - x * cosine + y * sine], dim=1)
    maps[:, 1] = torch.stack([sine, cosine, y - x * sine - y * cosine], dim=1)
    return warp(images, maps)


def soften(images: Tensor, value: Tensor) -> Tensor:
    """Sharpness: blend with a smoothed image, whose outermost pixels are the image's own."""
    pixels = images.float()
    smooth = pixels.clone()
    columns = pixels[..., :-2] + pixels[..., 1:-1] + pixels[..., 2:]
    box = columns[..., :-2, :] + columns[..., 1:-1, :] + columns[..., 2:, :]
    inner = smooth[..., 1:-1, 1:-1]
    # The sum over 13 is never a half, so rounding by floor(x + ½) is safe in float32.
    inner.copy_(box.add_(inner, alpha=4).div_(13).add_(0.5).floor_())
    return blend(smooth, pixels, value)


def solarize(images: Tensor, value: Tensor) -> Tensor:
    """Solarize: invert what is not below `value`."""
    return torch.where(images < per_image(value), images, images.bitwise_not())


def affine(row: int, column: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a shear, or a shift by a share of the side: it sets one entry of the affine map to the value."""

    def apply(images: Tensor, value: Tensor) -> Tensor:
        maps = identity_maps(images)
        side = images.shape[3 - row] if column == 2 else 1
        maps[:, row, column] = side * value.to(maps)
        return warp(images, maps)

    return apply


OPERATIONS = (
    Operation("AutoContrast", 0, 0, stretch_contrast),
    Operation("Brightness", 0.05, 0.95, reduce_brightness),
    Operation("Color", 0.05, 0.95, reduce_color),
    Operation("Contrast", 0.05, 0.95, reduce_contrast),
    Operation("Equalize", 0, 0, equalize),
    Operation("Identity", 0, 0, keep),
    Operation("Posterize", 4, 8, posterize),
    Operation("Rotate", -30, 30, rotate),
    Operation("Sharpness", 0.05, 0.95, soften),
    Operation("ShearX", -0.3, 0.3, affine(0, 1)),
    Operation("ShearY", -0.3, 0.3, affine(1, 0)),
    Operation("Solarize", 0, 256, solarize),
    Operation("TranslateX", -0.3, 0.3, affine(0, 2)),
    Operation("TranslateY", -0.3, 0.3, affine(1, 2)),
)


def apply_operations(images: Tensor, kinds: Tensor, values: Tensor) -> Tensor:
    """Apply to each image the operation `kinds` (B,), an index into `OPERATIONS`, with its value (B,).

    The images of one operation are done together. No operation mixes images, so this is the same as one by
    one. The result is a new tensor.
    """
    order = kinds.argsort()
    sizes = torch.bincount(kinds, minlength=len(OPERATIONS)).tolist()
    groups = zip(
        OPERATIONS,
        images.index_select(0, order).split(sizes),
        values.index_select(0, order).split(sizes),
        strict=True,
    )
    changed = [operation.apply(part, value) for operation, part, value in groups if len(part)]
    return torch.cat(changed).index_select(0, order.argsort())


def blend(ground: Tensor, images: Tensor, value: Tensor) -> Tensor:
    """Return ground + value · (images − ground), cut to whole numbers."""
    return (images - ground.float()).mul_(per_image(value)).add_(ground).to(torch.uint8)


def to_gray(images: Tensor) -> Tensor:
    """Return the gray values (B, 1, H, W) of RGB or gray images as int32."""
    if images.shape[1] == 1:
        return images.int()
    red, green, blue = images.int().split(1, dim=1)
    gray: Tensor = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    return gray


def per_image(value: Tensor) -> Tensor:
    """Shape one number per image (B,) so that it spreads over the image."""
    return value.view(-1, 1, 1, 1)


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
