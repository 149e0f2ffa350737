"""Packet requests that leave out groups the receiver has cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.batch.assembly import MISSING
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.index.table import PacketTable
from framefeed.packets.packet_dataset import PacketRequest
from framefeed.packets.packet_group import plan_groups

__all__ = ["GroupLedger", "Requests"]


class GroupLedger:
    """LRU list of cached groups within a byte budget.

    The requester and the receiver each keep one. Given the same calls in the same order they agree, so cached groups
    need not be sent.

    Args:
        num_bytes: Size of the cache.
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.held_bytes = 0
        self._sizes: OrderedDict[Any, int] = OrderedDict()

    def has(self, key: Any) -> bool:
        """Returns True if a group is cached."""
        return key in self._sizes

    def visit(self, key: Any, size: int) -> tuple[bool, list[Any]]:
        """Records a use; returns True if the group was cached, and the groups evicted."""
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
    """Batch sampler that marks the groups that need not be sent.

    Args:
        dataset: The dataset.
        batches: Sample numbers of each batch.
        num_bytes: Size of the receiver's cache; 0 for none.
        ahead: True if frames are requested in order.
        begin: Called at the start of an epoch: the receiver starts a new ledger.
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
        self._sizes: dict[tuple[int, int], int] = {}  # group sizes

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
        """Returns the cached groups of a batch, visiting groups in the order in which they are sent."""
        data = self._dataset
        files, frames = (slots[:, data.shown] for slots in data.frame_layout.frame_refs(numbers))
        known = []
        for file in dict.fromkeys(files[frames != MISSING].tolist()):
            table = data.index_of(file).packets
            wanted = np.unique(frames[(files == file) & (frames != MISSING)])
            for start in np.unique(table.start[table.frames[wanted]]).tolist():
                if ledger.visit((file, start), self._size(file, table, start))[0]:
                    known.append((file, start))
        return frozenset(known)

    def _size(self, file: int, table: PacketTable, start: int) -> int:
        """Returns the packet bytes of a group."""
        size = self._sizes.get((file, start))
        if size is None:
            first = np.flatnonzero(table.start[table.frames] == start)[:1]
            (plan,) = plan_groups(table, first, whole=True)
            size = self._sizes[file, start] = int(table.size[plan.packets].sum())
        return size
