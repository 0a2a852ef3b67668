"""A contact sheet of what the networks see of a few images: every view, every operation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plench.data.views import VIEW_MAKERS
from plench.data.views.operations import OPERATIONS
from plench.errors import UsageError, missing_package

CELL = 96
GAP = 4
LABEL_WIDTH = 190
DRAWS_PER_VIEW = 3


def draw_sheet(images: np.ndarray, seed: int, path: Path) -> None:
    """Draw a sheet of images (N, C, H, W) of uint8; `seed` decides the draws."""
    generator = torch.Generator().manual_seed(seed)
    write_sheet(make_rows(torch.from_numpy(images.copy()), generator), path)


def make_rows(images: Tensor, generator: torch.Generator) -> list[tuple[str, np.ndarray]]:
    """Return labelled rows of images: the views, then each operation alone with drawn values."""
    rows = []
    for name, make in VIEW_MAKERS.items():
        for _ in range(1 if name == "original" else DRAWS_PER_VIEW):
            rows.append((name, make(images, generator).to(torch.uint8).numpy()))
    for operation in OPERATIONS:
        draws = torch.rand(len(images), generator=generator)
        values = operation.low + (operation.high - operation.low) * draws
        span = f" {operation.low:g} … {operation.high:g}" if operation.high > operation.low else ""
        rows.append((operation.name + span, operation.apply(images, values).numpy()))
    return rows


def write_sheet(rows: list[tuple[str, np.ndarray]], path: Path) -> None:
    """Draw labelled rows of images (N, C, H, W) as one picture."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise missing_package("drawing views", "pillow", "images") from None
    count = len(rows[0][1])
    step = CELL + GAP
    sheet = Image.new("RGB", (LABEL_WIDTH + count * step, GAP + len(rows) * step), "white")
    pen = ImageDraw.Draw(sheet)
    for place, (label, images) in enumerate(rows):
        top = GAP + place * step
        pen.text((GAP, top + CELL // 2 - 6), label, fill="black")
        for column, image in enumerate(images):
            picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).convert(
                "RGB"
            )
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
