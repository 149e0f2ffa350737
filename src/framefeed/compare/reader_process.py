"""A reader in a process of its own: it can crash or hang without harm, and its memory is its own."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framefeed._util.process.worker_process import WorkerError, WorkerProcess, answer_requests
from framefeed.compare.truth import Look, Sight, Truth, Wrong

__all__ = ["Checked", "Job", "ReaderFailed", "Timed", "Worker", "reader_class", "serve"]

START_SECONDS = 120.0  # importing a library may take long the first time

_COMMAND = """
from framefeed.compare.reader_process import serve
serve(descriptor)
"""


@dataclass(frozen=True)
class Job:
    """Task of a reader.

    Attributes:
        path: The video.
        mode, device: How it is opened.
        requests: The frames of each request.
        num_threads: Of the decoder; 0 leaves it to the library.
        least_seconds: All requests are made again until a timing has taken that long.
    """

    path: Path
    mode: str
    device: str
    requests: list[list[int]] = field(repr=False)
    num_threads: int = 0
    least_seconds: float = 0.0

    @property
    def num_frames(self) -> int:
        """Frames of all requests."""
        return sum(map(len, self.requests))


@dataclass(frozen=True)
class Checked:
    """Result of a check.

    Attributes:
        checked: Frames that were looked at.
        wrong: Those that are not the ones that were asked for.
        tested: Whether wrong ones would have been noticed.
        seconds: How long reading took.
    """

    checked: int
    wrong: list[Wrong]
    tested: bool
    seconds: float


@dataclass(frozen=True)
class Timed:
    """Result of a timing.

    Attributes:
        seconds: That all requests took; on average, where they were made several times.
        decoded: Frames that were decoded for them, where the library tells.
        peak_bytes: The most memory that the process had meanwhile, where the system tells.
    """

    seconds: float
    decoded: int | None
    peak_bytes: int | None


class ReaderFailed(Exception):
    """A reader raised an error, died, or took too long."""


class Worker:
    """A process with one reader. Started when it is needed, and again after it died.

    Args:
        reader: Its name, or ``module:Class``.
        timeout: Seconds that a job may take.
        search: Where modules are looked for besides the usual places.
    """

    def __init__(self, reader: str, timeout: float, search: Sequence[str] = ()) -> None:
        self.reader = reader
        self._timeout = timeout
        self._search = list(search)
        self._process: WorkerProcess | None = None

    def check(self, job: Job, truth: Truth, limit: float | None = None) -> Checked:
        """Reads all frames and compares them with what they should be; within fewer seconds where a limit is given."""
        begin = time.perf_counter()
        sights: list[Sight] = self._ask("look", job, truth.look, limit=limit)
        seconds = time.perf_counter() - begin
        verdict = truth.judge(sights, lambda sight: self._ask("picture", job, truth.look, sight))
        return Checked(verdict.checked, verdict.wrong, verdict.tested, seconds)

    def read(self, job: Job, limit: float) -> float:
        """Makes the first request, within so many seconds; returns how long it took."""
        found: float = self._ask("read", job, limit=limit)
        return found

    def time(self, job: Job) -> Timed:
        """Reads all frames and takes the time."""
        found: Timed = self._ask("time", job)
        return found

    def _ask(self, what: str, *arguments: Any, limit: float | None = None) -> Any:
        if self._process is None:
            try:
                self._process = WorkerProcess(_COMMAND)
            except WorkerError as error:
                raise ReaderFailed(f"its process {error.reason}") from error
            self._receive(START_SECONDS, " while it was started")
            self._exchange("open", (self.reader, self._search), START_SECONDS)
        return self._exchange(what, arguments, self._timeout if limit is None else min(self._timeout, limit))

    def _exchange(self, what: str, arguments: Any, seconds: float) -> Any:
        assert self._process is not None
        with contextlib.suppress(OSError):  # it has died already, which is noticed when it is listened to
            self._process.connection.send((what, arguments))
        answer = self._receive(seconds)
        if isinstance(answer, ReaderFailed):
            if what == "open":
                self.close()
            raise answer
        return answer

    def _receive(self, seconds: float, when: str = "") -> Any:
        assert self._process is not None
        try:
            if self._process.connection.poll(seconds):
                return self._process.connection.recv()[1]
        except (EOFError, OSError):
            how = self._process.end()
            self._process = None
            raise ReaderFailed(f"its process died{when} ({how})") from None
        self.close()
        raise ReaderFailed(f"took longer than {seconds:g} s")

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.end()
            self._process = None


def reader_class(name: str) -> Any:
    """The class of a reader.

    Args:
        name: One of `framefeed.readers.READERS`, or ``module:Class``.

    Raises:
        ValueError: There is no such reader; the error says which there are.
    """
    from framefeed.readers import READERS, AbstractVideoReader

    if ":" not in name:
        if name not in READERS:
            raise ValueError(f"{name!r} is no reader; possible: {', '.join(READERS)}, or your own as module:Class")
        return READERS[name]
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} is no reader: {error}") from error
    if not (isinstance(found, type) and issubclass(found, AbstractVideoReader)):
        raise ValueError(f"{name!r} is no reader: it does not inherit from framefeed.readers.AbstractVideoReader")
    return found


# --- in the other process -------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Reads in a worker process."""
    readers = _Readers()

    def answer(request: tuple[str, tuple[Any, ...]], _: object) -> Any:
        what, arguments = request
        try:
            return getattr(readers, what)(*arguments)
        except Exception as error:
            readers.forget()
            return ReaderFailed(_message(error))

    answer_requests(descriptor, answer)


