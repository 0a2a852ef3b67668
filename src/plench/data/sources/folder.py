"""A folder of images given by path: with a table of candidates, or with one sub-folder per class.

The table is `candidates.csv` (file, candidates; also answers, truth, split, group). Sub-folders of classes
may be in `train` and `test`.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plench.data.dataset import Dataset, DatasetCard, TestSet
from plench.data.files import read_file
from plench.data.roles import TableOptions, split_reference
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder
from plench.data.sources.tables import assemble, describe_generated, make_table_card, read_table_files
from plench.data.unpack import allowed_bytes
from plench.errors import DataError, UsageError, missing_package
from plench.plain_files import is_folder, is_plain
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
MODES = {"1": "L", "L": "L"}  # black and white, and gray; anything else becomes colour
BILINEAR = 2  # Pillow's number; it averages where an image becomes smaller
CANDIDATES = "candidates.csv"
WIDE_MODES = ("I", "F")  # Pillow cuts their pixels off at 255
PIXELS_PER_BYTE = 256  # of an image file: a photograph has 3 to 30, a drawing in one colour up to 1,000


def find_folder(name: str) -> Source | None:
    """Answer the path of a folder; the name in records carries a hash of its images."""
    text, _, query = name.partition("?")
    path = Path(text)
    if not is_folder(path):
        return None
    if is_plain(path / CANDIDATES):
        return open_described(path, split_reference(name)[1])
    if query:
        raise UsageError(
            f"dataset {name!r}: options belong to a folder with {CANDIDATES}, and {path} has none"
        )
    parts = {part: path / part for part in ("train", "test")}
    if all(map(is_folder, parts.values())):
        classes = list_classes(parts["train"])
        files = {part: list_images(folder, classes) for part, folder in parts.items()}
    else:
        classes = list_classes(path)
        files = {"train": list_images(path, classes)}
    digest = hash_files(path, [file for part in files.values() for file, _ in part])
    card = make_card(path.resolve(), digest, "image", has_candidates=False)
    card = replace(card, class_names=tuple(classes))
    return Source(card, partial(load_folder, card, classes, files))


def open_described(path: Path, options: TableOptions) -> Source:
    """Read `candidates.csv`, which says for each file what its candidates, answers, truth or split are."""
    content, described = read_table_files(path / CANDIDATES, options, has_features=False)
    name = f"{path.name}/{CANDIDATES}"
    if content.items is None:
        raise DataError(f"{name} needs a column file, with the names of image files in {path}")
    files = [find_image(path, file, row, name) for row, file in enumerate(content.items, 1)]
    if len(set(files)) != len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise DataError(f"{name}: the image {twice.relative_to(path)} has two rows; an image has one")
    digest = hashlib.sha256(f"{described}{hash_files(path, files)}".encode()).hexdigest()
    card = make_table_card(path.resolve().name, digest, content, "image")

    def load(data_dir: Path | None) -> Dataset:
        images, notices = read_images({"all": files}, card.name)
        return assemble(content, card, images["all"]).with_warnings(notices)

    return Source(card, load)


def find_image(folder: Path, file: str, row: int, name: str) -> Path:
    """Return the path of an image that a table names; it must be in the folder."""
    path = folder / file
    if ".." in Path(file).parts or Path(file).is_absolute() or path.suffix.lower() not in FORMATS:
        raise DataError(
            f"{name}: item {row}: {short_repr(file)} is not an image file of this folder; expected a file "
            f"ending in {', '.join(FORMATS)}"
        )
    if not is_plain(path):
        raise DataError(f"{name}: item {row}: there is no file {short_repr(file)} in {folder}")
    return path


def list_classes(folder: Path) -> list[str]:
    """Return the names of the sub-folders, sorted: class 0, 1, …"""
    classes = list_subfolders(folder)
    if len(classes) < 2:
        raise UsageError(
            f"dataset {str(folder)!r}: a folder of images needs at least two sub-folders, one per class"
        )
    return classes


def list_subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders in a folder, sorted."""
    return [entry.name for entry in list_folder(folder) if entry.name[0] != "." and is_folder(entry)]


