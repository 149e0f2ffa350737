"""Cross-stream waits with as few driver calls as possible.

Work on one stream runs in order. A stream that has waited for one moment of another has therefore waited for all
earlier moments, and of several moments of one stream only the latest needs a wait. The driver is busy with decoders,
and a thread that waits for the driver blocks every other thread that needs the GIL.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from framefeed.cuda.driver import DEFAULT_STREAM, Event

__all__ = ["Moment", "Timeline", "default_timeline"]


class Moment(NamedTuple):
    """A point in a stream: all work queued on it so far.

    Attributes:
        timeline: The stream.
        number: Rises along the stream.
        event: Completes when that work is done.
    """

    timeline: Timeline
    number: int
    event: Event


class Timeline:
    """A stream and the moments that it has waited for.

    Several threads may use one. A moment covers everything its own thread has queued, and everything other threads had
    queued when they took moments with lower numbers.

    Args:
        handle: The driver's handle of the stream.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._numbers = itertools.count(1)
        self._seen: dict[Timeline, int] = {}

    def now(self) -> Moment:
        """Returns the present moment."""
        # Take the number first: an event with a higher number is then recorded after all work before a lower one.
        number = next(self._numbers)
        return Moment(self, number, Event(self._handle))

    def wait_for(self, moments: Iterable[Moment]) -> None:
        """Makes all later work of this stream wait for moments of other streams."""
        latest: dict[Timeline, Moment] = {}
        for moment in moments:
            known = latest.get(moment.timeline)
            if known is None or known.number < moment.number:
                latest[moment.timeline] = moment
        for timeline, moment in latest.items():
            if timeline is not self and self._seen.get(timeline, 0) < moment.number:
                moment.event.wait(self._handle)
                self._seen[timeline] = moment.number


@functools.cache
def default_timeline(device: int) -> Timeline:
    """Returns the timeline of a GPU's default stream, for which memory is allocated."""
    return Timeline(DEFAULT_STREAM)
