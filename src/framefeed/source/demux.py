"""Reads packets through a demuxer, for containers that split them into pieces (MPEG-TS, MPEG-PS)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator

import av.error
import numpy as np
from numpy.typing import NDArray

from framefeed.errors import DecodeError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, check_unchanged
from framefeed.media.opening import open_input
from framefeed.types import NO_PTS

__all__ = ["Demuxed"]

MAX_IDLE = 8  # demuxers kept open between requests, for any number of videos; each holds a file and its buffers

# Reading on is cheaper than seeking if the wanted packet is at most this far ahead.
NEAR = 64

# Formats of small packets, which can be read from any position.
_SEEK_BY_BYTES = frozenset({"mpeg", "mpegts"})


class _Walker:
    """A demuxer, and the number of its next packet."""

    def __init__(self, index: VideoIndex, media: Media) -> None:
        self._index = index
        self._media = media
        self._ahead: tuple[int, bytes] | None = None
        self._open()

    def _open(self) -> None:
        self._container = open_input(self._media)
        self._stream = self._container.streams[self._index.stream.stream_index]
        self._packets = self._container.demux(self._stream)
        self._ahead = None
        self.next = 0

    def close(self) -> None:
        self._container.close()

    def read(self, number: int) -> bytes:
        """Returns the data of a packet: reads on if it is near, else seeks, and starts over if seeking fails."""
        data = None
        if self.next <= number <= self.next + NEAR or self._seek(number):
            data = self._walk_to(number)
        if data is None:
            self.close()
            self._open()
            data = self._walk_to(number)
        if data is None:
            raise DecodeError(self._index.path, f"the demuxer no longer finds packet {number} of the index")
        return data

    def _walk_to(self, number: int) -> bytes | None:
        """Reads up to a packet; returns None if a packet does not match the index."""
        size = self._index.packets.size
        if self._ahead is not None:
            found, data = self._ahead
            self._ahead = None
            if found == number:
                return data
        with contextlib.suppress(av.error.FFmpegError):
            for packet in self._packets:
                if packet.size == 0:
                    continue
                here = self.next
                self.next += 1
                if here >= len(size) or int(size[here]) != packet.size:
                    return None
                if here == number:
                    return bytes(packet)
        return None

    def _seek(self, number: int) -> bool:
        """Seeks to a packet at or before the first one of the group, and identifies it."""
        table = self._index.packets
        start = int(table.start[number])
        position, pts = int(table.pos[start]), int(table.pts[start])
        with contextlib.suppress(av.error.FFmpegError):
            if position >= 0 and self._index.stream.container in _SEEK_BY_BYTES:
                self._container.seek(position, unsupported_byte_offset=True, any_frame=True)
            elif pts != NO_PTS:
                self._container.seek(pts, stream=self._stream)
            else:
                return False
            self._packets = self._container.demux(self._stream)
            packet = next(packet for packet in self._packets if packet.size)
            same = (table.pos == (-1 if packet.pos is None else packet.pos)) & (table.size == packet.size)
            same &= table.pts == (NO_PTS if packet.pts is None else packet.pts)
            found = np.flatnonzero(same)
            if len(found) == 1 and found[0] <= number:
                self._ahead = (int(found[0]), bytes(packet))
                self.next = int(found[0]) + 1
                return True
        return False


class _Idle:
    """Pool of idle walkers; closes the least recently used ones."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._walkers: OrderedDict[int, tuple[VideoIndex, _Walker]] = OrderedDict()
        self._returned: deque[tuple[VideoIndex, _Walker]] = deque()

    def take(self, index: VideoIndex, near: int) -> _Walker | None:
        with self._lock:
            self._accept()
            for key, (owner, walker) in reversed(self._walkers.items()):
                if owner is index and walker.next <= near:
                    del self._walkers[key]
                    return walker
            for key, (owner, walker) in self._walkers.items():
                if owner is index:
                    del self._walkers[key]
                    return walker
        return None

    def put(self, index: VideoIndex, walker: _Walker) -> None:
        # The garbage collector may run this for an abandoned generator, in any thread, even one that holds the lock.
        self._returned.append((index, walker))
        if not self._lock.acquire(blocking=False):
            return  # the next caller does it
        try:
            self._accept()
            old = [self._walkers.popitem(last=False)[1][1] for _ in range(len(self._walkers) - MAX_IDLE)]
        finally:
            self._lock.release()
        for walker in old:
            walker.close()

    def _accept(self) -> None:
        while self._returned:
            index, walker = self._returned.popleft()
            self._walkers[id(walker)] = (index, walker)


_IDLE = _Idle()
os.register_at_fork(after_in_child=_IDLE.reset)  # the parent keeps its own


class Demuxed:
    """Reads packets through a pooled demuxer."""

    def __init__(self, index: VideoIndex, media: Media) -> None:
        self._index = index
        self._media = media

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets in rising order."""
        check_unchanged(self._media, self._index.fingerprint)
        if not len(numbers):
            return
        walker = _IDLE.take(self._index, int(numbers[0])) or _Walker(self._index, self._media)
        try:
            for number in numbers.tolist():
                yield number, walker.read(number)
        except GeneratorExit:  # the job stopped before the last packet
            _IDLE.put(self._index, walker)
            raise
        except BaseException:
            walker.close()
            raise
        _IDLE.put(self._index, walker)
