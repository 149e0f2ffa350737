"""Sessions between two uses: reset ones that any stream of the same parameters can have, and ones left running."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict

from framefeed._util.process.fork import in_forked_children
from framefeed.decode.session import Running, SessionFactory
from framefeed.index.bitstream import PacketKind
from framefeed.index.video_index import VideoIndex

__all__ = ["SessionPool"]


class SessionPool:
    """A bounded number of idle sessions, the least recently used dropped first.

    Args:
        factory: Makes new ones.
        max_idle: How many sessions are kept between uses; each holds a few pictures' worth of memory.
    """

    def __init__(self, factory: SessionFactory, max_idle: int) -> None:
        self._factory = factory
        self._max_idle = max_idle
        self._reset()
        in_forked_children(self._forget)

    def _forget(self) -> None:
        """In a forked child: starts afresh, and leaves the parent's sessions as they are for ever.

        Freeing a decoder that has threads waits for them to end, and in the child there are none.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._idle))
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, tuple[VideoIndex | None, Running]] = OrderedDict()
        self._latest = 0  # the video of the last request, by `id`
        self.created = 0

    def take_running(self, index: VideoIndex) -> tuple[dict[int, Running], bool]:
        """Takes out the sessions that were left running in this video.

        Returns:
            The sessions by group, and whether the last call was for the same video.
        """
        with self._lock:
            undisturbed, self._latest = self._latest == id(index), id(index)
            found = {key: running for key, (owner, running) in self._idle.items() if owner is index}
            for key in found:
                del self._idle[key]
        by_group: dict[int, Running] = {}
        for running in reversed(found.values()):
            if running.start in by_group:  # the one that was used last is where the reader is
                self.give_back(running)
            else:
                by_group[running.start] = running
        return by_group, undisturbed

    def take(self, index: VideoIndex, start: int, num_threads: int) -> Running:
        """A session for a fresh start at a packet."""
        closed = bool(int(index.packets.flags[start]) & PacketKind.CLOSED)
        key = self._factory.key(index.stream, closed_start=closed)
        shape = self._factory.shape(index.stream)
        chosen: Running | None = None
        left = False
        with self._lock:
            for owner, running in reversed(self._idle.values()):
                if owner is None and running.num_threads == num_threads and running.key == key:
                    chosen = running
                    if running.shape == shape:  # otherwise the one that was used longest ago
                        break
            if chosen is None and len(self._idle) >= self._max_idle > 0:
                _, oldest = next(iter(self._idle.values()))  # a new one would push it out
                if oldest.num_threads == num_threads and oldest.key == key and not oldest.new_headers:
                    chosen, left = oldest, True
            if chosen is not None:
                del self._idle[id(chosen)]
            else:
                self.created += 1
        if chosen is not None and left:
            chosen.session.reset()
            chosen.restart(-1)
        if chosen is None:
            session = self._factory.create(index.stream, num_threads, closed_start=closed)
            chosen = Running(session, key, shape, num_threads)
        chosen.shape = shape
        chosen.session.assign(index)
        return chosen

    def keep_running(self, index: VideoIndex, running: Running) -> None:
        """Keeps a session where it is in the video."""
        self._put(index, running)

    def give_back(self, running: Running) -> None:
        """Resets a session and keeps it for any stream of its parameters."""
        if running.new_headers:
            return  # a reset does not bring back the headers that it was made with
        running.session.reset()
        running.restart(-1)
        self._put(None, running)

    def _put(self, owner: VideoIndex | None, running: Running) -> None:
        with self._lock:
            self._idle[id(running)] = (owner, running)
            self._idle.move_to_end(id(running))
            dropped = [self._idle.popitem(last=False) for _ in range(len(self._idle) - self._max_idle)]
        del dropped  # freed outside the lock: closing a threaded decoder joins its threads

    def __len__(self) -> int:
        return len(self._idle)