class _Readers:
    """The reader of one video at a time, kept open from one job to the next."""

    def __init__(self) -> None:
        self._kind: Any = None
        self._key: Any = None
        self._reader: Any = None

    def open(self, reader: str, search: list[str]) -> None:
        """Looks for the reader."""
        sys.path[:0] = search
        self._kind = reader_class(reader)

    def forget(self) -> None:
        if self._reader is not None:
            with contextlib.suppress(Exception):
                self._reader.close()
        self._reader = self._key = None

    def _open(self, job: Job) -> Any:
        key = (job.path, job.mode, job.device, job.num_threads)
        if key != self._key:
            self.forget()
            self._reader = self._kind(
                job.path, mode=job.mode, output_format="THWC", device=job.device, num_threads=job.num_threads
            )
            self._key = key
        return self._reader

    def look(self, job: Job, look: Look) -> list[Sight]:
        """Returns what is kept of all pictures."""
        sights: list[Sight] = []
        for number, request in enumerate(job.requests):
            frames = self._read(job, request)
            sights += [Sight(number, place, index, look(frames[place])) for place, index in enumerate(request)]
        return sights

    def picture(self, job: Job, look: Look, sight: Sight) -> Any:
        """A picture again: by itself, or with all of its request where it is another one then."""
        picture = self._read(job, [sight.index])[0]
        return picture if look(picture) == sight.seen else self._read(job, job.requests[sight.request])[sight.place]

    def _read(self, job: Job, request: list[int]) -> Any:
        frames = self._open(job).read_frames(request)
        if tuple(frames.shape[::3]) != (len(request), 3):
            raise ValueError(f"{len(request)} frames were asked for, and a tensor of {tuple(frames.shape)} came")
        return frames.cpu().numpy()

    def read(self, job: Job) -> float:
        start = time.perf_counter()
        frames = self._open(job).read_frames(job.requests[0])
        _finish(job)
        del frames
        return time.perf_counter() - start

    def time(self, job: Job) -> Timed:
        known = self._reader
        reader = self._open(job)
        if reader is not known:  # the first request may begin with what is done once
            reader.read_frames(job.requests[0])
        before = reader.frames_decoded
        _reset_peak()
        start, seconds, passes = time.perf_counter(), 0.0, 0
        while not passes or seconds < job.least_seconds:
            for request in job.requests:
                frames = reader.read_frames(request)
            _finish(job)
            seconds = time.perf_counter() - start
            passes += 1
        del frames
        after = reader.frames_decoded
        decoded = round((after - before) / passes) if before is not None and after is not None else None
        return Timed(seconds / passes, decoded, _peak())


def _finish(job: Job) -> None:
    """Waits for what a GPU still has to do."""
    if job.device != "cpu":
        import torch

        torch.cuda.synchronize()


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int | None:
    """The most memory that this process has had since it was last reset."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return None


def _message(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__
