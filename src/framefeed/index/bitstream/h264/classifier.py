"""H.264 packets."""

import functools
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import BitColumns, BitReader, OutOfData
from framefeed.index.bitstream.gaps import NO_GAPS, Gaps, at_rows, in_read_sequences, latest_before, order_gaps
from framefeed.index.bitstream.h264.headers import (
    RecoveryPoint,
    Slice,
    Sps,
    find_recovery_point,
    parse_pps_ids,
    parse_slice,
    parse_sps,
)
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.nal import (
    HOP,
    OPENING,
    PICTURE,
    SEI,
    SLOW,
    NalClassifier,
    Outcome,
    is_annex_b,
    iter_units,
    split_annex_b,
    split_counted,
)
from framefeed.index.bitstream.packet import Chunk, PacketBytes
from framefeed.index.bitstream.parameters import Key, ParameterSets

_SLICE, _IDR, _SEI, _SPS, _PPS, _SPS_EXTENSION, _SUBSET_SPS = 1, 5, 6, 7, 8, 13, 15
_HEADERS_ONLY = frozenset((6, 7, 8, 9, 10, 11, 12, 13, 15))
# Plain numbers, because the operators of enum.IntFlag take longer than the parsing.
_RAP, _CLOSED, _RAP_CLOSED = int(PacketKind.RAP), int(PacketKind.CLOSED), int(PacketKind.RAP | PacketKind.CLOSED)
_NONREF, _INTRA, _GRADUAL = int(PacketKind.NONREF), int(PacketKind.INTRA), int(PacketKind.GRADUAL)
_HIDDEN, _NEW_HEADERS, _SECOND_FIELD = (
    int(kind) for kind in (PacketKind.HIDDEN, PacketKind.NEW_HEADERS, PacketKind.SECOND_FIELD)
)
_START = PacketKind.RAP | PacketKind.CLOSED | PacketKind.INTRA

# AUD, filler and SVC prefix units say nothing that is needed here. Bytes with the forbidden bit set stay SLOW.
_TYPE_ACTIONS = {_SLICE: PICTURE, _IDR: PICTURE, _SEI: SEI, 9: HOP, 12: HOP, 14: HOP}
_ACTIONS = np.array([_TYPE_ACTIONS.get(b & 31, SLOW) if b < 128 else SLOW for b in range(256)], np.uint8)


def _kinds_by_header() -> NDArray[np.uint16]:
    """Flags by NAL unit header byte. An IDR with nal_ref_idc 0 is forbidden and gets none."""
    table = np.zeros(256, np.uint16)
    for ref_idc in range(4):
        table[ref_idc << 5 | _SLICE] = 0 if ref_idc else PacketKind.NONREF
        table[ref_idc << 5 | _IDR] = _START if ref_idc else 0
    return table


def _slice_types() -> NDArray[np.int8]:
    """Slice type by the first byte of a slice header with first_mb_in_slice 0; -1 for all other bytes.

    ``1`` is first_mb_in_slice 0, and the longest code of a slice type (9) takes the other 7 bits.
    """
    table = np.full(256, -1, np.int8)
    for byte in range(128, 256):
        bits = BitReader(bytes((byte & 127,)))
        bits.skip(1)
        with suppress(OutOfData):
            slice_type = bits.ue()
            table[byte] = slice_type if slice_type <= 9 else -1
    return table


_KINDS = _kinds_by_header()
_KIND_OF: list[int] = _KINDS.tolist()
_SLICE_TYPES = _slice_types()
_SLICE_TYPE_OF: list[int] = _SLICE_TYPES.tolist()


class _Field(NamedTuple):
    """A first field that waits for its second."""

    frame_num: int
    bottom: bool
    is_reference: bool


