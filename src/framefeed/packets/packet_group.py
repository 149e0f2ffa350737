"""``PacketGroup``: the packets of one group as a value that can be sent and decoded anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from framefeed.errors import SourceError
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.index.video_index import VideoIndex
from framefeed.plan import plan_frames
from framefeed.source import CutOff, PacketSource
from framefeed.types import StreamInfo

__all__ = [
    "GroupKey",
    "GroupPlan",
    "PacketGroup",
    "describe_group",
    "group_key",
    "plan_group",
    "plan_groups",
    "read_group",
    "take_group",
]

GroupKey = tuple[str, tuple[int, int], int]
"""Identity of a group: its file, the file's fingerprint in the index, and the packet where decoding starts."""

# The table columns that are sent, as one array; the others follow from them.
_COLUMNS = ("size", "pts", "dts", "duration", "flags")


@dataclass(frozen=True, eq=False)
class PacketGroup:
    """Packets of one group of a video, with everything a decoder needs.

    Attributes:
        key: Identity of the group.
        index: Index of a video with only these packets and the frames they show.
        numbers: Frame numbers in the whole video.
        packets: Packet numbers in the whole video.
        data: The packets, concatenated; None if the receiver has them cached.
        whole: True if all frames of the group are included.
        new_headers: True if the video's headers change in mid-stream, which hardware decoders do not report.
        damaged: Packets that could not be read, by position in the group, with reasons.
    """

    key: GroupKey
    index: VideoIndex
    numbers: NDArray[np.int64]
    packets: NDArray[np.int64]
    data: torch.Tensor | None
    whole: bool = True
    new_headers: bool = False
    damaged: Mapping[int, str] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Size of the packets, in bytes."""
        return self.index.fingerprint[0]

    @property
    def frames(self) -> list[int]:
        """Frame numbers in the whole video."""
        numbers: list[int] = self.numbers.tolist()
        return numbers

    def local(self, frames: ArrayLike) -> NDArray[np.int64]:
        """Converts frame numbers of the whole video to numbers within ``index``.

        Raises:
            ValueError: The group lacks one of the frames.
        """
        wanted = np.asarray(frames, np.int64)
        places = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        if (self.numbers[places] != wanted).any():
            raise ValueError(f"{self.key[0]}: the group lacks some of the frames {wanted.tolist()}")
        return places.astype(np.int64, copy=False)

    def source(self) -> PacketSource:
        """Returns a source of the packets for a decoder.

        Raises:
            SourceError: The group has no packets.
        """
        if self.data is None:
            raise SourceError(self.key[0], f"packets of the group that begins with packet {self.key[2]} were not sent")
        data: Any = self.data.numpy()
        return _Packets(self.index.packets, memoryview(data), self.damaged)

    def without_data(self) -> PacketGroup:
        """Returns a copy without packets, for a receiver that has them cached."""
        return replace(self, data=None)

    def alone(self) -> PacketGroup:
        """Returns a copy with memory of its own, if its data is part of a larger block."""
        data = self.data
        if data is None or data.untyped_storage().nbytes() == data.nbytes:
            return self
        return replace(self, data=data.clone())

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.index.packets
        columns = [getattr(table, name).astype(np.int64, copy=False) for name in _COLUMNS]
        packets = np.stack([*columns, self.packets])
        frames = np.stack([table.frames, table.frame_pts, self.numbers])
        data = self.alone().data  # for a view, torch would send the whole block
        return _unpack, (self.key, self.index.stream, packets, frames, data, self.whole, self.new_headers, self.damaged)


def _unpack(
    key: GroupKey,
    stream: StreamInfo,
    packets: NDArray[np.int64],
    frames: NDArray[np.int64],
    data: torch.Tensor | None,
    whole: bool,
    new_headers: bool,
    damaged: Mapping[int, str],
) -> PacketGroup:
    index = _small_index(key[0], stream, dict(zip(_COLUMNS, packets, strict=False)), frames[0], frames[1])
    return PacketGroup(key, index, frames[2], packets[-1], data, whole, new_headers, damaged)


def _small_index(
    path: str,
    stream: StreamInfo,
    columns: dict[str, NDArray[Any]],
    frames: NDArray[np.int64],
    frame_pts: NDArray[np.int64],
) -> VideoIndex:
    """Builds the index of a video with only the packets of a group."""
    size = columns["size"]
    columns["flags"] = columns["flags"].astype(np.uint16, copy=False)
    table = PacketTable(
        pos=np.cumsum(size) - size, **columns, start=np.zeros_like(size), frames=frames, frame_pts=frame_pts
    )
    return VideoIndex(path, (int(size.sum()), 0), stream, table, True)


class _Packets:
    """Packets in memory.

    Args:
        table: The packet table.
        data: The packet bytes.
        damaged: Missing packets, with reasons.
    """

    def __init__(self, table: PacketTable, data: memoryview, damaged: Mapping[int, str]) -> None:
        self._table = table
        self._data = data
        self._damaged = damaged

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for rising packet numbers."""
        begins = self._table.pos[numbers]
        ends = begins + self._table.size[numbers]
        for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if number in self._damaged:
                raise CutOff(number, self._damaged[number])
            yield number, self._data[begin:end]


