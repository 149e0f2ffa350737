"""MPEG-4 part 2 packets."""

import re
from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

_LAYER_FIRST, _LAYER_LAST, _USER_DATA, _GROUP, _VOP = 0x20, 0x2F, 0xB2, 0xB3, 0xB6
_I, _P, _B = 0, 1, 2
_HEADER_BYTES = 256
_EMPTY_VOP_BYTES = 19
"""Most bytes to which encoders pad a VOP that is not coded; FFmpeg recognises one by the same bound."""

_PACKED = re.compile(rb"^DivX\d+(?:b|Build)\d+p")


_ENCODER = re.compile(rb"\x00\x00\x01\xb2(?:Lavc(\d+)\.|XviD(\d{4}))")
_LAVC, _XVID = 58, 33
"""The first versions of these encoders without the faults that FFmpeg's decoder works around."""


def has_known_faults(extradata: bytes) -> bool:
    """Returns whether the stream may come from an encoder with faults that FFmpeg's decoder works around."""
    encoder = _ENCODER.search(extradata)
    if encoder is None:
        return True
    lavc, xvid = encoder.groups()
    return int(lavc) < _LAVC if lavc else int(xvid) < _XVID


class _Layer(NamedTuple):
    """A video object layer header.

    Attributes:
        increment_bits: Bits of vop_time_increment.
        stands_together: Whether it may have interlaced B-VOPs. FFmpeg takes the time between two fields from the first
            B-VOP that a decoder gets, and drops some that do not fit: each depends on all before it.
    """

    increment_bits: int
    stands_together: bool


def _parse_layer(data: bytes) -> _Layer:
    bits = BitReader(data)
    bits.skip(1 + 8)
    version = 1
    if bits.flag():
        version = bits.u(4)
        bits.skip(3)
    if bits.u(4) == 15:
        bits.skip(16)
    has_b_vops = True
    if bits.flag():
        bits.skip(2)
        has_b_vops = not bits.flag()  # low_delay
        if bits.flag():
            bits.skip(79)
    shape = bits.u(2)
    if shape or version > 5:
        raise OutOfData("only rectangular layers are understood")
    bits.skip(1)
    resolution = bits.u(16)
    increment_bits = max(1, (resolution - 1).bit_length()) if resolution else 0
    bits.skip(1)
    if bits.flag():
        bits.skip(increment_bits)
    bits.skip(1 + 13 + 1 + 13 + 1)  # width and height between markers
    return _Layer(increment_bits, bits.flag() and has_b_vops)


class Mpeg4Classifier(SequentialClassifier):
    """Classifies MPEG-4 part 2 packets; B-VOPs are never references, S-VOPs (sprites) get no flags."""

    def __init__(self, extradata: bytes) -> None:
        self._increment_bits = 0
        self._stands_together = False
        self._layer = b""
        self._packed = False
        packet = PacketBytes(extradata, len(extradata), 0, lambda *_: b"")
        try:
            for at, data in packet.start_codes():
                if at < packet.size:
                    self._header(packet, at, data[at])
        except OutOfData:
            self._layer = b""
        self._base = self._layer

    def _lost(self) -> None:
        """Does nothing: only the layer header is carried from packet to packet."""

    def _header(self, packet: PacketBytes, at: int, code: int) -> bool:
        """Applies a header other than a VOP; returns whether it is a layer header that differs from the active one."""
        if code == _USER_DATA:
            self._packed |= _PACKED.match(packet.take(at + 1, 40)) is not None
        if not _LAYER_FIRST <= code <= _LAYER_LAST:
            return False
        data = packet.take(at + 1, _HEADER_BYTES)
        end = data.find(b"\0\0\1")
        layer = data[:end] if end >= 0 else data
        layer = layer.rstrip(b"\0")
        if layer == self._layer:
            return False
        self._layer, self._increment_bits = layer, 0
        self._increment_bits, self._stands_together = _parse_layer(data)
        return True

    def _packet(self, packet: PacketBytes) -> int:
        kinds, closed, has_layer, units = 0, False, False, 0
        vops: list[int] = []
        for at, _ in packet.start_codes():
            code = packet.take(at, 1)
            if not code:
                break
            units += 1
            if code[0] == _VOP:
                vops.append(at + 1)
            elif vops:
                if code[0] != _USER_DATA:
                    raise OutOfData("header behind a VOP")
            elif code[0] == _GROUP:
                closed = BitReader(packet.take(at + 1, 3)).u(19) & 1 == 1
            else:
                has_layer |= _LAYER_FIRST <= code[0] <= _LAYER_LAST
                if self._header(packet, at, code[0]):
                    kinds |= PacketKind.NEW_HEADERS
        if not units:
            raise OutOfData("no start code")
        if not vops:
            return kinds | PacketKind.HIDDEN
        if len(vops) > 1:
            self._packed = True
            return kinds | PacketKind.MULTIPLE
        if not self._layer or not self._increment_bits:
            return kinds
        coding_type, coded = self._read_vop(packet.take(vops[0], 48))
        if not coded:
            return kinds | (PacketKind.HIDDEN if packet.size <= _EMPTY_VOP_BYTES else 0)
        if coding_type == _I:
            kinds |= PacketKind.INTRA
            if (has_layer or self._layer == self._base) and not self._stands_together:
                kinds |= PacketKind.RAP | (PacketKind.CLOSED if closed else 0)
        elif coding_type == _B and not (self._packed or self._stands_together or kinds & PacketKind.NEW_HEADERS):
            # With packed B-VOPs a decoder shows a packet's picture when it gets the next packet.
            kinds |= PacketKind.NONREF
        return kinds

    def _read_vop(self, data: bytes) -> tuple[int, bool]:
        """Returns coding type and vop_coded of a VOP header."""
        bits = BitReader(data)
        coding_type = bits.u(2)
        while bits.flag():
            pass
        if not bits.flag():
            raise OutOfData("marker bit")
        bits.skip(self._increment_bits)
        if not bits.flag():
            raise OutOfData("marker bit")
        return coding_type, bits.flag()
