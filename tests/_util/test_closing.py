"""What the garbage collector lets go of, in any thread and with any lock held, is ended; nothing waits for ever."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clips
from framefeed import VideoDataset, VideoIndex, VideoLoader
from framefeed._util.process.finalize import Closer
from framefeed.convert.buffers import SMALL, BufferPool
from framefeed.source import demux, media_of, open_source
from helpers import state_help as help
from waiting import soon

LIMIT = 120.0  # seconds; what hangs, hangs for ever


class CollectingLock:
    """A lock with which the garbage collector runs while it is held, after it has been given something to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.armed = False
        self.times = 0

    def acquire(self, blocking: bool = True) -> bool:
        got = self._lock.acquire(blocking)
        if got and self.armed:
            self.armed = False
            self.times += 1
            gc.collect()
        return got

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


@pytest.fixture(autouse=True)
def not_by_itself() -> Iterator[None]:
    """The garbage collector runs when it is told to, and looks at what is new."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


def _in_time(work: Callable[[], None]) -> None:
    """Does something in a thread that may hang."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def _drop_in_a_cycle(thing: Any, lock: CollectingLock) -> None:
    """Leaves something to the garbage collector."""
    cycle: list[Any] = [thing]
    cycle.append(cycle)
    lock.armed = True


def test_generators_of_packets(clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = VideoIndex.scan(clips.make("h264_ts", clip_folder))
    source = open_source(index, media_of(index))
    assert isinstance(source, demux.Demuxed)
    lock = CollectingLock()
    monkeypatch.setattr(demux._IDLE, "_lock", lock)

    def work() -> None:
        for number in range(10):
            packets = source.read(np.arange(number % 5, 8))
            next(packets)
            _drop_in_a_cycle(packets, lock)
            del packets
            assert len(list(source.read(np.arange(3)))) == 3

    _in_time(work)
    assert lock.times >= 10 and len(demux._IDLE._walkers) <= demux.MAX_IDLE


def test_blocks_of_memory() -> None:
    pool = BufferPool(20 * SMALL)
    lock = pool._lock = CollectingLock()  # type: ignore[assignment]

    def work() -> None:
        for number in range(30):
            _drop_in_a_cycle(pool.allocate((SMALL + number % 7,)), lock)

    _in_time(work)
    assert lock.times >= 29 and 0 < pool.free_bytes <= 20 * SMALL


@pytest.mark.parametrize("where", ["budget", "memory"])
def test_iterators(where: str, clip_folder: Path) -> None:
    """They are mostly found by a thread of another one."""
    of_others = help.loader_threads()  # of other tests, left to the collector, which does not look at them here
    dataset = VideoDataset([clips.make(name, clip_folder) for name in ("h264_bframes", "h264_ts", "hevc_open_gop")])
    loader = VideoLoader(dataset, 4, shuffle=True, memory_budget=3 * 10**6, drop_last=False)
    lock: Any = CollectingLock()
    if where == "budget":
        loader._budget._lock = lock
    else:
        workshop: Any = loader._workshop
        workshop._store._lock = lock

    def work() -> None:
        for number in range(8):
            iterator = iter(loader)
            for _ in range(1 + number % 3):
                next(iterator)
            _drop_in_a_cycle(iterator, lock)
            del iterator
        assert sum(len(batch["default"]) for batch in loader) == len(dataset)

    _in_time(work)
    assert lock.times
    gc.collect()
    assert soon(lambda: loader._budget.taken == 0, 60)
    assert soon(lambda: not help.loader_threads() - of_others, 60)


def test_noted_while_it_is_busy() -> None:
    closer = Closer()
    order: list[int] = []

    def work(number: int) -> None:
        if number < 3:
            closer.note(work, number + 1)
        order.append(number)

    closer.note(work, 0)
    closer.settle()
    assert order == [0, 1, 2, 3]
    closer.start()
    closer.note(work, 0)
    assert soon(lambda: order == [0, 1, 2, 3] * 2, 60)


def test_what_fails_does_not_keep_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    closer = Closer()
    done: list[int] = []
    closer.note(done.remove, 7)
    closer.note(done.append, 1)
    closer.settle()
    assert done == [1] and "ValueError" in capsys.readouterr().err


def test_in_a_forked_process() -> None:
    script = """
import os, sys, time
from framefeed._util.process.finalize import closer
closer.start()
process = os.fork()
if not process:
    done = []
    closer.start()
    closer.note(done.append, 1)
    end = time.monotonic() + 60
    while not done and time.monotonic() < end: time.sleep(0.01)
    os._exit(0 if done else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", script], timeout=LIMIT, check=False)
    assert ran.returncode == 0
