"""Small datasets in the layouts of the public distributions, written to a folder."""

import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np


def draw_pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, (count, 3072)).astype(np.uint8)


def write_cifar10(data_dir: Path, per_file: int = 4, **changes: Any) -> Path:
    """Write the six files of CIFAR-10; `changes` replaces the content of files by name."""
    folder = data_dir / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        labels = [(number + i) % 10 for i in range(per_file)]
        batch = {b"data": draw_pixels(per_file, number), b"labels": labels, b"batch_label": name.encode()}
        (folder / name).write_bytes(changes.get(name, pickle.dumps(batch)))
    return folder


def write_annotations(data_dir: Path, annotations: Any) -> Path:
    folder = data_dir / "plcifar10"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plcifar10.pkl"
    path.write_bytes(annotations if isinstance(annotations, bytes) else pickle.dumps(annotations))
    return path


def write_cifar100(data_dir: Path, count: int = 200, coarse: list[int] | None = None) -> Path:
    folder = data_dir / "cifar-100-python"
    folder.mkdir(parents=True)
    for name in ("train", "test"):
        fine = [i % 100 for i in range(count)]
        batch = {
            b"data": draw_pixels(count),
            b"fine_labels": fine,
            b"coarse_labels": coarse or [label % 20 for label in fine],
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    return folder


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Write a batch the way CIFAR's own files were: by Python 2, where text and bytes are one type."""

    def short(content: bytes) -> bytes:
        return b"U" + bytes([len(content)]) + content

    def text(content: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(content)) + content

    count, width = pixels.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\n" + b"K\x00\x85" + short(b"b") + b"\x87R"
        b"(K\x01" + b"M" + struct.pack("<H", count) + b"M" + struct.pack("<H", width) + b"\x86"
        b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + text(pixels.tobytes()) + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + numbers + b"u."
