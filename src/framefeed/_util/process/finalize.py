"""Ends what nobody has any more.

Objects go away in any thread, at any point: the garbage collector runs wherever memory is asked for, with whatever
locks that thread holds. So what has to be done then, and needs locks, is only noted there, and done by a thread that
holds none.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from framefeed._util.process.fork import in_forked_children
from framefeed._util.process.threads import wait_for_ends

__all__ = ["Closer", "closer"]


class Closer:
    """Does what has been noted, soon. ``note`` may be called from finalizers, the rest may not.

    No ``Threads``: these begin a thread when they are given something to do, which takes locks.
    """

    def __init__(self) -> None:
        self._reset()
        in_forked_children(self._reset)

    def _reset(self) -> None:
        self._noted: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()  # can be put into from anywhere
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Sees to it that there is a thread for what will be noted, and does what has been."""
        self.settle()
        with self._busy:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._work, args=(self._wake,), name="framefeed-closer", daemon=True
                )
                self._thread.start()

    def note(self, work: Callable[..., None], *arguments: Any) -> None:
        """Has something done."""
        self._noted.append((work, arguments))
        if not self._stopped:
            self._wake.put(None)

    def settle(self) -> None:
        """Does what has been noted so far, or waits until that is done."""
        with self._busy:
            while self._noted:
                work, arguments = self._noted.popleft()
                try:
                    work(*arguments)
                except Exception:  # whoever comes by has nothing to do with it
                    sys.excepthook(*sys.exc_info())
                del work, arguments

    def stop(self) -> None:
        """Ends the thread: a thread that frees tensors when the interpreter goes away would take the process down."""
        self._stopped = True
        self._wake.put(None)
        if self._thread is not None:
            wait_for_ends([self._thread])

    def _work(self, wake: SimpleQueue[None]) -> None:
        while not self._stopped:
            wake.get()
            if not self._stopped:
                self.settle()


closer = Closer()
"""For the whole process."""

atexit.register(closer.stop)
