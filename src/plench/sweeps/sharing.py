"""A dataset in one unnamed file that all workers of a machine map: one copy, nothing to clean up."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from dataclasses import dataclass

from plench.data import Dataset
from plench.errors import StorageError


@dataclass(frozen=True)
class SharedLayout:
    """How to rebuild a dataset from the mapped file: everything but its arrays, and where the arrays are."""

    header: bytes
    spans: tuple[tuple[int, int], ...]


class SharedDataset:
    """A dataset as its owner holds it: a file without a name, gone when the last process that has it ends."""

    def __init__(self, dataset: Dataset) -> None:
        arrays: list[pickle.PickleBuffer] = []
        header = pickle.dumps(dataset, protocol=5, buffer_callback=arrays.append)
        spans = []
        try:
            self.file = tempfile.TemporaryFile(prefix="plench-")  # noqa: SIM115 - lives as long as its owner
            for array in arrays:
                start = -(-self.file.tell() // mmap.PAGESIZE) * mmap.PAGESIZE
                self.file.seek(start)
                self.file.write(array.raw())
                spans.append((start, self.file.tell()))
            self.file.flush()
        except OSError as error:
            needed = sum(array.raw().nbytes for array in arrays) / 2**20
            raise StorageError(
                f"the workers' copy of {dataset.card.name} needs {needed:,.1f} MB in the folder of temporary "
                f"files, {tempfile.gettempdir()}: {error.strerror or error}; make room there, or name "
                "another folder by the environment variable TMPDIR"
            ) from error
        self.layout = SharedLayout(header, tuple(spans))

    def fileno(self) -> int:
        """Return the descriptor to hand to a worker."""
        return self.file.fileno()


def map_dataset(layout: SharedLayout, descriptor: int) -> Dataset:
    """Rebuild a dataset on top of the mapped file; its arrays are read-only. Closes the descriptor."""
    try:
        mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
    dataset = pickle.loads(layout.header, buffers=[mapped[start:stop] for start, stop in layout.spans])
    assert isinstance(dataset, Dataset)
    return dataset
