"""``PacketDataset``: the packets of samples, as worker processes read and send them."""

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
        extra_columns: What is told of samples beside their frames, by name, a row for each.
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
        self._plans: list[tuple[int, VideoIndex, GroupPlan]] = []

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
            for plan in plan_groups(index.packets, np.unique(of_file), whole=self._whole):
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
        """For each group, its first frame that samples need which come behind these."""
        data = self._dataset
        behind = numbers[numbers + 1 < len(data)] + 1
        files, frames = (slots[:, data.shown] for slots in data.frame_layout.frame_refs(behind))
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
