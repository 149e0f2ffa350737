"""CUDA streams that wait for one another, with as few calls of the driver as possible.

What is queued on a stream is done in order. So whoever has waited for one moment of a stream has waited for all that
was before it there, and of several moments of a stream only the last one has to be waited for. The driver is busy with
decoders, and a thread that waits for it keeps all others waiting for Python's lock.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from framefeed.cuda.driver import DEFAULT_STREAM, Event

__all__ = ["Moment", "Timeline", "default_timeline"]


class Moment(NamedTuple):
    """All that was queued on a stream until then.

    Attributes:
        timeline: The stream.
        number: Rises along it.
        event: After it all that is done.
    """

    timeline: Timeline
    number: int
    event: Event


class Timeline:
    """A stream and what it has waited for.

    Several threads may use one. A moment comes after all that its own thread has queued, and all that others had queued
    when they took moments with lower numbers.

    Args:
        handle: The driver's name of the stream.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._numbers = itertools.count(1)
        self._seen: dict[Timeline, int] = {}

    def now(self) -> Moment:
        """The present moment."""
        # The number first: an event with a higher number is recorded after whatever came before a lower one was taken.
        number = next(self._numbers)
        return Moment(self, number, Event(self._handle))

    def wait_for(self, moments: Iterable[Moment]) -> None:
        """Makes what is queued on this stream from now on wait for moments of others."""
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
    """That of a GPU's default stream, for which memory is allocated."""
    return Timeline(DEFAULT_STREAM)
