"""Converts the index of one video to one row of an Arrow table, with the packet table as list columns, and back.

Columns are named after their content:

- facts of the file and the stream, one value per video; ``*_num`` and ``*_den`` are the halves of a fraction;
- the packet table, one list per video: ``pos`` to ``start`` have an entry per packet in decode order, ``frames`` and
  ``frame_pts`` an entry per frame in presentation order. Null in ``pts`` and ``dts`` is a missing time;
- in the catalog of a packet store, the shard with the packets, in which ``pos`` are offsets, and a checksum of each
  packet. Shards lie beside the catalog. ``file_size`` and ``mtime_ns`` remain those of the video.

A list column has 32-bit numbers if all values of the batch fit, else 64-bit numbers.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framefeed.catalog.paths import path_hash
from framefeed.index.table import PacketTable
from framefeed.index.video_index import Stored, VideoIndex
from framefeed.types import NO_PTS, Orientation, StreamInfo

__all__ = [
    "SCALARS",
    "cast",
    "common_schema",
    "decode",
    "encode",
    "is_stored",
    "put_together",
    "row_path",
    "stored_schema",
]

_PATHS = {"path": pa.string(), "path_bytes": pa.binary(), "path_hash": pa.uint64()}
_VALUES = {
    "file_size": pa.int64(),
    "mtime_ns": pa.int64(),
    "container": pa.string(),
    "codec": pa.string(),
    "codec_tag": pa.string(),
    "width": pa.int32(),
    "height": pa.int32(),
    "pix_fmt": pa.string(),
    "num_frames": pa.int64(),
    "num_packets": pa.int64(),
    "duration_seconds": pa.float64(),
    "average_fps": pa.float64(),
    "time_base_num": pa.int64(),
    "time_base_den": pa.int64(),
    "byte_ranges": pa.bool_(),
    "stream_index": pa.int32(),
    "quarter_turns": pa.int8(),
    "mirrored": pa.bool_(),
    "sample_aspect_ratio_num": pa.int64(),
    "sample_aspect_ratio_den": pa.int64(),
    "color_space": pa.int32(),
    "color_range": pa.int32(),
    "color_primaries": pa.int32(),
    "color_transfer": pa.int32(),
    "reorder_depth": pa.int32(),
    "bits_per_coded_sample": pa.int32(),
    "average_rate_num": pa.int64(),
    "average_rate_den": pa.int64(),
    "header_frames": pa.int64(),
    "header_duration": pa.int64(),
    "header_start": pa.int64(),
    "bit_rate": pa.int64(),
    "extradata": pa.binary(),
}
_CHECKSUM = {"checksum": pa.uint32()}
_LISTS = ("pos", "size", "pts", "dts", "duration", "flags", "start", "frames", "frame_pts")
_PER_FRAME = ("frames", "frame_pts")
_NULLABLE = ("pts", "dts")
_NEEDED: tuple[str, ...] = (
    "file_size",
    "mtime_ns",
    "codec",
    "width",
    "height",
    "num_frames",
    "num_packets",
    "byte_ranges",
    "mirrored",
)
_NEEDED += ("time_base_num", "time_base_den", "stream_index", "quarter_turns", "reorder_depth", "path_hash", "checksum")

# Further columns of a packet store's catalog, behind the lists.
_SHARD_VALUES = {"shard": pa.string(), "shard_size": pa.int64(), "shard_check": pa.uint64()}
_SHARD_LIST = "packet_crc32"
_SHARD = {**_SHARD_VALUES, _SHARD_LIST: pa.list_(pa.uint32())}

SCALARS = {**_PATHS, **_VALUES, **_CHECKSUM}
_FIRST_LIST = len(SCALARS)
_FIRST_SHARD = _FIRST_LIST + len(_LISTS)


def _values(index: VideoIndex) -> dict[str, Any]:
    """Returns the columns of ``_VALUES``, and of ``_SHARD_VALUES`` for packets in a store."""
    stream, stored = index.stream, index.stored
    ratio, rate = stream.sample_aspect_ratio, stream.average_rate
    size, mtime_ns = index.fingerprint if stored is None else stored.video
    special = {
        "file_size": size,
        "mtime_ns": mtime_ns,
        "num_frames": index.num_frames,
        "num_packets": len(index.packets),
        "duration_seconds": index.duration_seconds,
        "average_fps": index.average_fps,
        "time_base_num": stream.time_base.numerator,
        "time_base_den": stream.time_base.denominator,
        "byte_ranges": index.byte_ranges,
        "quarter_turns": stream.orientation.quarter_turns,
        "mirrored": stream.orientation.mirrored,
        "sample_aspect_ratio_num": None if ratio is None else ratio.numerator,
        "sample_aspect_ratio_den": None if ratio is None else ratio.denominator,
        "average_rate_num": None if rate is None else rate.numerator,
        "average_rate_den": None if rate is None else rate.denominator,
    }
    values = {name: special[name] if name in special else getattr(stream, name) for name in _VALUES}
    if stored is not None:
        shard = (os.path.basename(stored.shard), *index.fingerprint)
        values |= dict(zip(_SHARD_VALUES, shard, strict=True))
    return values


def _lists(index: VideoIndex) -> dict[str, NDArray[Any]]:
    """Returns the list columns."""
    found: dict[str, NDArray[Any]] = {name: getattr(index.packets, name) for name in _LISTS}
    if index.stored is not None:
        found[_SHARD_LIST] = index.stored.checksums
    return found


def _fraction(row: Mapping[str, Any], name: str) -> Fraction | None:
    numerator = row[f"{name}_num"]
    return None if numerator is None else Fraction(numerator, row[f"{name}_den"])


def _stream(row: Mapping[str, Any]) -> StreamInfo:
    return StreamInfo(
        codec=row["codec"],
        codec_tag=row["codec_tag"],
        extradata=row["extradata"],
        width=row["width"],
        height=row["height"],
        pix_fmt=row["pix_fmt"],
        color_space=row["color_space"],
        color_range=row["color_range"],
        color_primaries=row["color_primaries"],
        color_transfer=row["color_transfer"],
        sample_aspect_ratio=_fraction(row, "sample_aspect_ratio"),
        orientation=Orientation(row["quarter_turns"], row["mirrored"]),
        time_base=Fraction(row["time_base_num"], row["time_base_den"]),
        stream_index=row["stream_index"],
        reorder_depth=row["reorder_depth"],
        average_rate=_fraction(row, "average_rate"),
        header_frames=row["header_frames"],
        bit_rate=row["bit_rate"],
        header_duration=row["header_duration"],
        header_start=row["header_start"],
        bits_per_coded_sample=row["bits_per_coded_sample"],
        container=row["container"],
    )


def _checksum(values: Mapping[str, Any], lists: Mapping[str, NDArray[Any]]) -> int:
    """Returns a checksum of everything that decoding relies on, so that a damaged row is never decoded from."""
    names = [name for name in (*_VALUES, *_SHARD_VALUES) if name in values]
    found = zlib.crc32(repr([values[name] for name in names]).encode("utf-8", "backslashreplace"))
    for name in (*_LISTS, _SHARD_LIST):
        if name in lists:
            found = zlib.crc32(np.ascontiguousarray(lists[name]).data, found)
    return found


def encode(indexes: Sequence[VideoIndex]) -> Any:
    """Returns a record batch with one row per video, under the index's path; all or none of them are in a store."""
    if not indexes:
        schema = common_schema([])
        return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
    rows = [_values(index) for index in indexes]
    tables = [_lists(index) for index in indexes]
    sums = [_checksum(values, table) for values, table in zip(rows, tables, strict=True)]
    columns = _path_columns([index.path for index in indexes])
    columns += [pa.array([row[name] for row in rows], kind) for name, kind in _VALUES.items()]
    columns.append(pa.array(sums, pa.uint32()))
    columns += [_list_column(name, [table[name] for table in tables]) for name in _LISTS]
    if indexes[0].stored is None:
        return pa.record_batch(columns, names=[*SCALARS, *_LISTS])
    columns += [pa.array([row[name] for row in rows], kind) for name, kind in _SHARD_VALUES.items()]
    columns.append(_list_column(_SHARD_LIST, [table[_SHARD_LIST] for table in tables]))
    return pa.record_batch(columns, names=[*SCALARS, *_LISTS, *_SHARD])


