"""What random access costs, before a frame is decoded."""

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
    cost = fed[packets + 1] - fed[starts] + droppable[packets]
    # Leading pictures of the random-access point lie between it and the frame, and are not fed.
    leading = np.concatenate([[0], np.cumsum(~droppable & (table.start < _last_start(table)))])
    own_group = table.start[packets] == _last_start(table)[packets]
    result: NDArray[np.int64] = cost - np.where(own_group, leading[packets + 1] - leading[starts], 0)
    return result


def _last_start(table: PacketTable) -> NDArray[np.int64]:
    """For each packet, the last random-access point at or before it."""
    numbers = np.arange(len(table))
    return np.maximum.accumulate(np.where(table.start == numbers, numbers, 0))
