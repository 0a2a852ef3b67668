"""Ways to forge Parquet files: other cells, columns, texts and numbers of rows, with sound checksums."""

from __future__ import annotations

import io
from functools import cache
from random import Random
from typing import Any

from campaigns.fuzz.mutations import NUMBERS, TEXTS
from campaigns.fuzz.value_mutations import forge_json, forge_text

MOST_ROWS = 100_000
BOMB_ROWS = 4_900_000


def forge_parquet(content: bytes, random: Random) -> bytes:
    """Change a column, a cell, the rows or the metadata of a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content), use_threads=False)
    place = random.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    change = random.randrange(6)
    if change == 0:
        table = table.drop_columns([name])
    elif change == 1:
        table = pa.concat_tables([table] * random.choice((2, max(1, MOST_ROWS // (100 * len(table))))))
    elif change == 2:
        other = random.choice((pa.null(), pa.string(), pa.int8(), pa.list_(pa.list_(pa.int64()))))
        table = table.set_column(place, name, pa.nulls(len(table), other))
    elif change == 3:
        table = table.rename_columns(
            [*table.column_names[:place], *TEXTS[:1], *table.column_names[place + 1 :]]
        )
    elif change == 4:
        metadata = dict(table.schema.metadata or {b"plench.schema": b"1"})
        key = random.choice(sorted(metadata))
        metadata[key] = forge_text(metadata[key], random)
        table = table.replace_schema_metadata(metadata)
    else:
        cells = [forge_cell(cell, random) if random.random() < 0.5 else cell for cell in column.to_pylist()]
        table = table.set_column(place, name, pa.array(cells, column.type))
    return write(table, random.choice(("zstd", "none", "snappy", "gzip")))


def forge_cell(cell: Any, random: Random) -> Any:
    """Return another value of the same type."""
    if isinstance(cell, str):
        if cell.startswith("{") and random.random() < 0.7:
            return forge_json(cell.encode(), random).decode("utf-8", "replace")
        return random.choice(TEXTS).encode("utf-8", "replace").decode()
    if isinstance(cell, int):
        return random.choice((-1, *NUMBERS)) % 2**63
    if isinstance(cell, float):
        return random.choice((float("nan"), float("inf"), -1.0, 1e300, 0.0))
    return None


def bomb_parquet(content: bytes, random: Random) -> bytes:
    """Return a small file of the same columns that stands for millions of rows."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(io.BytesIO(content))
    return make_bomb(schema, random.choice((BOMB_ROWS, 10 * BOMB_ROWS)) // len(schema))


@cache
def make_bomb(schema: Any, rows: int) -> bytes:
    """Return as many rows of gaps; made once."""
    import pyarrow as pa

    return write(pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema), "zstd")


def write(table: Any, compression: str) -> bytes:
    """Return a table as Parquet."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=compression, write_page_checksum=True)
    return buffer.getvalue()