def _path_columns(paths: Sequence[str]) -> list[Any]:
    readable: list[str] = []
    raw: list[bytes | None] = []
    for path in paths:
        data = os.fsencode(path)
        try:
            readable.append(data.decode("utf-8"))
            raw.append(None)
        except UnicodeDecodeError:  # file names on Linux are bytes: store them, and a readable form beside them
            readable.append(data.decode("utf-8", "replace"))
            raw.append(data)
    hashes = np.fromiter(map(path_hash, paths), np.uint64, len(paths))
    return [pa.array(readable, pa.string()), pa.array(raw, pa.binary()), pa.array(hashes)]


def _list_column(name: str, arrays: Sequence[NDArray[Any]]) -> Any:
    offsets = np.zeros(len(arrays) + 1, np.int32)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    values = np.concatenate(arrays)
    mask = None
    if name in _NULLABLE and (values == NO_PTS).any():
        mask = values == NO_PTS
        values = np.where(mask, 0, values)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(_narrowed(values), mask=mask))


def _narrowed(values: NDArray[Any]) -> NDArray[Any]:
    limits = np.iinfo(np.int32)
    if values.dtype.kind == "u":
        return values
    fits = not len(values) or (limits.min <= values.min() and values.max() <= limits.max)
    return values.astype(np.int32) if fits else values


