"""The machine behind a loader's iterator: threads that decode groups and put frames into batches.

The look-ahead decides what to decode and what to keep; here it is done. A batch is *open* while its tensors are being
filled in. A few batches are open at a time, in order. Every frame that one of them needs is either kept from an earlier
job, on its way by a job that was planned before, or gets a job now. A frame that nobody will need later goes straight
from the decoder into the batch.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.data.assembly import SampleRef, shape_conflict
from framefeed.data.dataset import VideoDataset
from framefeed.data.future import Future, Planned
from framefeed.data.stats import LoaderStats
from framefeed.data.videos import OpenVideo
from framefeed.data.work import FinishedBatch, Frame, Job, Written
from framefeed.data.workshop import Workshop
from framefeed.errors import DecodeError, FramefeedError, FrameSizeError, SampleTimeout
from framefeed.plan.lookahead import Budget, Group, GroupJob, Key, LookAhead
from framefeed.source import PacketSource

__all__ = ["Feed"]

# How long the process waits at its end for threads that are inside a decoder or wait for a disk.
MAX_EXIT_SECONDS = 1.0

# Kept frames that are written into a batch by one thread in one go.
FINISH_CHUNK = 16


class _Stopped(Exception):
    """Ends a decoding job that nobody waits for."""


class _Counted:
    """A source that counts what is taken from it."""

    def __init__(self, source: PacketSource) -> None:
        self._source = source
        self._packets = 0
        self._num_bytes = 0

    def take_counts(self) -> tuple[int, int]:
        """Packets and bytes since this was last asked."""
        counts = self._packets, self._num_bytes
        self._packets = self._num_bytes = 0
        return counts

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        for number, data in self._source.read(numbers):
            self._packets += 1
            self._num_bytes += len(data)
            yield number, data


class Feed:
    """Fills batches in the background, in order.

    Args:
        dataset: Where samples come from.
        batches: The numbers of the samples of each batch.
        seed, epoch: For random crops and flips.
        budget: What frames that are kept may take.
        workshop: Works on pictures.
        num_threads: How many threads decode.
        buffer_length: How many batches are prepared ahead.
        timeout: Seconds that decoding for a sample may take; 0 for no limit.
        stats: What is counted into; several feeds may share it.
    """

    def __init__(
        self,
        dataset: VideoDataset,
        batches: Iterator[NDArray[np.int64]],
        *,
        seed: int,
        epoch: int,
        budget: Budget,
        workshop: Workshop,
        num_threads: int,
        buffer_length: int,
        timeout: float,
        stats: LoaderStats,
    ) -> None:
        self._dataset = dataset
        self._videos = dataset.videos
        self._workshop = workshop
        self._buffer_length = buffer_length
        self._timeout = timeout
        self._stats = stats
        self._sizes: dict[int, int] = {}
        self._ahead = LookAhead(budget, self._size_of)
        self._changed = threading.Condition()
        self._future = Future(dataset, batches, seed=seed, epoch=epoch, ahead=self._ahead, soon=buffer_length)
        self._open: deque[FinishedBatch] = deque()
        self._opening = False
        self._nothing_to_prefetch = False  # until a batch is opened or memory comes free
        self._tasks: deque[Callable[[], None]] = deque()
        self._frames: dict[Key, Frame] = {}
        self._failed: dict[Key, Exception] = {}
        self._queued: dict[Group, Job] = {}
        self._running: dict[Group, Job] = {}
        self._crash: BaseException | None = None  # a defect
        self._hanging: set[int] = set()
        self._process = os.getpid()
        self._closed = False
        self._threads = [self._start_thread() for _ in range(num_threads)]
        _feeds.add(self)
        with self._changed:
            self._ask_for_opening()

    # --- for the consumer -----------------------------------------------------------------------------------------

    def next(self) -> FinishedBatch | None:
        """The next batch, when it is complete; None after the last."""
        if self._process != os.getpid():
            raise RuntimeError("an iterator does not live on in a forked process: make a new one there")
        begin = time.perf_counter()
        try:
            with self._changed:
                while True:
                    if self._closed:
                        return None
                    if self._open and not self._open[0].remaining:
                        batch = self._open.popleft()
                        self._ask_for_opening()
                        return batch
                    if not self._open and not self._opening:
                        break
                    self._changed.wait(self._until_timeout())
                    self._give_up_on_slow_jobs()
                    if self._crash is not None:
                        break
        finally:
            self._stats.wait_seconds += time.perf_counter() - begin
        error = self._crash or self._future.error
        self._crash = self._future.error = None
        if error is not None:
            self.close()
            raise error
        return None

    def close(self) -> None:
        """Stops all work and gives memory back. Threads end by themselves, within one picture's time."""
        if self._process != os.getpid():
            return  # in a forked process there are no threads, and a lock may be held for ever
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._tasks.clear()
            self._open.clear()
            self._future.clear()
            for frame in self._frames.values():
                if frame.bases is not None:
                    self._workshop.give_back(frame.bases)
            self._frames.clear()
            self._failed.clear()
            self._ahead.close()
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        """Waits for the threads of a closed feed."""
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    # --- threads --------------------------------------------------------------------------------------------------

    def _start_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="framefeed-loader", daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._tasks and not self._closed and not self._prefetch():
                    self._changed.wait()
                if self._closed:
                    return
                task = self._tasks.popleft()
            try:
                task()
            except _Stopped:
                continue
            except BaseException as error:  # a defect, not bad data: it must not be lost with its thread
                with self._changed:
                    self._crash = error
                    self._open.clear()
                    self._opening = False
                    self._changed.notify_all()
                return

    # --- opening batches ------------------------------------------------------------------------------------------

    def _ask_for_opening(self) -> None:
        if self._opening or self._closed or len(self._open) >= self._buffer_length or self._future.at_end:
            return
        self._opening = True
        self._tasks.appendleft(self._open_next)
        self._changed.notify()

    def _open_next(self) -> None:
        with self._changed:
            if self._closed:
                return
            planned = self._future.pop()
            self._nothing_to_prefetch = False
            if planned is not None:
                self._open_batch(planned)
            self._opening = False
            self._ask_for_opening()
            self._changed.notify_all()

    def _size_of(self, file: int) -> int:
        size = self._sizes.get(file)
        if size is None:
            size = self._sizes[file] = self._videos[file].frame_bytes
        return size

    def _open_batch(self, planned: Planned) -> None:
        batch = FinishedBatch(planned.samples)
        good: list[SampleRef] = []
        first: OpenVideo | None = None
        for place, sample in enumerate(planned.samples):
            try:
                video = self._videos[sample.file]
                first = first or video
                conflict = shape_conflict(first, video)
                if conflict is not None:
                    raise conflict
            except FramefeedError as error:
                batch.errors[place] = error
            else:
                good.append(sample)
                batch.rows.append(place)
        if good:
            batch.assembly = self._workshop.assemble(self._videos, good, self._dataset.sequence_length)
            batch.remaining = len(batch.assembly.targets)
        opening = self._ahead.open(planned.uses)
        self._drop_frames()
        self._open.append(batch)
        targets = batch.assembly.targets if batch.assembly is not None else {}
        ready: list[Key] = []
        for key in opening.held:
            if key not in targets:  # of samples that failed
                self._ahead.release(key)
                continue
            frame = self._frames[key]
            if frame.bases is not None:
                ready.append(key)
            else:
                frame.waiting.append((batch, True))
        self._stats.hits += len(opening.held)
        for low in range(0, len(ready), FINISH_CHUNK):
            self._submit_finishing(batch, ready[low : low + FINISH_CHUNK])
        for job in opening.jobs:
            self._stats.misses += len(job.now)
            self._submit(job, batch, targets)
        self._drop_frames()

    # --- kept frames -> batch -------------------------------------------------------------------------------------

    def _submit_finishing(self, batch: FinishedBatch, keys: Sequence[Key]) -> None:
        frames = [(key, self._frames[key].bases) for key in keys]
        assembly = batch.assembly
        assert assembly is not None

        def finish() -> None:
            self._workshop.put(assembly, [(bases, assembly.targets[key]) for key, bases in frames])
            with self._changed:
                if self._closed:
                    return
                for key, _ in frames:
                    self._ahead.release(key)
                self._drop_frames()
                self._done(batch, len(frames))

        self._tasks.append(finish)
        self._changed.notify()

    def _done(self, batch: FinishedBatch, count: int) -> None:
        batch.remaining -= count
        if not batch.remaining:
            self._changed.notify_all()

    def _drop_frames(self) -> None:
        """Lets go of frames that the look-ahead does not want to keep any longer."""
        for key in self._ahead.take_dropped():
            frame = self._frames.get(key)
            if frame is not None and frame.bases is not None:
                self._nothing_to_prefetch = False
                self._workshop.give_back(frame.bases)
                del self._frames[key]

    # --- decoding -------------------------------------------------------------------------------------------------

    def _prefetch(self) -> bool:
        """Starts on a group that will be needed soon, where there is nothing else to do."""
        if self._nothing_to_prefetch:
            return False
        job = self._ahead.prefetch(self._future.upcoming(2 * self._buffer_length))
        if job is None:
            self._nothing_to_prefetch = True
            return False
        self._drop_frames()
        self._submit(job, None, {})
        self._drop_frames()
        return bool(self._tasks)

    def _submit(self, planned: GroupJob, batch: FinishedBatch | None, targets: Any) -> None:
        """Adds a group to what is to be decoded; a group is decoded by one thread at a time."""
        frames: set[int] = set()
        for number in planned.now:
            key = (planned.video, number)
            if batch is None or key not in targets:
                continue
            failed = self._known_failure(key)
            if failed is not None:
                batch.fail(key, failed)
                self._done(batch, 1)
                continue
            frame = self._frames.get(key)
            if frame is None:
                frame = self._frames[key] = Frame()
                frames.add(number)
            frame.waiting.append((batch, False))
        for number in planned.keep:
            key = (planned.video, number)
            if self._known_failure(key) is not None:
                self._ahead.discard(key)
            elif key not in self._frames:
                self._frames[key] = Frame()
                frames.add(number)
        if not frames:
            return
        group = planned.group
        queued = self._queued.get(group)
        if queued is not None:
            queued.merge(planned, frames)
            return
        job = Job(planned.video, planned.start, frames, planned.goes_on)
        self._queued[group] = job
        running = self._running.get(group)
        if running is not None:
            running.then = job
        else:
            self._enqueue(job)

    def _enqueue(self, job: Job) -> None:
        self._tasks.append(lambda: self._decode(job))
        self._changed.notify()

    def _decode(self, job: Job) -> None:
        with self._changed:
            if self._closed:
                return
            del self._queued[job.group]
            self._running[job.group] = job
            job.started = time.monotonic()
            frames = self._begin(job)
        video = self._videos[job.video]
        error: Exception | None = None
        chunk: list[Written] = []

        source = _Counted(video.source)

        def sink(row: int, picture: Any) -> None:
            self._take(job, video, frames[row], picture, chunk)
            if len(chunk) >= self._workshop.chunk:
                self._complete(job, video, chunk, source)

        try:
            self._workshop.engine_for(video).decode(
                video.index,
                source,
                frames,
                sink,
                num_threads=1,
                read_on=job.goes_on,
                after_job=lambda: self._complete(job, video, chunk, source),
            )
        except (FramefeedError, OSError, MemoryError) as caught:
            error = caught
        except BaseException:
            self._abandon(chunk)
            self._end_job(job, video, None)
            raise
        self._complete(job, video, chunk, source)
        self._end_job(job, video, error)

    def _end_job(self, job: Job, video: OpenVideo, error: Exception | None) -> None:
        with self._changed:
            if job.abandoned:
                self._hanging.discard(job.video)  # it has come back
            if self._is_over(job):
                return
            del self._running[job.group]
            for frame in sorted(job.undelivered):
                self._release(job, frame)
                self._fail((job.video, frame), _error_of(video, frame, error))
            if job.then is not None:
                self._enqueue(job.then)

    def _begin(self, job: Job) -> list[int]:
        """The frames that are still wanted of a job; those to be kept are claimed until it has delivered them."""
        for number in sorted(job.frames):
            key = (job.video, number)
            if self._ahead.claim(key):
                job.keep.add(number)
            elif not self._frames[key].waiting:  # dropped meanwhile
                del self._frames[key]
                continue
            job.undelivered.add(number)
        return sorted(job.undelivered)

    def _take(self, job: Job, video: OpenVideo, number: int, picture: Any, chunk: list[Written]) -> None:
        """Takes a decoded picture. Without the lock: threads would spend more time waiting for it than decoding."""
        if self._is_over(job):
            raise _Stopped
        if number not in job.undelivered:
            return  # the job failed, and is being done again for the frames that can be had
        key, keep = (job.video, number), number in job.keep
        workshop = self._workshop
        bases = workshop.allocate(video) if keep else workshop.scratch(video, len(chunk))
        try:
            workshop.write(video, picture, bases, number)
        except BaseException as error:
            if keep:
                workshop.give_back(bases)
            if not isinstance(error, FrameSizeError):
                raise
            with self._changed:  # the others may be of the right size
                if self._is_over(job):
                    raise _Stopped from None
                self._release(job, number)
                self._fail(key, error)
            return
        frame = self._frames.get(key)
        if frame is None:  # given up on at this moment
            if keep:
                workshop.give_back(bases)
            raise _Stopped
        chunk.append(Written(key, frame, bases, keep))

    def _complete(self, job: Job, video: OpenVideo, chunk: list[Written], source: _Counted) -> None:
        """Puts frames into the batches that wait for them, and keeps those that are to be kept."""
        self._workshop.complete()
        with self._changed:
            packets, num_bytes = source.take_counts()
            self._stats.frames_decoded += packets
            self._stats.bytes_read += num_bytes
        while chunk:
            with self._changed:
                if self._is_over(job):
                    break
                places: dict[FinishedBatch, list[tuple[Any, Any]]] = {}
                served = []
                for written in chunk:
                    waiting, written.frame.waiting = written.frame.waiting, []
                    served += [(batch, claimed, written.key) for batch, claimed in waiting]
                    for batch, _ in waiting:
                        assert batch.assembly is not None
                        places.setdefault(batch, []).append((written.bases, batch.assembly.targets[written.key]))
                if not served:
                    for written in chunk:
                        job.undelivered.discard(written.key[1])
                        self._keep(written, video)
                        self._release(job, written.key[1])
                    self._drop_frames()
                    chunk.clear()
                    return
            for batch, frames in places.items():
                assert batch.assembly is not None
                self._workshop.put(batch.assembly, frames)
            with self._changed:
                if self._closed:
                    break
                for batch, claimed, key in served:
                    self._done(batch, 1)
                    if claimed:
                        self._ahead.release(key)
                self._drop_frames()
        self._abandon(chunk)

    def _is_over(self, job: Job) -> bool:
        return self._closed or job.abandoned

    def _keep(self, written: Written, video: OpenVideo) -> None:
        """Keeps a frame that all who waited for it have, if it is to be kept."""
        frame, key = written.frame, written.key
        if written.keep:
            frame.bases = written.bases
        elif self._ahead.holds(key):  # decided only while it was being written
            frame.bases = self._workshop.allocate(video)
            self._workshop.copy(written.bases, frame.bases)
        else:
            del self._frames[key]

    def _abandon(self, chunk: list[Written]) -> None:
        """Gives memory back of frames that nobody waits for any more."""
        for written in chunk:
            if written.keep:
                self._workshop.give_back(written.bases)
        chunk.clear()

    def _release(self, job: Job, number: int) -> None:
        """Ends a job's claim on a frame."""
        job.undelivered.discard(number)
        if number in job.keep:
            job.keep.discard(number)
            self._ahead.release((job.video, number))

    # --- failures -------------------------------------------------------------------------------------------------

    def _fail(self, key: Key, error: Exception) -> None:
        frame = self._frames.pop(key, None)
        if isinstance(error, DecodeError | FrameSizeError):
            self._failed[key] = error  # the file's content is bad: no need to try again
        self._ahead.discard(key)
        self._drop_frames()
        for batch, _ in frame.waiting if frame is not None else ():
            batch.fail(key, error)
            self._done(batch, 1)

    def _known_failure(self, key: Key) -> Exception | None:
        """Why there is no use in trying to decode a frame."""
        if key[0] in self._hanging:
            return self._timed_out(*key)
        return self._failed.get(key)

    def _timed_out(self, file: int, frame: int) -> SampleTimeout:
        reason = f"frame {frame} was not decoded within {self._timeout:g} s; give a longer timeout"
        return SampleTimeout(self._videos[file].index.path, reason)

    def _until_timeout(self) -> float | None:
        if not self._timeout:
            return None
        begun = [job.started for job in self._running.values() if job.started is not None]
        return max(0.01, min(begun, default=time.monotonic()) + self._timeout - time.monotonic())

    def _give_up_on_slow_jobs(self) -> None:
        if not self._timeout:
            return
        now = time.monotonic()
        for job in list(self._running.values()):
            if job.started is not None and now - job.started > self._timeout:
                job.abandoned = True
                del self._running[job.group]
                self._hanging.add(job.video)  # not tried again until it comes back: each try would cost a thread
                for frame in sorted(job.undelivered):
                    self._release(job, frame)
                    self._fail((job.video, frame), self._timed_out(job.video, frame))
                if job.then is not None:
                    self._enqueue(job.then)
                self._threads.append(self._start_thread())  # the other one may never come back


def _error_of(video: OpenVideo, frame: int, error: Exception | None) -> Exception:
    """What is wrong with one frame of a job that failed."""
    if error is None:
        return DecodeError(video.index.path, f"frame {frame} cannot be decoded: the decoder gave no picture", frame)
    if isinstance(error, DecodeError):
        reason = error.reasons.get(frame)
        if reason is not None:
            return DecodeError(error.path, f"frame {frame} cannot be decoded exactly: {reason}", frame)
    if isinstance(error, FramefeedError):
        return error
    wrapped = DecodeError(video.index.path, f"frame {frame} cannot be decoded: {error}", frame)
    wrapped.__cause__ = error
    return wrapped


_feeds: weakref.WeakSet[Feed] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # A thread that is inside a decoder when the interpreter goes away would take the process down with it.
    for feed in list(_feeds):
        feed.close()
    end = time.monotonic() + MAX_EXIT_SECONDS
    for feed in list(_feeds):
        with contextlib.suppress(RuntimeError):
            feed.join(end - time.monotonic())
