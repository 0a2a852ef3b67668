"""Finding and reading data files and images. Nothing in them is executed; a damaged file is a DataError.

Arrays are read by numpy without pickles, archives by `tarfile` in memory, and the pickles of CIFAR and
PLCIFAR10 by an unpickler that allows plain values and arrays of numbers only.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from plench.errors import DataError, MissingDataError, as_data_error, needs_package
from plench.files import sha256
from plench.text import normalise

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


def find_entry(
    name: str,
    wanted: Iterable[str],
    data_dir: Path | None,
    obtain: str,
    accept: Callable[[Path], bool] = Path.exists,
) -> Path:
    """Return the file or folder called as one of `wanted`, in the data folder or in one directly below it.

    Case, spaces and punctuation do not matter; earlier names of `wanted` come first, and upper folders before
    lower ones. Two entries that are equally near are an error. Hidden files and folders are skipped: some
    systems create a hidden file next to each file, with nearly its name. Entries that `accept` refuses do not
    count.
    """
    names = tuple(wanted)
    expected = " or ".join(names)
    if data_dir is None:
        raise MissingDataError(f"{name} is read from {expected}: name its folder with --data-dir; {obtain}")
    try:
        top = [entry for entry in sorted(data_dir.iterdir()) if not entry.name.startswith(".")]
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise MissingDataError(
            f"{name}: the data folder {data_dir} cannot be read ({reason}); "
            f"it should contain {expected}: {obtain}"
        ) from None
    below: list[Path] = []
    closed: list[str] = []
    for folder in filter(os.path.isdir, top):
        try:
            below += sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
        except OSError:
            closed.append(str(folder))
    for candidate in names:
        for entries in ([data_dir], top, below):
            found = [e for e in entries if normalise(e.name) == normalise(candidate) and accept(e)]
            if len(found) > 1:
                places = " or ".join(map(str, found))
                raise DataError(f"{name}: several files match: {places}; keep one of them")
            if found:
                return found[0]
    unread = f" ({', '.join(closed)} cannot be read)" if closed else ""
    raise MissingDataError(
        f"{name}: {expected} is neither in {data_dir} nor in a folder directly below it{unread}; "
        f"{obtain}, and put it into {data_dir}"
    )


def read_file(path: Path, name: str) -> bytes:
    """Return the content of a file, decompressed if it is a gzip file."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (gzip.BadGzipFile, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name}: {path} is damaged ({error})") from None
    except OSError as error:
        raise DataError(f"{name}: {path} cannot be read ({error.strerror or error})") from None


def read_array(source: Path | bytes, name: str, *, mapped: bool = False) -> np.ndarray:
    """Return the array of an `.npy` file; with `mapped` it stays on disk. Pickled objects are refused."""
    with as_data_error(f"{name} cannot be read as an array"):
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        array = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name} cannot be read as an array (it is an .npz file)")
    return array


def read_archive(path: Path, wanted: Collection[str], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted files of a tar archive in the archive's order; nothing is written to disk."""
    missing = list(wanted)
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                member_name = str(PurePosixPath(member.name))  # "./a" is "a"
                if member_name in missing and member.isreg():
                    missing.remove(member_name)
                    file = archive.extractfile(member)
                    assert file is not None
                    yield member_name, file.read()
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name}: {path} is damaged or not a tar archive ({error})") from None
    except OSError as error:
        raise DataError(f"{name}: {path} cannot be read ({error.strerror or error})") from None
    if missing:
        raise DataError(f"{name}: {path} has no file {missing[0]}")


