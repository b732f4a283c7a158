"""Rows of a Parquet file; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from confide.data.lines import Lines
from confide.frames import values_of

PLAIN = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_null),
)
"""What a column may hold."""

BATCH = 4096
"""Rows that are handed over at once."""

BUFFER = 1 << 20
"""Bytes of a column that are read at once: of a large row group no more is in memory."""


def lines(path: Path) -> Lines:
    """Rows with their numbers from 1, the names first. Numbers, texts, dates and booleans; others are refused."""
    with _sound(path), pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
        _types(path, file.schema_arrow)
        yield 0, list(file.schema_arrow.names)
        line = 0
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_size=BATCH, row_groups=[group]):
                columns = [values_of(column) for column in batch.columns]
                for fields in zip(*columns, strict=True):
                    line += 1
                    yield line, list(fields)


def types(path: Path) -> dict[str, str]:
    """What each column holds, in Arrow's words, but for those that hold nothing."""
    with _sound(path), pq.ParquetFile(path) as file:
        return {name: str(kind) for name, kind in _types(path, file.schema_arrow).items() if not pa.types.is_null(kind)}


def _types(path: Path, schema: pa.Schema) -> dict[str, pa.DataType]:
    found = dict[str, pa.DataType]()
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not any(fits(kind) for fits in PLAIN):
            raise ValueError(f"{path}: column {column.name!r} is {kind}; make it a number or a text, or drop it")
        found[column.name] = kind
    return found


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException:
        raise ValueError(f"cannot read {path}: it is damaged, or not what its name says") from None
