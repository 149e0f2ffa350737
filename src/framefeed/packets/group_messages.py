"""Requests for the groups of an epoch's batches, and the messages in which worker processes send them.

A group is sent for the first batch that needs it, and not again while it is cached. The requester alone decides what
is cached, and records the decision for each batch; the receiver carries it out.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from framefeed.batch.assembly import MISSING
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError
from framefeed.packets.packet_group import PacketGroup, describe_group, plan_group, read_group
from framefeed.packets.packet_requests import GroupLedger
from framefeed.source import PacketSource, media_of, open_source

__all__ = ["BatchRequirements", "GroupMessage", "GroupReader", "GroupRequester", "Key"]

Key = tuple[int, int]
"""A group: its file number, and the packet where decoding starts."""

# Size of a worker's message: large enough to amortise sending, small enough to keep all workers busy.
MESSAGE_BYTES = 8 << 20

# After so many batches without a message, an empty one is requested: torch asks for as many messages as workers can
# handle, and would otherwise run through the whole epoch, which may be endless.
QUIET_BATCHES = 16


@dataclass(eq=False)
class BatchRequirements:
    """Groups that a batch needs.

    Attributes:
        keys: The batch's groups; True if a group is cached for later batches.
        dropped: Groups that leave the cache with this batch.
        messages: Number of messages sent for the batch.
    """

    keys: dict[Key, bool]
    dropped: list[Key]
    messages: int = 0


class GroupRequester:
    """Requests the groups of batches.

    Args:
        dataset: The dataset.
        batches: Sample numbers of each batch.
        cache_bytes: Size of the packet cache.
        kept: Groups cached from before, and their sizes.

    Attributes:
        requirements: Requirements of the requested batches; the receiver of messages removes them.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        batches: Iterable[NDArray[np.int64]],
        cache_bytes: int,
        kept: Iterable[tuple[Key, int]] = (),
    ) -> None:
        self._dataset = dataset
        self._batches = batches
        self._ledger = GroupLedger(cache_bytes)
        for key, size in kept:
            self._ledger.visit(key, size)
        self._starts: dict[int, NDArray[np.int64]] = {}  # by file: where decoding starts for each frame
        self._sizes: dict[Key, int] = {}
        self.requirements: deque[BatchRequirements] = deque()

    def __iter__(self) -> Iterator[list[Key]]:
        """Yields the groups of each message."""
        quiet = 0
        for batch in self._batches:
            requirements, messages = self._needs(batch)
            quiet = 0 if messages else quiet + 1
            if quiet == QUIET_BATCHES:
                quiet, messages = 0, [[]]
            requirements.messages = len(messages)
            self.requirements.append(requirements)
            yield from messages

    def _needs(self, numbers: NDArray[np.int64]) -> tuple[BatchRequirements, list[list[Key]]]:
        messages: list[list[Key]] = []
        dropped: list[Key] = []
        keys = self._keys(numbers)
        room = 0
        for key in keys:
            size = self._size(key)
            known, old = self._ledger.visit(key, size)
            dropped += old
            if not known:
                if not messages or size > room:
                    messages.append([])
                    room = MESSAGE_BYTES
                messages[-1].append(key)
                room -= size
        return BatchRequirements({key: self._ledger.has(key) for key in keys}, dropped), messages

    def _keys(self, numbers: NDArray[np.int64]) -> list[Key]:
        """Returns the groups of a batch, in order of first use."""
        data = self._dataset
        slots = data.frame_layout.frame_refs(numbers)
        files, frames = (each[:, data.shown].ravel() for each in slots)
        found: dict[Key, None] = {}
        for file, frame in zip(files.tolist(), frames.tolist(), strict=True):
            if frame != MISSING:
                starts = self._starts.get(file)
                if starts is None:
                    table = data.index_of(file).packets
                    starts = self._starts[file] = table.start[table.frames]
                found[file, int(starts[frame])] = None
        return list(found)

    def _size(self, key: Key) -> int:
        """Returns the packet bytes of a group."""
        size = self._sizes.get(key)
        if size is None:
            table = self._dataset.index_of(key[0]).packets
            size = self._sizes[key] = int(table.size[plan_group(table, key[1]).packets].sum())
        return size


# --- in workers ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class GroupMessage:
    """Groups that a worker has read.

    Attributes:
        groups: The groups, without their packets.
        data: The packets of all groups.
        ends: For each group, the end of its packets in ``data``.
        failed: Groups that could not be read, with errors.
    """

    groups: dict[Key, PacketGroup]
    data: torch.Tensor
    ends: list[int]
    failed: dict[Key, FramefeedError] = field(default_factory=dict)

    def filled(self) -> Iterator[tuple[Key, PacketGroup]]:
        """Yields the groups with their packets, as views of ``data``."""
        begin = 0
        for (key, group), end in zip(self.groups.items(), self.ends, strict=True):
            yield key, replace(group, data=self.data[begin:end])
            begin = end

    def pin_memory(self) -> GroupMessage:
        """Returns itself: packets are only read by the CPU."""
        return self


class GroupReader(Dataset[GroupMessage]):
    """Reads whole groups in worker processes. Opens nothing before the first request.

    Args:
        dataset: The dataset of the groups.
    """

    def __init__(self, dataset: FrameDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Key) -> GroupMessage:
        """Reads one group."""
        return self.__getitems__([key])

    def __getitems__(self, keys: Sequence[Key]) -> GroupMessage:
        """Reads several groups."""
        plans = []
        for file, start in keys:
            index = self._dataset.index_of(file)
            plans.append((index, plan_group(index.packets, start)))
        ends = list(itertools.accumulate(int(index.packets.size[plan.packets].sum()) for index, plan in plans))
        message = GroupMessage({}, torch.empty(ends[-1] if ends else 0, dtype=torch.uint8), [])
        out = message.data.numpy()
        sources: dict[int, PacketSource] = {}
        begin = 0
        for key, (index, plan), end in zip(keys, plans, ends, strict=True):
            try:
                source = sources.get(key[0])
                if source is None:
                    source = sources[key[0]] = open_source(index, media_of(index))
                damaged = read_group(index, source, plan, out[begin:end])
            except FramefeedError as error:
                message.failed[key] = error
                damaged = {}
            message.groups[key] = describe_group(index, plan, damaged, whole=True)
            message.ends.append(end)
            begin = end
        return message

    @staticmethod
    def collate(message: Any) -> GroupMessage:
        """Returns the message unchanged; pass it as ``collate_fn``."""
        assert isinstance(message, GroupMessage)
        return message
