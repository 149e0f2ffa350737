"""Scans many files at once. A bad file costs itself, and not the others.

A few files are scanned by threads: by one, because Python lets only one run at a time, and by more where files keep
it waiting. One that takes too long is left behind; a crash of a library would end the process. Many are scanned by
worker processes, each of them fed by a thread: one that crashes or takes too long is killed and replaced, and only the
file it was at is given up. Workers are plain subprocesses: they import neither the caller's main module nor anything it
has loaded, so they start safely from a script without a main guard, from a process that has threads or uses CUDA, and
from a worker of another pool.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Protocol

from framefeed.errors import FramefeedError, InvalidFile
from framefeed.index.video_index import VideoIndex

__all__ = ["TIMEOUT", "Failure", "Outcome", "WorkerError", "scan_files", "scan_one"]

TIMEOUT = "ScanTimeout"
"""``Failure.error`` of a scan that took too long."""

THREAD_FILES = 64  # up to here threads are done before worker processes have started (about 0.3 s)
START_SECONDS = 120  # a worker imports PyAV, which takes its time on a cold network disk
PATIENCE_SECONDS = 0.02  # a thread that has nothing to show for so long waits for a disk: another one is started
TICK_SECONDS = 1.0  # how often the caller gets a chance to save what it has while no scan finishes

_COMMAND = """
import signal, sys, json
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the parent decides
sys.path[:] = json.loads(sys.argv[1])
from framefeed.catalog.catalog_scan import serve
serve(int(sys.argv[2]))
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


class WorkerError(RuntimeError):
    """Worker processes do not start here."""


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


class _Scanner(Protocol):
    def scan(self, path: str) -> Outcome: ...

    def stop(self) -> None:
        """From another thread: makes a scan that is under way end soon, where that is possible."""

    def close(self) -> None:
        """From the scanning thread, at the end."""


class _Here:
    """Scans in the calling thread."""

    def scan(self, path: str) -> Outcome:
        return scan_one(path)

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Elsewhere:
    """Scans in a process of its own, which is started when needed and replaced when it dies."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def scan(self, path: str) -> Outcome:
        status = self._attempt(path)
        if isinstance(status, int):  # died: of this file, or killed from outside; a second time tells
            status = self._attempt(path)
        if isinstance(status, int):
            return Failure("InvalidFile", f"the scan crashed twice ({_death(status)})")
        return status

    def _attempt(self, path: str) -> Outcome | int:
        """The outcome, or the exit status of a worker that died."""
        connection = self._connect()
        try:
            connection.send(path)
            if not connection.poll(self._timeout_seconds):
                self._kill()
                return _too_slow(self._timeout_seconds)
            outcome: Outcome = connection.recv()
            return outcome
        except (EOFError, OSError):
            return self._kill()

    def _connect(self) -> Connection:
        if self._connection is not None:
            return self._connection
        with self._lock:
            if self._stopped:
                raise OSError("stopped")
            ours, theirs = socket.socketpair()
            with theirs:
                self._connection = Connection(ours.detach())
                search_path = json.dumps([os.fspath(entry) for entry in sys.path])
                command = [os.fsdecode(spawn.get_executable() or sys.executable), "-c", _COMMAND, search_path]
                try:
                    self._process = subprocess.Popen(
                        [*command, str(theirs.fileno())],
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,  # what a library prints is not the caller's output
                    )
                except OSError as error:
                    raise WorkerError(f"a worker process could not be started ({error.strerror})") from error
        try:
            if self._connection.poll(START_SECONDS) and self._connection.recv() == "ready":
                return self._connection
        except (EOFError, OSError):
            pass
        raise WorkerError(f"a worker process could not be started ({_death(self._kill())})")

    def _kill(self) -> int:
        """Ends the worker; returns the status it ended with."""
        with self._lock:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is None:
            return 0
        try:
            return process.wait(timeout=1)  # one that crashed is already on its way; its own status is the true one
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        self._kill()


def _death(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def serve(descriptor: int) -> None:
    """What a worker process does: answers paths with outcomes until the other side is gone."""
    from framefeed.index import order, scan  # noqa: F401  # what the first file would have to wait for

    connection = Connection(descriptor)
    paths: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                paths.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; a scan that hangs must not outlive it

    connection.send("ready")
    threading.Thread(target=listen, daemon=True).start()
    while True:
        outcome = scan_one(paths.get())
        try:
            connection.send(outcome)
        except OSError:
            os._exit(0)


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
    """
    scans = _Scans(paths, min(num_workers, len(paths)), timeout_seconds)
    try:
        yield from scans.outcomes()
    finally:
        scans.stop()


class _Scans:
    """Threads that scan files, or have them scanned.

    Args:
        paths: The files.
        most: How many at once.
        timeout_seconds: How long a scan may take.
    """

    def __init__(self, paths: Sequence[str], most: int, timeout_seconds: float) -> None:
        self._here = len(paths) <= THREAD_FILES
        self._most = most
        self._timeout_seconds = timeout_seconds
        self._left = len(paths)
        self._tasks = enumerate(paths)
        self._lock = threading.Lock()
        self._results: queue.SimpleQueue[tuple[str, Outcome | BaseException]] = queue.SimpleQueue()
        self._scanners: list[tuple[_Scanner, threading.Thread]] = []
        self._begun: dict[int, tuple[str, float]] = {}  # what is being scanned, and since when
        self._lost = 0  # threads that a scan has not come back from
        self._stopped = False

    def outcomes(self) -> Generator[tuple[str, Outcome] | None, None, None]:
        """See ``scan_files``."""
        while self._may_grow() and not (self._here and self._scanners):
            self._add()
        while self._left:
            try:
                path, outcome = self._results.get(timeout=PATIENCE_SECONDS if self._may_grow() else TICK_SECONDS)
            except queue.Empty:
                if self._may_grow():
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
        """Ends all of it."""
        self._stopped = True
        for scanner, thread in self._scanners:
            scanner.stop()
            if not self._here:  # a scan in a thread cannot be stopped, and Ctrl-C does not wait for it
                thread.join()

    def _may_grow(self) -> bool:
        return len(self._scanners) - self._lost < self._most

    def _add(self) -> None:
        scanner = _Here() if self._here else _Elsewhere(self._timeout_seconds)
        thread = threading.Thread(target=self._work, args=(scanner,), daemon=True)
        self._scanners.append((scanner, thread))
        thread.start()

    def _work(self, scanner: _Scanner) -> None:
        path = ""
        try:
            while not self._stopped:
                with self._lock:
                    number, path = next(self._tasks, (-1, ""))
                if number < 0:
                    return
                self._begun[number] = path, time.monotonic()
                outcome = scanner.scan(path)
                if self._begun.pop(number, None) is None:
                    return  # given up on, and replaced
                self._results.put((path, outcome))
        except BaseException as error:
            self._results.put((path, error))
        finally:
            scanner.close()

    def _overdue(self) -> Iterator[tuple[str, Outcome]]:
        """Gives up on scans in threads that take too long; the threads are left behind. Processes are killed."""
        now = time.monotonic()
        for number, (path, begin) in list(self._begun.items()) if self._here else ():
            if now - begin > self._timeout_seconds and self._begun.pop(number, None) is not None:
                self._lost += 1
                self._left -= 1
                yield path, _too_slow(self._timeout_seconds)


def _too_slow(seconds: float) -> Failure:
    return Failure(TIMEOUT, f"the scan took longer than {seconds:g} s")
