"""Checks that the headers of H.264 and HEVC determine the size of decoded pictures."""

from __future__ import annotations

from collections.abc import Iterator

from framefeed.index.bitstream.bits import OutOfData, Part
from framefeed.index.bitstream.h264 import classifier as h264
from framefeed.index.bitstream.h264.headers import shown_part
from framefeed.index.bitstream.hevc import classifier as hevc
from framefeed.index.bitstream.hevc.headers import SPS, parse_sps

__all__ = ["has_size", "units_before_pictures"]

_H264_SPS = 7


def has_size(codec: str, extradata: bytes, opening: bytes, width: int, height: int) -> bool:
    """Returns whether all sequence parameter sets that the first picture may use have this size.

    FFmpeg's decoders crop less at the left than the headers say if memory is aligned otherwise; headers do not
    determine the size of such pictures.

    Args:
        codec: FFmpeg's name; True for codecs other than ``h264`` and ``hevc``.
        extradata: The codec's headers.
        opening: The first bytes of the first packet.
        width, height: The size in pixels.
    """
    if codec not in ("h264", "hevc"):
        return True
    length_size, units = (h264 if codec == "h264" else hevc).split_extradata(extradata)
    if not length_size:
        return False
    try:
        units += units_before_pictures(codec, opening, length_size)
        parts = [_part(codec, unit) for unit in units if unit and _kind(codec, unit) in (_H264_SPS, SPS)]
    except OutOfData:
        return False
    return bool(parts) and all(part == Part(0, part.top, width, height) for part in parts)


def units_before_pictures(codec: str, packet: bytes, length_size: int) -> Iterator[bytes]:
    """Yields the length-prefixed NAL units of a packet up to the first one with picture data.

    Args:
        codec: ``h264`` or ``hevc``.
        packet: The first bytes of the packet.
        length_size: Bytes of each length.

    Raises:
        OutOfData: No picture data is among these bytes.
    """
    at = 0
    while at + length_size + 2 < len(packet):
        size = int.from_bytes(packet[at : at + length_size], "big")
        at += length_size
        if _kind(codec, packet[at:]) in ((1, 5) if codec == "h264" else range(32)):
            return
        if size:  # empty if the packet is damaged
            yield packet[at : at + size]
        at += size
    raise OutOfData("no picture")


def _kind(codec: str, unit: bytes) -> int:
    return unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63


def _part(codec: str, unit: bytes) -> Part:
    return shown_part(unit) if codec == "h264" else parse_sps(unit).shown
