"""Requests that come in order, and what was read ahead for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["InOrder", "Span", "span_of"]

# How much further each step of a sequence reads ahead, so that one that ends early has not cost much.
GROWTH = 16

Span = tuple[int, int]
"""The first frame, and the one after the last."""

Frames = TypeVar("Frames")


class InOrder(Generic[Frames]):
    """Notices requests that come in order, and keeps what was read ahead for them. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Span = (0, 0)
        self._ahead = 0
        self._prepared: dict[Span, Frames] = {}

    def ask(self, span: Span | None, most: Callable[[Span], int]) -> tuple[Frames | None, bool, int]:
        """Takes note of a request.

        Args:
            span: Its frames; None where they do not follow one another.
            most: How many requests like this one may be read ahead.

        Returns:
            Its frames, where they have been read ahead; whether it goes on where the one before ended; how many more
            like it should be read with it.
        """
        dropped: dict[Span, Frames] = {}
        with self._lock:
            ready = self._prepared.pop(span, None) if span else None
            follows = span is not None and _follows(self._latest, span)
            self._latest = span or (0, 0)
            if ready is None:
                dropped, self._prepared = self._prepared, dropped
                self._ahead = min(max(1, self._ahead) * GROWTH, most(span)) if span and follows else 0
            ahead = self._ahead
        del dropped  # freed outside the lock
        return ready, follows, ahead

    def keep(self, prepared: Iterable[tuple[Span, Frames]]) -> None:
        """Keeps what has been read for the requests that will follow."""
        found = dict(prepared)
        with self._lock:
            self._prepared, found = found, self._prepared
        del found

    def give_up(self) -> None:
        """Reading ahead did not work: begins anew."""
        with self._lock:
            self._ahead = 0


def span_of(wanted: NDArray[np.int64]) -> Span | None:
    """(start, stop) of frames that are wanted in order without a gap, None for others."""
    if not len(wanted):
        return None
    first, last = int(wanted[0]), int(wanted[-1])
    if last - first != len(wanted) - 1 or (wanted[1:] - wanted[:-1] != 1).any():
        return None
    return first, last + 1


def _follows(before: Span, span: Span) -> bool:
    """Returns whether a request continues where an equally long one ended."""
    return span[0] == before[1] and before[1] - before[0] >= span[1] - span[0]
