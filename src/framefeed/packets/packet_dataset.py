"""``PacketDataset``: reads the packets of samples in worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from framefeed.batch.assembly import MISSING, SampleRef, Samples, SampleShape, locate_samples
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError
from framefeed.index.video_index import VideoIndex
from framefeed.packets.packet_group import (
    GroupKey,
    GroupPlan,
    PacketGroup,
    describe_group,
    group_key,
    plan_groups,
    read_group,
)
from framefeed.source import PacketSource, media_of, open_source

__all__ = ["KnownGroup", "PacketBatch", "PacketDataset", "PacketRequest"]

_NEVER = np.iinfo(np.int64).max


class KnownGroup(NamedTuple):
    """A whole group that is not sent because the receiver has it cached.

    Attributes:
        key: Identity of the group.
        num_bytes: Size of its packets.
        data: Always None.
    """

    key: GroupKey
    num_bytes: int
    data: None = None


class PacketRequest(NamedTuple):
    """A requested sample.

    Attributes:
        number: Sample number in the dataset.
        known: Groups cached by the requester, as (file number, packet where decoding starts).
        ahead: True if the following frames of a group will be requested next.
    """

    number: int
    known: frozenset[tuple[int, int]] = frozenset()
    ahead: bool = False


@dataclass(eq=False)
class PacketBatch:
    """Packets of a batch of samples, before decoding.

    Attributes:
        samples: References of the samples: "files" are positions in ``groups``, "frames" count within the group.
        shape: Frames and cameras of a sample.
        shown: Positions in a sample that were sent; the others are empty.
        groups: The groups, without their packets.
        files: For each group, its file number in the dataset.
        data: The packets of all sent groups.
        ends: For each group, the end of its packets in ``data``.
        failed: Groups that could not be read, by position, with errors.
        labels: One label for each sample, or None.
        errors: Samples without a label, by position in the batch, with errors.
        following: For each group, its first frame that may be requested next; None if unknown.
        cameras: True if samples have a dimension for cameras.
        masked: True if frames may be missing, with a mask.
        extra_columns: Extra per-sample columns (masks), by name.
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
    extra_columns: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_bytes(self) -> int:
        """Bytes of packets sent."""
        return int(self.data.numel())

    def filled(self) -> list[PacketGroup | KnownGroup]:
        """Returns the groups, with their packets if these were sent."""
        begins = [0, *self.ends[:-1]]
        return [
            replace(group, data=self.data[begin:end]) if isinstance(group, PacketGroup) else group
            for group, begin, end in zip(self.groups, begins, self.ends, strict=True)
        ]

    def pin_memory(self) -> PacketBatch:
        """Returns itself: packets are only read by the CPU."""
        return self


class PacketDataset(Dataset[PacketBatch]):
    """Packets of a dataset's samples, for worker processes that do not decode.

    Workers need neither a GPU nor a decoder and may be forked or spawned: nothing is opened before the first sample is
    read::

        packets = PacketDataset(dataset)
        decoder = PacketDecoder(dataset)
        requests = decoder.requests(dataset, batch_sampler)
        loader = DataLoader(packets, batch_sampler=requests, num_workers=4, collate_fn=packets.collate)
        for batch in decoder(loader):
            ...

    Args:
        dataset: A ``VideoDataset`` or ``MultiCameraDataset``.
        whole_groups: Sends whole groups, which the receiver can cache; False sends only the packets needed to decode
            the samples.
    """

    def __init__(self, dataset: FrameDataset, *, whole_groups: bool = True) -> None:
        self.dataset = dataset
        self.whole_groups = whole_groups

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, request: int | PacketRequest) -> PacketBatch:
        """Reads the packets of a sample."""
        return self.__getitems__([request])

    def __getitems__(self, requests: Sequence[int | PacketRequest]) -> PacketBatch:
        """Reads the packets of samples, each group once."""
        asked = [each if isinstance(each, PacketRequest) else PacketRequest(int(each)) for each in requests]
        data = self.dataset
        numbers = np.array([data.checked_number(each.number) for each in asked], np.int64)
        # Random numbers are always sent: the decoder's descriptions may differ from the dataset's.
        samples = locate_samples(data.frame_layout, numbers, data.seed, data.epoch, draws=True)
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
        except StopIteration as error:  # would silently end the epoch
            raise RuntimeError("get_label raised StopIteration") from error
        return None

    @staticmethod
    def collate(batch: Any) -> PacketBatch:
        """Returns the batch unchanged; pass it as ``collate_fn``."""
        assert isinstance(batch, PacketBatch)
        return batch


