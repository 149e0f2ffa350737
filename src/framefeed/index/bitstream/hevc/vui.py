"""Size, pixel format and colours of an HEVC stream, from its sequence parameter set.

FFmpeg reports the same, but only after it has opened the file and a decoder. Parameter sets are read to their last bit:
sets with rare options or trailing data are left to FFmpeg.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, unescape
from framefeed.index.bitstream.hevc.headers import PPS, SPS, VPS, skip_profile
from framefeed.index.bitstream.nal import split_counted

__all__ = ["HevcFormat", "read_format"]

UNSPECIFIED = 2
_LIMITED, _FULL = 1, 2
_SEI = 39

_LAYOUTS = {1: "420", 2: "422", 3: "444"}
_DEPTHS = {8: "", 10: "10le", 12: "12le"}
_SHARED_SIDES = {1: (2, 2), 2: (2, 1), 3: (1, 1)}  # pixels that share a chroma sample, across and down
_ASPECTS = (
    (0, 1), (1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11),
    (15, 11), (64, 33), (160, 99), (4, 3), (3, 2), (2, 1),
)  # fmt: skip
# Numbers known to both the standard and FFmpeg. Matrix 0 is RGB, which changes the pixel format.
_PRIMARIES = frozenset((1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 22))
_TRANSFERS = frozenset((1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18))
_MATRICES = frozenset((1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14))
_START_CODE = re.compile(rb"\0\0[\0-\2]")  # cannot occur in a unit


class Unusual(ValueError):
    """The set is valid but rare, and left to FFmpeg."""


class HevcFormat(NamedTuple):
    """Size, pixel format and colours by FFmpeg's names, and the reorder depth."""

    width: int
    height: int
    pix_fmt: str
    color_range: int
    color_primaries: int
    color_transfer: int
    color_space: int
    sample_aspect_ratio: Fraction | None
    reorder_depth: int


class _Usability(NamedTuple):
    """The fields of the video usability information that affect the format."""

    aspect: Fraction | None = None
    full_range: bool = False
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    matrix: int = UNSPECIFIED


def read_format(extradata: bytes) -> HevcFormat | None:
    """Returns the format of a stream with this ``hvcC`` box; None if it is ambiguous."""
    try:
        sets = _parameter_sets(extradata)
        _check_vps(BitReader(unescape(sets[VPS][2:])))
        if sets[VPS][2] >> 4 != sets[SPS][2] >> 4:
            return None
        return _read_sps(BitReader(unescape(sets[SPS][2:])))
    except (OutOfData, Unusual):
        return None


def _parameter_sets(extradata: bytes) -> dict[int, bytes]:
    """Returns the parameter sets of a box with one set of each type."""
    if len(extradata) < 23 or extradata[0] != 1:
        raise Unusual("no hvcC box")
    sets: dict[int, bytes] = {}
    at = 23
    for _ in range(extradata[22]):
        if at + 3 > len(extradata):
            raise OutOfData("array beyond the extradata")
        kind, count = extradata[at] & 63, int.from_bytes(extradata[at + 1 : at + 3], "big")
        units, at = split_counted(extradata, at + 3, count)
        if kind == _SEI:
            continue
        if kind in sets or count != 1 or units[0][:2] != bytes((kind << 1, 1)) or _START_CODE.search(units[0]):
            raise Unusual("several sets, layers, or damage")
        sets[kind] = units[0]
    if at != len(extradata) or sets.keys() != {VPS, SPS, PPS} or min(map(len, sets.values())) < 3:
        raise Unusual("not one parameter set of each sort")
    return sets


def _check_vps(bits: BitReader) -> None:
    """Validates a video parameter set: one layer, and no optional parts but timing."""
    bits.skip(4)
    if bits.u(8) != 0xC0:  # a base layer, and no other
        raise Unusual("layers")
    sub_layers = bits.u(3)
    bits.skip(1)
    if sub_layers > 6 or bits.u(16) != 0xFFFF:
        raise Unusual("damaged")
    skip_profile(bits, sub_layers)
    _read_reorder_depth(bits, sub_layers)
    if bits.u(7) != 1:  # one set of layers, up to layer 0
        raise Unusual("sets of layers")
    if bits.flag():  # timing
        _skip_timing(bits)
        if bits.ue():
            raise Unusual("reference decoder parameters")
    if bits.flag() or not bits.at_stop_bit():
        raise Unusual("extensions")


def _skip_timing(bits: BitReader) -> None:
    """Skips the length of a tick, and the number of ticks per picture."""
    bits.skip(64)
    if bits.flag():
        bits.ue()


