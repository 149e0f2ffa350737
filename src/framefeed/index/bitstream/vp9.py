"""VP9 packets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import BitReader, OutOfData
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

_SYNC_CODE = 0x498342
_HEADER_BYTES = 48
"""Upper bound of an uncompressed header up to the segmentation flag."""


class Frame(NamedTuple):
    """Fields of a frame's uncompressed header."""

    is_key: bool = False
    is_shown: bool = True
    is_intra: bool = False
    shows_existing: bool = False
    error_resilient: bool = False
    refresh_frame_flags: int = 0
    refresh_context: bool = False
    segmented: bool = False
    size: int = 0  # width and height as one number; 0 if taken from an earlier frame


def _skip_colour(bits: BitReader, profile: int) -> None:
    if profile >= 2:
        bits.skip(1)
    if bits.u(3) != 7:
        bits.skip(1 + (3 if profile & 1 else 0))
    elif profile & 1:
        bits.skip(1)
    else:
        raise OutOfData("RGB needs profile 1 or 3")


def _read_size(bits: BitReader) -> int:
    size = bits.u(32)
    if bits.flag():
        bits.skip(32)
    return size


def _read_segmented(bits: BitReader) -> bool:
    """Parses from the loop filter on; returns whether segmentation is enabled."""
    bits.skip(6 + 3)
    if bits.flag() and bits.flag():
        for _ in range(4 + 2):
            if bits.flag():
                bits.skip(7)
    bits.skip(8)
    for _ in range(3):
        if bits.flag():
            bits.skip(5)
    return bits.flag()


def parse_frame(data: bytes) -> Frame:
    """Parses the uncompressed header of a frame."""
    bits = BitReader(data)
    if bits.u(2) != 2:
        raise OutOfData("frame marker")
    profile = bits.u(1) | bits.u(1) << 1
    if profile == 3 and bits.flag():
        raise OutOfData("profile")
    if bits.flag():
        return Frame(shows_existing=True)
    is_key, is_shown, resilient = not bits.flag(), bits.flag(), bits.flag()
    is_intra, refresh, size = is_key, 0xFF, 0
    if is_key:
        if bits.u(24) != _SYNC_CODE:
            raise OutOfData("sync code")
        _skip_colour(bits, profile)
        size = _read_size(bits)
    else:
        is_intra = not is_shown and bits.flag()
        if not resilient:
            bits.skip(2)
        if is_intra:
            if bits.u(24) != _SYNC_CODE:
                raise OutOfData("sync code")
            if profile:
                _skip_colour(bits, profile)
            refresh = bits.u(8)
            size = _read_size(bits)
        else:
            refresh = bits.u(8)
            bits.skip(3 * 4)
            if not any(bits.flag() for _ in range(3)):
                size = bits.u(32)
            if bits.flag():
                bits.skip(32)
            bits.skip(1)
            if not bits.flag():
                bits.skip(2)
    refresh_context = not resilient and bits.flag()
    bits.skip(2 if resilient else 3)
    segmented = _read_segmented(bits)
    return Frame(is_key, is_shown, is_intra, False, resilient, refresh, refresh_context, segmented, size)


def split_superframe(packet: PacketBytes) -> list[tuple[int, int]]:
    """Returns offset and size of each frame in a packet."""
    marker = packet.take(packet.size - 1, 1)
    if not marker:
        raise OutOfData("empty packet")
    if marker[0] & 0xE0 == 0xC0:
        count, width = (marker[0] & 7) + 1, (marker[0] >> 3 & 3) + 1
        index_size = 2 + count * width
        index = packet.take(packet.size - index_size, index_size) if packet.size >= index_size else b""
        if len(index) == index_size and index[0] == marker[0]:
            frames, at = [], 0
            for number in range(count):
                size = int.from_bytes(index[1 + number * width : 1 + (number + 1) * width], "little")
                frames.append((at, size))
                at += size
                if not size or at > packet.size - index_size:
                    raise OutOfData("superframe index does not fit the packet")
            return frames
    return [(0, packet.size)]


class Vp9Classifier(SequentialClassifier):
    """Classifies VP9 packets.

    A frame that refreshes nothing still affects the next one, which may use its motion vectors, its segment map, its
    show_frame flag, and the probabilities that an error-resilient frame reset. So NONREF needs a successor that starts
    from scratch (a key frame or an error-resilient one), and no segmentation since the last key frame.
    """

    def __init__(self) -> None:
        self._segmented = True  # segmentation was enabled since the last key frame, or may have been
        self._resets = False  # the first frame of the latest packet depends on reference buffers only
        self._size = 0  # of the frames so far

    def _lost(self) -> None:
        self._segmented, self._resets = True, False

    def _packet(self, packet: PacketBytes) -> int:
        frames = [parse_frame(packet.take(at, min(size, _HEADER_BYTES))) for at, size in split_superframe(packet)]
        for frame in frames:
            if frame.is_key:
                self._segmented = False
            self._segmented |= frame.segmented
        sizes = {frame.size for frame in frames if frame.size}
        self._size = self._size or min(sizes, default=0)
        first = frames[0]
        self._resets = first.is_key or first.error_resilient
        shown = sum(frame.is_shown for frame in frames)
        kinds = int(PacketKind.NEW_HEADERS) if sizes - {self._size} else 0
        if first.is_key and first.is_shown:
            kinds |= PacketKind.RAP | PacketKind.CLOSED
        if all(frame.is_intra for frame in frames):
            kinds |= PacketKind.INTRA
        if shown != 1:
            kinds |= PacketKind.MULTIPLE if shown else PacketKind.HIDDEN
        if (
            len(frames) == 1
            and not (first.is_intra or first.shows_existing)
            and not (first.refresh_frame_flags or first.refresh_context or self._segmented)
        ):
            kinds |= PacketKind.NONREF
        return kinds

    def _revise(self, kinds: NDArray[np.uint16], index: int) -> None:
        if index and not self._resets:
            kinds[index - 1] &= np.uint16(~int(PacketKind.NONREF) & 0xFFFF)

    def _end(self, kinds: NDArray[np.uint16]) -> None:
        kinds[-1:] &= np.uint16(~int(PacketKind.NONREF) & 0xFFFF)
