"""Rows of a Parquet file; needs pyarrow."""

from __future__ import annotations

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


def lines(path: Path) -> Lines:
    """Rows with their numbers from 1, the names first. Numbers, texts, dates and booleans; others are refused."""
    try:
        yield from _lines(path)
    except pa.ArrowInvalid:
        raise ValueError(f"cannot read {path}: it is damaged, or not what its name says") from None


def _lines(path: Path) -> Lines:
    with pq.ParquetFile(path) as file:
        for column in file.schema_arrow:
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if not any(fits(kind) for fits in PLAIN):
                raise ValueError(f"{path}: column {column.name!r} is {kind}; make it a number or a text, or drop it")
        yield 0, list(file.schema_arrow.names)
        line = 0
        for batch in file.iter_batches(batch_size=4096):
            columns = [values_of(column) for column in batch.columns]
            for fields in zip(*columns, strict=True):
                line += 1
                yield line, list(fields)