def list_folder(folder: Path) -> list[Path]:
    """Return what is in a folder, sorted."""
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
        if is_folder(folder / name)
        for path in list_folder(folder / name)
        if path.suffix.lower() in FORMATS
    ]
    if not files:
        raise DataError(f"{folder} has no images; known are files ending in {', '.join(FORMATS)}")
    return files


def hash_files(folder: Path, files: Sequence[Path]) -> str:
    """Hash the names and the content of all images."""
    digest = hashlib.sha256()
    for path in files:
        content = read_file(path, str(folder))
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def load_folder(
    card: DatasetCard, classes: list[str], files: dict[str, list[tuple[Path, int]]], data_dir: Path | None
) -> Dataset:
    """Read all images; each candidate set holds the label alone until sets are drawn."""
    images, notices = read_images(
        {part: [path for path, _ in entries] for part, entries in files.items()}, card.name
    )
    labels = {part: np.array([label for _, label in entries]) for part, entries in files.items()}
    test = TestSet(images["test"], labels["test"]) if "test" in files else None
    return Dataset(
        images["train"],
        labels["train"][:, None] == np.arange(len(classes)),
        labels["train"],
        card,
        test,
        (describe_generated(card), *notices),
    )


def read_images(files: Mapping[str, Sequence[Path]], name: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read images, gray ones if all are; those of another size than most are resized, with a notice."""
    reader = ImageReader(name)
    images = {part: [reader.read(path) for path in paths] for part, paths in files.items()}
    every = [image for part in images.values() for image in part]
    gray = all(MODES.get(image.mode) == "L" for image in every)
    sizes = Counter(image.size for image in every)
    size = sizes.most_common(1)[0][0]  # the first that came up, of those that are as frequent
    reader.check_pixels(len(every) * size[0] * size[1], "images of one size")
    arrays = {}
    for part, decoded in images.items():
        stacked = np.empty((len(decoded), 1 if gray else 3, size[1], size[0]), np.uint8)
        for row, image in enumerate(decoded):
            shown = image.convert("L" if gray else "RGB")
            pixels = np.asarray(shown if image.size == size else shown.resize(size, BILINEAR))
            stacked[row] = pixels if gray else pixels.transpose(2, 0, 1)
        arrays[part] = stacked
    notices = []
    if len(sizes) > 1:
        others = len(every) - sizes[size]
        notices.append(
            f"{name}: {others:,} of {len(every):,} images have another size than most and are resized to "
            f"{size[0]}×{size[1]} pixels, whatever their shape"
        )
    return arrays, notices


class ImageReader:
    """Decodes image files. How many pixels they have is looked at before these are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pixels = 0  # of all images so far
        self.file_bytes = 0

    def read(self, path: Path) -> Any:
        """Return the decoded image of a file."""
        try:
            from PIL import Image
        except ImportError:
            raise missing_package(f"{self.name}: reading image files", "pillow", "images") from None
        content = read_file(path, self.name)
        self.file_bytes += len(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(io.BytesIO(content), formats=[FORMATS[path.suffix.lower()]]) as image:
                    self.pixels += image.size[0] * image.size[1]
                    self.check_pixels(self.pixels, f"those up to {path}")
                    image.load()
                    decoded = image.copy()
        except DataError:
            raise
        except Exception as error:  # decoders raise many types for a damaged file
            raise DataError(f"{self.name}: {path} cannot be read as an image ({error})") from None
        if decoded.mode.startswith(WIDE_MODES):
            raise DataError(
                f"{self.name}: {path} has pixels of type {decoded.mode}; bring all to 8 bits per channel"
            )
        return decoded

    def check_pixels(self, pixels: int, what: str) -> None:
        """Raise DataError for more pixels than files of such a size can have."""
        allowed = max(allowed_bytes(0), PIXELS_PER_BYTE * self.file_bytes)
        if pixels > allowed:
            raise DataError(
                f"{self.name}: {what} have {pixels:,} pixels; files of {self.file_bytes:,} bytes may have "
                f"{allowed:,}"
            )


FOLDER = SourceFinder(
    "path/to/folder",
    "a folder of images with candidates.csv (file, candidates), or with one sub-folder per class",
    find_folder,
)
