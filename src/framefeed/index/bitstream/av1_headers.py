"""Parses AV1 headers: the sequence header, and frame headers up to refresh_frame_flags."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData

KEY, INTER, INTRA_ONLY, SWITCH = range(4)
_SELECT = 2


class OperatingPoint(NamedTuple):
    """The layers of an operating point, and whether frames carry removal times for it."""

    idc: int
    has_decoder_model: bool


class Sequence(NamedTuple):
    """Fields of a sequence header that frame headers depend on, and colours: range, primaries, transfer, matrix."""

    reduced_still_picture: bool = False
    points: tuple[OperatingPoint, ...] = ()
    decoder_model: bool = False
    equal_picture_interval: bool = False
    removal_time_bits: int = 0
    presentation_time_bits: int = 0
    frame_id_bits: int = 0
    screen_content: int = _SELECT
    integer_mv: int = _SELECT
    order_hint_bits: int = 0
    film_grain: bool = False
    colors: tuple[int, int, int, int] = (0, 2, 2, 2)


class Frame(NamedTuple):
    """Fields of a frame header that classification needs."""

    frame_type: int = KEY
    is_shown: bool = True
    shows_existing: int = -1
    refresh_frame_flags: int = 0xFF


def read_leb128(data: bytes) -> tuple[int, int]:
    """Returns value and length of a leb128 number."""
    value = 0
    for index, byte in enumerate(data[:8]):
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value, index + 1
    raise OutOfData("leb128")


def _uvlc(bits: BitReader) -> int:
    return bits.ue()  # the same code as unsigned Exp-Golomb, for all values below 2**32 - 1


def parse_sequence(data: bytes) -> Sequence:
    """Parses a sequence header OBU (without its OBU header)."""
    bits = BitReader(data[:512])
    profile = bits.u(3)
    bits.skip(1)
    if bits.flag():
        bits.skip(5)
        seq = Sequence(reduced_still_picture=True, points=(OperatingPoint(0, False),))
    else:
        seq = _parse_points(bits)
    width_bits, height_bits = bits.u(4) + 1, bits.u(4) + 1
    bits.skip(width_bits + height_bits)
    if not seq.reduced_still_picture and bits.flag():
        delta = bits.u(4) + 2
        seq = seq._replace(frame_id_bits=bits.u(3) + delta + 1)
    bits.skip(3)
    if not seq.reduced_still_picture:
        bits.skip(4)
        has_order_hint = bits.flag()
        if has_order_hint:
            bits.skip(2)
        screen = _SELECT if bits.flag() else bits.u(1)
        integer_mv = _SELECT
        if screen:
            integer_mv = _SELECT if bits.flag() else bits.u(1)
        hint_bits = bits.u(3) + 1 if has_order_hint else 0
        seq = seq._replace(screen_content=screen, integer_mv=integer_mv, order_hint_bits=hint_bits)
    bits.skip(3)
    colors = _read_colors(bits, profile)
    return seq._replace(film_grain=bits.flag(), colors=colors)


def _parse_points(bits: BitReader) -> Sequence:
    decoder_model, equal_interval = False, False
    delay_bits = removal_bits = presentation_bits = 0
    if bits.flag():
        bits.skip(64)
        equal_interval = bits.flag()
        if equal_interval:
            _uvlc(bits)
        decoder_model = bits.flag()
        if decoder_model:
            delay_bits = bits.u(5) + 1
            bits.skip(32)
            removal_bits, presentation_bits = bits.u(5) + 1, bits.u(5) + 1
    has_initial_delay = bits.flag()
    points = []
    for _ in range(bits.u(5) + 1):
        idc = bits.u(12)
        if bits.u(5) > 7:
            bits.skip(1)
        has_model = decoder_model and bits.flag()
        if has_model:
            bits.skip(2 * delay_bits + 1)
        if has_initial_delay and bits.flag():
            bits.skip(4)
        points.append(OperatingPoint(idc, has_model))
    return Sequence(False, tuple(points), decoder_model, equal_interval, removal_bits, presentation_bits)


def _read_colors(bits: BitReader, profile: int) -> tuple[int, int, int, int]:
    deep = bits.flag()
    twelve = profile == 2 and deep and bits.flag()
    mono = profile != 1 and bits.flag()
    primaries = transfer = matrix = 2
    if bits.flag():
        primaries, transfer, matrix = bits.u(8), bits.u(8), bits.u(8)
    full_range = True
    if mono:
        return 1 + bits.flag(), primaries, transfer, matrix
    if (primaries, transfer, matrix) != (1, 13, 0):
        full_range = bits.flag()
        subsampled = profile == 0
        if profile == 2:
            subsampled = True
            if twelve:
                horizontal = bits.flag()
                subsampled = horizontal and bits.flag()
            else:
                subsampled = False  # 4:2:2
        if subsampled:
            bits.skip(2)
    bits.skip(1)
    return 1 + full_range, primaries, transfer, matrix


def parse_frame(data: bytes, seq: Sequence, temporal_id: int, spatial_id: int) -> Frame:
    """Parses a frame header up to ``refresh_frame_flags``."""
    if seq.reduced_still_picture:
        return Frame()
    bits = BitReader(data)
    has_time = seq.decoder_model and not seq.equal_picture_interval
    if bits.flag():
        return Frame(INTER, True, bits.u(3), 0)
    frame_type, is_shown = bits.u(2), bits.flag()
    if is_shown and has_time:
        bits.skip(seq.presentation_time_bits)
    if not is_shown:
        bits.skip(1)
    starts_anew = frame_type == SWITCH or (frame_type == KEY and is_shown)
    if starts_anew:
        return Frame(frame_type, is_shown, -1, 0xFF)
    resilient = bits.flag()
    bits.skip(1)
    screen = bits.flag() if seq.screen_content == _SELECT else bool(seq.screen_content)
    if screen and seq.integer_mv == _SELECT:
        bits.skip(1)
    bits.skip(seq.frame_id_bits + 1 + seq.order_hint_bits)
    if frame_type == INTER and not resilient:
        bits.skip(3)
    if seq.decoder_model and bits.flag():
        for point in seq.points:
            in_layers = point.idc >> temporal_id & 1 and point.idc >> spatial_id + 8 & 1
            if point.has_decoder_model and (point.idc == 0 or in_layers):
                bits.skip(seq.removal_time_bits)
    return Frame(frame_type, is_shown, -1, bits.u(8))
