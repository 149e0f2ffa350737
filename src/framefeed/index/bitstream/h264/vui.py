"""Pixel format and colours of an H.264 stream, from its parameter sets.

FFmpeg reports the same after decoding a picture, which takes several times as long as reading all tables of an MP4.
"""

from __future__ import annotations

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, unescape
from framefeed.index.bitstream.h264.headers import Sps, read_sps

__all__ = ["ColorFormat", "read_format"]

UNSPECIFIED = 2


class ColorFormat(NamedTuple):
    """FFmpeg's pixel format, and the colour numbers of ISO/IEC 23091-2."""

    pix_fmt: str
    color_range: int = 0
    color_primaries: int = UNSPECIFIED
    color_transfer: int = UNSPECIFIED
    color_space: int = UNSPECIFIED


def read_format(extradata: bytes, declared: ColorFormat) -> ColorFormat | None:
    """Returns the format of a stream with this ``avcC`` box; None if it is ambiguous.

    Args:
        extradata: The box.
        declared: The container's facts, which apply if the stream has none.
    """
    if len(extradata) < 8 or extradata[0] != 1 or extradata[5] & 31 != 1:
        return None  # no box, or several parameter sets
    size = int.from_bytes(extradata[6:8], "big")
    try:
        bits = BitReader(unescape(extradata[9 : 8 + size]))
        return _read_format(read_sps(bits), bits, declared)
    except OutOfData:
        return None


def _read_format(sps: Sps, bits: BitReader, declared: ColorFormat) -> ColorFormat | None:
    if not sps.frame_mbs_only:
        bits.skip(1)
    bits.skip(1)
    if bits.flag():  # cropping
        for _ in range(4):
            bits.ue()
    _, color_range, primaries, transfer, space = declared
    if bits.flag():  # video usability information
        if bits.flag() and bits.u(8) == 255:  # aspect ratio, in full
            bits.skip(32)
        if bits.flag():  # overscan
            bits.skip(1)
        if bits.flag():  # video signal type
            bits.skip(3)
            color_range = 2 if bits.flag() else 1
            if bits.flag():
                primaries, transfer, space = bits.u(8), bits.u(8), bits.u(8)
    pix_fmt = declared.pix_fmt or _pix_fmt(sps, color_range == 2, space)
    return None if pix_fmt is None else ColorFormat(pix_fmt, color_range, primaries, transfer, space)


def _pix_fmt(sps: Sps, full_range: bool, space: int) -> str | None:
    """Returns FFmpeg's pixel format; None for rare ones, which are left to FFmpeg."""
    if sps.luma_depth != sps.chroma_depth or sps.luma_depth not in (8, 10) or sps.separate_colour_plane or space == 0:
        return None
    layout = {1: "420", 2: "422", 3: "444"}.get(sps.chroma_format)
    if layout is None:
        return None
    if sps.luma_depth == 10:
        return f"yuv{layout}p10le"
    return f"yuv{'j' if full_range else ''}{layout}p"
