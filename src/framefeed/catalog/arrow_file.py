"""The catalog's file: an Arrow table with one row per video.

The file has Arrow's IPC file format without compression, so it is used in place in a memory map, and any tool that
reads Arrow reads it too. ``catalog_rows`` describes the columns; the schema's metadata holds the version and the report
of files that could not be indexed. The catalog of a packet store has further columns and a version of its own.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import unpack_from
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from framefeed._util.atomic_write import atomic_file
from framefeed._util.lazy_property import cached_property
from framefeed.catalog.catalog_rows import SCALARS, common_schema, is_stored
from framefeed.errors import CatalogError

__all__ = ["BadEntry", "CatalogFile", "ForeignFile", "Rows", "begins_as_catalog", "plain_batches", "write_file"]

VERSION = 1
STORE_VERSION = 2
VERSION_KEY = b"framefeed.catalog.version"
REPORT_KEY = b"framefeed.catalog.report"
_FRAMES = common_schema([]).names.index("frames")
MAGIC = b"ARROW1"  # the first bytes of Arrow files

_HOW = "framefeed index VIDEOS -o catalog.arrow (in Python: framefeed.Catalog.build(videos, 'catalog.arrow'))"


@dataclass(frozen=True)
class BadEntry:
    """An entry of the catalog's report: a file that could not be indexed.

    Attributes:
        path: Path in the catalog's spelling.
        reason: Reason in words.
        error: Name of the framefeed error.
        size, mtime_ns: The file's at that time; None if they could not be read.
        scanner: Versions of the libraries that scanned it.
        timeout_seconds: Time limit of the scan.
    """

    path: str
    reason: str
    error: str
    size: int | None = None
    mtime_ns: int | None = None
    scanner: str = ""
    timeout_seconds: float = 0.0


class ForeignFile(CatalogError):
    """The file is an Arrow table but not a catalog."""


class Rows:
    """Record batches as one sequence of rows."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches = list(batches)
        counts = [batch.num_rows for batch in self.batches]
        self._starts: list[int] = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()

    def __len__(self) -> int:
        return self._starts[-1]

    def place(self, number: int) -> tuple[int, int]:
        """Returns the batch of a row, and the row's index in it."""
        batch = bisect_right(self._starts, number) - 1
        return batch, number - self._starts[batch]

    def row(self, number: int) -> Any:
        """Returns a batch of that one row, validated so that reading it stays inside the file."""
        batch, place = self.place(number)
        row = self.batches[batch].slice(place, 1)
        row.validate(full=True)
        return row

    def numbers(self, name: str) -> NDArray[Any]:
        """Returns a column of numbers, over all rows."""
        column = [*SCALARS].index(name)
        parts = [batch.column(column).to_numpy(zero_copy_only=False) for batch in self.batches]
        found: NDArray[Any] = np.concatenate(parts) if parts else np.empty(0, SCALARS[name].to_pandas_dtype())
        return found

    def paths(self) -> list[str]:
        """Returns the paths of all rows as stored."""
        found: list[str] = []
        for batch in self.batches:
            readable, raw = batch.column(0), batch.column(1)
            readable.validate(full=True)
            names = readable.to_pylist()
            if raw.null_count < len(raw):
                raw.validate(full=True)
                names = [n if r is None else os.fsdecode(r) for n, r in zip(names, raw.to_pylist(), strict=True)]
            found += names
        return found