def row_path(row: Any) -> str:
    """Returns the stored path of a batch of one row."""
    raw = row.column(1)[0].as_py()
    path: str | None = row.column(0)[0].as_py() if raw is None else os.fsdecode(raw)
    if not path or path_hash(path) != row.column(2)[0].as_py():
        raise ValueError("its path was changed after it was written")
    return path


def decode(row: Any, path: str, folder: str) -> VideoIndex:
    """Returns the index of the video in a batch of one row. Arrays are views of the row if their type allows.

    Args:
        row: A checked batch, see ``Rows.row``.
        path: Path of the video.
        folder: Folder of the catalog, and of its shards if it has any.

    Raises:
        ValueError: The row is damaged.
    """
    values = {name: row.column(number)[0].as_py() for number, name in enumerate(SCALARS)}
    lists = {name: _list_values(row.column(_FIRST_LIST + number)) for number, name in enumerate(_LISTS)}
    checksums = {}
    if is_stored(row.schema):
        values |= {name: row.column(_FIRST_SHARD + number)[0].as_py() for number, name in enumerate(_SHARD_VALUES)}
        checksums = {_SHARD_LIST: _list_values(row.column(row.num_columns - 1))}
    if _checksum(values, lists | checksums) != values["checksum"]:
        raise ValueError("its checksum does not match")
    _check(values, lists | checksums)
    fingerprint = (values["file_size"], values["mtime_ns"])
    stored = None
    if checksums:
        stored = Stored(os.path.join(folder, values["shard"]), checksums[_SHARD_LIST], fingerprint)
        fingerprint = (values["shard_size"], values["shard_check"])
    return VideoIndex(path, fingerprint, _stream(values), PacketTable(**lists), values["byte_ranges"], stored)


