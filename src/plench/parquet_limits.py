"""Limits of what a Parquet file may hold, in proportion to its size; checked before anything is unpacked.

A few hundred bytes can stand for a billion equal cells. Nothing of this module needs pyarrow: it is given the
metadata that pyarrow has read.
"""

from __future__ import annotations

from typing import Any

FREE_BYTES = 2**28  # what any file may unpack to, as everything that is packed may (data/unpack.py)
FREE_VALUES = 2**21  # cells that any file may have; as Python's own values they take some 200 MB
MAX_RATIO = 32  # beyond that, as many bytes and cells as that for every byte of the file


def find_excess(metadata: Any, file_bytes: int) -> str | None:
    """Say what a file claims beyond what its size allows; None if all is in proportion."""
    # Of single columns nothing is asked: for a broken one pyarrow's answer is to end the process.
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    n_bytes = sum(abs(group.total_byte_size) for group in groups)
    n_rows = max(abs(metadata.num_rows), sum(abs(group.num_rows) for group in groups))
    n_values = n_rows * metadata.num_columns
    allowed_bytes = max(FREE_BYTES, MAX_RATIO * file_bytes)
    allowed_values = max(FREE_VALUES, MAX_RATIO * file_bytes)
    if n_bytes <= allowed_bytes and n_values <= allowed_values:
        return None
    return (
        f"it is too large: {n_values:,} cells of {n_bytes:,} bytes in a file of {file_bytes:,}; allowed are "
        f"{allowed_values:,} cells of {allowed_bytes:,} bytes"
    )
