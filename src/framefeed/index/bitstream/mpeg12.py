"""MPEG-1 and MPEG-2 video packets."""

from typing import NamedTuple

from framefeed.index.bitstream.bits import BitReader, OutOfData
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.packet import PacketBytes, SequentialClassifier

_PICTURE, _LAST_SLICE, _USER_DATA, _SEQUENCE, _EXTENSION, _END, _GROUP = 0x00, 0xAF, 0xB2, 0xB3, 0xB5, 0xB7, 0xB8
_QUANT_MATRIX, _PICTURE_CODING = 3, 8
_HARMLESS_EXTENSIONS = frozenset((4, 7, _PICTURE_CODING))  # copyright, picture display: not used for decoding
_I, _B = 1, 3
_FRAME = 3
_SEQUENCE_BYTES = 140
"""Size of a sequence header with both quantiser matrices."""


class _Picture(NamedTuple):
    coding_type: int
    temporal_reference: int
    structure: int = _FRAME


class _Headers:
    """Headers before the first slice of a packet."""

    def __init__(self) -> None:
        self.picture: _Picture | None = None
        self.sequence = b""
        self.closed_group = False
        self.has_group = False
        self.changes_matrices = False
        self.only_harmless = True
        self.has_slice = False


class Mpeg12Classifier(SequentialClassifier):
    """Classifies MPEG-1 and MPEG-2 packets; B pictures are never references."""

    def __init__(self, extradata: bytes) -> None:
        packet = PacketBytes(extradata, len(extradata), 0, lambda *_: b"")
        try:
            self._base = _read_headers(packet).sequence
        except OutOfData:
            self._base = b""
        self._active = self._base
        self._first_field: _Picture | None = None

    def _lost(self) -> None:
        self._first_field = None

    def _packet(self, packet: PacketBytes) -> int:
        headers = _read_headers(packet)
        kinds = 0
        if headers.sequence and headers.sequence != self._active:
            kinds |= PacketKind.NEW_HEADERS
            self._active = headers.sequence
        if headers.changes_matrices:
            self._active = b"changed"  # differs from the extradata until the next sequence header
        waiting, self._first_field = self._first_field, None
        picture = headers.picture
        if picture is None:
            return kinds | (PacketKind.HIDDEN if not headers.has_slice else 0)
        if picture.structure != _FRAME:
            second = _find_second_picture(packet)
            if second is None:
                return kinds | self._field(picture, waiting, headers)
            if second.coding_type != _B:
                headers.only_harmless = False
        return kinds | self._flags(picture, headers)

    def _flags(self, picture: _Picture, headers: _Headers) -> int:
        kinds = 0
        if picture.coding_type == _I:
            kinds |= PacketKind.INTRA
            if headers.sequence or (self._base and self._active == self._base):
                kinds |= PacketKind.RAP
                if headers.closed_group:
                    kinds |= PacketKind.CLOSED
        elif picture.coding_type == _B and headers.only_harmless:
            kinds |= PacketKind.NONREF
        return kinds

    def _field(self, picture: _Picture, waiting: _Picture | None, headers: _Headers) -> int:
        """Returns flags of a packet with a single field; its other field may depend on it, so it is never NONREF."""
        if (
            waiting
            and waiting.structure != picture.structure
            and waiting.temporal_reference == picture.temporal_reference
            and (waiting.coding_type == _B) == (picture.coding_type == _B)
            and not (headers.has_group or headers.sequence)
        ):
            return int(PacketKind.SECOND_FIELD) | (PacketKind.INTRA if picture.coding_type == _I else 0)
        self._first_field = picture
        return self._flags(picture, headers) & ~PacketKind.NONREF


def _read_headers(packet: PacketBytes) -> _Headers:
    """Parses the units of a packet up to the first slice."""
    headers = _Headers()
    found = False
    for at, _ in packet.start_codes():
        code = packet.take(at, 1)
        if not code:
            break
        found = True
        if code[0] == _PICTURE:
            if headers.picture:
                raise OutOfData("second picture before the first slice")
            headers.picture = _parse_picture(packet, at)
        elif code[0] <= _LAST_SLICE:
            headers.has_slice = True
            return headers
        elif code[0] == _SEQUENCE:
            headers.sequence = _read_sequence(packet, at)
            headers.only_harmless = False
        elif code[0] == _GROUP:
            headers.has_group = True
            headers.only_harmless = False
            headers.closed_group = BitReader(packet.take(at + 1, 4)).u(26) & 1 == 1
        elif code[0] == _EXTENSION:
            extension = BitReader(packet.take(at + 1, 5))
            kind = extension.u(4)
            headers.changes_matrices |= kind == _QUANT_MATRIX
            headers.only_harmless &= kind in _HARMLESS_EXTENSIONS
            if kind == _PICTURE_CODING and headers.picture:
                extension.skip(16 + 2)
                structure = extension.u(2)
                if not structure:
                    raise OutOfData("picture_structure")
                headers.picture = headers.picture._replace(structure=structure)
        elif code[0] not in (_USER_DATA, _END):
            raise OutOfData("unknown start code")
    if not found:
        raise OutOfData("no start code")
    if headers.picture:
        raise OutOfData("picture without slices")
    return headers


def _parse_picture(packet: PacketBytes, at: int) -> _Picture:
    bits = BitReader(packet.take(at + 1, 2))
    reference = bits.u(10)
    return _Picture(bits.u(3), reference)


def _read_sequence(packet: PacketBytes, at: int) -> bytes:
    """Returns a sequence header with its extension, for comparison."""
    data = packet.take(at + 1, _SEQUENCE_BYTES + 16)
    end = data.find(b"\0\0\1")
    if data[end : end + 4] == b"\0\0\1\xb5" and end >= 0:
        end = data.find(b"\0\0\1", end + 4)
    return data[:end].rstrip(b"\0") if end >= 0 else data.rstrip(b"\0")


def _find_second_picture(packet: PacketBytes) -> _Picture | None:
    """Returns the picture header of the second field in the same packet, if there is one."""
    headers = [at for at, _ in packet.start_codes(b"\0\0\1\0")]
    return _parse_picture(packet, headers[1] - 1) if len(headers) > 1 else None
