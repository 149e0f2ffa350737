"""HEVC packets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import BitColumns, OutOfData
from framefeed.index.bitstream.gaps import NO_GAPS, Gaps, at_rows, in_read_sequences, last_shown, order_gaps
from framefeed.index.bitstream.hevc.headers import (
    IDR,
    PPS,
    SPS,
    VPS,
    Pps,
    Slice,
    Sps,
    parse_block_size,
    parse_pps,
    parse_reference_sets,
    parse_references,
    parse_slice,
    parse_sps,
    refers_ahead,
)
from framefeed.index.bitstream.kinds import PacketKind
from framefeed.index.bitstream.nal import (
    HOP,
    OPENING,
    PICTURE,
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

_BLA_FIRST, _BLA_LAST, _CRA, _END_OF_SEQUENCE = 16, 18, 21, 36
_HEADERS_ONLY = frozenset((*range(32, 41),))
_NOT_A_PICTURE = 255
_SAMPLE = 16  # pictures that tell whether counts of a stream rise by two
_NON_REFERENCE = frozenset((0, 2, 4, 6, 8))
_IS_IDR = np.array([kind in IDR for kind in range(256)])
_ORDER_ANCHORS = np.array([kind in (1, 3, 5, *range(16, 22)) for kind in range(256)])  # in the lowest sub-layer
# Plain numbers, because the operators of enum.IntFlag take longer than the parsing.
_RAP_CLOSED, _NONREF = int(PacketKind.RAP | PacketKind.CLOSED), int(PacketKind.NONREF)
_HIDDEN, _NEW_HEADERS = int(PacketKind.HIDDEN), int(PacketKind.NEW_HEADERS)
_START = PacketKind.RAP | PacketKind.INTRA
_REFERENCE = np.uint16(~int(PacketKind.NONREF) & 0xFFFF)

# Reserved picture types (10-15, 22-31) are ignored by decoders and get no flags, so they are not worth a fast way.
_PICTURES = frozenset((*range(10), *range(16, 22)))
_TYPE_ACTIONS = {**dict.fromkeys(_PICTURES, PICTURE), 35: HOP, 38: HOP, 39: HOP}
# Bit 7 is the forbidden bit, bit 0 the highest bit of the layer id: both stay SLOW.
_ACTIONS = np.array([SLOW if b & 0x81 else _TYPE_ACTIONS.get(b >> 1, SLOW) for b in range(256)], np.uint8)


def _kinds_by_type() -> NDArray[np.uint16]:
    """Flags by NAL unit type; NONREF is still to be checked against the temporal sub-layer."""
    table = np.zeros(256, np.uint16)
    for nal_type in _NON_REFERENCE:
        table[nal_type] |= PacketKind.NONREF
    table[6:8] |= np.uint16(PacketKind.RADL)
    table[8:10] |= np.uint16(PacketKind.RASL)
    table[16:21] = _START | PacketKind.CLOSED
    table[_CRA] = _START
    return table


_KINDS = _kinds_by_type()
_KIND_OF: list[int] = _KINDS.tolist()
_DROPPABLE = _KINDS & np.uint16(_NONREF) != 0


class HevcClassifier(NalClassifier):
    """Classifies HEVC packets by NAL unit type, temporal sub-layer and the random-access point before them."""

    _actions = _ACTIONS
    _need = 7  # up to the end of the picture order count

    def __init__(self, extradata: bytes) -> None:
        super().__init__()
        self._sets = ParameterSets(required=(VPS, SPS, PPS))
        self._spss: dict[int, Sps] = {}
        self._sps_units: dict[int, bytes] = {}
        self._ppss: dict[int, Pps] = {}
        self._output_flags = False
        self._unreadable_sets = False
        self._max_sub_layer = -1  # the largest of all SPS
        self._max_seen = 0  # the largest TemporalId of all packets
        self._drops_rasl: bool | None = None  # of the last random-access point; None before the first one
        self._after_end = True  # the next CRA begins a coded video sequence
        self._types = np.zeros(0, np.uint8)
        self._layers = np.zeros(0, np.int16)
        self._ends = np.zeros(0, np.bool_)
        self._orders = np.zeros(0, np.int32)
        self._are_b = np.zeros(0, np.bool_)
        self._rests = np.zeros(0, np.uint64)  # of the slice headers, behind the order count
        self._pictures: list[tuple[NDArray[Any], ...]] = []
        self._length_size, units = split_extradata(extradata)
        for unit in units:
            if unit and unit[0] >> 1 & 63 in (VPS, SPS, PPS):
                self._sets.add_base(self._take_parameter_set(unit), unit)

    def _take_parameter_set(self, unit: bytes) -> Key:
        kind = unit[0] >> 1 & 63
        try:
            if kind == SPS:
                sps = parse_sps(unit)
                self._spss[sps.sps_id], self._sps_units[sps.sps_id] = sps, unit
                self._max_sub_layer = max(self._max_sub_layer, sps.sub_layers)
                return kind, sps.sps_id
            if kind == PPS:
                pps_id, self._ppss[pps_id] = parse_pps(unit)
                self._output_flags |= self._ppss[pps_id].output_flag_present
                return kind, pps_id
        except OutOfData:
            self._unreadable_sets = True
        return kind, unit[2] >> 4 if kind == VPS and len(unit) > 2 else -1

    def _always_slow(self) -> bool:
        return self._output_flags

    def _begin(self, count: int) -> None:
        self._types = np.full(count, _NOT_A_PICTURE, np.uint8)
        self._layers = np.zeros(count, np.int16)
        self._ends = np.zeros(count, np.bool_)
        self._orders = np.full(count, -1, np.int32)
        self._are_b = np.zeros(count, np.bool_)
        self._rests = np.zeros(count, np.uint64)

    def _fast(self, heads: NDArray[np.uint8], rows: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.uint16]:
        flat = heads.reshape(-1)
        at = rows * heads.shape[1] + at
        second = flat[at + 1]
        types = flat[at] >> 1
        # Layer 0, a TemporalId, and the first slice segment of its picture: else the packet gets no flags.
        types[(second >= 8) | (second == 0) | (flat[at + 2] < 128)] = _NOT_A_PICTURE
        self._types[rows] = types
        self._layers[rows] = (second & 7).astype(np.int16) - 1
        self._read_numbers(flat, at, rows)
        kinds: NDArray[np.uint16] = _KINDS[types]
        return kinds

    def _read_numbers(self, data: NDArray[np.uint8], at: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        sps = self._only_sps()
        extra = {pps.extra_slice_bits for pps in self._ppss.values()}
        if sps is None or len(extra) != 1:
            return
        types, at = self._types[rows], at + 2
        bits = BitColumns(data, at)
        bits.skip(1)
        bits.skip(((types >= _BLA_FIRST) & (types <= 23)).astype(np.uint64))
        bits.skip_ue()
        bits.skip(extra.pop())
        are_b = bits.left >> np.uint64(63) != 0  # the type of the slice is 0
        bits.skip_ue()
        bits.skip(2 * sps.separate_colour_plane)
        counts, rests = bits.u(sps.order_bits), bits.left
        for place in bits.unclear.nonzero()[0].tolist():
            head = data[at[place] : at[place] + OPENING - 2].tobytes()
            header = self._read_slice(head, int(types[place]))
            counts[place], are_b[place], rests[place] = header.order_count, header.is_b, header.rest
        counts[_IS_IDR[types]] = 0
        counts[types == _NOT_A_PICTURE] = -1
        self._orders[rows], self._are_b[rows], self._rests[rows] = counts, are_b, rests

    def _only_sps(self) -> Sps | None:
        """The parameter set of all pictures, as far as their order counts go; None where there are several."""
        alike = {(sps.order_bits, sps.separate_colour_plane) for sps in self._spss.values()}
        return next(iter(self._spss.values())) if len(alike) == 1 else None

    def _read_slice(self, data: bytes, nal_type: int) -> Slice:
        try:
            return parse_slice(data, nal_type, self._spss, self._ppss)
        except OutOfData:
            if self._output_flags:
                raise
            return Slice(is_output=True)

    def _packet(self, packet: PacketBytes) -> Outcome:
        self._types[packet.index] = _NOT_A_PICTURE
        carried: set[Key] = set()
        kinds, others = 0, 0
        for begin, end in iter_units(packet, self._length_size, _ACTIONS):
            header = packet.take(begin, 3)
            if len(header) < 2 or header[0] & 0x80:
                raise OutOfData("NAL unit header")
            kind, layer = header[0] >> 1, (header[0] & 1) << 5 | header[1] >> 3
            if layer:
                others += 1  # an enhancement layer: the base layer does not depend on it
            elif kind in _PICTURES:
                return self._picture(packet, begin, carried, kinds)
            elif kind in (VPS, SPS, PPS):
                if self._carry(packet.take(begin, min(end - begin, 65536)).rstrip(b"\0"), carried):
                    kinds |= _NEW_HEADERS
            elif kind in (_END_OF_SEQUENCE, _END_OF_SEQUENCE + 1):
                self._ends[packet.index] = True
            others += kind not in _HEADERS_ONLY
        return Outcome(kinds | (_HIDDEN if packet.size and not others else 0))

    def _picture(self, packet: PacketBytes, begin: int, carried: set[Key], kinds: int) -> Outcome:
        """Flags of a packet whose first picture unit begins at ``begin``."""
        data = packet.take(begin, OPENING)
        if len(data) < 3 or not data[1] & 7 or not data[2] & 0x80 or not self._sets.complete():
            return Outcome(kinds)
        nal_type = data[0] >> 1
        self._types[packet.index] = nal_type
        self._layers[packet.index] = (data[1] & 7) - 1
        kinds |= _KIND_OF[nal_type]
        if not self._sets.startable(carried):
            kinds &= ~_RAP_CLOSED
        if kinds & _NEW_HEADERS:
            kinds &= ~_NONREF  # later packets need these headers
        if not self._output_flags:
            self._late.append((packet.index, data))
            return Outcome(kinds)
        header = self._read_slice(data[2:], nal_type)
        if not header.is_output:
            kinds |= _HIDDEN
        self._orders[packet.index] = header.order_count if self._only_sps() else -1
        self._are_b[packet.index], self._rests[packet.index] = header.is_b, header.rest
        return Outcome(kinds)

    def gaps(self) -> Gaps:
        """Pictures between which, by their order counts, there were others."""
        sps = self._only_sps()
        if sps is None or not self._pictures:
            return NO_GAPS
        columns = [np.concatenate(column) for column in zip(*self._pictures, strict=True)]
        begins = (columns[0] >= _BLA_FIRST) & (columns[0] < _CRA)
        read = (columns[2] >= 0) & in_read_sequences(begins, columns.pop())
        rows = read.nonzero()[0]
        if len(rows) < len(read):
            columns, begins = [column[rows] for column in columns], begins[rows]
        types, layers, orders, are_b, rests = columns
        anchors = _ORDER_ANCHORS[types] & (layers == 0)
        counts = orders.astype(np.int64)
        step = 1 if (counts & 1).any() else self._step(rests[types < _BLA_FIRST][:_SAMPLE])
        found, shown = order_gaps(counts, sps.order_bits, begins, anchors, fields=False, step=step)
        ends = last_shown(shown, begins)
        ends = ends[are_b[ends] | _DROPPABLE[types[ends]]]  # for most encoders these are none
        packets = rows[np.union1d(found, ends[self._refer_ahead(rests[ends])]) if len(ends) else found]
        return Gaps(packets, np.zeros(len(packets), np.bool_), at_rows(shown, rows, len(read)))

    def _step(self, rests: NDArray[np.uint64]) -> int:
        """By how much counts rise that are all even: 1 where one of these pictures refers to one with an odd count."""
        try:
            sets = self._reference_sets()
            return 1 if any(distance & 1 for rest in rests.tolist() for distance in parse_references(rest, sets)) else 2
        except OutOfData:
            return 1

    def _refer_ahead(self, rests: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of these pictures, whether it may refer to one that is shown later."""
        openings, which = np.unique(rests >> np.uint64(32), return_inverse=True)
        try:
            sets = self._reference_sets()
            return np.array([refers_ahead(opening, sets) for opening in openings.tolist()])[which]
        except OutOfData:
            return np.ones(len(rests), np.bool_)

    def _reference_sets(self) -> list[list[int]]:
        if len(self._sps_units) != 1:
            raise OutOfData("several parameter sets")
        return parse_reference_sets(next(iter(self._sps_units.values())))

    def _finish(self, kinds: NDArray[np.uint16], chunk: Chunk) -> None:
        unread = (self._orders < 0) & ((kinds & np.uint16(_HIDDEN)) == 0)
        self._pictures.append((self._types, self._layers, self._orders, self._are_b, self._rests, unread))
        self._check_sub_layers(kinds)
        self._hide_skipped_pictures(kinds, chunk)

    def _check_sub_layers(self, kinds: NDArray[np.uint16]) -> None:
        """Keep NONREF only in the highest temporal sub-layer: in lower ones "non-reference" holds for that layer."""
        layers = np.where(self._types == _NOT_A_PICTURE, 0, self._layers)
        highest = np.maximum(np.maximum.accumulate(layers), self._max_seen)
        self._max_seen = int(highest[-1])
        keep = (layers == self._max_sub_layer) & (highest <= self._max_sub_layer)
        if self._output_flags or self._unreadable_sets:
            keep[:] = False
        kinds[~keep] &= _REFERENCE

    def _hide_skipped_pictures(self, kinds: NDArray[np.uint16], chunk: Chunk) -> None:
        """Mark RASL pictures that a decoder never shows, even when it decodes from the beginning."""
        types = self._types
        marks = (((types >= _BLA_FIRST) & (types <= _CRA)) | self._ends).nonzero()[0].tolist()
        before = 0
        for mark in marks:
            self._hide_rasl(types[before:mark], kinds[before:mark])
            before = mark
            self._after_end |= bool(self._ends[mark])
            if types[mark] != _NOT_A_PICTURE:
                after_end = self._after_end or (
                    types[mark] == _CRA and mark > 0 and self._ends_sequence(mark - 1, chunk)
                )
                self._drops_rasl = bool(types[mark] <= _BLA_LAST) or (types[mark] == _CRA and after_end)
                self._after_end = False
        self._hide_rasl(types[before:], kinds[before:])
        last = len(types) - 1
        self._after_end |= self._ends_sequence(last, chunk)

    def _hide_rasl(self, types: NDArray[np.uint8], kinds: NDArray[np.uint16]) -> None:
        if self._drops_rasl:
            kinds[(types == 8) | (types == 9)] |= np.uint16(_HIDDEN)

    def _ends_sequence(self, row: int, chunk: Chunk) -> bool:
        """Returns whether a packet ends with an end-of-sequence unit. The walk stops before, at the picture."""
        if self._is_last[row]:
            return False
        size = int(chunk.sizes[row])
        tail = chunk.read(row, max(0, size - 16), min(size, 16))
        prefix = (2).to_bytes(self._length_size, "big") if self._length_size else b"\0\0\1"
        if not self._length_size:
            tail = tail.rstrip(b"\0")
        return tail.endswith((prefix + b"\x48\1", prefix + b"\x4a\1"))


