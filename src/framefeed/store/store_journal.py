"""Videos that an unfinished packet store has already, in a journal."""

from __future__ import annotations

import base64
import json
import operator
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed._util.journal import Journal, JournalInUse
from framefeed.catalog.paths import UNFINISHED
from framefeed.errors import CatalogError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Fingerprint

__all__ = ["Placed", "StoreJournal", "VideoKey", "key_of"]

VideoKey = tuple[str, Fingerprint, int, int]
"""Identity of packets: the video's path, its fingerprint, its stream, and a checksum of the packets' sizes."""


def key_of(index: VideoIndex) -> VideoKey:
    """Names the packets of a video."""
    video = index.fingerprint if index.stored is None else index.stored.video
    return index.path, video, index.stream.stream_index, zlib.crc32(np.ascontiguousarray(index.packets.size).data)


@dataclass(frozen=True, eq=False)
class Placed:
    """Location of the packets of a video in a store.

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


class StoreJournal:
    """The journal of a store: videos whose packets it has.

    Args:
        folder: Of the store.

    Attributes:
        entries: What earlier calls noted.

    Raises:
        CatalogError: Another process has it open, or it cannot be written.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.entries: list[Placed] = []
        with self._errors():
            self._journal = Journal(os.path.join(folder, UNFINISHED), self._take)

    def _take(self, _: int, record: bytes) -> None:
        self.entries.append(_parse(record))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except JournalInUse:
            raise CatalogError(self._folder, "another process is packing videos into it") from None
        except OSError as error:
            raise CatalogError(self._folder, f"cannot be written ({error.strerror or error})") from error

    def add(self, entries: Iterable[Placed]) -> None:
        """Notes videos whose packets are on the disk."""
        with self._errors():
            self._journal.append(*map(_record, entries))

    def remove(self) -> None:
        """Removes the file: the store is finished."""
        with self._errors():
            self._journal.remove()

    def close(self) -> None:
        """Releases the file."""
        self._journal.close()


def _record(entry: Placed) -> bytes:
    path, fingerprint, stream, sizes = entry.key
    checksums = base64.b64encode(np.ascontiguousarray(entry.checksums, "<u4").tobytes()).decode()
    return json.dumps([path, *fingerprint, stream, sizes, entry.shard, entry.start, entry.end, checksums]).encode()


def _parse(record: bytes) -> Placed:
    """Returns the entry of a record that ``_record`` wrote.

    Raises:
        ValueError: It did not write this.
    """
    try:
        path, size, mtime_ns, stream, sizes, shard, start, end, checksums = json.loads(record)
        found = np.frombuffer(base64.b64decode(checksums), "<u4").astype(np.uint32)
        numbers = (size, stream, sizes, shard, start, end - start, 10**9 - shard)
        if not (isinstance(path, str) and isinstance(mtime_ns, int) and min(map(operator.index, numbers)) >= 0):
            raise ValueError("a value is out of range")
    except (TypeError, RecursionError) as error:
        raise ValueError("an entry is damaged") from error
    return Placed((path, (size, mtime_ns), stream, sizes), shard, start, end, found)
