"""Reading a whole video in order, round by round: what to decode next so that all cores are busy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.plan.schedule import choose_window

__all__ = ["Round", "rounds"]


@dataclass(frozen=True)
class Round:
    """One round of reading in order.

    Attributes:
        frames: What to decode, rising: the next frames and, of a long group that follows, some to be kept.
        deliver: How many frames can be handed out after it, of these and of those that were kept.
        long_groups: Whether these are parts of long groups, which decoders go through with several threads each.
    """

    frames: NDArray[np.int64]
    deliver: int
    long_groups: bool


def rounds(groups: NDArray[np.int64], *, budget: int, least: int, num_threads: int) -> Iterator[Round]:
    """Plans all rounds of a video.

    Short groups are decoded several at a time. Of groups that do not fit into memory two at a time, the next one is
    begun while the last part of the present one is read, and its frames are kept: half a group kept is enough to have
    two groups under way most of the time.

    Args:
        groups: For each frame in presentation order, the group that it decodes from.
        budget: How many frames may be held at once.
        least: How many frames are worth a round.
        num_threads: Threads there are.
    """
    ends = np.append(np.flatnonzero(np.diff(groups)) + 1, len(groups))
    place, kept = 0, 0  # frames handed out; the end of those that are kept, from the beginning of the next group on
    while place < len(groups):
        if kept > place and place in ends:
            yield Round(np.empty(0, np.int64), kept - place, True)
            place = kept
            continue
        end = int(ends[np.searchsorted(ends, place, side="right")])
        if num_threads < 2 or budget < 2:
            stop = min(end, place + max(1, min(least, budget)))
            yield Round(np.arange(place, stop), stop - place, False)
            place = stop
            continue
        if kept <= end and end - place <= budget // 2:
            limit = min(len(groups), place + budget)
            choices = [int(stop) - place for stop in ends if place + min(least, limit - place) <= stop <= limit]
            stop = place + choose_window(groups[place:limit], choices or [end - place], num_threads)
            yield Round(np.arange(place, stop), stop - place, False)
            place = stop
            continue
        stop = min(end, place + least)
        begun = max(kept, end)
        more = 0
        if end < len(groups) and end - place <= budget - least:
            following = int(ends[np.searchsorted(ends, end, side="right")])
            more = max(0, min(stop - place, following - begun, budget - (stop - place) - (begun - end)))
        yield Round(np.concatenate([np.arange(place, stop), np.arange(begun, begun + more)]), stop - place, True)
        place, kept = stop, begun + more if begun + more > end else 0
