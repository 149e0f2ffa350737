"""Packets as hardware decoders want them: start codes instead of lengths, parameter sets in band, even sizes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.nal import is_annex_b, split_counted

__all__ = ["Framing", "framing"]

_START = b"\0\0\0\1"
_START_ARRAY = np.frombuffer(_START, np.uint8)
_BIG_ENDIAN = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)


@dataclass(frozen=True)
class Framing:
    """Converts a stream's packets to a byte stream that can be started anywhere.

    Attributes:
        headers: What goes before the first packet of a run: the parameter sets.
        length_size: Bytes of the length before each unit of a packet; 0 where packets have start codes already.
        is_vp8: Whether packets are VP8's.
    """

    headers: bytes = b""
    length_size: int = 0
    is_vp8: bool = False

    def convert(self, data: bytes | memoryview, first: bool) -> bytearray:
        """A packet as part of the stream.

        Args:
            data: The packet.
            first: Whether decoding begins with it.
        """
        if self.length_size == 4:  # as long as a start code: replaced where they are
            at = len(self.headers) if first else 0
            out = bytearray(self.headers + data) if first else bytearray(data)
            _replace_lengths(out, at, len(out))
            return out
        out = bytearray(self.headers) if first else bytearray()
        if self.length_size:
            view, place = memoryview(data), 0
            while place + self.length_size <= len(view):
                length = int.from_bytes(view[place : place + self.length_size], "big")
                place += self.length_size
                out += _START
                out += view[place : place + length]
                place += length
        else:
            out += data
        if self.is_vp8:
            _make_even(out)
        return out

    def join(self, packets: Sequence[bytes | memoryview], first: bool) -> bytearray:
        """Packets that follow one another as one piece of the stream.

        Args:
            packets: At least one.
            first: Whether decoding begins with them.
        """
        if self.length_size not in (0, 4):
            return bytearray().join([self.convert(data, first and not place) for place, data in enumerate(packets)])
        headers = self.headers if first else b""
        out = bytearray().join([headers, *packets])
        if self.length_size:
            sizes = np.fromiter(map(len, packets), np.int64, len(packets))
            ends = len(headers) + np.cumsum(sizes)
            begins = ends - sizes
            view = np.frombuffer(out, np.uint8)
            if sizes.min() >= 4:
                heads = view[begins[:, None] + np.arange(4)]
                lengths = heads.astype(np.int64) @ _BIG_ENDIAN
                view[begins[:, None] + np.arange(4)] = _START_ARRAY
                begins = begins + 4 + lengths  # most packets are a single unit, and end there
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                if begin < end:
                    _replace_lengths(out, begin, end)
        return out


def _make_even(data: bytearray) -> None:
    """Rounds the size of a VP8 keyframe up to an even one, where NVDEC would round it down.

    No pixel of it changes: what is coded are whole macroblocks, which is also what later pictures refer to.
    """
    if len(data) >= 10 and not data[0] & 1 and data[3:6] == b"\x9d\x01\x2a":
        for at in (6, 8):
            side = int.from_bytes(data[at : at + 2], "little")  # the two highest bits are a scale
            if side & 1:
                data[at : at + 2] = (side + 1).to_bytes(2, "little")


def _replace_lengths(data: bytearray, at: int, end: int) -> None:
    """Puts start codes in the place of lengths of four bytes."""
    while at + 4 <= end:
        length = int.from_bytes(data[at : at + 4], "big")
        data[at : at + 4] = _START
        at += 4 + length


@functools.lru_cache(maxsize=256)
def framing(codec: str, extradata: bytes) -> Framing:
    """The framing of a stream's packets, from its out-of-band headers."""
    if codec not in ("h264", "hevc"):
        return Framing(is_vp8=codec == "vp8")
    if is_annex_b(extradata) or not extradata:
        return Framing(extradata)
    try:
        if codec == "h264":
            units, at = split_counted(extradata, 6, extradata[5] & 31)
            units += split_counted(extradata, at + 1, extradata[at])[0]
            size = (extradata[4] & 3) + 1
        else:
            units, at = [], 23
            for _ in range(extradata[22]):
                more, at = split_counted(extradata, at + 3, int.from_bytes(extradata[at + 1 : at + 3], "big"))
                units += more
            size = (extradata[21] & 3) + 1
    except (IndexError, OutOfData):
        return Framing()
    return Framing(b"".join(_START + unit for unit in units), size)
