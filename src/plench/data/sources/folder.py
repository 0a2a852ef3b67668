"""A folder of images given by path: with a table of candidates, or with one sub-folder per class.

The table is `candidates.csv` (file, candidates; also answers, truth, split, group). Sub-folders of classes
may be in `train` and `test`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.dataset import Dataset, TestSet
from plench.data.readers import read_file
from plench.data.roles import TableOptions, split_reference
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder
from plench.data.sources.tables import assemble, describe_generated, make_table_card, read_table_files
from plench.errors import DataError, UsageError, missing_package
from plench.text import short_repr

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
CANDIDATES = "candidates.csv"
WIDE_MODES = ("I", "F")  # Pillow cuts their pixels off at 255


def find_folder(name: str) -> Source | None:
    """Return the source of a folder given by path; the name in records carries a hash of its images."""
    text, _, query = name.partition("?")
    path = Path(text)
    if not os.path.isdir(path):
        return None
    if (path / CANDIDATES).is_file():
        return read_described(path, split_reference(name)[1])
    if query:
        raise UsageError(
            f"dataset {name!r}: options belong to a folder with {CANDIDATES}, and {path} has none"
        )
    folders = {part: path / part for part in ("train", "test")}
    if not all(map(Path.is_dir, folders.values())):
        folders = {"train": path}
    classes = list_subfolders(folders["train"])
    if len(classes) < 2:
        raise UsageError(f"dataset {name!r}: a folder of images needs two or more sub-folders, one per class")
    files = {part: list_images(folder, classes) for part, folder in folders.items()}
    digest = hash_files(path, [file for part in files.values() for file, _ in part])
    card = make_card(path.resolve(), digest, "image", has_candidates=False)
    card = replace(card, class_names=tuple(classes))

    def load(data_dir: Path | None) -> Dataset:
        images, warnings = read_images(
            {part: [file for file, _ in entries] for part, entries in files.items()}, card.name
        )
        labels = {part: np.array([label for _, label in entries]) for part, entries in files.items()}
        return Dataset(
            images["train"],
            labels["train"][:, None] == np.arange(len(classes)),  # until candidate sets are drawn
            labels["train"],
            card,
            TestSet(images["test"], labels["test"]) if "test" in files else None,
            (describe_generated(card), *warnings),
        )

    return Source(card, load)


def read_described(folder: Path, options: TableOptions) -> Source:
    """Return the source of a folder whose `candidates.csv` has a row for each image."""
    content, table_digest = read_table_files(folder / CANDIDATES, options, has_features=False)
    name = f"{folder.name}/{CANDIDATES}"
    if content.items is None:
        raise DataError(f"{name} needs a column file, with the names of image files in {folder}")
    files = []
    for row, file in enumerate(content.items, 1):
        path = folder / file
        if ".." in Path(file).parts or Path(file).is_absolute() or path.suffix.lower() not in FORMATS:
            raise DataError(
                f"{name}: item {row}: {short_repr(file)} is not an image file of this folder; expected a "
                f"file ending in {', '.join(FORMATS)}"
            )
        if not os.path.isfile(path):
            raise DataError(f"{name}: item {row}: there is no file {short_repr(file)} in {folder}")
        files.append(path)
    if len(set(files)) != len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise DataError(f"{name}: the image {twice.relative_to(folder)} has two rows; expected one")
    digest = hashlib.sha256(f"{table_digest}{hash_files(folder, files)}".encode()).hexdigest()
    card = make_table_card(folder.resolve().name, digest, content, "image")

    def load(data_dir: Path | None) -> Dataset:
        images, warnings = read_images({"all": files}, card.name)
        return assemble(content, card, images["all"]).with_warnings(warnings)

    return Source(card, load)


def list_subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders in a folder, sorted."""
    return [entry.name for entry in list_folder(folder) if entry.name[0] != "." and entry.is_dir()]


def list_folder(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error.strerror or error})") from None


def list_images(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    """Return every image file with its class, sorted by class and name."""
    extra = sorted(set(list_subfolders(folder)) - set(classes))
    if extra:
        raise DataError(f"{folder} has a class {extra[0]!r} that the training images do not have")
    files = [
        (path, label)
        for label, name in enumerate(classes)
        if (folder / name).is_dir()
        for path in list_folder(folder / name)
        if path.suffix.lower() in FORMATS
    ]
    if not files:
        raise DataError(f"{folder} has no images; expected files ending in {', '.join(FORMATS)}")
    return files


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


FOLDER = SourceFinder(
    "path/to/folder",
    "a folder of images with candidates.csv (file, candidates), or with one sub-folder per class",
    find_folder,
)