def _check(values: Mapping[str, Any], lists: Mapping[str, NDArray[Any]]) -> None:
    """Raises if a row, even one crafted with a valid checksum, would lead outside of arrays, files or folders."""
    missing = [name for name in _NEEDED if values[name] is None]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    for name, found in lists.items():
        if len(found) != values["num_frames" if name in _PER_FRAME else "num_packets"]:
            raise ValueError(f"{name} has {len(found)} entries")
    num_packets, num_frames = len(lists["pos"]), len(lists["frames"])
    if not num_frames:
        raise ValueError("it has no frames")
    for name, limit in (("pos", 1 << 62), ("size", 1 << 31), ("start", num_packets), ("frames", num_packets)):
        least = -1 if name == "pos" and not values["byte_ranges"] else 0  # demuxers may lack positions
        if lists[name].min() < least or lists[name].max() >= limit:
            raise ValueError(f"{name} is out of range")
    if (lists["start"] > np.arange(num_packets)).any():
        raise ValueError("decoding of a packet starts at a later one")
    times = lists["frame_pts"]
    if abs(int(times[0])) >= 1 << 62 or abs(int(times[-1])) >= 1 << 62 or (times[1:] <= times[:-1]).any():
        raise ValueError("the times of its frames do not rise")
    ranges = {name: range(1 << 31) for name in ("width", "height", "stream_index", "reorder_depth")}
    ranges |= {"time_base_num": range(1, 1 << 31), "time_base_den": range(1, 1 << 31), "quarter_turns": range(4)}
    ranges["file_size"] = range(1 << 62)
    wrong = [name for name, allowed in ranges.items() if values[name] not in allowed]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} out of range")
    shard = values.get("shard", "shard")
    if shard in ("", os.curdir, os.pardir) or os.path.basename(shard) != shard:
        raise ValueError("its shard is not beside the catalog")


def _list_values(column: Any) -> NDArray[Any]:
    if column.null_count:
        raise ValueError("a list is missing")
    values = column[0].values  # not flatten(), which loads all of Arrow's compute functions
    if pa.types.is_unsigned_integer(values.type):
        unsigned: NDArray[Any] = values.to_numpy()
        return unsigned
    if values.null_count:
        values = values.cast(pa.int64()).fill_null(NO_PTS)
    numbers: NDArray[Any] = values.to_numpy().astype(np.int64, copy=False)
    return numbers


def common_schema(schemas: Iterable[Any]) -> Any:
    """Returns the narrowest schema that rows of all these schemas fit into."""
    wide = set()
    stored = False
    for schema in schemas:
        wide |= {name for name in _LISTS if schema.field(name).type == pa.list_(pa.int64())}
        stored |= is_stored(schema)
    return _schema(wide, stored)


def stored_schema(schemas: Iterable[Any]) -> Any:
    """Returns the schema for rows of all these schemas in a packet store, where positions may need 64 bits."""
    common = common_schema(schemas)
    wide = {name for name in _LISTS if common.field(name).type == pa.list_(pa.int64())}
    return _schema(wide | {"pos"}, True)


def is_stored(schema: Any) -> bool:
    """Returns whether the schema is that of a packet store's catalog."""
    return _SHARD_LIST in schema.names


def _schema(wide: set[str], stored: bool) -> Any:
    kinds = {name: pa.int64() if name in wide else pa.int32() for name in _LISTS} | {"flags": pa.uint16()}
    lists = ((name, pa.list_(kind)) for name, kind in kinds.items())
    return pa.schema([*SCALARS.items(), *lists, *(_SHARD.items() if stored else ())])


def put_together(pieces: Sequence[Any], paths: Sequence[str], schema: Any) -> Any:
    """Concatenates the rows of several batches into one, under other paths.

    Args:
        pieces: Batches or slices of batches.
        paths: The path to store for each row.
        schema: Result of ``common_schema``.
    """
    table = pa.Table.from_batches([cast(piece, schema) for piece in pieces], schema)
    for number, (name, column) in enumerate(zip(_PATHS, _path_columns(paths), strict=True)):
        table = table.set_column(number, pa.field(name, _PATHS[name]), column)
    return table.combine_chunks().to_batches()[0]


def cast(batch: Any, schema: Any) -> Any:
    """Casts the columns of a batch to the widths of the schema."""
    if batch.schema.equals(schema):
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(columns, schema=schema)
