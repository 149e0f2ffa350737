"""Packets as values: what worker processes send, and what can be decoded anywhere."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset

from framefeed.data.assembly import MISSING, SampleRef, Samples, SampleShape, locate_samples
from framefeed.data.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError, SourceError
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.index.video_index import VideoIndex
from framefeed.plan import plan_frames
from framefeed.source import CutOff, PacketSource, media_of, open_source
from framefeed.types import StreamInfo

__all__ = [
    "GroupKey",
    "GroupLedger",
    "KnownGroup",
    "PacketBatch",
    "PacketDataset",
    "PacketGroup",
    "PacketRequest",
    "Requests",
    "take_group",
]

GroupKey = tuple[str, tuple[int, int], int]
"""Names a group: its file, what that was when it was indexed, and the packet that decoding starts from."""

_NEVER = np.iinfo(np.int64).max

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


class _Plan(NamedTuple):
    """Which packets make a group.

    Attributes:
        start: The packet that decoding starts from.
        packets: Their numbers.
        frames: The frames that they show, rising.
    """

    start: int
    packets: NDArray[np.int64]
    frames: NDArray[np.int64]


def _plans(table: PacketTable, frames: NDArray[np.int64], *, whole: bool) -> Iterator[_Plan]:
    """The groups that frames need; all frames of a group where it is to be whole."""
    starts = table.start[table.frames]
    for start in np.unique(starts[frames]).tolist():
        wanted = np.flatnonzero(starts == start) if whole else np.unique(frames[starts[frames] == start])
        (job,) = plan_frames(table, wanted).jobs
        shown = wanted if whole else np.flatnonzero((starts == start) & np.isin(table.frames, job.packets))
        yield _Plan(start, job.packets, shown)


def _key(index: VideoIndex, plan: _Plan) -> GroupKey:
    return index.path, index.fingerprint, plan.start


def _describe(index: VideoIndex, plan: _Plan, damaged: Mapping[int, str], *, whole: bool) -> PacketGroup:
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
    return PacketGroup(_key(index, plan), own, plan.frames, chosen, None, whole, changes, damaged)


def _read(index: VideoIndex, source: PacketSource, plan: _Plan, out: NDArray[np.uint8]) -> dict[int, str]:
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
    table = index.packets
    first = np.flatnonzero(table.start[table.frames] == start)[:1]
    if not len(first):
        raise ValueError(f"{index.path}: no frame is decoded from packet {start}")
    (plan,) = _plans(table, first, whole=True)
    data = torch.empty(int(table.size[plan.packets].sum()), dtype=torch.uint8)
    damaged = _read(index, source, plan, data.numpy())
    return replace(_describe(index, plan, damaged, whole=True), data=data)


# --- batches ------------------------------------------------------------------------------------------------------


class KnownGroup(NamedTuple):
    """A whole group of which nothing is sent: whoever gets it has it from before.

    Attributes:
        key: Which group it is.
        num_bytes: Size of its packets.
        data: None, as it is not sent.
    """

    key: GroupKey
    num_bytes: int
    data: None = None


class PacketRequest(NamedTuple):
    """A sample that is asked for.

    Attributes:
        number: Its number in the dataset.
        known: Groups, by the number of their file and the packet that decoding starts from, that whoever asks has.
        ahead: Whether the frames that follow in a group will be asked for next.
    """

    number: int
    known: frozenset[tuple[int, int]] = frozenset()
    ahead: bool = False


@dataclass(eq=False)
class PacketBatch:
    """The packets of a batch of samples, before they are decoded.

    Attributes:
        samples: Where each slot of each sample is found: its "file" is a place in ``groups``, its "frame" one of the
            group's own.
        shape: What samples consist of.
        shown: The slots that were sent; the others are empty.
        groups: The groups, without their packets.
        files: For each group, the number of its file in the dataset.
        data: The packets of all groups that are sent.
        ends: For each group, where its packets end in there; they begin where those of the one before end.
        failed: By the place of a group, why it could not be read.
        labels: A label for each sample, where there are any.
        errors: By the place of a sample in the batch, why it has no label.
        following: For each group, the first of its own frames that may be asked for next; None where that is not known.
        cameras: Whether samples have a dimension for cameras.
        masked: Whether slots may stay empty, and a mask says which.
    """

    samples: Samples
    shape: SampleShape
    shown: list[int]
    groups: list[PacketGroup | KnownGroup]
    files: list[int]
    data: torch.Tensor
    ends: list[int]
    failed: dict[int, FramefeedError] = field(default_factory=dict)
    labels: list[Any] | None = None
    errors: dict[int, FramefeedError] = field(default_factory=dict)
    following: list[int] | None = None
    cameras: bool = False
    masked: bool = False

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_bytes(self) -> int:
        """Bytes of packets that are sent."""
        return int(self.data.numel())

    def filled(self) -> list[PacketGroup | KnownGroup]:
        """The groups with their packets, where these were sent."""
        begins = [0, *self.ends[:-1]]
        return [
            replace(group, data=self.data[begin:end]) if isinstance(group, PacketGroup) else group
            for group, begin, end in zip(self.groups, begins, self.ends, strict=True)
        ]

    def pin_memory(self) -> PacketBatch:
        """Itself: packets are read by the CPU."""
        return self


class PacketDataset(Dataset[PacketBatch]):
    """The packets of a dataset's samples, for worker processes that do not decode.

    It needs neither a GPU nor a decoder, and nothing is opened before the first sample is read, so it works in workers
    that are forked or spawned::

        packets = PacketDataset(dataset)
        decoder = PacketDecoder(dataset)
        requests = decoder.requests(dataset, batch_sampler)
        loader = DataLoader(packets, batch_sampler=requests, num_workers=4, collate_fn=packets.collate)
        for batch in decoder(loader):
            ...

    Args:
        dataset: A ``VideoDataset`` or ``MultiCameraDataset``.
        whole_groups: Whether whole groups are sent, so that they can be kept by whoever gets them. Otherwise only what
            has to be decoded for the samples.
    """

    def __init__(self, dataset: FrameDataset, *, whole_groups: bool = True) -> None:
        self.dataset = dataset
        self.whole_groups = whole_groups

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, request: int | PacketRequest) -> PacketBatch:
        """The packets of a sample."""
        return self.__getitems__([request])

    def __getitems__(self, requests: Sequence[int | PacketRequest]) -> PacketBatch:
        """The packets of samples, each group once."""
        asked = [each if isinstance(each, PacketRequest) else PacketRequest(int(each)) for each in requests]
        data = self.dataset
        numbers = np.array([data.checked_number(each.number) for each in asked], np.int64)
        # Random numbers are always sent: whoever decodes may have other descriptions than the dataset.
        samples = locate_samples(data.arrangement, numbers, data.seed, data.epoch, draws=True)
        known = frozenset().union(*(each.known for each in asked)) if self.whole_groups else frozenset()
        gathered = _Gathered(data, known, whole=self.whole_groups)
        batch = gathered.batch(samples, gathered.add(samples))
        if self.whole_groups and any(each.ahead for each in asked):
            batch.following = gathered.following(numbers)
        if data.get_label is not None:
            batch.labels = [self._label(samples[row], row, batch.errors) for row in range(len(samples))]
        return batch

    def _label(self, sample: SampleRef, row: int, errors: dict[int, FramefeedError]) -> Any:
        try:
            return self.dataset.label_of(sample)
        except FramefeedError as error:
            errors[row] = error
        except StopIteration as error:  # would end the epoch as if it were complete
            raise RuntimeError("get_label raised StopIteration") from error
        return None

    @staticmethod
    def collate(batch: Any) -> PacketBatch:
        """For ``collate_fn``: batches come as they are."""
        assert isinstance(batch, PacketBatch)
        return batch


class _Gathered:
    """Groups that are being put together.

    Args:
        dataset: Where samples come from.
        known: Groups that need not be read.
        whole: Whether groups have all their frames.
    """

    def __init__(self, dataset: FrameDataset, known: frozenset[tuple[int, int]], *, whole: bool) -> None:
        self._dataset = dataset
        self._known = known
        self._whole = whole
        self._sources: dict[int, PacketSource] = {}
        self._plans: list[tuple[int, VideoIndex, _Plan]] = []

    def add(self, samples: Samples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Plans all groups; returns for each slot the place of its group, and its frame as that counts."""
        shown = self._dataset.shown
        files, frames = samples.files[:, shown], samples.frames[:, shown]
        groups = np.full(samples.files.shape, MISSING, np.int64)
        local = np.full(samples.files.shape, MISSING, np.int64)
        for file in dict.fromkeys(files[frames != MISSING].tolist()):
            index = self._dataset.index_of(file)
            rows, columns = np.nonzero((files == file) & (frames != MISSING))
            of_file = frames[rows, columns]
            starts = index.packets.start[index.packets.frames[of_file]]
            for plan in _plans(index.packets, np.unique(of_file), whole=self._whole):
                inside = starts == plan.start
                slots = rows[inside], np.asarray(shown)[columns[inside]]
                groups[slots] = len(self._plans)
                local[slots] = np.searchsorted(plan.frames, of_file[inside])
                self._plans.append((file, index, plan))
        return groups, local

    def batch(self, samples: Samples, places: tuple[NDArray[np.int64], NDArray[np.int64]]) -> PacketBatch:
        """Reads the packets of all groups that are not known yet."""
        sizes = [int(index.packets.size[plan.packets].sum()) for _, index, plan in self._plans]
        known = [(file, plan.start) in self._known for file, _, plan in self._plans]
        ends = list(itertools.accumulate(0 if here else size for size, here in zip(sizes, known, strict=True)))
        data = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8)
        out = data.numpy()
        groups: list[PacketGroup | KnownGroup] = []
        failed: dict[int, FramefeedError] = {}
        for place, (file, index, plan) in enumerate(self._plans):
            if known[place]:
                groups.append(KnownGroup(_key(index, plan), sizes[place]))
                continue
            damaged: dict[int, str] = {}
            try:
                part = out[ends[place] - sizes[place] : ends[place]]
                damaged = _read(index, self._source(file, index), plan, part)
            except FramefeedError as error:
                failed[place] = error
            groups.append(_describe(index, plan, damaged, whole=self._whole))
        source = self._dataset
        return PacketBatch(
            Samples(samples.numbers, *places, samples.draws),
            source.shape,
            source.shown,
            groups,
            [file for file, _, _ in self._plans],
            data,
            ends,
            failed,
            cameras=source.has_cameras,
            masked=source.has_mask,
        )

    def following(self, numbers: NDArray[np.int64]) -> list[int]:
        """For each group, its first frame that samples need which come behind these."""
        data = self._dataset
        behind = numbers[numbers + 1 < len(data)] + 1
        files, frames = (slots[:, data.shown] for slots in data.arrangement.slots(behind))
        found = []
        for file, _, plan in self._plans:
            # Of samples that follow one another in one file, the last one counts.
            firsts = np.where(files == file, frames, _NEVER).min(axis=1, initial=_NEVER)
            last = int(firsts[firsts != _NEVER].max(initial=-1))
            found.append(int(np.searchsorted(plan.frames, last)) if last >= 0 else len(plan.frames))
        return found

    def _source(self, file: int, index: VideoIndex) -> PacketSource:
        source = self._sources.get(file)
        if source is None:
            source = self._sources[file] = open_source(index, media_of(index))
        return source


