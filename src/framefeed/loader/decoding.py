"""Decoding jobs of a feed: groups queued or being decoded, and delivery of their pictures."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.nvtx import PROCESS
from framefeed.batch.assembly import Assembly, Place
from framefeed.batch.videos import OpenVideo
from framefeed.batch.work import FinishedBatch, Frames, Job, JobPicture, Taken
from framefeed.batch.workshop import Workshop
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import DecodeError, FramefeedError, FrameSizeError, SampleTimeout
from framefeed.loader.stats import LoaderStats
from framefeed.plan.lookahead import Budget, Group, GroupJob, Key, LookAhead
from framefeed.source.counting import CountedSource

__all__ = ["Board", "Decoding", "Stopped"]


class Stopped(Exception):
    """Ends a decoding job that no batch waits for."""


@dataclass(eq=False)
class Board:
    """State shared by the threads of a feed, guarded by one lock.

    Attributes:
        changed, finished: Conditions of the lock: workers wait for tasks, the consumer for a batch.
        tasks: Queued tasks.
        open: Batches being filled or complete, in order.
        num_threads: Number of worker threads.
        closed: True after the feed has been closed.
        nothing_to_prefetch: True until a batch is opened or memory is freed.
    """

    changed: Condition
    finished: Condition
    tasks: deque[Callable[[], None] | Job] = field(default_factory=deque)
    open: deque[FinishedBatch] = field(default_factory=deque)
    num_threads: int = 0
    closed: bool = False
    nothing_to_prefetch: bool = False

    def add(self, task: Callable[[], None] | Job) -> None:
        """Queues a task."""
        self.tasks.append(task)
        self.changed.notify()

    def done(self, batch: FinishedBatch, count: int) -> None:
        """Counts delivered or failed frames of a batch."""
        batch.remaining -= count
        if not batch.remaining and self.open and batch is self.open[0]:  # later batches are checked when they are taken
            self.finished.notify_all()


class _Taker:
    """Receives the pictures of jobs that run together.

    Args:
        decoding: Owner of the jobs.
        video: Their video.
        jobs: For each decoded frame, its job.
        frames: The frames.
        source: Counts the bytes read.
    """

    def __init__(
        self, decoding: Decoding, video: OpenVideo, jobs: Sequence[Job], frames: Sequence[int], source: CountedSource
    ) -> None:
        self._decoding = decoding
        self._video = video
        self._jobs = jobs
        self._frames = frames
        self._source = source

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        jobs, frames = [self._jobs[row] for row in rows], [self._frames[row] for row in rows]
        self._decoding._take(self._video, jobs, frames, pictures)

    def confirm(self) -> None:
        self._decoding._confirm(dict.fromkeys(self._jobs), self._source)

    def reject(self) -> None:
        self._decoding._reject(dict.fromkeys(self._jobs))


class Decoding:
    """Runs decoding jobs. Call all methods except ``decode`` with the lock held.

    Args:
        board: State shared by the feed's threads.
        dataset: The dataset.
        workshop: Processes pictures.
        ahead: Decides which frames to cache.
        budget: Memory budget of cached frames.
        size_of: Returns the bytes of one frame of a video.
        timeout: Time limit for decoding a sample, in seconds; 0 for no limit.
        stats: Counters to update.
        delivered: Called after pictures were delivered.

    Attributes:
        frames: Frames cached or being decoded.
        hopeless: Frames that failed once: retried only when a batch needs them.
    """

    def __init__(
        self,
        board: Board,
        dataset: FrameDataset,
        workshop: Workshop,
        ahead: LookAhead,
        budget: Budget,
        *,
        size_of: Callable[[int], int],
        timeout: float,
        stats: LoaderStats,
        delivered: Callable[[], None],
    ) -> None:
        self._board = board
        self._lock = board.changed
        self._videos = dataset.videos
        self._filenames = dataset.filenames
        self._workshop = workshop
        self._ahead = ahead
        self._budget = budget
        self._size_of = size_of
        self._timeout = timeout
        self._stats = stats
        self._delivered = delivered
        self.frames = Frames()
        self._failed: dict[Key, Exception] = {}
        self.hopeless: set[Key] = set()
        self._queued: dict[Group, Job] = {}
        self._running: dict[Group, Job] = {}
        self._hanging: set[int] = set()
        self._lent: Counter[Key] = Counter()  # cached frames that threads are reading

    @property
    def num_groups(self) -> int:
        """Number of groups queued or being decoded."""
        return len(self._queued) + len(self._running)

    def close(self) -> None:
        """Drops everything and frees its memory."""
        for key, frame in self.frames.items():
            if frame.bases is not None and self._lent[key]:  # freed by the thread that reads it
                self._budget.hold(self._size_of(key[0]))
            elif frame.bases is not None:
                self._workshop.give_back(frame.bases)
        self.frames.clear()
        self._failed.clear()
        self.hopeless.clear()
        self._queued.clear()
        for job in self._running.values():
            self._retain(job)

    def lend(self, keys: Sequence[Key]) -> None:
        """Marks cached frames as being read by a thread."""
        self._lent.update(keys)

    def take_back(self, frames: Sequence[tuple[Key, Any]]) -> None:
        """Ends reading of cached frames. Frees their memory if the feed was closed meanwhile."""
        for key, bases in frames:
            self._lent[key] -= 1
            if not self._lent[key]:
                del self._lent[key]
                if self._board.closed:
                    self._workshop.give_back(bases)
                    self._budget.give(self._size_of(key[0]))

    def drop_frames(self) -> None:
        """Drops the frames that the look-ahead has evicted."""
        for key in self._ahead.take_dropped():
            frame = self.frames.get(key)
            if frame is not None and frame.bases is not None:
                self._board.nothing_to_prefetch = False
                self._workshop.give_back(frame.bases)
                self.frames.let_go(key)
        self._ahead.settle()

    def submit(self, planned: GroupJob, frames: set[int]) -> None:
        """Queues a group for decoding; one thread at a time decodes a group.

        Args:
            planned: The group, and the frames to cache.
            frames: Frames that open batches wait for.
        """
        for number in planned.keep:
            key = (planned.video, number)
            if self.known_failure(key) is not None:
                self._ahead.discard(key)
            elif key not in self.frames:
                self.frames.new(key)
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
            self._board.add(job)

    def together(self, job: Job) -> list[Job]:
        """Returns a job and those of the following groups, as long as every other thread has a job too.

        Only groups of which open batches need most frames are joined. Others gain little, and the longest run that a
        decoder has seen determines its memory, so a few chance neighbours would eventually enlarge every decoder.
        """
        jobs = [job]
        if not self._workshop.frames_together or len(self._board.tasks) < self._board.num_threads:
            return jobs
        frames = len(job.frames)
        try:
            starts = self._videos[job.video].starts
        except (FramefeedError, OSError):  # the file was closed and is gone; decoding reports it
            return jobs
        while len(self._board.tasks) >= self._board.num_threads and self._is_wanted_now(jobs[-1], starts):
            behind = max(jobs[-1].frames) + 1
            following = self._queued.get((job.video, int(starts[behind]))) if behind < len(starts) else None
            if following is None or following.start < jobs[-1].start or not self._is_wanted_now(following, starts):
                break
            frames += len(following.frames)
            if frames > self._workshop.frames_together or following not in self._board.tasks:
                break
            self._board.tasks.remove(following)
            jobs.append(following)
        return jobs

    def _is_wanted_now(self, job: Job, starts: NDArray[np.int64]) -> bool:
        """Returns True if open batches wait for at least half of a group."""
        frames = (self.frames.get((job.video, number)) for number in job.frames)
        waited_for = sum(frame is not None and bool(frame.waiting) for frame in frames)
        first, behind = np.searchsorted(starts, job.start, "left"), np.searchsorted(starts, job.start, "right")
        return 2 * waited_for >= int(behind - first)

    def decode(self, jobs: Sequence[Job]) -> None:
        """Runs jobs of one video."""
        owners: list[Job] = []
        frames: list[int] = []
        with self._lock:
            if self._board.closed:
                return
            now = time.monotonic()
            for job in jobs:
                del self._queued[job.group]
                self._running[job.group] = job
                job.started = now
                frames += self._begin(job)
                owners += [job] * (len(frames) - len(owners))
        source: CountedSource | None = None
        error: Exception | None = None
        try:
            video = self._videos[jobs[0].video]
            source = CountedSource(video.source)
            taker = _Taker(self, video, owners, frames, source)
            self._workshop.decode(video, source, frames, taker, read_on=jobs[-1].goes_on)
        except (FramefeedError, OSError, MemoryError) as caught:
            error = caught.with_traceback(None)  # it refers to everything here, and errors are kept
        except BaseException:
            self._end_jobs(jobs, source, None)
            raise
        self._end_jobs(jobs, source, error)

    def _end_jobs(self, jobs: Sequence[Job], source: CountedSource | None, error: Exception | None) -> None:
        self._reject(jobs)
        with self._lock:
            if source is not None:
                self._count(source)
            for job in jobs:
                self._budget.give(job.retained)
                job.retained = 0
                if job.abandoned:
                    self._hanging.discard(job.video)  # it has returned
                if self._running.get(job.group) is job:
                    del self._running[job.group]
                if self._is_over(job):
                    job.waiting.clear()  # must not keep batches alive
                    continue
                for number in sorted(job.undelivered):
                    self._fail_frame(job, number, _error_of(self._filenames[job.video], number, error))
                if job.then is not None:
                    self._board.add(job.then)

    def _count(self, source: CountedSource) -> None:
        packets, num_bytes = source.take_counts()
        self._stats.packets_decoded += packets
        self._stats.bytes_read += num_bytes

    def _begin(self, job: Job) -> list[int]:
        """Returns the frames of a job that are still wanted; frames to cache are claimed until they are delivered."""
        numbers = []
        for number in sorted(job.frames):
            key = (job.video, number)
            frame = self.frames[key]
            if self._goes_straight(key):
                pass
            elif self._ahead.claim(key):
                job.keep.add(number)
            elif not frame.waiting:  # evicted meanwhile
                self.frames.let_go(key)
                continue
            numbers.append(number)
        job.undelivered.update(numbers)
        self.drop_frames()
        return numbers

    def _goes_straight(self, key: Key) -> bool:
        """Returns True if all batches that need a frame are open: it goes straight into them and is not cached."""
        frame = self.frames[key]
        if not frame.waiting or not self._ahead.let_go(key):
            return False
        frame.waiting = tuple((batch, False) for batch, _ in frame.waiting)
        self._board.nothing_to_prefetch = False
        return True

    def _take(self, video: OpenVideo, jobs: Sequence[Job], frames: Sequence[int], pictures: Sequence[Any]) -> None:
        """Writes decoded pictures to their destinations; batches count them only after ``confirm``."""
        workshop = self._workshop
        taken = [
            JobPicture(number, picture, workshop.allocate(video) if number in job.keep else None, job=job)
            for job, number, picture in zip(jobs, frames, pictures, strict=True)
            if number in job.undelivered  # otherwise it failed; its job runs again for the good frames
        ]
        with self._lock:
            if self._board.closed or any(each.job.abandoned for each in taken):
                self._give_back(taken)
                raise Stopped
            for each in taken:
                self._serve(video, each)
                each.job.taken[each.number] = each
        with PROCESS:
            workshop.take(video, taken)
        failed = [each for each in taken if each.error is not None]
        if failed:
            with self._lock:  # other frames may have the right size
                if self._board.closed or any(each.job.abandoned for each in failed):
                    raise Stopped
                self._give_back(failed)
                for each in failed:
                    assert each.error is not None
                    del each.job.taken[each.number]
                    self._fail_frame(each.job, each.number, each.error)

    def _serve(self, video: OpenVideo, taken: JobPicture) -> None:
        """Collects the batches that wait for a picture."""
        job = taken.job
        key = (job.video, taken.number)
        if taken.bases is not None and self._goes_straight(key):
            self._give_back([taken])
            taken.bases = None
            job.keep.discard(taken.number)
        elif taken.bases is None and taken.number not in job.waiting and self._ahead.claim(key):
            job.keep.add(taken.number)  # decided while it was being decoded
            taken.bases = self._workshop.allocate(video)
        if taken.bases is None:
            if taken.number not in job.waiting:
                job.waiting[taken.number] = self.frames.let_go(key)
            taken.served = job.waiting[taken.number]
        else:
            taken.served = self.frames[key].waiting
        taken.places = _places(key, taken.served)

    def _reject(self, jobs: Collection[Job]) -> None:
        """Discards unconfirmed pictures; valid ones are delivered again."""
        if not any(job.taken for job in jobs):
            return
        with self._lock:
            taken = [each for job in jobs for each in job.taken.values()]
            for job in jobs:
                job.taken.clear()
        self._workshop.reject(taken)

    def _confirm(self, jobs: Collection[Job], source: CountedSource) -> None:
        """Delivers the pictures taken since the last call."""
        while True:
            again: dict[FinishedBatch, list[tuple[Any, Sequence[Place]]]] = {}
            with self._lock:
                if self._board.closed:
                    break
                self._count(source)
                for job in jobs:
                    for taken in list(job.taken.values()) if not job.abandoned else ():
                        self._hand_over(taken, again)
                self.drop_frames()
                self._delivered()
            if not again:
                break
            for batch, frames in again.items():
                assert batch.assembly is not None
                self._workshop.put(batch.assembly, frames)
        self._reject(jobs)

    def _hand_over(self, taken: JobPicture, again: dict[FinishedBatch, list[tuple[Any, Sequence[Place]]]]) -> None:
        """Releases a picture unless more batches wait for it by now."""
        job = taken.job
        key = (job.video, taken.number)
        for batch, claimed in taken.served:
            self._board.done(batch, 1)
            if claimed:
                self._ahead.release(key)
        if taken.bases is None:
            del job.waiting[taken.number]
        else:
            frame = self.frames[key]
            frame.waiting = frame.waiting[len(taken.served) :]
            if frame.waiting:
                taken.served = frame.waiting
                for batch, _ in taken.served:
                    assert batch.assembly is not None
                    again.setdefault(batch, []).append((taken.bases, batch.assembly.targets[key]))
                return
            frame.bases = taken.bases
        del job.taken[taken.number]
        self._release(job, taken.number)

    def _retain(self, job: Job) -> None:
        """Keeps the memory charge of a cancelled job while its thread may use the memory."""
        job.retained = len(job.keep) * self._size_of(job.video)
        self._budget.hold(job.retained)

    def _is_over(self, job: Job) -> bool:
        return self._board.closed or job.abandoned

    def _give_back(self, taken: Sequence[Taken]) -> None:
        """Frees frames that will not be cached after all."""
        for each in taken:
            if each.bases is not None:
                self._workshop.give_back(each.bases)

    def _release(self, job: Job, number: int) -> None:
        """Ends a job's claim on a frame."""
        job.undelivered.discard(number)
        if number in job.keep:
            job.keep.discard(number)
            self._ahead.release((job.video, number))

    # --- failures -------------------------------------------------------------------------------------------------

    def _fail_frame(self, job: Job, number: int, error: Exception) -> None:
        """Fails a frame in all batches that wait for it."""
        key = (job.video, number)
        self._release(job, number)
        waiting = job.waiting.pop(number, None)
        if waiting is None:
            waiting = self.frames.let_go(key)
        if isinstance(error, DecodeError | FrameSizeError):
            self._failed[key] = error  # the file is damaged: retrying is useless
        self.hopeless.add(key)
        self._ahead.discard(key)
        self.drop_frames()
        for batch, _ in waiting:
            batch.fail(key, error)
            self._board.done(batch, 1)

    def known_failure(self, key: Key) -> Exception | None:
        """Returns the error of a frame that is known to fail, or None."""
        if key[0] in self._hanging:
            return self._timed_out(*key)
        return self._failed.get(key)

    def _timed_out(self, file: int, frame: int) -> SampleTimeout:
        reason = f"frame {frame} was not decoded within {self._timeout:g} s; increase timeout"
        return SampleTimeout(self._videos[file].index.path, reason)

    def running(self) -> list[str]:
        """Describes running jobs and their durations."""
        now = time.monotonic()
        begun = [job for job in self._running.values() if job.started is not None]
        paths = [self._videos[job.video].index.path for job in begun]
        return [
            f"{len(job.undelivered)} frames of {path}, for {now - (job.started or now):.0f} s"
            for path, job in zip(paths, begun, strict=True)
        ]

    def until_timeout(self) -> float | None:
        """Returns the seconds until a running job exceeds the time limit; None if there is no limit."""
        if not self._timeout:
            return None
        begun = [job.started for job in self._running.values() if job.started is not None]
        return max(0.01, min(begun, default=time.monotonic()) + self._timeout - time.monotonic())

    def give_up_on_slow_jobs(self) -> int:
        """Fails jobs that exceed the time limit. Returns the number of threads that may hang forever."""
        if not self._timeout:
            return 0
        now = time.monotonic()
        begun = [job for job in self._running.values() if job.started is not None]
        slow = [job for job in begun if now - (job.started or now) > self._timeout]
        for job in slow:
            job.abandoned = True
            del self._running[job.group]
            self._retain(job)
            self._hanging.add(job.video)  # no retries until it returns: each would cost a thread
            for number in sorted(job.undelivered):
                self._fail_frame(job, number, self._timed_out(job.video, number))
            if job.then is not None:
                self._board.add(job.then)
        return len(slow)


def _places(key: Key, waiting: Sequence[tuple[FinishedBatch, bool]]) -> list[tuple[Assembly, Sequence[Place]]]:
    """Returns the destinations of a frame in the batches that wait for it."""
    assemblies = [batch.assembly for batch, _ in waiting if batch.assembly is not None]
    return [(assembly, assembly.targets[key]) for assembly in assemblies]


def _error_of(path: str, frame: int, error: Exception | None) -> Exception:
    """Returns the error of one frame of a failed job."""
    if error is None:
        return DecodeError(path, f"frame {frame} cannot be decoded: the decoder returned no picture", frame)
    if isinstance(error, DecodeError):
        reason = error.reasons.get(frame)
        if reason is not None:
            return DecodeError(error.path, f"frame {frame} cannot be decoded exactly: {reason}", frame)
    if isinstance(error, FramefeedError):
        return error
    wrapped = DecodeError(path, f"frame {frame} cannot be decoded: {error}", frame)
    wrapped.__cause__ = error
    return wrapped
