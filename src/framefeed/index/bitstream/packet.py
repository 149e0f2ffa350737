"""Classification one packet at a time: lazily read bytes, and the loop for codecs without a vectorised walk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.gaps import NO_GAPS, Gaps
from framefeed.index.bitstream.kinds import Classification, Read

SCAN_LIMIT = 1 << 22
"""Bytes of a packet that a start code search reads: beyond the largest real header, small enough not to stall."""


class Chunk(NamedTuple):
    """Arguments of one call to `Classifier.classify`."""

    heads: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    read: Read

    def packet(self, row: int) -> "PacketBytes":
        """Returns one packet of the call."""
        size = max(0, int(self.sizes[row]))
        return PacketBytes(self.heads[row].tobytes()[:size], size, row, self.read)


class PacketBytes:
    """The bytes of a packet: the head is in memory, the rest is read on demand."""

    __slots__ = ("_read", "head", "index", "size")

    def __init__(self, head: bytes, size: int, index: int, read: Read) -> None:
        self.head = head
        self.size = size
        self.index = index
        self._read = read

    def take(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``offset``; fewer at the end of the packet."""
        end = min(offset + length, self.size)
        if end <= offset:
            return b""
        if end <= len(self.head):
            return self.head[offset:end]
        return self._read(self.index, offset, end - offset)

    def start_codes(self, marker: bytes = b"\0\0\1") -> Iterator[tuple[int, bytes]]:
        """Finds start codes; reads on only as far as the caller iterates.

        Yields:
            The offset just behind each marker, and the packet's bytes read so far (from offset 0).
        """
        data, at = self.head, 0
        while True:
            found = data.find(marker, at)
            # The byte behind a start code tells its type, so a code at the very end of the window needs more data too.
            if found >= 0 and (found + len(marker) < len(data) or len(data) >= self.size):
                at = found + len(marker)
                yield at, data
            elif len(data) >= self.size:
                return
            elif len(data) < SCAN_LIMIT:
                at = found if found >= 0 else max(at, len(data) - len(marker) + 1)
                more = self._read(self.index, len(data), max(4096, 3 * len(data)))
                if not more:
                    raise OutOfData("the file ends within the packet")
                data += more
            else:
                raise OutOfData("no end of the headers in sight")


class SequentialClassifier(ABC):
    """A classifier that parses packets one by one."""

    def classify(self, heads: NDArray[np.uint8], sizes: NDArray[np.int64], read: Read) -> Classification:
        """Classifies the next packets of the stream; see `Classifier.classify`."""
        count = len(sizes)
        kinds = np.zeros(count, np.uint16)
        self._begin()
        chunk = Chunk(heads, sizes, read)
        for index in range(count):
            try:
                kinds[index] = self._packet(chunk.packet(index))
            except (OutOfData, IndexError):  # the latter where a file ends within a packet
                self._lost()
            self._revise(kinds, index)
        self._end(kinds)
        return Classification(kinds, np.zeros(count, np.int32))

    def gaps(self) -> Gaps:
        """Returns none: headers of these codecs do not number references."""
        return NO_GAPS

    @abstractmethod
    def _packet(self, packet: PacketBytes) -> int:
        """Returns the flags of a packet; raises `OutOfData` if it cannot be parsed."""

    @abstractmethod
    def _lost(self) -> None:
        """Resets the state that an unparsed packet may have changed."""

    def _begin(self) -> None:  # noqa: B027 (optional)
        """Begins a call."""

    def _revise(self, kinds: NDArray[np.uint16], index: int) -> None:  # noqa: B027 (optional)
        """Revises the flags of the packet before ``index``, whose flags are complete."""

    def _end(self, kinds: NDArray[np.uint16]) -> None:  # noqa: B027 (optional)
        """Ends a call: the successor of the last packet is unknown."""