def _read_sps(bits: BitReader) -> HevcFormat:
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    skip_profile(bits, sub_layers)
    sps_id, chroma = bits.ue(), bits.ue()
    if sps_id > 15 or chroma not in _LAYOUTS or (chroma == 3 and bits.flag()):
        raise Unusual("chroma format")
    coded_width, coded_height = bits.ue(), bits.ue()
    across, down = _SHARED_SIDES[chroma]
    width, height = coded_width, coded_height
    if bits.flag():
        width -= across * (bits.ue() + bits.ue())
        height -= down * (bits.ue() + bits.ue())
    depth, chroma_depth, order_bits = bits.ue() + 8, bits.ue() + 8, bits.ue() + 4
    if depth != chroma_depth or depth not in _DEPTHS or order_bits > 16 or width <= 0 or height <= 0:
        raise Unusual("bit depth or size")
    reorder_depth = _read_reorder_depth(bits, sub_layers)
    _skip_coding_tools(bits, coded_width, coded_height)
    _skip_references(bits, order_bits)
    bits.skip(2)
    usability = _read_usability(bits) if bits.flag() else _Usability()
    if bits.flag():
        if bits.u(8) != 0x80:  # extensions other than the one for chroma formats and bit depths
            raise Unusual("extensions")
        bits.skip(9)
    if not bits.at_stop_bit():
        raise Unusual("data behind the end")
    full_range = usability.full_range
    layout = f"j{_LAYOUTS[chroma]}" if full_range and (depth, chroma) == (8, 1) else _LAYOUTS[chroma]
    return HevcFormat(
        width=width,
        height=height,
        pix_fmt=f"yuv{layout}p{_DEPTHS[depth]}",
        color_range=_FULL if full_range else _LIMITED,
        color_primaries=usability.primaries,
        color_transfer=usability.transfer,
        color_space=usability.matrix,
        sample_aspect_ratio=usability.aspect,
        reorder_depth=reorder_depth,
    )


def _read_reorder_depth(bits: BitReader, sub_layers: int) -> int:
    reorder = 0
    for _ in range(sub_layers + 1 if bits.flag() else 1):
        held, reorder = bits.ue(), bits.ue()
        bits.ue()
        if held > 15 or reorder > held:
            raise Unusual("decoded picture buffer")
    return reorder


def _skip_coding_tools(bits: BitReader, width: int, height: int) -> None:
    """Skips from the block sizes to the settings of uncompressed blocks."""
    min_block = bits.ue() + 3
    max_block = min_block + bits.ue()
    min_transform = bits.ue() + 2
    max_transform = min_transform + bits.ue()
    depths = bits.ue(), bits.ue()
    if not 4 <= max_block <= 6 or not min_transform < min_block or max_transform > min(max_block, 5):
        raise Unusual("block sizes")
    if max(depths) > max_block - min_transform or width % (1 << min_block) or height % (1 << min_block):
        raise Unusual("block sizes")
    if bits.flag() and bits.flag():
        raise Unusual("scaling lists")
    bits.skip(2)
    if bits.flag():
        raise Unusual("uncompressed blocks")


def _skip_references(bits: BitReader, order_bits: int) -> None:
    """Skips short- and long-term reference picture sets."""
    count, deltas = bits.ue(), 0
    if count > 64:
        raise Unusual("reference picture sets")
    for number in range(count):
        if number and bits.flag():  # predicted from the set before
            bits.skip(1)
            far = bits.ue()
            deltas = sum(1 for _ in range(deltas + 1) if bits.flag() or bits.flag())
        else:
            deltas, far = bits.ue() + bits.ue(), 0
            for _ in range(min(deltas, 17)):
                far = max(far, bits.ue())
                bits.skip(1)
        if deltas > 16 or far >= 1 << 15:
            raise Unusual("reference picture sets")
    if bits.flag():
        count = bits.ue()
        if count > 32:
            raise Unusual("long-term references")
        bits.skip((order_bits + 1) * count)


def _read_usability(bits: BitReader) -> _Usability:
    aspect, full_range, colors = None, False, (UNSPECIFIED, UNSPECIFIED, UNSPECIFIED)
    if bits.flag():
        number = bits.u(8)
        if number >= len(_ASPECTS) and number != 255:
            raise Unusual("aspect ratio")
        across, down = (bits.u(16), bits.u(16)) if number == 255 else _ASPECTS[number]
        aspect = Fraction(across, down) if across and down else None
    if bits.flag():  # overscan
        bits.skip(1)
    if bits.flag():  # video signal type
        bits.skip(3)
        full_range = bits.flag()
        if bits.flag():
            colors = bits.u(8), bits.u(8), bits.u(8)
            if colors[0] not in _PRIMARIES or colors[1] not in _TRANSFERS or colors[2] not in _MATRICES:
                raise Unusual("colours")
    if bits.flag() and max(bits.ue(), bits.ue()) > 5:
        raise Unusual("chroma location")
    bits.skip(3)
    if bits.flag():
        raise Unusual("display window")
    if bits.flag():  # timing
        _skip_timing(bits)
        if bits.flag():
            raise Unusual("reference decoder parameters")
    if bits.flag():  # restrictions
        bits.skip(3)
        for _ in range(5):
            bits.ue()
    return _Usability(aspect, full_range, *colors)
