"""An append-only file of records, so that a run resumes after a kill. One process has it open at a time.

Each record has its length and a CRC-32 in front of it. A record counts when it is whole: what a kill or a full disk cut
off is dropped with everything behind it, and overwritten by the next record.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

from framefeed._util.atomic_write import write
from framefeed._util.file_lock import open_locked

__all__ = ["Journal", "JournalInUse"]

_HEADER = struct.Struct("<4sII")  # mark, bytes of the record, their CRC-32
_MARK = b"FFJ1"


class JournalInUse(Exception):
    """Another process has the journal open."""


class Journal:
    """A journal in a file.

    Args:
        path: The file. It is created if missing.
        take: Called with the place and the content of each whole record of the file, in order. A ``ValueError`` from it
            drops this record and all behind it: no journal of this kind wrote them.
        make_folder: Whether to create a missing folder of the file.

    Raises:
        JournalInUse: Another process has it open.
        OSError: It cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], take: Callable[[int, bytes], None], *, make_folder: bool = False
    ) -> None:
        self._path = path
        self._end = 0
        self._descriptor = self._open(make_folder)
        try:
            for place, record, end in self._records():
                try:
                    take(place, record)
                except ValueError:
                    break
                self._end = end
        except BaseException:
            self.close()
            raise

    def _open(self, make_folder: bool = False) -> int:
        descriptor = open_locked(self._path, make_folder=make_folder)
        if descriptor is None:
            raise JournalInUse(os.fspath(self._path))
        return descriptor

    def _records(self) -> Iterator[tuple[int, bytes, int]]:
        """Yields place, content and end of each whole record."""
        size = os.fstat(self._descriptor).st_size
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            while len(head := file.read(_HEADER.size)) == _HEADER.size:
                mark, length, checksum = _HEADER.unpack(head)
                place = file.tell()
                if mark != _MARK or place + length > size:
                    return
                record = file.read(length)
                if len(record) < length or zlib.crc32(record) != checksum:
                    return
                yield place, record, place + length

    def append(self, *records: bytes) -> list[int]:
        """Writes records; they are on the disk when this returns.

        Returns:
            The place of each, for ``read``.

        Raises:
            OSError: They cannot be written. Earlier records stay.
        """
        data, places = _framed(records, self._end)
        os.ftruncate(self._descriptor, self._end)
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], self._end + written)
        os.fsync(self._descriptor)
        self._end += len(data)
        return places

    def read(self, place: int, length: int) -> bytes:
        """Returns bytes of a record, from the place that ``append`` or ``take`` named."""
        return os.pread(self._descriptor, length, place)

    def replace_all(self, *records: bytes) -> None:
        """Writes these records in place of all others, at once."""
        data, _ = _framed(records, 0)
        write(self._path, data, sync=True)
        before, self._descriptor = self._descriptor, self._open()
        os.close(before)
        self._end = len(data)

    def clear(self) -> None:
        """Removes all records."""
        os.ftruncate(self._descriptor, 0)
        self._end = 0

    def remove(self) -> None:
        """Removes the file. The journal stays locked until it is closed."""
        os.unlink(self._path)

    def close(self) -> None:
        """Releases the file."""
        os.close(self._descriptor)


def _framed(records: Iterable[bytes], start: int) -> tuple[bytes, list[int]]:
    """Returns the bytes to write, and the place of each record."""
    parts: list[bytes] = []
    places: list[int] = []
    for record in records:
        places.append(start + _HEADER.size)
        start += _HEADER.size + len(record)
        parts += [_HEADER.pack(_MARK, len(record), zlib.crc32(record)), record]
    return b"".join(parts), places
