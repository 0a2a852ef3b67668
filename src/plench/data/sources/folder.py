"""A folder of images given by path: one sub-folder per class, or `train` and `test` with those inside."""

from __future__ import annotations

import hashlib
import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.dataset import Dataset, DatasetCard, TestSet
from plench.data.files import read_file
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder
from plench.errors import DataError, UsageError

FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".bmp": "BMP",
    ".ppm": "PPM",
    ".pgm": "PPM",
    ".webp": "WEBP",
}
MODES = {"1": "L", "L": "L"}  # black and white, and gray; anything else becomes colour
WIDE_MODES = ("I", "F")  # Pillow cuts their pixels off at 255


def find_folder(name: str) -> Source | None:
    """Answer the path of a folder; the name in records carries a hash of its images."""
    path = Path(name)
    if not path.is_dir():
        return None
    parts = {part: path / part for part in ("train", "test")}
    if all(part.is_dir() for part in parts.values()):
        classes = list_classes(parts["train"])
        files = {part: list_files(folder, classes) for part, folder in parts.items()}
    else:
        classes = list_classes(path)
        files = {"train": list_files(path, classes)}
    card = make_card(path.resolve(), hash_files(path, files), "image", has_candidates=False)
    return Source(card, partial(load_folder, card, classes, files))


def list_classes(folder: Path) -> list[str]:
    """Return the names of the sub-folders, sorted: class 0, 1, …"""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    if len(classes) < 2:
        raise UsageError(
            f"dataset {str(folder)!r}: a folder of images needs at least two sub-folders, one a class"
        )
    return classes


def list_files(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    """Return every image file with its class, sorted by class and name."""
    found = {entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."}
    extra = sorted(found - set(classes))
    if extra:
        raise DataError(f"{folder} has a class {extra[0]!r} that the training images do not have")
    files = [
        (path, label)
        for label, name in enumerate(classes)
        if (folder / name).is_dir()
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in FORMATS
    ]
    if not files:
        raise DataError(f"{folder} has no images; known are files ending in {', '.join(FORMATS)}")
    return files


def hash_files(folder: Path, files: dict[str, list[tuple[Path, int]]]) -> str:
    """Hash the names and the content of all images."""
    digest = hashlib.sha256()
    for path, _ in (entry for part in files.values() for entry in part):
        content = read_file(path, str(folder))
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def load_folder(
    card: DatasetCard, classes: list[str], files: dict[str, list[tuple[Path, int]]], data_dir: Path | None
) -> Dataset:
    """Read all images, which must be of one size; each candidate set holds the label until sets are drawn."""
    images = {part: [open_image(path, card.name) for path, _ in entries] for part, entries in files.items()}
    gray = all(MODES.get(image.mode) == "L" for part in images.values() for image in part)
    size = images["train"][0].size
    arrays = {}
    for part, entries in files.items():
        stacked = np.empty((len(entries), 1 if gray else 3, size[1], size[0]), np.uint8)
        for row, ((path, _), image) in enumerate(zip(entries, images[part], strict=True)):
            if image.size != size:
                raise DataError(
                    f"{card.name}: {path} has {image.size[0]}×{image.size[1]} pixels, the first image "
                    f"{size[0]}×{size[1]}; bring all to one size"
                )
            pixels = np.asarray(image.convert("L" if gray else "RGB"))
            stacked[row] = pixels if gray else pixels.transpose(2, 0, 1)
        arrays[part] = (stacked, np.array([label for _, label in entries]))
    features, labels = arrays["train"]
    test = TestSet(*arrays["test"]) if "test" in arrays else None
    return Dataset(features, labels[:, None] == np.arange(len(classes)), labels, card, test)


def open_image(path: Path, name: str) -> Any:
    """Decode one image file."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(
            f"{name}: reading image files needs Pillow; install it with pip install 'plench[images]'"
        ) from None
    content = read_file(path, name)
    try:
        with Image.open(io.BytesIO(content), formats=[FORMATS[path.suffix.lower()]]) as image:
            image.load()
            decoded = image.copy()
    except Exception as error:  # decoders raise many types for a damaged file
        raise DataError(f"{name}: {path} cannot be read as an image ({error})") from None
    if decoded.mode.startswith(WIDE_MODES):
        raise DataError(f"{name}: {path} has pixels of type {decoded.mode}; bring all to 8 bits a channel")
    return decoded


FOLDER = SourceFinder("path/to/folder", "a folder of images with one sub-folder per class", find_folder)
