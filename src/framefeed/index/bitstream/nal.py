"""NAL units: H.264 and HEVC packets, all packets of a chunk at once where that is possible."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.kinds import HEAD, Classification, PacketKind, Read
from framefeed.index.bitstream.packet import Chunk, PacketBytes
from framefeed.index.bitstream.parameters import Key, ParameterSets

SLOW, PICTURE, HOP, SEI = 0, 1, 2, 3
"""Actions of the fast walk by the first byte of a NAL unit: leave the packet to Python, stop, hop, check and hop."""

MAX_HOPS = 6
"""NAL units that the fast walk hops over; packets with more go to Python (AUD and two or three SEI are usual)."""

OPENING = 40
"""Bytes of a picture unit, zero padded, from which its numbers are read."""

MAX_UNITS = 4096
"""NAL units of one packet that are looked at, so that a packet full of tiny units does not stall the index."""


_LEAST = 4
"""Bytes of a packet that may be a NAL unit with its length: decoders ignore less behind the last one."""

_NOT_A_START = np.uint16(~int(PacketKind.RAP | PacketKind.CLOSED) & 0xFFFF)


class Outcome(NamedTuple):
    """Result of parsing one packet in Python."""

    kinds: int = 0
    recovery: int = 0


def is_annex_b(data: bytes) -> bool:
    """Returns whether the bytes begin with a start code."""
    return data[:3] == b"\0\0\1" or data[:4] == b"\0\0\0\1"


def split_annex_b(data: bytes) -> list[bytes]:
    """NAL units of a short Annex B byte string (extradata)."""
    return [unit for part in data.split(b"\0\0\1")[1:] if (unit := part.rstrip(b"\0"))]


def split_counted(data: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """``count`` units with 16 bit lengths from offset ``at``, and the offset behind them."""
    units = []
    for _ in range(count):
        length = int.from_bytes(data[at : at + 2], "big")
        if at + 2 + length > len(data):
            raise OutOfData("parameter set beyond the extradata")
        units.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return units, at


def iter_units(packet: PacketBytes, length_size: int, actions: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Offsets (begin, end) of a packet's NAL units; the end of an Annex B picture unit is given as -1.

    Slices are most of a packet and nobody needs their end unless the walk goes on, so it is not looked for.
    """
    if length_size:
        at = 0
        for _ in range(MAX_UNITS):
            if at >= packet.size or 0 < at > packet.size - _LEAST:
                return
            prefix = packet.take(at, length_size)
            begin = at + length_size
            at = begin + int.from_bytes(prefix, "big")
            if len(prefix) < length_size or at == begin or at > packet.size:
                raise OutOfData("NAL unit length does not fit the packet")
            yield begin, at
        raise OutOfData("too many NAL units")
    begin = -1
    for number, (at, data) in enumerate(packet.start_codes()):
        if begin >= 0 and actions[data[begin]] != PICTURE:
            yield begin, at - 3
        begin = at
        if number > MAX_UNITS:
            raise OutOfData("too many NAL units")
        if at >= packet.size:
            return
        if actions[data[at]] == PICTURE:
            yield at, -1
    if begin < 0:
        raise OutOfData("no start code")
    if actions[packet.take(begin, 1)[0]] != PICTURE:
        yield begin, packet.size