class _Pictures(NamedTuple):
    """Fields from the headers of the packets of one call.

    Attributes:
        kinds: Their flags.
        numbers: ``frame_num``; -1 where it is not known.
        orders: The lowest bits of the picture order count; -1 where they are not known.
        references: Whether later pictures may refer to them.
    """

    kinds: NDArray[np.uint16]
    numbers: NDArray[np.int32]
    orders: NDArray[np.int32]
    references: NDArray[np.bool_]


class H264Classifier(NalClassifier):
    """Classifies H.264 packets; streams that may hold field pictures take the slow way throughout."""

    _actions = _ACTIONS
    _need = 8  # up to the end of the picture order count

    def __init__(self, extradata: bytes) -> None:
        super().__init__()
        self._sets = ParameterSets(required=(_SPS, _PPS))
        self._spss: dict[int, Sps] = {}
        self._ppss: dict[int, int] = {}
        self._fields = False
        self._first_field: _Field | None = None
        self._numbers = self._orders = np.zeros(0, np.int32)
        self._references = np.zeros(0, np.bool_)
        self._pictures: list[_Pictures] = []
        self._length_size, units = split_extradata(extradata)
        for unit in units:
            if unit and unit[0] & 31 in (_SPS, _PPS):
                self._sets.add_base(self._take_parameter_set(unit), unit)

    def _take_parameter_set(self, unit: bytes) -> Key:
        kind = unit[0] & 31
        try:
            if kind == _SPS:
                sps = parse_sps(unit)
                self._spss[sps.sps_id] = sps
                self._fields |= not sps.frame_mbs_only
                return kind, sps.sps_id
            if kind == _PPS:
                pps_id, self._ppss[pps_id] = parse_pps_ids(unit)
                return kind, pps_id
        except OutOfData:
            # A set that cannot be read may be any: everything then goes the careful way.
            self._fields = True
        return kind, -1

    @property
    def may_have_fields(self) -> bool:
        """Returns whether pictures may be coded as two fields, by the parameter sets so far."""
        return self._fields or not self._spss

    def _always_slow(self) -> bool:
        return self._fields

    def _lost(self) -> None:
        self._first_field = None

    def _begin(self, count: int) -> None:
        self._numbers, self._orders = np.full((2, count), -1, np.int32)
        self._references = np.zeros(count, np.bool_)

    def _fast(self, heads: NDArray[np.uint8], rows: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.uint16]:
        data, at = heads.reshape(-1), rows * heads.shape[1] + at
        headers = data[at]
        slice_types = _SLICE_TYPES[data[at + 1]]
        kinds: NDArray[np.uint16] = _KINDS[headers]
        kinds[(slice_types == 2) | (slice_types == 7)] |= np.uint16(PacketKind.INTRA)
        kinds[slice_types < 0] = 0  # not the first slice of a picture: the packet is not a whole picture
        self._references[rows] = headers & 0x60 != 0
        read = slice_types >= 0
        self._read_numbers(data, at[read], rows[read])
        return kinds

    def _read_numbers(self, data: NDArray[np.uint8], at: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        sps = self._only_sps()
        if sps is None:
            return
        is_idr = data[at] & 31 == _IDR
        bits = BitColumns(data, at + 1)
        bits.skip(1)  # first_mb_in_slice is 0
        bits.skip_ue()
        bits.skip_ue()
        if sps.separate_colour_plane:
            bits.skip(2)
        self._numbers[rows] = bits.u(sps.frame_num_bits)
        if sps.order_bits:
            self._orders[rows] = np.where(is_idr, 0, bits.u(sps.order_bits))
        for place in bits.unclear.nonzero()[0].tolist():
            row, unit = rows[place], data[at[place] + 1 : at[place] + OPENING].tobytes()
            self._numbers[row], self._orders[row] = -1, -1
            with suppress(OutOfData):
                header = parse_slice(unit, self._spss, self._ppss, is_idr=bool(is_idr[place]), fields=False)
                self._numbers[row], self._orders[row] = header.frame_num, header.order_count

    def _only_sps(self) -> Sps | None:
        """The parameter set of all pictures, as far as their numbers go; None where there are several."""
        alike = {
            (sps.frame_num_bits, sps.order_bits, sps.in_order, sps.separate_colour_plane, sps.gaps_allowed)
            for sps in self._spss.values()
        }
        return next(iter(self._spss.values())) if len(alike) == 1 else None

    def _finish(self, kinds: NDArray[np.uint16], chunk: Chunk) -> None:
        self._pictures.append(_Pictures(kinds, self._numbers, self._orders, self._references))

    def gaps(self) -> Gaps:
        """Pictures that do not follow the ones before them, by frame_num and by picture order count."""
        sps = self._only_sps()
        if sps is None or not self._pictures:
            return NO_GAPS
        columns = [np.concatenate(column) for column in zip(*self._pictures, strict=True)]
        rows = ((columns[0] & np.uint16(_HIDDEN | _SECOND_FIELD)) == 0).nonzero()[0]
        kinds, numbers, orders, references = (column[rows] for column in columns)
        begins = (kinds & np.uint16(_CLOSED)) != 0
        lacks = _odd_droppable(numbers, references, begins)
        if not sps.gaps_allowed:
            lacks |= _number_steps(numbers, references, begins, sps.frame_num_bits) != 1
        found = lacks.copy()
        if (columns[0] & np.uint16(_SECOND_FIELD)).any():
            found[:-1] |= (numbers[:-1] < 0) & (numbers[1:] >= 0)  # one of two fields, which are not paired then
        places = np.empty(0, np.int64)
        if sps.order_bits:
            read = in_read_sequences(begins, orders < 0).nonzero()[0]
            counts, anchors = orders[read].astype(np.int64), references[read]
            odd, shown = order_gaps(counts, sps.order_bits, begins[read], anchors, fields=not sps.frame_mbs_only)
            found[read[odd]] = True
            places = at_rows(shown, rows[read], len(columns[0]))
        elif sps.in_order:
            places = at_rows(rows, rows, len(columns[0]))
        return Gaps(rows[found], lacks[found], places)

    def _packet(self, packet: PacketBytes) -> Outcome:
        recovery: RecoveryPoint | None = None
        carried: set[Key] = set()
        kinds, header, header_at, others = 0, 0, -1, 0
        for begin, end in iter_units(packet, self._length_size, _ACTIONS):
            header = packet.take(begin, 1)[0]
            kind = header & 31
            if header & 0x80:
                raise OutOfData("forbidden bit")
            if kind in (_SLICE, _IDR):
                header_at = begin
                break
            if kind == _SEI and recovery is None:
                recovery = find_recovery_point(packet.take(begin + 1, min(end - begin - 1, 4096)))
            elif kind in (_SPS, _PPS, _SPS_EXTENSION, _SUBSET_SPS):
                if self._carry(packet.take(begin, min(end - begin, 65536)).rstrip(b"\0"), carried):
                    kinds |= _NEW_HEADERS
            elif kind not in _HEADERS_ONLY:
                others += 1
        if header_at < 0:
            self._first_field = None
            return Outcome(kinds | (_HIDDEN if packet.size and not others else 0))
        if not self._sets.complete():
            raise OutOfData("no parameter sets")
        unit = packet.take(header_at, OPENING)
        slice_type = _SLICE_TYPE_OF[unit[1]]
        first: Slice | None = None
        if self._fields or slice_type < 0:
            is_idr = header & 31 == _IDR
            first = parse_slice(unit[1:], self._spss, self._ppss, is_idr=is_idr, fields=self._fields)
            if first.first_mb:
                self._first_field = None
                return Outcome(kinds)
        count = 0
        kinds |= _KIND_OF[header]
        if slice_type in (2, 7):
            kinds |= _INTRA
        if recovery and header & 31 == _SLICE:
            if recovery.frame_count > 0:
                kinds |= _GRADUAL
                count = min(recovery.frame_count, 65535)
            elif recovery.exact_match and kinds & _INTRA:
                kinds |= _RAP
        if not self._sets.startable(carried):
            kinds &= ~_RAP_CLOSED
        if kinds & _NEW_HEADERS:
            kinds &= ~_NONREF  # later packets need these headers
        if first is None:
            self._late.append((packet.index, unit))
        else:
            kinds = self._pair_fields(packet, first, header, header_at, kinds)
            if self._only_sps():
                self._numbers[packet.index], self._orders[packet.index] = first.frame_num, first.order_count
        self._references[packet.index] = header & 0x60 != 0
        return Outcome(kinds, count if kinds & _GRADUAL else 0)

    def _pair_fields(self, packet: PacketBytes, first: Slice, header: int, header_at: int, kinds: int) -> int:
        """Find out whether a field picture is alone in its packet and to which field it belongs."""
        waiting, self._first_field = self._first_field, None
        if not first.field:
            return kinds
        is_reference = header & 0x60 != 0
        if self._holds_both_fields(packet, first, is_reference, header_at):
            return kinds
        kinds &= ~_NONREF  # the other field, in a packet of its own, may refer to this one
        this = _Field(first.frame_num, first.bottom, is_reference)
        if waiting == this._replace(bottom=not this.bottom) and header & 31 != _IDR:
            start = _RAP_CLOSED | _GRADUAL
            return (kinds | _SECOND_FIELD) & ~start
        self._first_field = this
        return kinds

    def _holds_both_fields(self, packet: PacketBytes, first: Slice, is_reference: bool, header_at: int) -> bool:
        """Returns whether the packet also holds the field of opposite parity, with the same use as reference."""
        both = False
        for begin, _ in iter_units(packet, self._length_size, _ACTIONS):
            header = packet.take(begin, 1)[0]
            if begin <= header_at or header & 31 not in (_SLICE, _IDR):
                continue
            if (header & 0x60 != 0) != is_reference:
                return False
            other = parse_slice(packet.take(begin + 1, 32), self._spss, self._ppss, fields=True)
            both |= other.field and other.bottom != first.bottom
        return both


def _odd_droppable(
    numbers: NDArray[np.int32], references: NDArray[np.bool_], begins: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Pictures that nobody refers to and that lack the frame_num of the next one, which all of them have otherwise.

    A decoder makes up pictures between two numbers that do not follow each other, and drops references for them.
    """
    odd = np.zeros(len(numbers), np.bool_)
    odd[:-1] = ~references[:-1] & ~begins[1:] & (numbers[1:] != numbers[:-1])
    odd[:-1] &= (numbers[:-1] >= 0) & (numbers[1:] >= 0)
    return odd


def _number_steps(
    numbers: NDArray[np.int32], references: NDArray[np.bool_], begins: NDArray[np.bool_], bits: int
) -> NDArray[np.int64]:
    """Returns the step of frame_num from the reference before each picture; 1 if unknown."""
    known = numbers >= 0
    before = latest_before(known & references)
    clear = known & ~begins & (before >= 0)
    if not known.all():
        clear &= before > latest_before(~known)  # nothing lies between that could not be read
    return np.where(clear, (numbers - numbers[before]) & ((1 << bits) - 1), 1)


def split_extradata(extradata: bytes) -> tuple[int, list[bytes]]:
    """Bytes of a NAL unit's length in packets, 0 for start codes; and the parameter sets."""
    if len(extradata) < 7 or extradata[0] != 1 or is_annex_b(extradata):
        return 0, split_annex_b(extradata)
    try:
        units, at = split_counted(extradata, 6, extradata[5] & 31)
        units += split_counted(extradata, at + 1, extradata[at])[0] if at < len(extradata) else []
    except OutOfData:
        units = []
    return (extradata[4] & 3) + 1, [unit.rstrip(b"\0") for unit in units]


@functools.lru_cache(64)
def may_have_fields(extradata: bytes) -> bool:
    """Returns whether pictures of a stream may be coded as two fields."""
    return H264Classifier(extradata).may_have_fields
