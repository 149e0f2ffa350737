"""Reads packets of a video: by byte range from a store or a container with contiguous packets, else by demuxer."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from framefeed.errors import FileChanged
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, PathMedia, check_unchanged
from framefeed.source.shards import ShardMedia

__all__ = ["ByteRanges", "CutOff", "PacketSource", "StoredPackets", "media_of", "open_source"]

# A read includes the gap between two packets (audio, skipped packets) if it is smaller than this: a read call costs
# about as much as copying this many bytes.
MAX_GAP = 64 << 10
MAX_READ = 4 << 20  # bounds the memory of a job for GOPs of any length


class CutOff(Exception):
    """The file ends before the end of a packet, or a checksum does not match.

    Attributes:
        packet: Number of the packet.
        reason: Where the file ends, or what is damaged.
    """

    def __init__(self, packet: int, reason: str) -> None:
        super().__init__(reason)
        self.packet = packet
        self.reason = reason


class PacketSource(Protocol):
    """Protocol of packet sources."""

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets in rising order.

        Raises:
            FileChanged: The file is not the one that was indexed.
            CutOff: The file was already truncated when it was indexed, or a packet does not match its checksum; the
                packets before that one have been yielded.
        """


class ByteRanges:
    """Reads packets at the positions of the index, neighbours in one read."""

    def __init__(self, index: VideoIndex, media: Media) -> None:
        self._index = index
        self._media = media

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets in rising order."""
        check_unchanged(self._media, self._index.fingerprint)
        table = self._index.packets
        pos, size = table.pos[numbers], table.size[numbers]
        end = pos + size
        # Start a new read if the next packet lies before this one or far behind it, or if the read would get too long.
        breaks = np.flatnonzero((pos[1:] < end[:-1]) | (pos[1:] - end[:-1] > MAX_GAP)) + 1
        for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
            for low, high in _split(pos, end, first, last):
                start = int(pos[low])
                view = self._view(start, int(end[high - 1]))
                file_end = start + len(view)
                these = slice(low, high)
                for number, begin, behind in zip(
                    numbers[these].tolist(), pos[these].tolist(), end[these].tolist(), strict=True
                ):
                    if behind > file_end:
                        reason = f"the file is cut off at byte {file_end}; packet {number} would end at byte {behind}"
                        raise CutOff(number, reason)
                    yield number, view[begin - start : behind - start]

    def _view(self, start: int, stop: int) -> memoryview:
        """Reads bytes; fewer where the file ended before ``stop`` when it was indexed."""
        media = self._media
        if isinstance(media, PathMedia):
            data = media.read(start, stop - start, self._index.fingerprint)
        else:
            data = media.read(start, stop - start)
        file_end = start + len(data)
        if file_end < stop and file_end < self._index.fingerprint[0]:
            raise FileChanged(self._media.name, f"ends at byte {file_end}, shorter than when it was indexed")
        return memoryview(data)


def _split(pos: NDArray[np.int64], end: NDArray[np.int64], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Splits a run of neighbouring packets into reads of at most MAX_READ bytes (or one packet)."""
    low = first
    while low < last:
        limit = int(pos[low]) + MAX_READ
        high = max(low + 1, min(last, low + int(np.searchsorted(end[low:last], limit, side="right"))))
        yield low, high
        low = high


class StoredPackets(ByteRanges):
    """Reads packets from a packet store and verifies their checksums."""

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets in rising order."""
        stored = self._index.stored
        assert stored is not None
        expected = stored.checksums[numbers].tolist()
        for (number, data), checksum in zip(super().read(numbers), expected, strict=True):
            if zlib.crc32(data) != checksum:
                if isinstance(self._media, ShardMedia):
                    self._media.check()  # another shard may have replaced it
                raise CutOff(number, f"{stored.shard} is damaged: the checksum of packet {number} does not match")
            yield number, data


def media_of(index: VideoIndex) -> Media:
    """Returns the media with the packets of an index: a shard, or the video itself."""
    return PathMedia(index.path) if index.stored is None else ShardMedia(index)


def open_source(index: VideoIndex, media: Media) -> PacketSource:
    """Returns the fastest source that the container allows."""
    if index.stored is not None:
        return StoredPackets(index, media)
    if index.byte_ranges:
        return ByteRanges(index, media)
    from framefeed.source.demux import Demuxed

    return Demuxed(index, media)
