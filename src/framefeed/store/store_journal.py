"""Which videos a packet store has already, while it is being written: a file that only grows, line by line."""

from __future__ import annotations

import base64
import json
import operator
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed._util.file_lock import open_locked
from framefeed.catalog.paths import UNFINISHED
from framefeed.errors import CatalogError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Fingerprint

__all__ = ["Journal", "Placed", "VideoKey", "key_of"]

VideoKey = tuple[str, Fingerprint, int, int]
"""Which packets they are: the video's path, its fingerprint, its stream, and a checksum of the packets' sizes."""


def key_of(index: VideoIndex) -> VideoKey:
    """Names the packets of a video."""
    video = index.fingerprint if index.stored is None else index.stored.video
    return index.path, video, index.stream.stream_index, zlib.crc32(np.ascontiguousarray(index.packets.size).data)


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a store has the packets of a video.

    Attributes:
        key: Which packets.
        shard: Number of the shard.
        start: Where they begin in it.
        end: Where they end.
        checksums: CRC-32 of each.
    """

    key: VideoKey
    shard: int
    start: int
    end: int
    checksums: NDArray[np.uint32]


class Journal:
    """The journal of a store. Only one process has it open at a time.

    A line counts when it is whole; one that was cut off by a crash is dropped.

    Args:
        folder: Of the store.

    Attributes:
        entries: What was noted by those who had it before.

    Raises:
        CatalogError: Another process has it, or it cannot be written.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, UNFINISHED)
        try:
            self._descriptor = self._open()
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                lines = file.read().splitlines(keepends=True)
        except OSError as error:
            raise self._error(error) from error
        self.entries: list[Placed] = []
        self._end = 0
        for line in lines:
            entry = _parse(line)
            if entry is None:
                break
            self.entries.append(entry)
            self._end += len(line)

    def _open(self) -> int:
        descriptor = open_locked(self._path)
        if descriptor is None:
            raise CatalogError(self._folder, "another process is packing videos into it")
        return descriptor

    def _error(self, error: OSError) -> CatalogError:
        return CatalogError(self._folder, f"cannot be written ({error.strerror or error})")

    def add(self, entries: Iterable[Placed]) -> None:
        """Notes videos whose packets are on the disk."""
        data = b"".join(map(_line, entries))
        try:
            os.ftruncate(self._descriptor, self._end)
            while data:
                written = os.pwrite(self._descriptor, data, self._end)
                self._end += written
                data = data[written:]
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._error(error) from error

    def remove(self) -> None:
        """The store is finished."""
        try:
            os.unlink(self._path)
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Leaves it to the next one."""
        os.close(self._descriptor)


def _line(entry: Placed) -> bytes:
    path, fingerprint, stream, sizes = entry.key
    checksums = base64.b64encode(np.ascontiguousarray(entry.checksums, "<u4").tobytes()).decode()
    fields = [path, *fingerprint, stream, sizes, entry.shard, entry.start, entry.end, checksums]
    text = json.dumps(fields).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Placed | None:
    """The entry of a whole line that holds one, None for another."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        path, size, mtime_ns, stream, sizes, shard, start, end, checksums = json.loads(text)
        found = np.frombuffer(base64.b64decode(checksums), "<u4").astype(np.uint32)
        numbers = (size, stream, sizes, shard, start, end - start, 10**9 - shard)
        if not (isinstance(path, str) and isinstance(mtime_ns, int) and min(map(operator.index, numbers)) >= 0):
            return None
    except (ValueError, TypeError, RecursionError):  # not written by this journal, whatever the checksum says
        return None
    return Placed((path, (size, mtime_ns), stream, sizes), shard, start, end, found)
