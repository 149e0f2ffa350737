"""Parses H.264 headers: the fields of SPS, PPS, slice header and recovery point SEI that classification needs."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, Part, unescape

# Profiles whose SPS carries chroma format, bit depth and scaling matrices (clause 7.3.2.1.1).
_HIGH_PROFILES = frozenset((100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135))


class Sps(NamedTuple):
    """Fields of an SPS that slice headers up to the field flags depend on, and the coded format."""

    sps_id: int
    frame_num_bits: int
    order_bits: int  # of the picture order count in slice headers; 0 if it is absent
    in_order: bool  # pictures are shown in decode order
    gaps_allowed: bool
    frame_mbs_only: bool
    separate_colour_plane: bool
    chroma_format: int
    luma_depth: int
    chroma_depth: int
    coded_width: int
    coded_height: int


class Slice(NamedTuple):
    """The beginning of a slice header; unknown numbers are -1."""

    first_mb: int
    slice_type: int
    frame_num: int = -1
    field: bool = False
    bottom: bool = False
    order_count: int = -1  # its lowest bits


class RecoveryPoint(NamedTuple):
    """A recovery point SEI message."""

    frame_count: int
    exact_match: bool


def _skip_scaling_list(bits: BitReader, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) % 256
        last = following or last


def parse_sps(unit: bytes) -> Sps:
    """Parses a sequence parameter set (with its NAL unit header)."""
    return read_sps(BitReader(unescape(unit[1:1024])))


def read_sps(bits: BitReader) -> Sps:
    """Parses a sequence parameter set up to and including frame_mbs_only_flag."""
    profile = bits.u(8)
    bits.skip(16)
    sps_id = bits.ue()
    separate, chroma, luma_depth, chroma_depth = False, 1, 8, 8
    if profile in _HIGH_PROFILES:
        chroma = bits.ue()
        separate = chroma == 3 and bits.flag()
        luma_depth, chroma_depth = bits.ue() + 8, bits.ue() + 8
        bits.skip(1)
        if bits.flag():
            for index in range(12 if chroma == 3 else 8):
                if bits.flag():
                    _skip_scaling_list(bits, 16 if index < 6 else 64)
    frame_num_bits = bits.ue() + 4
    order_type = bits.ue()
    order_bits = 0
    if order_type == 0:
        order_bits = bits.ue() + 4
    elif order_type == 1:
        bits.skip(1)
        bits.se()
        bits.se()
        cycle = bits.ue()
        if cycle > 255:
            raise OutOfData("num_ref_frames_in_pic_order_cnt_cycle")
        for _ in range(cycle):
            bits.se()
    bits.ue()
    gaps_allowed = bits.flag()
    columns, rows = bits.ue() + 1, bits.ue() + 1
    frame_mbs_only = bits.flag()
    if max(frame_num_bits, order_bits) > 16 or sps_id > 31 or order_type > 2:
        raise OutOfData("SPS out of range")
    size = 16 * columns, 16 * rows * (1 if frame_mbs_only else 2)
    numbers = sps_id, frame_num_bits, order_bits, order_type == 2, gaps_allowed
    return Sps(*numbers, frame_mbs_only, separate, chroma, luma_depth, chroma_depth, *size)


def shown_part(unit: bytes) -> Part:
    """Returns the visible part of pictures of a sequence parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[1:1024]))
    sps = read_sps(bits)
    bits.skip(1 if sps.frame_mbs_only else 2)
    wide = 2 if sps.chroma_format in (1, 2) else 1
    high = (2 if sps.chroma_format == 1 else 1) * (1 if sps.frame_mbs_only else 2)
    left, right, top, bottom = (bits.ue() for _ in range(4)) if bits.flag() else (0, 0, 0, 0)
    return Part(
        wide * left, high * top, sps.coded_width - wide * (left + right), sps.coded_height - high * (top + bottom)
    )


def parse_pps_ids(unit: bytes) -> tuple[int, int]:
    """Returns the ids of a picture parameter set and of its SPS."""
    bits = BitReader(unescape(unit[1:32]))
    pps_id, sps_id = bits.ue(), bits.ue()
    if pps_id > 255 or sps_id > 31:
        raise OutOfData("PPS out of range")
    return pps_id, sps_id


def parse_slice(
    data: bytes, spss: dict[int, Sps], ppss: dict[int, int], *, is_idr: bool = False, fields: bool
) -> Slice:
    """Parses the beginning of a slice header (without NAL unit header).

    Args:
        data: Its first bytes.
        spss, ppss: The parameter sets.
        is_idr: Whether it begins an IDR picture.
        fields: Whether it must be read up to the field flags.
    """
    bits = BitReader(unescape(data))
    first_mb, slice_type = bits.ue(), bits.ue()
    if slice_type > 9:
        raise OutOfData("slice type")
    sps = spss.get(ppss.get(bits.ue(), -1))
    if sps is None:
        if fields:
            raise OutOfData("slice refers to unknown parameter sets")
        return Slice(first_mb, slice_type)
    if sps.separate_colour_plane:
        bits.skip(2)
    frame_num = bits.u(sps.frame_num_bits)
    field = not sps.frame_mbs_only and bits.flag()
    bottom = field and bits.flag()
    order_count = 0 if is_idr else bits.u(sps.order_bits) if sps.order_bits else -1
    return Slice(first_mb, slice_type, frame_num, field, bottom, order_count)


def find_recovery_point(data: bytes) -> RecoveryPoint | None:
    """Returns the recovery point message in an SEI unit (without NAL unit header), if there is one."""
    payload, at = unescape(data), 0
    while at + 2 <= len(payload):
        values = []
        for _ in range(2):
            value = 0
            while at < len(payload) and payload[at] == 0xFF:
                value, at = value + 255, at + 1
            if at >= len(payload):
                return None
            values.append(value + payload[at])
            at += 1
        kind, size = values
        if kind == 6:
            bits = BitReader(payload[at : at + min(size, 16)])
            return RecoveryPoint(bits.ue(), bits.flag())
        at += size
    return None
