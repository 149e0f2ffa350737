"""HEVC headers: ids of parameter sets, number of temporal sub-layers and the pic_output_flag."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, Part, unescape

IDR = (19, 20)
VPS, SPS, PPS = 32, 33, 34


class Pps(NamedTuple):
    """What is needed to read a slice header up to the picture order count."""

    sps_id: int
    output_flag_present: bool
    extra_slice_bits: int


class Sps(NamedTuple):
    """The beginning of a sequence parameter set, up to the length of the picture order count."""

    sps_id: int
    sub_layers: int  # sps_max_sub_layers_minus1
    separate_colour_plane: bool
    shown: Part
    order_bits: int


def parse_sps(unit: bytes) -> Sps:
    """Read a sequence parameter set (with its NAL unit header)."""
    return _read_sps(BitReader(unescape(unit[2:256])))


def _read_sps(bits: BitReader) -> Sps:
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    skip_profile(bits, sub_layers)
    sps_id, chroma = bits.ue(), bits.ue()
    separate = chroma == 3 and bits.flag()
    width, height = bits.ue(), bits.ue()
    wide, high = 2 if chroma in (1, 2) else 1, 2 if chroma == 1 else 1
    left, right, top, bottom = (bits.ue() for _ in range(4)) if bits.flag() else (0, 0, 0, 0)
    bits.ue()
    bits.ue()
    order_bits = bits.ue() + 4
    if sps_id > 15 or order_bits > 16:
        raise OutOfData("SPS out of range")
    shown = Part(wide * left, high * top, width - wide * (left + right), height - high * (top + bottom))
    return Sps(sps_id, sub_layers, separate, shown, order_bits)


def parse_block_size(unit: bytes) -> int:
    """Side of the coding tree blocks of a sequence parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:1024]))
    sps = _read_sps(bits)
    for _ in range(sps.sub_layers + 1 if bits.flag() else 1):
        for _ in range(3):
            bits.ue()
    smallest = bits.ue() + 3
    size = smallest + bits.ue()
    if not 4 <= size <= 6:
        raise OutOfData("block size")
    return 1 << size


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
    pps_id, sps_id = bits.ue(), bits.ue()
    bits.skip(1)
    if pps_id > 63 or sps_id > 15:
        raise OutOfData("PPS out of range")
    return pps_id, Pps(sps_id, bits.flag(), bits.u(3))


class Slice(NamedTuple):
    """The beginning of the first slice segment of a picture; the count is -1 where it is not known."""

    is_output: bool
    order_count: int = -1  # its lowest bits


def parse_slice(data: bytes, nal_type: int, spss: dict[int, Sps], ppss: dict[int, Pps]) -> Slice:
    """Read the beginning of the first slice segment of a picture (without NAL unit header)."""
    bits = BitReader(unescape(data))
    bits.skip(1)
    if 16 <= nal_type <= 23:
        bits.skip(1)
    pps = ppss.get(bits.ue())
    if pps is None:
        raise OutOfData("slice refers to an unknown PPS")
    bits.skip(pps.extra_slice_bits)
    bits.ue()
    is_output = not pps.output_flag_present or bits.flag()
    sps = spss.get(pps.sps_id)
    if sps is None:
        return Slice(is_output)
    if nal_type in IDR:
        return Slice(is_output, 0)
    bits.skip(2 * sps.separate_colour_plane)
    return Slice(is_output, bits.u(sps.order_bits))
