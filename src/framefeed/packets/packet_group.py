"""``PacketGroup``: the packets of one group as a value, which can be sent and decoded anywhere."""

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
"""Names a group: its file, what that was when it was indexed, and the packet that decoding starts from."""

# The columns of a table that are sent, as one array; the others follow from them.
_COLUMNS = ("size", "pts", "dts", "duration", "flags")


@dataclass(frozen=True, eq=False)
class PacketGroup:
    """Packets of one group of a video, with all that a decoder has to know of them.

    Attributes:
        key: Which group it is.
        index: A video of nothing but these packets. Its frames are those that they show.
        numbers: For each of these frames its number in the whole video.
        packets: For each packet its number in the whole video.
        data: The packets, one behind the other; None where whoever gets it has them from before.
        whole: Whether it has all frames of the group.
        new_headers: Whether the video's headers change on the way, which hardware decoders do not tell.
        damaged: Packets that could not be read, by their place in the group, and why.
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
        """Size of the packets."""
        return self.index.fingerprint[0]

    @property
    def frames(self) -> list[int]:
        """Numbers of the frames, in the whole video."""
        numbers: list[int] = self.numbers.tolist()
        return numbers

    def local(self, frames: ArrayLike) -> NDArray[np.int64]:
        """Numbers of frames of the whole video as ``index`` counts them.

        Raises:
            ValueError: The group does not have one of them.
        """
        wanted = np.asarray(frames, np.int64)
        places = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        if (self.numbers[places] != wanted).any():
            raise ValueError(f"{self.key[0]}: the group does not have all of the frames {wanted.tolist()}")
        return places.astype(np.int64, copy=False)

    def source(self) -> PacketSource:
        """Gives the packets to a decoder.

        Raises:
            SourceError: They are not here.
        """
        if self.data is None:
            raise SourceError(self.key[0], f"packets of the group that begins with packet {self.key[2]} are not here")
        data: Any = self.data.numpy()
        return _Packets(self.index.packets, memoryview(data), self.damaged)

    def without_data(self) -> PacketGroup:
        """The same for somebody who has the packets."""
        return replace(self, data=None)

    def alone(self) -> PacketGroup:
        """The same with memory of its own, where its data is a part of something larger."""
        data = self.data
        if data is None or data.untyped_storage().nbytes() == data.nbytes:
            return self
        return replace(self, data=data.clone())

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.index.packets
        columns = [getattr(table, name).astype(np.int64, copy=False) for name in _COLUMNS]
        packets = np.stack([*columns, self.packets])
        frames = np.stack([table.frames, table.frame_pts, self.numbers])
        data = self.alone().data  # of a part, torch would send the whole
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
    """The index of a video of nothing but the packets of a group, one behind the other."""
    size = columns["size"]
    columns["flags"] = columns["flags"].astype(np.uint16, copy=False)
    table = PacketTable(
        pos=np.cumsum(size) - size, **columns, start=np.zeros_like(size), frames=frames, frame_pts=frame_pts
    )
    return VideoIndex(path, (int(size.sum()), 0), stream, table, True)


class _Packets:
    """Packets in memory.

    Args:
        table: The packets.
        data: Their bytes.
        damaged: Those that are not there, and why.
    """

    def __init__(self, table: PacketTable, data: memoryview, damaged: Mapping[int, str]) -> None:
        self._table = table
        self._data = data
        self._damaged = damaged

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets whose numbers rise."""
        begins = self._table.pos[numbers]
        ends = begins + self._table.size[numbers]
        for number, begin, end in zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if number in self._damaged:
                raise CutOff(number, self._damaged[number])
            yield number, self._data[begin:end]


# --- from files ---------------------------------------------------------------------------------------------------


class GroupPlan(NamedTuple):
    """Which packets make a group.

    Attributes:
        start: The packet that decoding starts from.
        packets: Their numbers.
        frames: The frames that they show, rising.
    """

    start: int
    packets: NDArray[np.int64]
    frames: NDArray[np.int64]


def plan_groups(table: PacketTable, frames: NDArray[np.int64], *, whole: bool) -> Iterator[GroupPlan]:
    """The groups that frames need; all frames of a group where it is to be whole."""
    starts = table.start[table.frames]
    for start in np.unique(starts[frames]).tolist():
        wanted = np.flatnonzero(starts == start) if whole else np.unique(frames[starts[frames] == start])
        (job,) = plan_frames(table, wanted).jobs
        shown = wanted if whole else np.flatnonzero((starts == start) & np.isin(table.frames, job.packets))
        yield GroupPlan(start, job.packets, shown)


def plan_group(table: PacketTable, start: int) -> GroupPlan:
    """A whole group, by the packet that decoding starts from.

    Raises:
        ValueError: No frame is decoded from there.
    """
    first = np.flatnonzero(table.start[table.frames] == start)[:1]
    if not len(first):
        raise ValueError(f"no frame is decoded from packet {start}")
    return next(plan_groups(table, first, whole=True))


def group_key(index: VideoIndex, plan: GroupPlan) -> GroupKey:
    """Names a group of a video."""
    return index.path, index.fingerprint, plan.start


def describe_group(index: VideoIndex, plan: GroupPlan, damaged: Mapping[int, str], *, whole: bool) -> PacketGroup:
    """A group, without its packets."""
    table = index.packets
    chosen = plan.packets
    place_of = np.full(len(table), -1, np.int64)
    place_of[chosen] = np.arange(len(chosen))
    columns = {name: getattr(table, name)[chosen] for name in _COLUMNS}
    # Some packets are decoded with the group and belong to the next: without it, only these numbers tell their place.
    ranks = table.display_rank[chosen]
    if (np.diff(ranks[np.argsort(columns["pts"], kind="stable")]) <= 0).any():
        columns["pts"] = ranks
    own = _small_index(
        index.path, index.stream, columns, place_of[table.frames[plan.frames]], table.frame_pts[plan.frames]
    )
    changes = bool(table.has(PacketKind.NEW_HEADERS)[1:].any())
    return PacketGroup(group_key(index, plan), own, plan.frames, chosen, None, whole, changes, damaged)


def read_group(index: VideoIndex, source: PacketSource, plan: GroupPlan, out: NDArray[np.uint8]) -> dict[int, str]:
    """Reads the packets of a group, one behind the other; returns those that are not there, and why."""
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
    """A whole group of a video, by the packet that decoding starts from."""
    plan = plan_group(index.packets, start)
    data = torch.empty(int(index.packets.size[plan.packets].sum()), dtype=torch.uint8)
    damaged = read_group(index, source, plan, data.numpy())
    return replace(describe_group(index, plan, damaged, whole=True), data=data)
