"""Shards of a packet store: files of concatenated packets, with a trailer that identifies the shard.

A shard may be copied and moved, so its modification time means nothing. It is recognised by its size and by a check
value of its content in the trailer. A process reads the trailer once; from then on packet checksums detect changes,
which saves a query to a slow disk for each read.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from framefeed._util.atomic_write import open_own, replace
from framefeed.errors import CatalogError, FileChanged, SourceError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Fingerprint, PathMedia, source_error

__all__ = [
    "TRAILER_SIZE",
    "ShardMedia",
    "ShardWriter",
    "check_value",
    "shard_fingerprint",
    "shard_name",
    "shard_number",
]

_TRAILER = struct.Struct("<16sQQ")
"""Mark, bytes before the trailer, check value."""
TRAILER_SIZE = _TRAILER.size
_MARK = b"framefeed.store1"

_NAME = re.compile(r"packets-(\d{5,})\.bin(\.part)?")
_PART = ".part"  # suffix of a shard that is being written

_BUFFER = 1 << 20  # bytes per write

_known: set[tuple[str, Fingerprint]] = set()  # shards checked in this process


def shard_name(number: int) -> str:
    """Returns the file name of a shard."""
    return f"packets-{number:05d}.bin"


def shard_number(name: str) -> int | None:
    """Returns the number of a shard, finished or not, from its file name; None for other files."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def check_value(checksums: Iterable[NDArray[np.uint32]]) -> int:
    """Returns a 64-bit digest of a shard's content, computed from the checksums of its packets."""
    digest = blake2b(digest_size=8)
    for part in checksums:
        digest.update(np.ascontiguousarray(part, "<u4").data)
    return int.from_bytes(digest.digest(), "little")


def shard_fingerprint(path: str) -> Fingerprint:
    """Returns the current size and check value of a shard.

    Raises:
        SourceError: The file is missing, unreadable or not a shard.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would block
        try:
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, TRAILER_SIZE, max(0, size - TRAILER_SIZE))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise source_error(path, error) from None
    if len(data) == TRAILER_SIZE:
        mark, length, check = _TRAILER.unpack(data)
        if mark == _MARK and length == size - TRAILER_SIZE:
            return size, int(check)
    raise SourceError(path, "truncated, damaged or not a shard of a packet store")


class ShardMedia(PathMedia):
    """A shard as the media of one of its videos."""

    def __init__(self, index: VideoIndex) -> None:
        assert index.stored is not None
        super().__init__(index.stored.shard)
        self._index = index

    @property
    def fingerprint(self) -> Fingerprint:
        """Size and check value of the shard when this process first read its trailer."""
        expected = self._index.fingerprint
        if (self.path, expected) not in _known:
            self.check()
            _known.add((self.path, expected))
        return expected

    def check(self) -> None:
        """Checks that the shard is the one of the index.

        Raises:
            FileChanged: It is another shard.
            SourceError: The file is missing, unreadable or not a shard.
        """
        video = self._index.path
        try:
            found = shard_fingerprint(self.path)
        except SourceError as error:
            raise SourceError(self.path, f"{error.reason}; it should have the packets of {video}") from None
        expected = self._index.fingerprint
        if found != expected:
            what = f"size {expected[0]} -> {found[0]}" if found[0] != expected[0] else "its check value differs"
            raise FileChanged(self.path, f"not the shard with the packets of {video} ({what}); pack the videos again")


class ShardWriter:
    """A shard that is being written; it gets its final name when it is finished.

    Args:
        folder: Folder of the shard.
        number: Number of the shard.
        end: Bytes of an existing file to keep.
        checksums: Checksums of the packets in those bytes.

    Attributes:
        number: Number of the shard.
        end: Bytes written.

    Raises:
        CatalogError: The shard cannot be written.
    """

    def __init__(self, folder: str, number: int, end: int = 0, checksums: Iterable[NDArray[np.uint32]] = ()) -> None:
        self.number = number
        self.end = end
        self._checksums = list(checksums)
        self._waiting = bytearray()  # unwritten bytes before ``end``
        self._path = Path(folder) / shard_name(number)
        self._part = self._path.with_name(self._path.name + _PART)
        try:
            self._descriptor = open_own(self._part, new=not end)
            os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> CatalogError:
        return CatalogError(self._path, f"cannot be written ({error.strerror or error})")

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        self._waiting += data
        self.end += len(data)
        if len(self._waiting) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        data, self._waiting = memoryview(self._waiting), bytearray()
        place = self.end - len(data)
        try:
            while len(data):
                written = os.pwrite(self._descriptor, data, place)
                place += written
                data = data[written:]
        except OSError as error:
            raise self._error(error) from error

    def rewind(self, end: int) -> None:
        """Drops the bytes behind ``end``."""
        self._flush()
        self.end = end
        try:
            os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise self._error(error) from error

    def add(self, checksums: NDArray[np.uint32]) -> None:
        """Records the checksums of the video written last."""
        self._checksums.append(checksums)

    def sync(self, start: int) -> None:
        """Waits until all bytes are on the disk, and drops the cached copy from ``start`` on."""
        self._flush()
        try:
            os.fsync(self._descriptor)
            if hasattr(os, "posix_fadvise"):  # so that the next read comes from the disk
                os.posix_fadvise(self._descriptor, start, self.end - start, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._error(error) from error

    def read(self, start: int, length: int) -> bytes:
        """Reads back bytes that were written."""
        try:
            data = part = os.pread(self._descriptor, length, start)
            while part and len(data) < length:
                part = os.pread(self._descriptor, length - len(data), start + len(data))
                data += part
            return data
        except OSError as error:
            raise CatalogError(self._path, f"cannot be read back ({error.strerror or error})") from error

    def finish(self) -> None:
        """Writes the trailer and gives the shard its name."""
        self.write(_TRAILER.pack(_MARK, self.end, check_value(self._checksums)))
        self.sync(self.end)
        self.close()
        try:
            replace(self._part, self._path)
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Closes the file without finishing the shard."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
