"""A folder of images given by path: with a table of candidates, or with one sub-folder per class.

The table is `candidates.csv` (file, candidates; also answers, truth, split, group). Sub-folders of classes
may be in `train` and `test`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plench.data.dataset import Dataset, DatasetCard
from plench.data.readers import FORMATS, hash_files, read_images
from plench.data.roles import TableOptions, split_reference
from plench.data.sources.arrays import make_card
from plench.data.sources.base import Source, SourceFinder
from plench.data.sources.tables import (
    CANDIDATES,
    TableContent,
    assemble,
    make_table_card,
    read_content,
    read_table_files,
)
from plench.data.tables import Table, make_images, read_frame
from plench.errors import DataError, UsageError
from plench.files import sha256
from plench.text import short_repr


def find_folder(name: str) -> Source | None:
    """Return the source of a folder given by path; the name in records carries a hash of its images."""
    text, _, query = name.partition("?")
    path = Path(text)
    if not os.path.isdir(path):
        return None
    if (path / CANDIDATES).is_file():
        return read_described(path, split_reference(name)[1])
    if query:
        raise UsageError(f"dataset {name!r}: options need a folder with {CANDIDATES}, which {path} lacks")
    folders = {part: path / part for part in ("train", "test")}
    if not all(map(Path.is_dir, folders.values())):
        folders = {"train": path}
    classes = list_subfolders(folders["train"])
    if len(classes) < 2:
        raise UsageError(f"dataset {name!r}: a folder of images needs two or more sub-folders, one per class")
    parts = {part: list_images(folder, classes) for part, folder in folders.items()}
    listed = [(file, name, part) for part, entries in parts.items() for file, name in entries]
    files, truth, split = map(list, zip(*listed, strict=True))
    card = make_card(path.resolve(), hash_files(path, files), "image", has_candidates=False)
    table = read_frame({"truth": truth, "split": split}, str(path))
    content = read_content(table, TableOptions(classes=tuple(classes)), has_features=False)
    return make_image_source(replace(card, class_names=tuple(classes)), content, files)


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
    digest = sha256(f"{table_digest}{hash_files(folder, files)}".encode())
    card = make_table_card(folder.resolve().name, digest, content, "image")
    return make_image_source(card, content, files)


def make_image_source(card: DatasetCard, content: TableContent, files: Sequence[Path]) -> Source:
    """Return the source of image files, of which a table says all else."""

    def load(data_dir: Path | None) -> Dataset:
        images, warnings = read_images(files, card.name)
        return assemble(content, card, images).with_warnings(warnings)

    def load_files(data_dir: Path | None) -> Dataset:
        paths = [str(file.absolute()) for file in files]
        column = make_images(read_frame({"image": paths}, "the images"), "image", list(paths))
        return assemble(content, replace(card, kind="tabular"), Table((column,)))

    return Source(card, load, load_files=load_files)


def list_subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders in a folder, sorted."""
    return [entry.name for entry in list_folder(folder) if entry.name[0] != "." and entry.is_dir()]


def list_folder(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be read ({error.strerror or error})") from None


def list_images(folder: Path, classes: list[str]) -> list[tuple[Path, str]]:
    """Return every image file with its class, sorted by class and name."""
    extra = sorted(set(list_subfolders(folder)) - set(classes))
    if extra:
        raise DataError(f"{folder} has a class {extra[0]!r} that the training images do not have")
    files = [
        (path, name)
        for name in classes
        if (folder / name).is_dir()
        for path in list_folder(folder / name)
        if path.suffix.lower() in FORMATS
    ]
    if not files:
        raise DataError(f"{folder} has no images; expected files ending in {', '.join(FORMATS)}")
    return files


FOLDER = SourceFinder(
    "path/to/folder",
    "a folder of images with candidates.csv (file, candidates), or with one sub-folder per class",
    find_folder,
)
