"""Cost of random access, before a frame is decoded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable

__all__ = ["random_frame_cost"]


def random_frame_cost(table: PacketTable) -> NDArray[np.int64]:
    """For each frame, how many packets have to be fed to a decoder to get that frame alone."""
    droppable = table.has(PacketKind.NONREF)
    # fed[i]: packets before i that are always fed. One subtraction then gives the packets between two places.
    fed = np.concatenate([[0], np.cumsum(~droppable)])
    packets = table.frames
    starts = table.start[packets]
    cost = fed[_ends(table)] - fed[starts] + droppable[packets]
    # Leading pictures of the random-access point, which lie between it and the next one, are not fed.
    last = _last_start(table)
    leading = np.concatenate([[0], np.cumsum(~droppable & (table.start < last))])
    points = np.append(np.flatnonzero(table.start == np.arange(len(table))), len(table))
    next_point = points[np.searchsorted(points, starts, side="right")]
    result: NDArray[np.int64] = cost - (leading[np.minimum(packets + 1, next_point)] - leading[starts])
    return result


def _ends(table: PacketTable) -> NDArray[np.int64]:
    """For each frame, the packet after its last one: a second field may be a packet of its own."""
    numbers = np.arange(len(table) + 1)
    is_first = np.append(~table.has(PacketKind.SECOND_FIELD), True)
    next_first = np.minimum.accumulate(np.where(is_first, numbers, len(table))[::-1])[::-1]
    ends: NDArray[np.int64] = next_first[table.frames + 1]
    return ends


def _last_start(table: PacketTable) -> NDArray[np.int64]:
    """For each packet, the last random-access point at or before it."""
    numbers = np.arange(len(table))
    return np.maximum.accumulate(np.where(table.start == numbers, numbers, 0))
