"""The packet table: the packets of a file, the frames that they show, and where decoding starts for each."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed._util.lazy_property import cached_property
from framefeed.index.bitstream import PacketKind
from framefeed.types import NO_PTS

__all__ = ["DISCARD", "KEY", "PacketTable", "RawPackets", "build_table", "decode_starts", "presentation_order"]

KEY = 1 << 14
"""The container marks the packet as a keyframe. A hint only; compare ``PacketKind.RAP``."""
DISCARD = 1 << 15
"""An edit list hides the packet: it is decoded if others need it, and never shown."""

# Made once: arithmetic with enum members takes longer than that with arrays.
_KEY, _DISCARD = np.uint16(KEY), np.uint16(DISCARD)
_RAP, _CLOSED, _MULTIPLE = np.uint16(PacketKind.RAP), np.uint16(PacketKind.CLOSED), np.uint16(PacketKind.MULTIPLE)
_RADL, _RASL = np.uint16(PacketKind.RADL), np.uint16(PacketKind.RASL)
_UNSEEN = np.uint16(PacketKind.HIDDEN | PacketKind.SECOND_FIELD)


@dataclass
class RawPackets:
    """Packets as a demuxer or a sample table describes them, in decode order."""

    pos: NDArray[np.int64]
    size: NDArray[np.int64]
    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    duration: NDArray[np.int64]
    key: NDArray[np.bool_]
    discard: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.pos)


@dataclass(frozen=True, eq=False)
class PacketTable:
    """The packets of one video stream in decode order, and its frames in presentation order.

    Attributes:
        pos: Byte position of each packet's data in the file (the demuxer's position if the data is not contiguous).
        size: Size of each packet in bytes.
        pts, dts, duration: Times in units of the stream's time base; ``NO_PTS`` if missing.
        flags: ``PacketKind`` bits, ``KEY`` and ``DISCARD``.
        start: For each packet, the packet at which decoding starts for an exact picture.
        frames: For each frame in presentation order, the packet that shows it.
        frame_pts: Presentation time of each frame; never ``NO_PTS``.
    """

    pos: NDArray[np.int64]
    size: NDArray[np.int64]
    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    duration: NDArray[np.int64]
    flags: NDArray[np.uint16]
    start: NDArray[np.int64]
    frames: NDArray[np.int64]
    frame_pts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pos)

    @property
    def num_frames(self) -> int:
        """Number of frames that a linear decode shows."""
        return len(self.frames)

    def has(self, kind: int) -> NDArray[np.bool_]:
        """Returns for each packet whether it has that flag."""
        found: NDArray[np.bool_] = (self.flags & np.uint16(kind)) != 0
        return found

    @cached_property
    def frame_duration(self) -> NDArray[np.int64]:
        """Display duration of each frame: until the next one; that of the last one from its packet."""
        if not len(self.frames):
            return np.empty(0, np.int64)
        until_next = np.diff(self.frame_pts)
        last = int(self.duration[self.frames[-1]])
        if last <= 0:
            last = int(np.median(until_next)) if len(until_next) else 0
        return np.append(until_next, last)

    @cached_property
    def display_rank(self) -> NDArray[np.int64]:
        """Rank of each packet in presentation order, shown or not.

        The rank of a hidden packet lies within its GOP, because consecutive GOPs may be decoded in one go.
        """
        if not (self.pts == NO_PTS).any():
            # Ranked by time; by GOP first if times repeat or restart, as with edit lists and in joined files. Some
            # containers have decoding times instead, and then the frames decide.
            for order in (np.argsort(self.pts, kind="stable"), np.lexsort((self.pts, self.start))):
                ranks = np.empty(len(self), np.int64)
                ranks[order] = np.arange(len(self))
                rising = np.diff(ranks[self.frames]) > 0
                twice = (np.diff(self.pts[order]) == 0) & (np.diff(self.start[order]) == 0)
                if rising.all() and not twice.any():
                    return ranks
        ranks = np.full(len(self), -1, np.int64)
        ranks[self.frames] = np.arange(self.num_frames)
        return np.where(ranks >= 0, 2 * ranks, 2 * np.maximum.accumulate(ranks) + 1)

    @cached_property
    def keyframes(self) -> NDArray[np.int64]:
        """Numbers of the frames at which decoding can start, rising."""
        return np.flatnonzero(self.start[self.frames] == self.frames)

    @cached_property
    def _changes(self) -> NDArray[np.int64]:
        """Packets with another decode start than the packet before them."""
        return np.flatnonzero(np.diff(self.start)) + 1

    def run_end(self, packet: int, start: int) -> int:
        """Returns the end of the unbroken run of packets from ``packet`` on that decode from ``start``."""
        if packet >= len(self) or self.start[packet] != start:
            return packet
        place = int(np.searchsorted(self._changes, packet, side="right"))
        return int(self._changes[place]) if place < len(self._changes) else len(self)

    def frames_at(self, pts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the frame shown at each time, in units of the time base; -1 before the first."""
        return np.searchsorted(self.frame_pts, pts, side="right").astype(np.int64) - 1

    def __repr__(self) -> str:
        groups = len(np.unique(self.start)) if len(self) else 0
        return f"PacketTable({len(self)} packets, {self.num_frames} frames, {groups} groups)"