def split_extradata(extradata: bytes) -> tuple[int, list[bytes]]:
    """Bytes of a NAL unit's length in packets, 0 for start codes; and the parameter sets."""
    if len(extradata) < 23 or is_annex_b(extradata):
        return 0, split_annex_b(extradata)
    units: list[bytes] = []
    at = 23
    try:
        for _ in range(extradata[22]):
            if at + 3 > len(extradata):
                break
            more, at = split_counted(extradata, at + 3, int.from_bytes(extradata[at + 1 : at + 3], "big"))
            units += more
    except OutOfData:
        units = []
    return (extradata[21] & 3) + 1, [unit.rstrip(b"\0") for unit in units]


def nal_length_size(extradata: bytes) -> int:
    """Bytes of a NAL unit's length in packets of a stream; 0 for start codes."""
    return split_extradata(extradata)[0]


def has_several_slices(packet: bytes | memoryview, length_size: int) -> bool:
    """Returns whether a packet has more than one unit of picture data."""
    data, units, at = bytes(packet), 0, 0
    if not length_size:
        at = data.find(b"\0\0\1") + 3
    while length_size or at >= 3:
        if at + length_size >= len(data):
            return False
        units += data[at + length_size] < 64
        if units > 1:
            return True
        if length_size:
            at += length_size + int.from_bytes(data[at : at + length_size], "big")
        else:
            at = data.find(b"\0\0\1", at) + 3
    return False


def block_size(extradata: bytes) -> int:
    """Side of a stream's coding tree blocks in pixels; the smallest there is where it is not known."""
    try:
        sets = [unit for unit in split_extradata(extradata)[1] if unit and unit[0] >> 1 & 63 == SPS]
        return min((parse_block_size(unit) for unit in sets), default=16)
    except OutOfData:
        return 16
