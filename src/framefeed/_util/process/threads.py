"""Threads that do one thing after the other, in the order in which it was asked for.

The main thread of a program may be interrupted anywhere: by Ctrl-C, and by torch when a worker process dies. Where that
happens to be at the door of a ``Condition``, its lock is never released. So there is none in here that the main thread
uses: a plain lock and a ``SimpleQueue`` have no such moment.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["Flag", "Outcome", "Threads", "start_thread", "wait_for_ends", "when_process_ends"]

# How long the process waits at its end for threads. One that comes back from a decoder while the interpreter goes away
# takes the process down, and on a busy GPU making decoders takes seconds. One that waits for a file does no harm.
MAX_EXIT_SECONDS = 30.0
MAX_FILE_SECONDS = 1.0
_FILES = ("framefeed.source", "framefeed.media.media", "framefeed.source.counting")


def wait_for_ends(threads: Iterable[threading.Thread]) -> None:
    """Waits at the end of the process for threads that have been told to end; not long for those that read a file."""
    begin = time.monotonic()
    for thread in threads:
        while thread is not threading.current_thread() and thread.is_alive():
            waited = time.monotonic() - begin
            if waited > MAX_EXIT_SECONDS or (waited > MAX_FILE_SECONDS and _reads(thread)):
                break
            thread.join(0.1)


_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_endings: list[Callable[[], None]] = []


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Starts a thread that the process waits for at its end, even where all that it belonged to is gone.

    The last thread of a loader frees the loader's memory, which takes a while, and nobody else knows of it then.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def when_process_ends(tell: Callable[[], None]) -> Callable[[], None]:
    """Decorates what tells such threads to end."""
    _endings.append(tell)
    return tell


@atexit.register
def _end_all() -> None:
    for tell in _endings:
        tell()
    wait_for_ends(list(_started))


def _reads(thread: threading.Thread) -> bool:
    """True while a thread waits for a file."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_FILES):
            return True
        frame = frame.f_back
    return False


class Flag:
    """Something that has happened, or has not."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False


class Outcome:
    """Result of a thread's work. Several threads may wait for it."""

    __slots__ = ("_begun", "_error", "_pending", "_value")

    def __init__(self) -> None:
        self._begun = threading.Lock()
        self._pending = threading.Lock()
        self._pending.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def get(self) -> Any:
        """Waits for it; raises what was raised, once."""
        self.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback leads here
        return self._value

    def wait(self) -> None:
        """Waits until it is there."""
        with self._pending:
            pass

    def make(self, work: Callable[[], Any]) -> None:
        """Does what it is the outcome of, in this thread, unless that has been begun before."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = work()
        except BaseException as error:  # for whoever waits for it
            self._error = error
        self._pending.release()


class Threads:
    """A few threads. They end when it is closed, when nobody has it any more, and at the end of the process.

    Args:
        count: How many; they are started when there is something to do.
        name: What they are called.

    Attributes:
        closed: Raised when it is closed. What has not been begun is begun nevertheless, so that those who wait for it
            do not wait for ever: whoever has something done looks at this first.
    """

    def __init__(self, count: int, name: str) -> None:
        self._queue = _Queue(count, name)
        self.closed = self._queue.closed
        weakref.finalize(self, self._queue.close).atexit = False  # the queues see to that themselves, all together
        _queues.add(self._queue)

    def submit(self, work: Callable[[], Any], outcome: Outcome) -> None:
        """Has something done."""
        self._queue.put(work, outcome)

    def close(self) -> None:
        """Ends the threads, and does not wait for them."""
        self._queue.close()


class _Queue:
    """Queue of the threads' work. They refer to this and not to ``Threads``, so that ``Threads`` can be freed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._process = os.getpid()
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Outcome] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.closed = Flag()

    def put(self, work: Callable[[], Any], outcome: Outcome) -> None:
        self._tasks.put((work, outcome))
        if self.closed.up:
            self._empty()
        elif len(self._threads) < self._count:
            self._threads.append(start_thread(self._work, self._name))

    def close(self) -> None:
        if self._process == os.getpid():  # in a forked process there are no threads
            self.closed.up = True
            self._tasks.put(None)

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                self._tasks.put(None)  # for the next thread
                return
            work, outcome = task
            outcome.make(work)
            del task, work, outcome  # a thread that waits must not keep anything alive

    def _empty(self) -> None:
        """Does what came after the end, in this thread."""
        with contextlib.suppress(Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    task[1].make(task[0])
        self._tasks.put(None)


_queues: weakref.WeakSet[_Queue] = weakref.WeakSet()


@when_process_ends
def _close_all() -> None:
    for queue in list(_queues):
        queue.close()
