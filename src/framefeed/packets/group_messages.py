"""Which groups the batches of an epoch need, and those that worker processes send.

A group is sent for the first batch that needs it, and not again while it is kept. Whoever asks for groups keeps the
only list of what is kept, and notes for each batch what becomes of it; whoever gets them does what is noted.
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
"""A group: the number of its file, and the packet that decoding starts from."""

# What one worker sends at once: enough that sending costs little, little enough that others have work as well.
MESSAGE_BYTES = 8 << 20

# After so many batches for which nothing is sent, an empty message is: torch asks for as many as workers can do, and
# would go through the whole epoch, which may be endless.
QUIET_BATCHES = 16


@dataclass(eq=False)
class BatchRequirements:
    """Groups that a batch needs.

    Attributes:
        keys: Its groups, and whether each is kept for later batches.
        dropped: Groups that are not kept any longer from here on.
        messages: How many are sent for it.
    """

    keys: dict[Key, bool]
    dropped: list[Key]
    messages: int = 0


class GroupRequester:
    """Asks for the groups of batches.

    Args:
        dataset: Where samples come from.
        batches: The numbers of the samples of each batch.
        cache_bytes: How much is kept.
        kept: What is kept from before: groups and their sizes.

    Attributes:
        requirements: What batches need that have been asked for; whoever gets the messages takes them out.
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
        self._starts: dict[int, NDArray[np.int64]] = {}  # of files: where each frame is decoded from
        self._sizes: dict[Key, int] = {}
        self.requirements: deque[BatchRequirements] = deque()

    def __iter__(self) -> Iterator[list[Key]]:
        """What messages are to have in them."""
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
        """The groups of a batch, in the order in which they first occur."""
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
        """Bytes that a group takes."""
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
        data: The packets of all of them.
        ends: For each group, where its packets end in there; they begin where those of the one before end.
        failed: Groups that could not be read, and why.
    """

    groups: dict[Key, PacketGroup]
    data: torch.Tensor
    ends: list[int]
    failed: dict[Key, FramefeedError] = field(default_factory=dict)

    def filled(self) -> Iterator[tuple[Key, PacketGroup]]:
        """The groups with their packets, which are parts of one memory."""
        begin = 0
        for (key, group), end in zip(self.groups.items(), self.ends, strict=True):
            yield key, replace(group, data=self.data[begin:end])
            begin = end

    def pin_memory(self) -> GroupMessage:
        """Itself: packets are read by the CPU."""
        return self


class GroupReader(Dataset[GroupMessage]):
    """Reads whole groups, for worker processes. Opens nothing before it is asked for the first.

    Args:
        dataset: Whose groups they are.
    """

    def __init__(self, dataset: FrameDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Key) -> GroupMessage:
        """One group."""
        return self.__getitems__([key])

    def __getitems__(self, keys: Sequence[Key]) -> GroupMessage:
        """Several."""
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
        """For ``collate_fn``: messages come as they are."""
        assert isinstance(message, GroupMessage)
        return message
