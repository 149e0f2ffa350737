"""Packets as hardware decoders want them: start codes instead of lengths, parameter sets in band."""

from __future__ import annotations

from dataclasses import dataclass

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.nal import is_annex_b, split_counted

__all__ = ["Framing", "framing"]

_START = b"\0\0\0\1"


@dataclass(frozen=True)
class Framing:
    """How a stream's packets become a byte stream that can be begun anywhere.

    Attributes:
        headers: What goes before the first packet of a run: the parameter sets.
        length_size: Bytes of the length before each unit of a packet; 0 where packets have start codes already.
    """

    headers: bytes = b""
    length_size: int = 0

    def convert(self, data: bytes | memoryview, first: bool) -> bytearray:
        """A packet as part of the stream.

        Args:
            data: The packet.
            first: Whether decoding begins with it.
        """
        if self.length_size == 4:  # as long as a start code: replaced where they are
            at, end = len(self.headers) if first else 0, 0
            out = bytearray(self.headers + data) if first else bytearray(data)
            end = len(out)
            while at + 4 <= end:
                length = int.from_bytes(out[at : at + 4], "big")
                out[at : at + 4] = _START
                at += 4 + length
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
        return out


def framing(codec: str, extradata: bytes) -> Framing:
    """The framing of a stream's packets, from its out-of-band headers."""
    if codec not in ("h264", "hevc"):
        return Framing()
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
