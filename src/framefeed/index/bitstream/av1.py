"""AV1 packets (temporal units in the low-overhead format)."""

from collections.abc import Iterator
from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

KEY, INTER, INTRA_ONLY, SWITCH = range(4)
_SELECT = 2

_SEQUENCE, _DELIMITER, _FRAME_HEADER, _FRAME, _TILE_LIST = 1, 2, 3, 6, 8
_MAX_UNITS = 512
"""Most OBUs to parse per packet; a real temporal unit has fewer, even with a tile group for each tile."""


# --- headers --------------------------------------------------------------------------------------------------------


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


# --- packets --------------------------------------------------------------------------------------------------------


class _Unit(NamedTuple):
    """One OBU: its type, layer ids (None without extension), and the position of its payload."""

    kind: int
    layers: tuple[int, int] | None
    begin: int
    end: int


def _iter_units(packet: PacketBytes) -> Iterator[_Unit]:
    at = 0
    for _ in range(_MAX_UNITS):
        if at >= packet.size:
            return
        header = packet.take(at, 10)
        if header[0] & 0x81:
            raise OutOfData("reserved or forbidden bit of an OBU header")
        has_extension, has_size = header[0] >> 2 & 1, header[0] >> 1 & 1
        begin = 1 + has_extension
        if len(header) < begin:
            raise OutOfData("OBU header")
        layers = (header[1] >> 5, header[1] >> 3 & 3) if has_extension else None
        size = packet.size - at - begin
        if has_size:
            size, length = read_leb128(header[begin:])
            begin += length
        begin += at
        at = begin + size
        if at > packet.size:
            raise OutOfData("OBU beyond the packet")
        yield _Unit(header[0] >> 3 & 15, layers, begin, at)
    raise OutOfData("too many OBUs")


class Av1Classifier(SequentialClassifier):
    """Classifies AV1 packets.

    All state that outlives a frame (pictures, probabilities, motion, segmentation, loop filter deltas, film grain)
    is kept in the eight reference slots, so a packet that refreshes no slot leaves no trace.
    """

    def __init__(self, extradata: bytes) -> None:
        config = extradata[4:] if extradata[:1] == b"\x81" else extradata
        self._base = b""
        self._active = b""
        self.sequence: Sequence | None = None
        self._slots: list[int | None] = [None] * 8  # frame type in each reference slot
        packet = PacketBytes(config, len(config), 0, lambda *_: b"")
        try:
            for unit in _iter_units(packet):
                if unit.kind == _SEQUENCE:
                    data = packet.take(unit.begin, unit.end - unit.begin)
                    self.sequence = parse_sequence(data)
                    self._base = self._active = data
        except OutOfData:
            self._base = b""

    def _lost(self) -> None:
        self._slots = [None] * 8

    def _packet(self, packet: PacketBytes) -> int:
        if not packet.size:
            raise OutOfData("empty packet")
        kinds, has_sequence, plain = 0, False, True
        frames: list[Frame] = []
        for unit in _iter_units(packet):
            if unit.kind == _SEQUENCE:
                has_sequence = True
                data = packet.take(unit.begin, min(unit.end - unit.begin, 4096))
                if data != self._active:
                    kinds |= PacketKind.NEW_HEADERS
                    self._active, self.sequence = data, None
                    self.sequence = parse_sequence(data)
            elif unit.kind in (_FRAME_HEADER, _FRAME):
                if self.sequence is None:
                    raise OutOfData("no sequence header")
                data = packet.take(unit.begin, min(unit.end - unit.begin, 48))
                frame = parse_frame(data, self.sequence, *(unit.layers or (0, 0)))
                plain &= self._store(frame)
                frames.append(frame)
            elif unit.kind == _TILE_LIST:
                raise OutOfData("large scale tiles")
            plain &= unit.layers is None
        shown = sum(frame.is_shown for frame in frames)
        if shown != 1:
            kinds |= PacketKind.MULTIPLE if shown else PacketKind.HIDDEN
        if not frames:
            return kinds
        # A decoder that starts here knows only the extradata and this packet.
        startable = has_sequence or self._active == self._base
        if frames[0].frame_type == KEY and frames[0].is_shown and startable:
            kinds |= PacketKind.RAP | PacketKind.CLOSED
        if all(frame.frame_type in (KEY, INTRA_ONLY) for frame in frames):
            kinds |= PacketKind.INTRA
        sequence = self.sequence or Sequence()
        if plain and not (has_sequence or sequence.film_grain or sequence.frame_id_bits):
            kinds |= PacketKind.NONREF
        return kinds

    def _store(self, frame: Frame) -> bool:
        """Applies a frame to the reference slots; returns whether it certainly changes none."""
        if frame.shows_existing >= 0:
            shown_type = self._slots[frame.shows_existing]
            if shown_type in (KEY, None):
                # A shown key frame refreshes all slots, and a frame of unknown type may be one.
                self._slots = [shown_type] * 8
                return False
            return True
        for slot in range(8):
            if frame.refresh_frame_flags >> slot & 1:
                self._slots[slot] = frame.frame_type
        return frame.refresh_frame_flags == 0
