"""Parses HEVC headers: parameter sets, and the output flag, count and references of slices."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData, Part, unescape

IDR = (19, 20)
VPS, SPS, PPS = 32, 33, 34


class Pps(NamedTuple):
    """Fields of a PPS that slice headers up to the picture order count depend on."""

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
    """Parses a sequence parameter set (with its NAL unit header)."""
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
    """Returns the side of the coding tree blocks of a sequence parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:1024]))
    _skip_buffering(bits, _read_sps(bits).sub_layers)
    smallest = bits.ue() + 3
    size = smallest + bits.ue()
    if not 4 <= size <= 6:
        raise OutOfData("block size")
    return 1 << size


def _skip_buffering(bits: BitReader, sub_layers: int) -> None:
    """Skips the sizes of the decoded picture buffer."""
    for _ in range(sub_layers + 1 if bits.flag() else 1):
        for _ in range(3):
            bits.ue()


def parse_reference_sets(unit: bytes) -> list[list[int]]:
    """Returns the reference picture sets of a sequence parameter set (with its NAL unit header); see
    `parse_references`.
    """
    bits = BitReader(unescape(unit[2:]))
    _skip_buffering(bits, _read_sps(bits).sub_layers)
    for _ in range(6):  # sizes and depths of blocks
        bits.ue()
    if bits.flag() and bits.flag():
        _skip_scaling_lists(bits)
    bits.skip(2)
    if bits.flag():  # uncompressed blocks
        bits.skip(8)
        bits.ue()
        bits.ue()
        bits.skip(1)
    sets: list[list[int]] = []
    for _ in range(min(bits.ue(), 65)):
        sets.append(_read_references(bits, sets))
    return sets


def _skip_scaling_lists(bits: BitReader) -> None:
    for size in range(4):
        for _ in range(6 if size < 3 else 2):
            if bits.flag():
                for _ in range(min(64, 16 << 2 * size) + (size > 1)):
                    bits.ue()
            else:
                bits.ue()


def parse_references(rest: int, sets: list[list[int]]) -> list[int]:
    """Returns the distances in picture order count to the references of a slice: behind it, then ahead of it.

    Args:
        rest: The 64 bits of its header behind its picture order count.
        sets: The reference picture sets of its sequence parameter set.
    """
    bits = BitReader(rest.to_bytes(8, "big"))
    return _listed_references(bits, sets) if bits.flag() else _read_references(bits, sets, in_slice=True)


def refers_ahead(rest: int, sets: list[list[int]]) -> bool:
    """Returns whether a slice may refer to, or keep, pictures that are shown later.

    Args:
        rest: The 32 bits of its header behind its picture order count.
        sets: The reference picture sets of its sequence parameter set.
    """
    bits = BitReader(rest.to_bytes(4, "big"))
    try:
        if bits.flag():
            return max(_listed_references(bits, sets), default=0) > 0
        if sets and bits.ahead(1):
            return max(_read_references(bits, sets, in_slice=True), default=0) > 0
        bits.skip(len(sets) > 0)
        bits.ue()
        return bits.ue() > 0
    except OutOfData:
        return True


def _listed_references(bits: BitReader, sets: list[list[int]]) -> list[int]:
    number = bits.u((len(sets) - 1).bit_length())
    if number >= len(sets):
        raise OutOfData("no such set of references")
    return sets[number]


def _read_references(bits: BitReader, sets: list[list[int]], *, in_slice: bool = False) -> list[int]:
    if sets and bits.flag():  # predicted from an earlier set
        back = 1 + (bits.ue() if in_slice else 0)
        if back > len(sets):
            raise OutOfData("no such set of references")
        sign = -1 if bits.flag() else 1
        shift = sign * (bits.ue() + 1)
        kept = [distance + shift for distance in (*sets[-back], 0) if bits.flag() or bits.flag()]
        return sorted(filter(None, kept), key=lambda distance: (distance > 0, abs(distance)))
    counts = bits.ue(), bits.ue()
    if sum(counts) > 16:
        raise OutOfData("too many references")
    found: list[int] = []
    for sign, count in zip((-1, 1), counts, strict=True):
        distance = 0
        for _ in range(count):
            distance += sign * (bits.ue() + 1)
            bits.skip(1)
            found.append(distance)
    return found


def skip_profile(bits: BitReader, sub_layers: int) -> None:
    """Skips the profile, tier and level of a stream and of its temporal sub-layers."""
    bits.skip(96)
    present = [(bits.flag(), bits.flag()) for _ in range(sub_layers)]
    if sub_layers:
        bits.skip(2 * (8 - sub_layers))
    for has_profile, has_level in present:
        bits.skip(88 * has_profile + 8 * has_level)


def parse_pps(unit: bytes) -> tuple[int, Pps]:
    """Parses id and slice header options of a picture parameter set (with its NAL unit header)."""
    bits = BitReader(unescape(unit[2:32]))
    pps_id, sps_id = bits.ue(), bits.ue()
    bits.skip(1)
    if pps_id > 63 or sps_id > 15:
        raise OutOfData("PPS out of range")
    return pps_id, Pps(sps_id, bits.flag(), bits.u(3))


class Slice(NamedTuple):
    """The beginning of the first slice segment of a picture; an unknown count is -1."""

    is_output: bool
    order_count: int = -1  # its lowest bits
    is_b: bool = False
    rest: int = 0  # the 64 bits behind the count


def parse_slice(data: bytes, nal_type: int, spss: dict[int, Sps], ppss: dict[int, Pps]) -> Slice:
    """Parses the beginning of the first slice segment of a picture (without NAL unit header)."""
    bits = BitReader(unescape(data))
    bits.skip(1)
    if 16 <= nal_type <= 23:
        bits.skip(1)
    pps = ppss.get(bits.ue())
    if pps is None:
        raise OutOfData("slice refers to an unknown PPS")
    bits.skip(pps.extra_slice_bits)
    is_b = bits.ue() == 0
    is_output = not pps.output_flag_present or bits.flag()
    sps = spss.get(pps.sps_id)
    if sps is None:
        return Slice(is_output)
    if nal_type in IDR:
        return Slice(is_output, 0)
    bits.skip(2 * sps.separate_colour_plane)
    return Slice(is_output, bits.u(sps.order_bits), is_b, bits.ahead(64))
