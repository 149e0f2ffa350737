"""Scans many files at once. A bad file costs itself, and not the others.

A few files are scanned by threads: by one, because Python lets only one run at a time, and by more where files keep
it waiting. One that takes too long is left behind; a crash of a library would end the process. Many are scanned by
worker processes: one that crashes or takes too long is killed and replaced, and only the file it was at is given up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from framefeed._util.process.worker_process import Lost, answer_requests, ask_workers, too_slow
from framefeed.errors import FramefeedError, InvalidFile
from framefeed.index.video_index import VideoIndex

__all__ = ["TIMEOUT", "Failure", "Outcome", "scan_files", "scan_one"]

TIMEOUT = "ScanTimeout"
"""``Failure.error`` of a scan that took too long."""

THREAD_FILES = 64  # up to here threads are done before worker processes have started (about 0.3 s)
PATIENCE_SECONDS = 0.02  # a thread that has nothing to show for so long waits for a disk: another one is started
TICK_SECONDS = 1.0  # how often the caller gets a chance to save what it has while no scan finishes

_COMMAND = """
from framefeed.catalog.catalog_scan import serve
serve(descriptor)
"""


@dataclass(frozen=True)
class Failure:
    """Why a file could not be indexed.

    Attributes:
        error: Name of the framefeed error, or ``TIMEOUT``.
        reason: In words.
    """

    error: str
    reason: str


Outcome = VideoIndex | Failure


def scan_one(path: str) -> Outcome:
    """Scans a file; whatever goes wrong is returned and not raised."""
    try:
        index = VideoIndex.scan(path)
        if index.num_cut_frames:
            missing = f"{index.num_cut_frames} of {index.num_frames} frames are missing"
            raise InvalidFile(path, f"the file is cut off: {missing}")
        return index
    except FramefeedError as error:
        return Failure(type(error).__name__, error.reason)
    except Exception as error:  # a file must not stop the build, not even one that a parser trips over
        return Failure("InvalidFile", f"could not be indexed ({type(error).__name__}: {error})")


def serve(descriptor: int) -> None:
    """Scans files in a worker process."""
    from framefeed.index import order, scan  # noqa: F401  # what the first file would have to wait for

    answer_requests(descriptor, lambda path, _: scan_one(path))


def scan_files(
    paths: Sequence[str], *, num_workers: int, timeout_seconds: float
) -> Generator[tuple[str, Outcome] | None, None, None]:
    """Scans files side by side.

    Args:
        paths: The files.
        num_workers: How many at once.
        timeout_seconds: How long a scan may take.

    Yields:
        Each path with its outcome, as they finish, and now and then None when none has finished for a while.

    Raises:
        WorkerError: Worker processes do not start here.
    """
    if len(paths) <= THREAD_FILES:
        scans = _Scans(paths, num_workers, timeout_seconds)
        try:
            yield from scans.outcomes()
        finally:
            scans.stop()
        return
    answers = ask_workers(_COMMAND, paths, num_workers, timeout_seconds=timeout_seconds, in_advance=1)
    with closing(answers):
        for found in answers:
            if found is None:
                yield None
            else:
                number, answer = found
                yield paths[number], _lost(answer) if isinstance(answer, Lost) else answer


def _lost(lost: Lost) -> Failure:
    return Failure(TIMEOUT if lost.timed_out else "InvalidFile", f"the scan {lost.reason}")


class _Scans:
    """Threads that scan files.

    Args:
        paths: The files.
        most: How many at once.
        timeout_seconds: How long a scan may take.
    """

    def __init__(self, paths: Sequence[str], most: int, timeout_seconds: float) -> None:
        self._most = min(most, len(paths))
        self._timeout_seconds = timeout_seconds
        self._left = len(paths)
        self._tasks = enumerate(paths)
        self._lock = threading.Lock()
        self._results: queue.SimpleQueue[tuple[str, Outcome | BaseException]] = queue.SimpleQueue()
        self._num_threads = 0  # without those that a scan has not come back from
        self._begun: dict[int, tuple[str, float]] = {}  # what is being scanned, and since when
        self._stopped = False

    def outcomes(self) -> Generator[tuple[str, Outcome] | None, None, None]:
        """See ``scan_files``."""
        if self._left:
            self._add()
        while self._left:
            may_grow = self._num_threads < self._most
            try:
                path, outcome = self._results.get(timeout=PATIENCE_SECONDS if may_grow else TICK_SECONDS)
            except queue.Empty:
                if may_grow:
                    self._add()
                    continue
                yield from self._overdue()
                yield None
                continue
            if isinstance(outcome, BaseException):
                raise outcome
            self._left -= 1
            yield path, outcome

    def stop(self) -> None:
        """Begins no other scan. One in a thread cannot be stopped, and Ctrl-C does not wait for it."""
        self._stopped = True

    def _add(self) -> None:
        self._num_threads += 1
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        path = ""
        try:
            while not self._stopped:
                with self._lock:
                    number, path = next(self._tasks, (-1, ""))
                if number < 0:
                    return
                self._begun[number] = path, time.monotonic()
                outcome = scan_one(path)
                if self._begun.pop(number, None) is None:
                    return  # given up on, and replaced
                self._results.put((path, outcome))
        except BaseException as error:
            self._results.put((path, error))

    def _overdue(self) -> Iterator[tuple[str, Outcome]]:
        """Gives up on scans that take too long; their threads are left behind."""
        now = time.monotonic()
        for number, (path, begin) in list(self._begun.items()):
            if now - begin > self._timeout_seconds and self._begun.pop(number, None) is not None:
                self._num_threads -= 1
                self._left -= 1
                yield path, _lost(too_slow(self._timeout_seconds))