def hash_git_blob(content: bytes) -> str:
    """Return git's SHA-1 of a file, as GitHub shows it: the hash of `blob <size>\\0` and the content."""
    digest = hashlib.sha1(f"blob {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def hash_md5(content: bytes) -> str:
    """Return the MD5 that identifies some older public files."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def read_pickle(content: bytes, name: str) -> Any:
    """Return what a pickle contains, with text of Python 2 as bytes; nothing in it is executed."""
    try:
        return PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{name} is refused: {error}") from None
    except Exception as error:  # a damaged pickle can raise any type
        raise DataError(f"{name} is damaged or not a pickle ({type(error).__name__}: {error})") from None


class PlainUnpickler(pickle.Unpickler):
    """Allows plain values and arrays of numbers, and refuses every other name before it is imported.

    Functions of numpy are replaced: a forged type would let numpy's own ones read memory as objects.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of an allowed name."""
        try:
            return ALLOWED_NAMES[module.replace("numpy._core.", "numpy.core."), name]
        except KeyError:
            raise DataError(
                f"it asks for {module}.{name}; expected lists, dicts, numbers, text, bytes and arrays"
            ) from None


class NumberType:
    """Replaces `numpy.dtype`."""

    def __init__(self, code: str | bytes, *flags: Any) -> None:
        self.dtype = np.dtype(code.decode() if isinstance(code, bytes) else code)
        if self.dtype.kind not in "biuf":
            raise DataError(f"it has an array of type {self.dtype}; expected arrays of numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = state[1].decode() if isinstance(state[1], bytes) else state[1]
        self.dtype = self.dtype.newbyteorder(order)


class PickledArray(np.ndarray):
    """Replaces `numpy.ndarray`: empty until its state is set."""

    def __setstate__(self, state: Any) -> None:
        shape, number_type, by_columns, raw = state[-4:]
        if not isinstance(number_type, NumberType):
            raise DataError("it has an array without a type")
        super().__setstate__((1, shape, number_type.dtype, by_columns, raw))


ALLOWED_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "numpy.ndarray",  # only named, as an argument of `_reconstruct`
    ("numpy", "dtype"): NumberType,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: PickledArray((0,), np.uint8),
    ("numpy.core.numeric", "_frombuffer"): lambda raw, number_type, shape, order: np.frombuffer(
        raw, number_type.dtype
    ).reshape(shape, order=order),
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),  # bytes in old protocols
}


# --- image files ---


def hash_files(folder: Path, files: Sequence[Path]) -> str:
    """Hash the names and the content of all images."""
    digest = hashlib.sha256()
    for path in files:
        content = read_file(path, str(folder))
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def read_images(files: Sequence[Path], name: str) -> tuple[np.ndarray, list[str]]:
    """Read images as an array (N, C, H, W), gray if all are gray; return warnings with it.

    Images of another size than most are resized.
    """
    images = [read_image(path, name) for path in files]
    gray = all(image.mode in GRAY_MODES for image in images)
    sizes = Counter(image.size for image in images)
    size = sizes.most_common(1)[0][0]  # the first that came up, of those that are as frequent
    stacked = np.empty((len(images), 1 if gray else 3, size[1], size[0]), np.uint8)
    for row, image in enumerate(images):
        converted = image.convert("L" if gray else "RGB")
        pixels = np.asarray(converted if image.size == size else converted.resize(size, BILINEAR))
        stacked[row] = pixels if gray else pixels.transpose(2, 0, 1)
    warnings = []
    if len(sizes) > 1:
        others = len(images) - sizes[size]
        warnings.append(
            f"{name}: {others:,} of {len(images):,} images have another size than most and are resized to "
            f"{size[0]}×{size[1]} pixels, whatever their shape"
        )
    return stacked, warnings


def read_image(path: Path, name: str) -> Any:
    """Return the decoded image of a file."""
    with needs_package(f"{name}: reading image files", "pillow", "images"):
        from PIL import Image
    content = read_file(path, name)
    with (
        as_data_error(f"{name}: {path} cannot be read as an image"),
        Image.open(io.BytesIO(content), formats=[FORMATS[path.suffix.lower()]]) as image,
    ):
        decoded = image.copy()
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
    return sha256(read_file(path, path.name))


def list_image_files(folder: Path) -> list[Path]:
    """Return the image files directly in a folder, sorted."""
    files = sorted(path for path in folder.iterdir() if is_image_name(path.name))
    if not files:
        raise DataError(f"{folder} has no images: expected files ending in {', '.join(FORMATS)}")
    return files