class _Gathered:
    """Collects the groups of a batch.

    Args:
        dataset: The dataset.
        known: Groups that need not be read.
        whole: True to read whole groups.
    """

    def __init__(self, dataset: FrameDataset, known: frozenset[tuple[int, int]], *, whole: bool) -> None:
        self._dataset = dataset
        self._known = known
        self._whole = whole
        self._sources: dict[int, PacketSource] = {}
        self._plans: list[tuple[int, VideoIndex, GroupPlan]] = []

    def add(self, samples: Samples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Plans all groups; returns the position of each frame's group, and its number within the group."""
        shown = self._dataset.shown
        files, frames = samples.files[:, shown], samples.frames[:, shown]
        groups = np.full(samples.files.shape, MISSING, np.int64)
        local = np.full(samples.files.shape, MISSING, np.int64)
        for file in dict.fromkeys(files[frames != MISSING].tolist()):
            index = self._dataset.index_of(file)
            rows, columns = np.nonzero((files == file) & (frames != MISSING))
            of_file = frames[rows, columns]
            starts = index.packets.start[index.packets.frames[of_file]]
            for plan in plan_groups(index.packets, np.unique(of_file), whole=self._whole):
                inside = starts == plan.start
                slots = rows[inside], np.asarray(shown)[columns[inside]]
                groups[slots] = len(self._plans)
                local[slots] = np.searchsorted(plan.frames, of_file[inside])
                self._plans.append((file, index, plan))
        return groups, local

    def batch(self, samples: Samples, places: tuple[NDArray[np.int64], NDArray[np.int64]]) -> PacketBatch:
        """Reads the packets of all groups that are not known."""
        sizes = [int(index.packets.size[plan.packets].sum()) for _, index, plan in self._plans]
        known = [(file, plan.start) in self._known for file, _, plan in self._plans]
        ends = list(itertools.accumulate(0 if here else size for size, here in zip(sizes, known, strict=True)))
        data = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8)
        out = data.numpy()
        groups: list[PacketGroup | KnownGroup] = []
        failed: dict[int, FramefeedError] = {}
        for place, (file, index, plan) in enumerate(self._plans):
            if known[place]:
                groups.append(KnownGroup(group_key(index, plan), sizes[place]))
                continue
            damaged: dict[int, str] = {}
            try:
                part = out[ends[place] - sizes[place] : ends[place]]
                damaged = read_group(index, self._source(file, index), plan, part)
            except FramefeedError as error:
                failed[place] = error
            groups.append(describe_group(index, plan, damaged, whole=self._whole))
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
            extra_columns=source.extra_columns(samples.numbers),
        )

    def following(self, numbers: NDArray[np.int64]) -> list[int]:
        """Returns, for each group, the first frame needed by the samples that follow these."""
        data = self._dataset
        behind = numbers[numbers + 1 < len(data)] + 1
        files, frames = (slots[:, data.shown] for slots in data.frame_layout.frame_refs(behind))
        found = []
        for file, _, plan in self._plans:
            # For consecutive samples of one file, the last sample decides.
            firsts = np.where(files == file, frames, _NEVER).min(axis=1, initial=_NEVER)
            last = int(firsts[firsts != _NEVER].max(initial=-1))
            found.append(int(np.searchsorted(plan.frames, last)) if last >= 0 else len(plan.frames))
        return found

    def _source(self, file: int, index: VideoIndex) -> PacketSource:
        source = self._sources.get(file)
        if source is None:
            source = self._sources[file] = open_source(index, media_of(index))
        return source
