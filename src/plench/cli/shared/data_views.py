"""`plench data views`: a contact sheet of what the networks see of a few images."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plench.data import load_dataset
from plench.data.table import Table
from plench.errors import UsageError, missing_package

if TYPE_CHECKING:
    import torch

CELL = 96
GAP = 4
LABEL_WIDTH = 190
DRAWS_PER_VIEW = 3


def add_views_command(commands: Any) -> None:
    """Register `data views` among the commands of `plench data`."""
    parser = commands.add_parser("views", help="draw every view and every operation of a few images")
    parser.add_argument("name", metavar="NAME", help="an image dataset, in any spelling or by path")
    parser.add_argument("--data_dir", help="folder of the data files; built-in datasets need none")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.png", help="where to write the sheet")
    parser.add_argument("--count", type=int, default=8, metavar="N", help="images on the sheet (default 8)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides the draws (default 0)")
    parser.set_defaults(handler=draw_views)


def draw_views(arguments: argparse.Namespace) -> int:
    """Write the contact sheet and print its path."""
    import torch

    if arguments.count < 1:
        raise UsageError(f"--count must be at least 1, not {arguments.count}")
    if not arguments.output.lower().endswith(".png"):
        raise UsageError(f"--output must be a file ending in .png, not {arguments.output}")
    dataset = load_dataset(arguments.name, arguments.data_dir)
    if dataset.card.kind != "image":
        raise UsageError(f"{dataset.card.name} is {dataset.card.kind} data: all its views are the same")
    assert not isinstance(dataset.features, Table)  # a table is tabular data
    images = torch.from_numpy(dataset.features[: arguments.count].copy())
    rows = make_rows(images, torch.Generator().manual_seed(arguments.seed))
    write_sheet(rows, Path(arguments.output))
    print(arguments.output)
    return 0


def make_rows(images: torch.Tensor, generator: torch.Generator) -> list[tuple[str, np.ndarray]]:
    """Return labelled rows of images: the views, then each operation alone with drawn values."""
    import torch

    from plench.data.views import VIEW_MAKERS
    from plench.data.views.operations import OPERATIONS

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