def walk(
    heads: NDArray[np.uint8], sizes: NDArray[np.int64], length_size: int, actions: NDArray[np.uint8], need: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns begin and end of the first picture NAL unit of each packet; -1 for packets left to Python.

    Args:
        heads: First bytes of the packets.
        sizes: Sizes of the packets.
        length_size: Bytes of a NAL unit's length.
        actions: `SLOW`, `PICTURE`, `HOP` or `SEI` for each value of a unit's first byte.
        need: Bytes of the picture unit that must lie in the head.
    """
    begins, ends = np.full((2, len(sizes)), -1, np.int64)
    flat = np.ascontiguousarray(heads).reshape(-1)
    # The four bytes from each byte on.
    words: NDArray[np.uint32] = np.ndarray(max(0, len(flat) - 3), ">u4", flat, strides=(1,))
    visible = np.minimum(sizes, HEAD) - max(4, length_size + need)
    rows = np.arange(len(sizes))
    at = np.zeros(len(sizes), np.int64)
    for _ in range(MAX_HOPS):
        inside = at <= visible[rows]
        if not inside.all():
            rows, at = rows[inside], at[inside]
        if not len(rows):
            break
        base = rows * HEAD + at
        length = (words[base] >> 8 * (4 - length_size)).astype(np.int64)
        begin = at + length_size
        at = begin + length
        action = actions[flat[base + length_size]]
        action[(length < need) | (at > sizes[rows])] = SLOW
        picture = action == PICTURE
        begins[rows[picture]], ends[rows[picture]] = begin[picture], at[picture]
        if picture.all():
            break
        sei = (action == SEI).nonzero()[0]
        if len(sei):
            action[sei[_may_hold_recovery_point(heads[rows[sei]], begin[sei], at[sei])]] = SLOW
        go_on = (action == HOP) | (action == SEI)
        rows, at = rows[go_on], at[go_on]
    return begins, ends


def _may_hold_recovery_point(
    heads: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns whether an SEI unit contains bytes like payload type 6 and a size of 1 to 8 bytes.

    Searching all bytes finds every such message, whatever stands before it; the few false ones go to Python.
    """
    column = np.arange(HEAD - 1)
    looks = (heads[:, :-1] == 6) & (heads[:, 1:] >= 1) & (heads[:, 1:] <= 8)
    looks &= (column > begin[:, None]) & (column < end[:, None])
    result: NDArray[np.bool_] = looks.any(axis=1) | (end > HEAD)
    return result


class NalClassifier(ABC):
    """Base of the H.264 and HEVC classifiers: a fast walk for most packets, Python for the others, in order."""

    _actions: NDArray[np.uint8]
    _need: int
    _length_size: int
    _sets: ParameterSets

    def __init__(self) -> None:
        self._late: list[tuple[int, bytes]] = []  # pictures of which the numbers are not read yet
        self._is_last = np.zeros(0, np.bool_)  # packets that end with their first picture unit, for sure

    def classify(self, heads: NDArray[np.uint8], sizes: NDArray[np.int64], read: Read) -> Classification:
        """Classify the next packets of the stream; see `Classifier.classify`."""
        count = len(sizes)
        kinds = np.zeros(count, np.uint16)
        recovery = np.zeros(count, np.int32)
        if not count:
            return Classification(kinds, recovery)
        chunk = Chunk(heads, sizes, read)
        self._begin(count)
        found: NDArray[np.int64] = np.full(count, -1, np.int64)
        self._is_last = np.zeros(count, np.bool_)
        if self._length_size and not self._always_slow():
            found, ends = walk(heads, sizes, self._length_size, self._actions, self._need)
            self._is_last = ends == sizes
            rows = (found >= 0).nonzero()[0]
            kinds[rows] = self._fast(heads, rows, found[rows])
        self._slow_packets((found < 0).nonzero()[0].tolist(), chunk, kinds, recovery)
        self._read_late()
        self._finish(kinds, chunk)
        return Classification(kinds, recovery)

    def _slow_packets(
        self,
        rows: Sequence[int],
        chunk: Chunk,
        kinds: NDArray[np.uint16],
        recovery: NDArray[np.int32],
    ) -> None:
        """Look at the packets ``rows`` in order; take back what fast packets may not claim under changed headers."""
        todo, position, before = rows, 0, 0
        while position < len(todo):
            row = todo[position]
            self._restrict(kinds[before:row])
            was_slow = self._always_slow()
            try:
                kinds[row], recovery[row] = self._packet(chunk.packet(row))
            except (OutOfData, IndexError):  # the latter where a file ends within a packet
                kinds[row] = 0
                self._lost()
            before, position = row + 1, position + 1
            if self._always_slow() and not was_slow:
                todo, position = range(row + 1, len(kinds)), 0
        self._restrict(kinds[before:])

    def _carry(self, unit: bytes, carried: set[Key]) -> bool:
        """Takes a parameter set that a packet carries; whether it differs from the active one."""
        key = self._sets.key_of(unit)
        if key is not None:
            carried.add(key)
            return False
        self._read_late()  # what came before it belongs to the sets so far
        key = self._take_parameter_set(unit)
        carried.add(key)
        return self._sets.add(key, unit)

    def _read_late(self) -> None:
        """Reads the numbers of the pictures in ``_late``, all at once."""
        if self._late:
            rows, openings = zip(*self._late, strict=True)
            self._late.clear()
            data = np.frombuffer(b"".join(opening.ljust(OPENING, b"\0") for opening in openings), np.uint8)
            self._read_numbers(data, np.arange(len(rows)) * OPENING, np.array(rows))

    def _restrict(self, kinds: NDArray[np.uint16]) -> None:
        """Clear flags of packets without parameter sets of their own under the sets that are active now."""
        if len(kinds) and not self._sets.startable(set()):
            kinds &= _NOT_A_START if self._sets.complete() else np.uint16(0)

    def _begin(self, count: int) -> None:  # noqa: B027 (optional)
        """A chunk of ``count`` packets begins."""

    @abstractmethod
    def _always_slow(self) -> bool:
        """Returns whether the stream needs more of each packet than the fast walk sees."""

    @abstractmethod
    def _fast(self, heads: NDArray[np.uint8], rows: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Flags of the packets ``rows`` whose first picture unit begins at ``at``."""

    @abstractmethod
    def _take_parameter_set(self, unit: bytes) -> Key:
        """Remember what later parsing needs of a parameter set, and name it."""

    @abstractmethod
    def _read_numbers(self, data: NDArray[np.uint8], at: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Read what the headers of the pictures ``rows``, whose units begin at ``at`` of ``data``, number them with."""

    @abstractmethod
    def _packet(self, packet: PacketBytes) -> Outcome:
        """Flags of one packet; `OutOfData` when it cannot be understood."""

    def _lost(self) -> None:  # noqa: B027 (optional)
        """A packet was not understood."""

    def _finish(self, kinds: NDArray[np.uint16], chunk: Chunk) -> None:  # noqa: B027 (optional)
        """All packets of the chunk have flags."""
