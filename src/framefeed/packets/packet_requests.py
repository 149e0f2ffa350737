"""Asking for packets: who has which groups, so that they need not be sent."""

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
        """Bytes that a group takes."""
        size = self._sizes.get((file, start))
        if size is None:
            first = np.flatnonzero(table.start[table.frames] == start)[:1]
            (plan,) = plan_groups(table, first, whole=True)
            size = self._sizes[file, start] = int(table.size[plan.packets].sum())
        return size
