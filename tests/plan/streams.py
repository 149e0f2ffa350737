"""Made-up streams: groups of pictures with every kind of reference structure, as packet tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable, RawPackets, build_table, presentation_order
from framefeed.index.video_index import VideoIndex
from framefeed.types import Orientation, StreamInfo


@dataclass
class MadeUpStream:
    """Packets in decode order; ``ranks`` are places in presentation order."""

    kinds: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    references: list[list[int]] = field(default_factory=list)
    discarded: set[int] = field(default_factory=set)

    def add(self, kind: int, rank: int, references: list[int]) -> int:
        self.kinds.append(kind)
        self.ranks.append(rank)
        self.references.append(references)
        return len(self.kinds) - 1

    def mark_unreferenced(self) -> None:
        referenced = {number for references in self.references for number in references}
        for number in range(len(self.kinds)):
            if number not in referenced:
                self.kinds[number] |= PacketKind.NONREF

    def table(self) -> PacketTable:
        count = len(self.kinds)
        pts = np.array(self.ranks, np.int64) * 10 - 30
        raw = RawPackets(
            pos=np.arange(count, dtype=np.int64) * 100,
            size=np.full(count, 100, np.int64),
            pts=pts,
            dts=np.arange(count, dtype=np.int64) * 10 - 50,
            duration=np.full(count, 10, np.int64),
            key=np.array([bool(kind & PacketKind.RAP) for kind in self.kinds]),
            discard=np.array([number in self.discarded for number in range(count)]),
        )
        kinds = np.array(self.kinds, np.uint16)
        frames = presentation_order(raw, kinds)
        assert frames is not None
        return build_table(raw, kinds, frames)


def index_of(table: PacketTable) -> VideoIndex:
    stream = StreamInfo(
        codec="fake",
        codec_tag="",
        extradata=b"",
        width=16,
        height=16,
        pix_fmt="gray",
        color_space=2,
        color_range=0,
        color_primaries=2,
        color_transfer=2,
        sample_aspect_ratio=None,
        orientation=Orientation(),
        time_base=Fraction(1, 10),
        stream_index=0,
        reorder_depth=0,
        average_rate=None,
        header_frames=None,
        bit_rate=None,
        header_duration=None,
        header_start=None,
        bits_per_coded_sample=0,
        container="fake",
    )
    return VideoIndex("<made up>", (0, 0), stream, table, byte_ranges=True)


def _pyramid(stream: MadeUpStream, low: tuple[int, int], high: tuple[int, int], kind: int, *, deep: bool) -> None:
    """B-pictures between two references, given as (packet, rank); the middle one may be a reference itself."""
    if high[1] - low[1] < 2:
        return
    ranks = range(low[1] + 1, high[1])
    if not deep:
        for rank in ranks:
            stream.add(kind, rank, [low[0], high[0]])
        return
    middle = (low[1] + high[1]) // 2
    packet = stream.add(kind, middle, [low[0], high[0]])
    _pyramid(stream, low, (packet, middle), kind, deep=deep)
    _pyramid(stream, (packet, middle), high, kind, deep=deep)


@st.composite
def streams(draw: st.DrawFn) -> MadeUpStream:
    """Streams of 1 to 5 groups, closed or open, with and without B-pictures, hidden beginnings included."""
    stream = MadeUpStream()
    rank = 0
    anchor: tuple[int, int] | None = None
    for group in range(draw(st.integers(1, 5))):
        closed = group == 0 or draw(st.booleans())
        deep = draw(st.booleans())
        leading = 0 if closed else draw(st.integers(0, 4))
        kind = PacketKind.RAP | (PacketKind.CLOSED if closed else 0)
        key_rank = rank + leading
        key = (stream.add(int(kind), key_rank, []), key_rank)
        if leading and anchor is not None:
            rasl = int(PacketKind.RASL) if draw(st.booleans()) else 0
            _pyramid(stream, anchor, key, rasl, deep=deep)
        rank = key_rank + 1
        anchor = key
        for _ in range(draw(st.integers(0, 4))):
            between = draw(st.integers(0, 4))
            last = (stream.add(0, rank + between, [anchor[0]]), rank + between)
            _pyramid(stream, anchor, last, 0, deep=deep)
            anchor, rank = last, rank + between + 1
    stream.mark_unreferenced()
    if draw(st.booleans()):
        hidden = draw(st.integers(0, max(0, rank - 1)))
        stream.discarded = {number for number, place in enumerate(stream.ranks) if place < hidden}
    return stream
