"""VP8 packets (RFC 6386)."""

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.kinds import HEAD, PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

_KEY = PacketKind.RAP | PacketKind.CLOSED | PacketKind.INTRA


class _BoolDecoder:
    """Boolean entropy decoder, for flags and literals only (probability one half)."""

    __slots__ = ("_at", "_bits", "_data", "_range", "_value")

    def __init__(self, data: bytes) -> None:
        if len(data) < 2:
            raise OutOfData("first partition too short")
        self._data = data
        self._value = data[0] << 8 | data[1]
        self._at = 2
        self._range = 255
        self._bits = 0

    def flag(self) -> bool:
        split = 1 + ((self._range - 1) * 128 >> 8)
        bit = self._value >= split << 8
        if bit:
            self._range -= split
            self._value -= split << 8
        else:
            self._range = split
        while self._range < 128:
            self._value <<= 1
            self._range <<= 1
            self._bits += 1
            if self._bits == 8:
                if self._at >= len(self._data):
                    raise OutOfData("header ends too early")
                self._bits = 0
                self._value |= self._data[self._at]
                self._at += 1
        return bit

    def literal(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self.flag()
        return value

    def optional_signed(self, old: int | None, width: int) -> int | None:
        """Returns a signed value if the flag before it is set, else ``old``."""
        if not self.flag():
            return old
        magnitude = self.literal(width)
        return -magnitude if self.flag() else magnitude

    def skip_optional(self, count: int, *bits: int) -> None:
        """Skips ``count`` groups of optional values, each behind a flag."""
        for width in bits:
            for _ in range(count):
                if self.flag():
                    self.literal(width)


class Vp8Classifier(SequentialClassifier):
    """Classifies VP8 packets.

    A packet can be left out if it changes no state that outlives a frame: the three reference buffers, the entropy
    tables, the loop filter deltas, the segment map and the segment data. Quantisers, sign biases and the other fields
    are sent with each inter frame.
    """

    def __init__(self) -> None:
        self._deltas: list[int | None] = [None] * 8  # of the loop filter; None if unknown
        self._segmented = False  # in the latest packet
        self._needs_map = False  # the latest packet uses the segment map of the one before
        self._pending = False  # the packet before is NONREF unless its successor uses its segment map
        self._size = b""  # of the key frames so far

    def _begin(self) -> None:
        self._pending = False

    def _lost(self) -> None:
        self._needs_map, self._segmented = True, True
        self._deltas = [None] * 8

    def _packet(self, packet: PacketBytes) -> int:
        head = packet.head
        if packet.size < 3:
            raise OutOfData("no frame header")
        is_key = not head[0] & 1
        kinds = 0 if head[0] & 0x10 else int(PacketKind.HIDDEN)
        first_size = int.from_bytes(head[:3], "little") >> 5
        offset = 10 if is_key else 3
        if offset + first_size > packet.size or head[0] >> 1 & 7 > 3:
            raise OutOfData("first partition beyond the packet")
        if is_key:
            if head[3:6] != b"\x9d\x01\x2a":
                raise OutOfData("start code")
            kinds |= _KEY
            self._size = self._size or bytes(head[6:10])
            if head[6:10] != self._size:
                kinds |= PacketKind.NEW_HEADERS
        self._needs_map = self._segmented = False
        bits = _BoolDecoder(packet.take(offset, min(first_size, HEAD)))
        if is_key:
            bits.literal(2)
            self._deltas = [0] * 8
            self._read_filters(bits)
            return kinds
        if self._changes_nothing(bits):
            kinds |= PacketKind.NONREF
        return kinds

    def _read_filters(self, bits: _BoolDecoder) -> bool:
        """Parses segmentation and loop filter; returns whether they change state that outlives the frame."""
        changes = False
        self._segmented = bits.flag()
        if self._segmented:
            update_map, update_data = bits.flag(), bits.flag()
            self._needs_map = not update_map
            changes = update_map or update_data
            if update_data:
                bits.flag()
                bits.skip_optional(4, 8, 7)
            if update_map:
                bits.skip_optional(3, 8)
        bits.literal(1 + 6 + 3)
        if bits.flag() and bits.flag():
            # Error-resilient encoders repeat the deltas in each frame, which changes nothing.
            before = self._deltas
            self._deltas = [bits.optional_signed(old, 6) for old in before]
            changes |= self._deltas != before or None in before
        return changes

    def _changes_nothing(self, bits: _BoolDecoder) -> bool:
        """Parses the header of an inter frame; returns whether it changes no state that outlives the frame."""
        changes = self._read_filters(bits)
        bits.literal(2 + 7)
        bits.skip_optional(5, 5)
        golden, alternate = bits.flag(), bits.flag()
        changes |= golden or alternate
        for refreshed in (golden, alternate):
            if not refreshed:
                changes |= bits.literal(2) != 0
        bits.literal(2)
        refresh_entropy, refresh_last = bits.flag(), bits.flag()
        return not (changes or refresh_entropy or refresh_last)

    def _revise(self, kinds: NDArray[np.uint16], index: int) -> None:
        # A frame without segmentation has no segment map, and decoders differ in what a successor that uses one gets:
        # the previous map, zeros or garbage. So the frame before such a successor is kept.
        if self._pending and self._needs_map:
            kinds[index - 1] &= np.uint16(~int(PacketKind.NONREF) & 0xFFFF)
        self._pending = bool(kinds[index] & PacketKind.NONREF) and not self._segmented

    def _end(self, kinds: NDArray[np.uint16]) -> None:
        if self._pending:
            kinds[-1] &= np.uint16(~int(PacketKind.NONREF) & 0xFFFF)
