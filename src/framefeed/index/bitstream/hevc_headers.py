"""HEVC headers: ids of parameter sets, number of temporal sub-layers and the pic_output_flag."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, Part, unescape

VPS, SPS, PPS = 32, 33, 34


class Pps(NamedTuple):
    """What is needed to read a slice header up to pic_output_flag."""

    output_flag_present: bool
    extra_slice_bits: int


def parse_sps(unit: bytes) -> tuple[int, int]:
    """Id and ``sps_max_sub_layers_minus1`` of a sequence parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:256]))
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    skip_profile(bits, sub_layers)
    sps_id = bits.ue()
    if sps_id > 15:
        raise OutOfData("SPS id")
    return sps_id, sub_layers


def shown_part(unit: bytes) -> Part:
    """What is shown of pictures of a sequence parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:1024]))
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    skip_profile(bits, sub_layers)
    bits.ue()
    chroma = bits.ue()
    if chroma == 3:
        bits.skip(1)
    width, height = bits.ue(), bits.ue()
    wide, high = 2 if chroma in (1, 2) else 1, 2 if chroma == 1 else 1
    left, right, top, bottom = (bits.ue() for _ in range(4)) if bits.flag() else (0, 0, 0, 0)
    return Part(wide * left, high * top, width - wide * (left + right), height - high * (top + bottom))


def skip_profile(bits: BitReader, sub_layers: int) -> None:
    """Pass over the profile, tier and level of a stream and of its temporal sub-layers."""
    bits.skip(96)
    present = [(bits.flag(), bits.flag()) for _ in range(sub_layers)]
    if sub_layers:
        bits.skip(2 * (8 - sub_layers))
    for has_profile, has_level in present:
        bits.skip(88 * has_profile + 8 * has_level)


def parse_pps(unit: bytes) -> tuple[int, Pps]:
    """Id and slice header options of a picture parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:32]))
    pps_id = bits.ue()
    bits.ue()
    bits.skip(1)
    if pps_id > 63:
        raise OutOfData("PPS id")
    return pps_id, Pps(bits.flag(), bits.u(3))


def parse_pic_output_flag(data: bytes, nal_type: int, ppss: dict[int, Pps]) -> bool:
    """``pic_output_flag`` of the first slice segment of a picture (without NAL unit header)."""
    bits = BitReader(unescape(data))
    bits.skip(1)
    if 16 <= nal_type <= 23:
        bits.skip(1)
    pps = ppss.get(bits.ue())
    if pps is None:
        raise OutOfData("slice refers to an unknown PPS")
    if not pps.output_flag_present:
        return True
    bits.skip(pps.extra_slice_bits)
    bits.ue()
    return bits.flag()