def presentation_order(raw: RawPackets, kinds: NDArray[np.uint16]) -> NDArray[np.int64] | None:
    """Returns the packets that show frames, by presentation time; None if the times do not give the order.

    They do not if a shown packet lacks a time, two packets have the same one, or a packet shows several pictures.
    """
    if (kinds & _MULTIPLE).any():
        return None
    packets: NDArray[np.int64] = (~raw.discard & ((kinds & _UNSEEN) == 0)).nonzero()[0]
    times = raw.pts[packets]
    if (times == NO_PTS).any():
        return None
    order: NDArray[np.int64] = times.argsort(kind="stable")
    times = times[order]
    if (times[1:] <= times[:-1]).any():
        return None
    return packets[order]


def build_table(raw: RawPackets, kinds: NDArray[np.uint16], frames: NDArray[np.int64]) -> PacketTable:
    """Builds the table from the raw packets, their flags, and the presentation order.

    Args:
        raw: The packets in decode order.
        kinds: ``PacketKind`` bits of each.
        frames: Packets that show frames, in presentation order.
    """
    flags = kinds.astype(np.uint16)
    flags[raw.key] |= _KEY
    flags[raw.discard] |= _DISCARD
    return PacketTable(
        pos=raw.pos,
        size=raw.size,
        pts=raw.pts,
        dts=raw.dts,
        duration=raw.duration,
        flags=flags,
        start=decode_starts(raw, kinds, frames),
        frames=frames,
        frame_pts=_frame_times(raw, frames),
    )


def _ranks(raw: RawPackets, frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns a rank for each packet that rises with presentation time; the packet number if times are unusable."""
    times = raw.pts[frames]
    if not (raw.pts == NO_PTS).any() and (times[1:] > times[:-1]).all():
        return raw.pts
    ranks = np.full(len(raw), -1, np.int64)
    ranks[frames] = np.arange(len(frames))
    # Hidden packets have no time of their own: they count as shown just after the latest one before them.
    return np.where(ranks >= 0, ranks, np.maximum.accumulate(ranks))


def decode_starts(raw: RawPackets, kinds: NDArray[np.uint16], frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the packet at which decoding starts, for each packet.

    That is the last random-access point before it. Leading pictures are an exception: decoded after an open
    random-access point but shown before it, they refer to pictures before it, and need the one before that.
    """
    ranks = _ranks(raw, frames)
    count = len(kinds)
    numbers = np.arange(count)
    is_rap = (kinds & _RAP) != 0
    if count:
        is_rap[0] = True  # nothing precedes the first packet: a linear decode starts there too
    closed = (kinds & _CLOSED) != 0
    last = np.maximum.accumulate(numbers * is_rap)
    previous_of = np.zeros(count, np.int64)
    raps = is_rap.nonzero()[0]
    previous_of[raps[1:]] = raps[:-1]
    leading = (ranks < ranks[last]) & ~closed[last] & ((kinds & _RADL) == 0)
    leading |= (kinds & _RASL) != 0
    return np.where(leading, previous_of[last], last)


def _frame_times(raw: RawPackets, frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns strictly rising times, one per frame in presentation order.

    They are FFmpeg's. If a few of them do not rise, as when a muxer of fragments got the last frame of each wrong, only
    these frames get times between those of their neighbours. If most do not, all are generated from the first one on.
    """
    times = raw.pts[frames]
    if not (times == NO_PTS).any():
        if (times[1:] > times[:-1]).all():
            return times
        if (raw.pts[1:] > raw.pts[:-1]).all():
            return np.sort(times)  # decoding times instead, as in ASF
        repaired = _repaired(times)
        if repaired is not None:
            return repaired
    # Without usable presentation times, the sorted decoding times are the same clock, slightly earlier.
    made = np.sort(raw.dts[frames])
    if (made == NO_PTS).any() or (np.diff(made) <= 0).any():
        durations = raw.duration[frames]
        step = int(np.median(durations[durations > 0])) if (durations > 0).any() else 1
        made = np.arange(len(frames), dtype=np.int64) * step
    return made if times[0] == NO_PTS else made + (times[0] - made[0])


def _repaired(times: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Returns rising times with as few changes as possible; None if more than one in eight changes."""
    ends: list[int] = []  # the smallest time that a rising sequence of each length can end with
    lengths = np.empty(len(times), np.int64)
    for number, time in enumerate(times.tolist()):
        at = bisect_left(ends, time)
        lengths[number] = -1 if ends[at : at + 1] == [time] else at  # of equal times, the first one is right
        ends[at : at + 1] = [time]
    if len(ends) * 8 < len(times) * 7:
        return None
    kept = np.empty(len(ends), np.int64)
    wanted = len(ends) - 1
    for number in range(len(times) - 1, -1, -1):
        if lengths[number] == wanted:
            kept[wanted] = number
            wanted -= 1
    step = max(1, int(np.median(np.diff(times[kept])))) if len(kept) > 1 else 1
    first, last = int(kept[0]), int(kept[-1])
    places = np.concatenate([[-1], kept, [len(times)]])
    known = np.concatenate(
        [[times[first] - step * (first + 1)], times[kept], [times[last] + step * (len(times) - last)]]
    )
    repaired = np.interp(np.arange(len(times)), places, known - known[0]).astype(np.int64) + known[0]
    repaired[kept] = times[kept]
    return repaired if (np.diff(repaired) > 0).all() else None
