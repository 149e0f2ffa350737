"""Rows: detections as Arrow tables, written to CSV and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framefeed._util.text import csv_cell, text_of_cell
from framefeed.errors import InvalidFile, OutputError, SourceError

__all__ = ["COLUMNS", "FOUND", "RowWriter", "check_suffix", "finish_rows", "read_rows", "sorted_found"]

_BOX = [(name, pa.float32()) for name in ("x1", "y1", "x2", "y2")]

FOUND = pa.schema(
    [("video", pa.int32()), ("frame_index", pa.int64()), *_BOX, ("score", pa.float32()), ("class", pa.int32())]
)
"""Columns of stored detections, with the video's number."""

COLUMNS = pa.schema(
    [
        ("video", pa.string()),
        ("frame_index", pa.int64()),
        ("pts_seconds", pa.float64()),
        *_BOX,
        ("score", pa.float32()),
        ("class", pa.int32()),
        ("class_name", pa.string()),
    ]
)
"""Columns of output files; ``class_name`` only if names are known."""

SUFFIXES = (".csv", ".parquet")


def check_suffix(path: str | os.PathLike[str]) -> str:
    """Returns the type of a file by its name: ``".csv"`` or ``".parquet"``.

    Raises:
        OutputError: The name has another suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(path, f"unsupported file type; use {' or '.join(SUFFIXES)}")
    return suffix


def sorted_found(table: pa.Table) -> pa.Table:
    """Sorts by video, frame and falling score; remaining columns break ties."""
    falling = [("score", "descending"), *((name, "ascending") for name in ("class", "x1", "y1", "x2", "y2"))]
    return table.sort_by([("video", "ascending"), ("frame_index", "ascending"), *falling])


def finish_rows(
    found: pa.Table, names: Sequence[str], seconds: NDArray[np.float64], classes: Sequence[str] | None
) -> pa.Table:
    """Converts detections to rows of the output.

    Args:
        found: Detections with the columns of ``FOUND``.
        names: Name of each video.
        seconds: Time of each detection's frame.
        classes: Class names, if known.
    """
    numbers = found["video"].to_numpy()
    columns = {name: found[name] for name in FOUND.names}
    columns["video"] = pa.array([names[number] for number in numbers.tolist()], pa.string())
    columns["pts_seconds"] = pa.array(seconds, pa.float64())
    schema = COLUMNS
    if classes is None:
        schema = schema.remove(schema.get_field_index("class_name"))
    else:
        columns["class_name"] = pa.array([classes[number] for number in found["class"].to_pylist()], pa.string())
    return pa.table([columns[name] for name in schema.names], schema)


class RowWriter:
    """Writes rows to a CSV or Parquet file, in parts.

    Args:
        file: The file, open for writing.
        kind: ``".csv"`` or ``".parquet"``.
        schema: The columns.
    """

    def __init__(self, file: BinaryIO, kind: str, schema: pa.Schema) -> None:
        self._is_csv = kind == ".csv"
        if self._is_csv:
            from pyarrow import csv

            self._writer: Any = csv.CSVWriter(file, schema)
        else:
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(file, schema, compression="zstd")

    def write(self, rows: pa.Table) -> None:
        """Writes rows."""
        if rows.num_rows:
            self._writer.write_table(_changed_texts(rows, csv_cell) if self._is_csv else rows)

    def close(self) -> None:
        """Writes the end of the file."""
        self._writer.close()

    def abandon(self) -> None:
        """Closes a file after a failed write."""
        with suppress(Exception):
            self._writer.close()


def _changed_texts(rows: pa.Table, change: Callable[[str], str]) -> pa.Table:
    """Applies a function to every string column."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_string(column.type):
            texts = rows.column(place).dictionary_encode().combine_chunks()
            known = pa.array([change(text) for text in texts.dictionary.to_pylist()], pa.string())
            rows = rows.set_column(place, column, known.take(texts.indices))
    return rows


def read_rows(path: str | os.PathLike[str]) -> pa.Table:
    """Reads rows from a file of ours, or of another tool with the same columns.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: The file has another format, or lacks a column.
    """
    name = os.fspath(path)
    try:
        kind = check_suffix(name)
        if kind == ".csv":
            from pyarrow import csv

            # Video names may look like numbers.
            types = {"video": pa.string(), "class_name": pa.string()}
            table = csv.read_csv(
                name,
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(column_types=types),
            )
            table = _changed_texts(table, text_of_cell)
        else:
            from pyarrow import parquet

            table = parquet.read_table(name)
    except OutputError as error:
        raise InvalidFile(name, "unsupported file type; use .csv or .parquet") from error
    except OSError as error:
        raise SourceError(name, f"cannot be read: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise InvalidFile(name, f"cannot read rows: {_first_line(error)}") from error
    missing = [name for name in FOUND.names if name not in table.column_names]
    if missing:
        raise InvalidFile(name, f"lacks the columns {', '.join(missing)}; found {', '.join(table.column_names)}")
    return _cast(name, table)


def _cast(path: str, table: pa.Table) -> pa.Table:
    try:
        columns = [table[field.name].cast(field.type) for field in COLUMNS if field.name in table.column_names]
    except pa.ArrowException as error:
        raise InvalidFile(path, f"a column has invalid values: {_first_line(error)}") from error
    fields = [field for field in COLUMNS if field.name in table.column_names]
    return pa.table(columns, pa.schema(fields))


def _first_line(error: Exception) -> str:
    lines: Iterable[str] = str(error).strip().splitlines()
    return next(iter(lines), type(error).__name__)