class CatalogFile(Rows):
    """A catalog in a memory map.

    Args:
        path: The file, or its future name.
        found_at: Present name of the file, if it differs.

    Attributes:
        is_store: Whether it is the catalog of a packet store.

    Raises:
        CatalogError: The file cannot be read, is damaged, not a catalog, or of another version.
    """

    def __init__(self, path: str, found_at: str | None = None) -> None:
        self.path = path
        try:
            with pa.memory_map(found_at or path) as file:
                # A forked process would lack Arrow's own threads.
                reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
                self.metadata: dict[bytes, bytes] = dict(reader.schema.metadata or {})
                self._check(reader.schema)
                file.seek(len(MAGIC) + 2)  # the rest has the stream format
                batches = list(plain_batches(file, reader.schema))
                if len(batches) != reader.num_record_batches:
                    raise ValueError(f"{len(batches)} record batches, but its footer lists {reader.num_record_batches}")
        except FileNotFoundError:
            raise CatalogError(path, f"no such catalog; build one with: {_HOW}") from None
        except CatalogError:
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            if os.path.isdir(path):
                raise CatalogError(path, f"a folder, not a catalog; build one with: {_HOW}") from None
            if isinstance(error, OSError) and error.errno is not None:
                raise CatalogError(path, f"cannot be read ({error.strerror})") from error
            with suppress(OSError):  # deleted meanwhile
                if not begins_as_catalog(found_at or path):  # perhaps a video: do not suggest deleting it
                    raise CatalogError(path, f"not a catalog; build one with: {_HOW}") from error
            why = (str(error).splitlines() or [type(error).__name__])[0]
            reason = f"not a catalog, or a damaged one ({why})"
            raise CatalogError(path, f"{reason}; delete it and build it again with: {_HOW}") from error
        super().__init__(batches)

    def _check(self, schema: Any) -> None:
        version = self.metadata.get(VERSION_KEY)
        if version is None:
            raise ForeignFile(self.path, f"an Arrow file but not a catalog; build one with: {_HOW}")
        versions = [str(each).encode() for each in (VERSION, STORE_VERSION)]
        if version not in versions:
            raise CatalogError(
                self.path,
                f"a catalog of version {version.decode(errors='replace')}; this framefeed reads versions {VERSION} and "
                f"{STORE_VERSION}; build it again with: {_HOW}",
            )
        self.is_store = version == versions[1]
        names = set(schema.names)
        if not names >= set(common_schema([]).names) or not schema.equals(common_schema([schema])):
            raise CatalogError(self.path, "its columns are not those of a catalog; delete it and build it again")
        if is_stored(schema) is not self.is_store:
            raise CatalogError(self.path, "its columns are not those of its version; delete it and build it again")

    def numbers(self, name: str) -> NDArray[Any]:
        """Returns a column of numbers, over all rows.

        Raises:
            CatalogError: The column is damaged.
        """
        column = [*SCALARS].index(name)
        if any(batch.column(column).null_count for batch in self.batches):
            raise self._damaged(f"a value of {name} is missing")
        found = super().numbers(name)
        if name == "num_frames":  # frames are counted by this column
            lengths = [np.diff(batch.column(_FRAMES).offsets.to_numpy()) for batch in self.batches]
            if lengths and (np.concatenate(lengths) != found).any():
                raise self._damaged("num_frames does not match its rows")
        return found

    def paths(self) -> list[str]:
        """Returns the paths of all rows as stored.

        Raises:
            CatalogError: A path is damaged.
        """
        try:
            found = super().paths()
        except (pa.ArrowException, ValueError) as error:
            raise self._damaged("a path is not text") from error
        if not all(found) or any("\0" in path for path in found):
            raise self._damaged("a path is missing")
        return found

    def _damaged(self, why: str) -> CatalogError:
        return CatalogError(self.path, f"damaged ({why}); delete it and build it again")

    def check(self) -> None:
        """Validates every row, so that all can be copied safely.

        Raises:
            CatalogError: The catalog is damaged.
        """
        try:
            for batch in self.batches:
                batch.validate(full=True)
        except pa.ArrowException as error:
            raise self._damaged("its rows are invalid") from error
        _ = self.bad, self.paths(), self.numbers("num_frames")

    @cached_property
    def bad(self) -> list[BadEntry]:
        """Files that could not be indexed."""
        try:
            said = json.loads(self.metadata[REPORT_KEY])
            if not isinstance(said, list):
                raise TypeError("no list")
            entries = [BadEntry(**entry) for entry in said]
            for entry in entries:
                if not all(isinstance(text, str) for text in (entry.path, entry.reason, entry.error, entry.scanner)):
                    raise TypeError("a field is not a string")
            return entries
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CatalogError(self.path, "its report is damaged; delete the catalog and build it again") from error


def plain_batches(file: Any, schema: Any) -> Iterator[Any]:
    """Yields the record batches of an Arrow stream.

    Catalogs have no compressed batches, and one in a damaged file could expand without limit.

    Args:
        file: Arrow's file, at the start of the stream.
        schema: The schema of the batches.

    Raises:
        ArrowInvalid: A batch is damaged.
        ValueError: A batch is compressed.
    """
    while True:
        try:
            message = pa.ipc.read_message(file)
        except EOFError:
            return
        if message.type != "record batch":
            continue
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("it is compressed")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate()  # checks that no column exceeds its buffers; reads no row
        yield batch


def _is_compressed(metadata: bytes) -> bool:
    """Returns whether the FlatBuffer metadata of a record batch names a compression."""

    def field(table: int, number: int) -> int:
        """Returns the offset of a field of a table; 0 if the field is absent."""
        fields = table - unpack_from("<i", metadata, table)[0]
        if 4 + 2 * number >= unpack_from("<H", metadata, fields)[0]:
            return 0
        offset: int = unpack_from("<H", metadata, fields + 4 + 2 * number)[0]
        return table + offset if offset else 0

    header = field(unpack_from("<I", metadata)[0], 2)
    return bool(field(header + unpack_from("<I", metadata, header)[0], 3))


def begins_as_catalog(path: str) -> bool:
    """Returns whether a file starts as a catalog does, complete or truncated; an empty file does.

    Raises:
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        return MAGIC.startswith(file.read(len(MAGIC)))


def write_file(path: str, batches: Iterable[Any], schema: Any, bad: Sequence[BadEntry]) -> CatalogFile:
    """Writes a catalog atomically and opens it. Processes that have the old file open keep it.

    Args:
        path: The file.
        batches: Rows, in batches of bounded size.
        schema: Schema of the batches.
        bad: The files that could not be indexed.

    Raises:
        CatalogError: The catalog cannot be written.
    """
    report = json.dumps([asdict(entry) for entry in bad]).encode()
    version = STORE_VERSION if is_stored(schema) else VERSION
    described = schema.with_metadata({VERSION_KEY: str(version).encode(), REPORT_KEY: report})
    try:
        with atomic_file(path, sync=True) as file:
            with pa.ipc.new_file(file, described, options=pa.ipc.IpcWriteOptions(use_threads=False)) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            # Opened before the rename: another build may replace the file at any time.
            return CatalogFile(path, file.name)
    except OSError as error:
        raise CatalogError(path, f"cannot be written ({error.strerror or error})") from error
