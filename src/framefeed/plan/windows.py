"""Windows of whole groups that are decoded at once, each from its beginning."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from framefeed.index.table import PacketTable

__all__ = ["group_ends", "window_end"]


def group_ends(packets: PacketTable) -> list[int]:
    """The frames behind the last ones of groups; the last of them is the number of frames."""
    groups = packets.start[packets.frames]
    return [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]


def window_end(ends: Sequence[int], start: int, length: int, reach: int, max_groups: int) -> int:
    """Returns the end of a window: after a whole number of requests, with as little as possible of an unfinished group.

    What is left of a group when a window ends has to be decoded again from the group's beginning, by the next one. So a
    window goes on from the end of a group to the end of the request there, and no further.

    Args:
        ends: Where groups end.
        start: The first frame.
        length: Frames of a request; at least one request is in the window, whatever its size.
        reach: Frames of the window, at most.
        max_groups: Groups that may end in the window.
    """
    limit = min(start + reach, ends[-1])
    first = bisect_right(ends, start)
    last = bisect_right(ends, limit, lo=first, hi=min(first + max_groups, len(ends)))
    stop = ends[last - 1] if last > first else limit
    requests = -(-(stop - start) // length)
    if start + requests * length > limit < ends[-1]:
        requests = (limit - start) // length
    return min(start + max(1, requests) * length, ends[-1])
