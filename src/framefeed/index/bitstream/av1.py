"""AV1 packets (temporal units in the low-overhead format)."""

from collections.abc import Iterator
from typing import NamedTuple

from framefeed.index.bitstream.av1_headers import INTRA_ONLY as INTRA_ONLY_FRAME
from framefeed.index.bitstream.av1_headers import KEY, Frame, Sequence, parse_frame, parse_sequence, read_leb128
from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

_SEQUENCE, _DELIMITER, _FRAME_HEADER, _FRAME, _TILE_LIST = 1, 2, 3, 6, 8
_MAX_UNITS = 512
"""Most OBUs to parse per packet; a real temporal unit has fewer, even with a tile group for each tile."""


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
        if all(frame.frame_type in (KEY, INTRA_ONLY_FRAME) for frame in frames):
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