# --- who has what -------------------------------------------------------------------------------------------------


class GroupLedger:
    """Which groups are kept within a number of bytes, the ones that were used last.

    One is kept by whoever asks for groups and one by whoever gets them; told the same things in the same order, they
    agree, so that a group that is kept need not be sent.

    Args:
        num_bytes: How much is kept.
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.held_bytes = 0
        self._sizes: OrderedDict[Any, int] = OrderedDict()

    def has(self, key: Any) -> bool:
        """Whether a group is kept."""
        return key in self._sizes

    def visit(self, key: Any, size: int) -> tuple[bool, list[Any]]:
        """Notes the use of a group; returns whether it was kept, and which ones are not any longer."""
        known = key in self._sizes
        if known:
            self._sizes.move_to_end(key)
            return True, []
        dropped: list[Any] = []
        if size <= self.num_bytes:
            self._sizes[key] = size
            self.held_bytes += size
            while self.held_bytes > self.num_bytes:
                old, old_size = self._sizes.popitem(last=False)
                self.held_bytes -= old_size
                dropped.append(old)
        return False, dropped


class Requests:
    """A batch sampler that says which groups need not be sent.

    Args:
        dataset: Where samples come from.
        batches: The numbers of the samples of each batch.
        num_bytes: What is kept by whoever gets the batches; 0 for nothing.
        ahead: Whether frames come in order.
        begin: Called when an epoch begins: whoever gets the batches begins a new ledger.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        batches: Iterable[Sequence[int]],
        num_bytes: int,
        ahead: bool,
        begin: Callable[[], None],
    ) -> None:
        self._dataset = dataset
        self._batches = batches
        self._num_bytes = num_bytes
        self._ahead = ahead
        self._begin = begin
        self._sizes: dict[tuple[int, int], int] = {}  # of groups

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[PacketRequest]]:
        self._begin()
        ledger = GroupLedger(self._num_bytes)
        for batch in self._batches:
            numbers = [self._dataset.checked_number(number) for number in batch]
            known = self._known(np.array(numbers, np.int64), ledger) if self._num_bytes else frozenset()
            yield [PacketRequest(number, known, self._ahead) for number in numbers]

    def _known(self, numbers: NDArray[np.int64], ledger: GroupLedger) -> frozenset[tuple[int, int]]:
        """The groups of a batch that are kept; they are gone through in the order that they come in."""
        data = self._dataset
        files, frames = (slots[:, data.shown] for slots in data.arrangement.slots(numbers))
        known = []
        for file in dict.fromkeys(files[frames != MISSING].tolist()):
            table = data.index_of(file).packets
            wanted = np.unique(frames[(files == file) & (frames != MISSING)])
            for start in np.unique(table.start[table.frames[wanted]]).tolist():
                if ledger.visit((file, start), self._size(file, table, start))[0]:
                    known.append((file, start))
        return frozenset(known)

    def _size(self, file: int, table: PacketTable, start: int) -> int:
        """Bytes that a group takes."""
        size = self._sizes.get((file, start))
        if size is None:
            first = np.flatnonzero(table.start[table.frames] == start)[:1]
            (plan,) = _plans(table, first, whole=True)
            size = self._sizes[file, start] = int(table.size[plan.packets].sum())
        return size
