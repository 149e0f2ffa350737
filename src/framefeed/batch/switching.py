"""Switch interval of Python's lock while a loader runs."""

from __future__ import annotations

import sys
import threading

__all__ = ["Switching"]


class Switching:
    """Lets threads take turns more often while somebody needs it.

    A thread that comes back from a decoder waits for Python's lock until the one that has it lets go, or for Python's
    switch interval of 5 ms. That is a third of what decoding a group takes on a GPU, and happens several times a group.

    Args:
        seconds: The interval meanwhile.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0
        self._ours = 0.0

    def begin(self) -> None:
        """Somebody needs it."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, self._seconds))
                self._ours = sys.getswitchinterval()

    def end(self) -> None:
        """One needs it no more. After the last the interval is what it was, unless it was changed meanwhile."""
        with self._lock:
            self._users -= 1
            if not self._users and sys.getswitchinterval() == self._ours:
                sys.setswitchinterval(self._before)
