"""The image views of the benchmark, made for a whole batch at once on the device the images are on.

A maker takes uint8 images (B, C, H, W) and the run's generator and returns float32 images of the same shape
with whole numbers 0…255; scaling and normalisation come after. Each image draws its own random numbers.

A view that moves rows and columns independently of each other is two small matrix products per image:
matrices of zeros and ones for a shift, of bilinear weights for a crop.

The fourteen operations of the strong view act on a batch of uint8 images with one or three channels, with one
value (B,) per image. Every result is rounded to 8 bits the way Pillow rounds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plench.errors import DataError, UsageError, needs_package
from plench.files import replace_file

PADDING = 4
SCALE = (0.2, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
CROP_DRAWS = 2 * ATTEMPTS + 2
SQUARE = 16
GRAY_SHARE = 0.5
GRAY = {3: (125.0, 123.0, 114.0), 1: (123.0,)}  # for one channel: the gray value of the colour
ROUNDS = 3
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


# The operations of the strong view -----------------------------------------------------------------------


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
LOWEST = tuple(operation.low for operation in OPERATIONS)
HIGHEST = tuple(operation.high for operation in OPERATIONS)


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


# The contact sheet ----------------------------------------------------------------------------------------


def draw_sheet(images: np.ndarray, seed: int, path: Path) -> None:
    """Write a contact sheet of images (N, C, H, W): every view, then each operation alone."""
    with needs_package("drawing views", "pillow", "images"):
        from PIL import Image, ImageDraw
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
    try:
        replace_file(path, lambda temporary: sheet.save(temporary, format="PNG"))
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror or error})") from None