# --- from files ---------------------------------------------------------------------------------------------------


class GroupPlan(NamedTuple):
    """Packets and frames of a group.

    Attributes:
        start: The packet where decoding starts.
        packets: Packet numbers.
        frames: Frame numbers, rising.
    """

    start: int
    packets: NDArray[np.int64]
    frames: NDArray[np.int64]


def plan_groups(table: PacketTable, frames: NDArray[np.int64], *, whole: bool) -> Iterator[GroupPlan]:
    """Yields the groups that frames need; with ``whole``, with all frames of each group."""
    starts = table.start[table.frames]
    for start in np.unique(starts[frames]).tolist():
        wanted = np.flatnonzero(starts == start) if whole else np.unique(frames[starts[frames] == start])
        (job,) = plan_frames(table, wanted).jobs
        shown = wanted if whole else np.flatnonzero((starts == start) & np.isin(table.frames, job.packets))
        yield GroupPlan(start, job.packets, shown)


def plan_group(table: PacketTable, start: int) -> GroupPlan:
    """Plans a whole group, given by the packet where decoding starts.

    Raises:
        ValueError: No frame decodes from there.
    """
    first = np.flatnonzero(table.start[table.frames] == start)[:1]
    if not len(first):
        raise ValueError(f"no frame decodes from packet {start}")
    return next(plan_groups(table, first, whole=True))


def group_key(index: VideoIndex, plan: GroupPlan) -> GroupKey:
    """Returns the identity of a group."""
    return index.path, index.fingerprint, plan.start


def describe_group(index: VideoIndex, plan: GroupPlan, damaged: Mapping[int, str], *, whole: bool) -> PacketGroup:
    """Describes a group without its packets."""
    table = index.packets
    chosen = plan.packets
    place_of = np.full(len(table), -1, np.int64)
    place_of[chosen] = np.arange(len(chosen))
    columns = {name: getattr(table, name)[chosen] for name in _COLUMNS}
    # Some packets are decoded with the group and belong to the next: without it, only these numbers give their place.
    ranks = table.display_rank[chosen]
    if (np.diff(ranks[np.argsort(columns["pts"], kind="stable")]) <= 0).any():
        columns["pts"] = ranks
    own = _small_index(
        index.path, index.stream, columns, place_of[table.frames[plan.frames]], table.frame_pts[plan.frames]
    )
    changes = bool(table.has(PacketKind.NEW_HEADERS)[1:].any())
    return PacketGroup(group_key(index, plan), own, plan.frames, chosen, None, whole, changes, damaged)


def read_group(index: VideoIndex, source: PacketSource, plan: GroupPlan, out: NDArray[np.uint8]) -> dict[int, str]:
    """Reads the packets of a group into ``out``; returns the missing ones, with reasons."""
    ends = np.cumsum(index.packets.size[plan.packets]).tolist()
    damaged: dict[int, str] = {}
    place = 0
    while place < len(ends):
        try:
            for _, data in source.read(plan.packets[place:]):
                out[ends[place] - len(data) : ends[place]] = np.frombuffer(data, np.uint8)
                place += 1
        except CutOff as error:
            damaged[place] = error.reason
            place += 1
    return damaged


def take_group(index: VideoIndex, source: PacketSource, start: int) -> PacketGroup:
    """Reads a whole group, given by the packet where decoding starts."""
    plan = plan_group(index.packets, start)
    data = torch.empty(int(index.packets.size[plan.packets].sum()), dtype=torch.uint8)
    damaged = read_group(index, source, plan, data.numpy())
    return replace(describe_group(index, plan, damaged, whole=True), data=data)
