"""Image files: which there are, their content, and their pixels."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.readers import read_file
from plench.errors import DataError, missing_package

FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".bmp": "BMP",
    ".ppm": "PPM",
    ".pgm": "PPM",
    ".webp": "WEBP",
}
GRAY_MODES = ("1", "L")  # black and white, and gray; anything else becomes colour
BILINEAR = 2  # Pillow's number; it averages where an image becomes smaller
WIDE_MODES = ("I", "F")  # Pillow cuts their pixels off at 255


def hash_files(folder: Path, files: Sequence[Path]) -> str:
    """Hash the names and the content of all images."""
    digest = hashlib.sha256()
    for path in files:
        content = read_file(path, str(folder))
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def read_images(files: Mapping[str, Sequence[Path]], name: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read images, as gray ones if all are gray; images of another size than most are resized.

    Returns an array (N, C, H, W) for each part, and warnings.
    """
    images = {part: [read_image(path, name) for path in paths] for part, paths in files.items()}
    every = [image for part in images.values() for image in part]
    gray = all(image.mode in GRAY_MODES for image in every)
    sizes = Counter(image.size for image in every)
    size = sizes.most_common(1)[0][0]  # the first that came up, of those that are as frequent
    arrays = {}
    for part, decoded in images.items():
        stacked = np.empty((len(decoded), 1 if gray else 3, size[1], size[0]), np.uint8)
        for row, image in enumerate(decoded):
            converted = image.convert("L" if gray else "RGB")
            pixels = np.asarray(converted if image.size == size else converted.resize(size, BILINEAR))
            stacked[row] = pixels if gray else pixels.transpose(2, 0, 1)
        arrays[part] = stacked
    warnings = []
    if len(sizes) > 1:
        others = len(every) - sizes[size]
        warnings.append(
            f"{name}: {others:,} of {len(every):,} images have another size than most and are resized to "
            f"{size[0]}×{size[1]} pixels, whatever their shape"
        )
    return arrays, warnings


def read_image(path: Path, name: str) -> Any:
    """Return the decoded image of a file."""
    try:
        from PIL import Image
    except ImportError:
        raise missing_package(f"{name}: reading image files", "pillow", "images") from None
    content = read_file(path, name)
    try:
        with Image.open(io.BytesIO(content), formats=[FORMATS[path.suffix.lower()]]) as image:
            image.load()
            decoded = image.copy()
    except Exception as error:  # decoders raise many types for a damaged file
        raise DataError(f"{name}: {path} cannot be read as an image ({error})") from None
    if decoded.mode.startswith(WIDE_MODES):
        raise DataError(f"{name}: {path} has pixels of type {decoded.mode}; convert it to 8 bits")
    return decoded


def is_image_name(name: str) -> bool:
    """Whether a name ends as that of an image file."""
    return name.lower().endswith(tuple(FORMATS))


def hash_image(path: Path) -> str:
    """Return the hash of an image file's content; raise DataError if it is missing or has another suffix."""
    if not is_image_name(path.name):
        raise DataError(f"{path.name} is not an image file; expected a name ending in {', '.join(FORMATS)}")
    return hashlib.sha256(read_file(path, path.name)).hexdigest()


def list_image_files(folder: Path) -> list[Path]:
    """Return the image files directly in a folder, sorted."""
    files = sorted(path for path in folder.iterdir() if is_image_name(path.name))
    if not files:
        raise DataError(f"{folder} has no images: expected files ending in {', '.join(FORMATS)}")
    return files
