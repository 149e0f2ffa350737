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
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.data.assembly import MISSING, Assembly, Place, shape_conflict
from framefeed.data.counting import CountedSource
from framefeed.data.frame_dataset import FrameDataset
from framefeed.data.future import Future, Planned
from framefeed.data.shared_work import SharedWork
from framefeed.data.stats import LoaderStats
from framefeed.data.videos import OpenVideo
from framefeed.data.work import FinishedBatch, Frames, Job, JobPicture, Taken
from framefeed.data.workshop import Workshop
from framefeed.errors import DecodeError, FramefeedError, FrameSizeError, SampleTimeout
from framefeed.marks import ASSEMBLE, PLAN, PROCESS
from framefeed.plan.lookahead import Budget, Group, GroupJob, Key, LookAhead

__all__ = ["Feed"]

# How long the process waits at its end for threads that are inside a decoder or wait for a disk.
MAX_EXIT_SECONDS = 1.0

# Groups that will be needed as a whole are decoded early, into one part in so many of the memory for kept frames; or
# complete batches are waiting there.
PREFETCH_SHARE = DONE_SHARE = 4

MAX_HELPERS = 4  # threads that help to open batches

MAX_AT_ONCE = 64  # batches that are opened in one go, while those who wait for the lock wait


class _Stopped(Exception):
    """Ends a decoding job that nobody waits for."""


class _Taker:
    """Takes the pictures of jobs that are done together.

    Args:
        feed: Whose jobs they are.
        video: Their video.
        jobs: For each frame that is decoded, the job that it is for.
        frames: The frames.
        source: Counts what is read for them.
    """

    def __init__(
        self, feed: Feed, video: OpenVideo, jobs: Sequence[Job], frames: Sequence[int], source: CountedSource
    ) -> None:
        self._feed = feed
        self._video = video
        self._jobs = jobs
        self._frames = frames
        self._source = source

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        jobs, frames = [self._jobs[row] for row in rows], [self._frames[row] for row in rows]
        self._feed._take(self._video, jobs, frames, pictures)

    def confirm(self) -> None:
        self._feed._confirm(dict.fromkeys(self._jobs), self._source)

    def reject(self) -> None:
        self._feed._reject(dict.fromkeys(self._jobs))


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

    Attributes:
        opened: Batches that have been begun.
    """

    def __init__(
        self,
        dataset: FrameDataset,
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
        self._budget = budget
        self._ahead = LookAhead(budget, self._size_of)
        # Two conditions of one lock: workers wait for something to do, the consumer for a batch.
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._finished = threading.Condition(lock)
        self._future = Future(dataset, batches, seed=seed, epoch=epoch, ahead=self._ahead, soon=buffer_length)
        self._open: deque[FinishedBatch] = deque()
        self._opening = False
        self.opened = 0
        self._batch_bytes = 0  # of the last batch
        self._charges: list[int] = []  # what was taken of the budget for each batch that is being opened
        self._nothing_to_prefetch = False  # until a batch is opened or memory comes free
        self._tasks: deque[Callable[[], None] | Job] = deque()
        self._frames = Frames()
        self._failed: dict[Key, Exception] = {}
        self._hopeless: set[Key] = set()  # failed once: not tried again before a batch needs them
        self._queued: dict[Group, Job] = {}
        self._running: dict[Group, Job] = {}
        self._crash: BaseException | None = None  # a defect
        self._hanging: set[int] = set()
        self._process = os.getpid()
        self._closed = False
        workshop.begin()
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
                        self._budget.give(batch.charge)
                        self._ask_for_opening()
                        if self._workshop.frames_ahead:
                            self._changed.notify()  # there may be something to prefetch now
                        return batch
                    if self._crash is not None or (not self._open and not self._opening):
                        break
                    self._finished.wait(self._until_timeout())
                    self._give_up_on_slow_jobs()
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
            self._workshop.end()
            self._tasks.clear()
            self._budget.give(sum(self._charges) + sum(batch.charge for batch in self._open))
            self._charges = []
            self._open.clear()
            self._future.clear()
            for frame in self._frames.values():
                if frame.bases is not None:
                    self._workshop.give_back(frame.bases)
            self._frames.clear()
            self._failed.clear()
            self._hopeless.clear()
            for job in self._running.values():
                self._retain(job)
            self._ahead.close()
            self._changed.notify_all()
            self._finished.notify_all()

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
        try:
            while self._work_once():
                pass
        except BaseException as error:  # a defect, not bad data: it must not be lost with its thread
            with self._changed:
                self._crash = error
                self._budget.give(sum(self._charges) + sum(batch.charge for batch in self._open))
                self._charges = []
                self._open.clear()
                self._opening = False
                self._changed.notify_all()
                self._finished.notify_all()

    def _work_once(self) -> bool:
        """Waits for something to do, and does it. Returns whether there may be more."""
        with self._changed:
            while not self._tasks and not self._closed and not self._prefetch():
                self._changed.wait()
            if self._closed:
                return False
            task = self._tasks.popleft()
            jobs = self._together(task) if isinstance(task, Job) else []
        with contextlib.suppress(_Stopped):
            if isinstance(task, Job):
                self._decode(jobs)
            else:
                task()
        return True

    # --- opening batches ------------------------------------------------------------------------------------------

    def _ask_for_opening(self) -> None:
        if not self._opening and self._should_open():
            self._opening = True
            self._tasks.appendleft(self._open_some)
            self._changed.notify()

    def _should_open(self) -> bool:
        """Whether batches should be opened. What they take of the budget is taken."""
        if self._closed or self._future.at_end:
            return False
        self._charges = []
        if len(self._open) >= self._buffer_length and self._has_enough():
            return False
        for number in range(self._num_to_open()):
            charge = 0
            if len(self._open) + number >= self._buffer_length:
                # More than was asked for, where all threads can only be kept busy so, and there is memory for it.
                charge = self._batch_bytes
                if not self._budget.take(charge):
                    break
            self._charges.append(charge)
        return bool(self._charges)

    def _num_to_open(self) -> int:
        """How many batches are best opened at once.

        On a GPU many: a group whose frames are all wanted by batches that are open goes straight into them, while what
        is decoded before it is wanted has to be kept, and to be copied later. The first few come one by one, because
        somebody waits for them.
        """
        frames_ahead = self._workshop.frames_ahead
        if not frames_ahead or not self._open:
            return 1
        missing = sum(batch.remaining for batch in self._open)
        frames = max(1, len(self._open[-1].rows) * len(self._dataset.shown))
        wanted = (frames_ahead + self._workshop.frames_at_once - missing) // frames
        room = self._budget.num_bytes // (DONE_SHARE * max(1, self._batch_bytes)) - len(self._open)
        return max(1, min(wanted, room, self.opened, MAX_AT_ONCE))

    def _has_enough(self) -> bool:
        """Whether there is enough to do for all threads, now and when they are done with that; or enough is done."""
        workshop = self._workshop
        missing = [batch.remaining for batch in self._open]
        if missing.count(0) >= self._buffer_length:
            # Files that are gone through side by side come to new groups with the same batch: what lies behind it is
            # begun while the batches before are used.
            done = sum(len(batch.rows) for batch in self._open if not batch.remaining) * len(self._dataset.shown)
            num_bytes = missing.count(0) * self._batch_bytes
            if (
                done >= workshop.frames_ahead - workshop.frames_at_once
                or num_bytes * DONE_SHARE >= self._budget.num_bytes
            ):
                return True
        groups = len(self._queued) + len(self._running)
        return groups >= workshop.groups_ahead and sum(missing) >= workshop.frames_ahead

    def _open_some(self) -> None:
        with PLAN:
            while self._open_next():
                pass

    def _open_next(self) -> bool:
        """Opens as many batches as there are charges; returns whether more should be opened."""
        found = self._future.read(len(self._charges))  # takes long, and needs nothing that others use
        with self._changed:
            if self._closed:
                return False
            self._future.add(found)
            planned = self._future.pop(len(self._charges))
        batches = self._new_batches(planned)
        with self._changed:
            if self._has_ended():
                return False
            self._nothing_to_prefetch = False
            self._budget.give(sum(self._charges[len(batches) :]))
            for batch, charge in zip(batches, self._charges, strict=False):
                batch.charge = charge
            self._charges = []
            if batches:
                self.opened += len(batches)
                self._open_batches(planned, batches)
            self._opening = self._should_open()
            self._changed.notify()
            if not all(batch.remaining for batch in batches) or not batches:  # otherwise nobody is to be woken
                self._finished.notify_all()
            return self._opening

    def _has_ended(self) -> bool:
        return self._closed

    def _size_of(self, file: int) -> int:
        size = self._sizes.get(file)
        if size is None:
            size = self._sizes[file] = self._videos[file].frame_bytes
        return size

    def _new_batches(self, planned: Sequence[Planned]) -> list[FinishedBatch]:
        """Makes batches; other threads help, if they have nothing else to do.

        Most of the time goes into waiting for Python's lock, which getting memory on a GPU gives away.
        """
        work = SharedWork(self._new_batch, planned)
        helpers = min(MAX_HELPERS, len(planned) // 4)
        if helpers:
            with self._changed:
                self._tasks.extendleft([work.help] * helpers)
                self._changed.notify(helpers)
        return work.finish()

    def _new_batch(self, planned: Planned) -> FinishedBatch:
        samples = self._future.samples(planned)
        batch = FinishedBatch(samples)
        first: OpenVideo | None = None
        conflicts: dict[int, FramefeedError] = {}
        for file in dict.fromkeys(samples.files.ravel().tolist()):
            if file == MISSING:
                continue
            try:
                video = self._videos[file]
                first = first or video
                conflict: FramefeedError | None = shape_conflict(first, video)
            except FramefeedError as error:
                conflict = error
            if conflict is not None:
                conflicts[file] = conflict
        if conflicts:
            for place, of_sample in enumerate(samples.files.tolist()):
                conflict = next(filter(None, map(conflicts.get, of_sample)), None)
                if conflict is not None:
                    batch.errors[place] = conflict
        batch.rows = [place for place in range(len(samples)) if place not in batch.errors]
        good = samples.pick(batch.rows) if batch.errors else samples
        if len(good):
            batch.assembly = self._workshop.assemble(self._videos, good, self._dataset.shape)
            self._batch_bytes = batch.assembly.num_bytes
            batch.remaining = len(batch.assembly.targets)
        return batch

    def _open_batches(self, planned: Sequence[Planned], batches: Sequence[FinishedBatch]) -> None:
        opening = self._ahead.open(*(each.uses for each in planned))
        self._drop_frames()
        new: set[Key] = set()
        for batch, held, missing in zip(batches, opening.held, opening.missing, strict=True):
            self._open.append(batch)
            self._stats.hits += len(held)
            self._stats.misses += len(missing)
            targets = batch.assembly.targets if batch.assembly is not None else {}
            self._wait_for_held(batch, held, targets)
            for key in missing:
                if key in targets and self._wait_for_missing(batch, key):
                    new.add(key)
        for job in opening.jobs:
            self._submit(job, {number for number in job.now if (job.video, number) in new})
        self._drop_frames()

    def _wait_for_held(self, batch: FinishedBatch, held: Sequence[Key], targets: Collection[Key]) -> None:
        """Puts kept frames into a batch, or has it wait for those that are on their way."""
        ready: list[Key] = []
        for key in held:
            if key not in targets:  # of samples that failed
                self._ahead.release(key)
                continue
            frame = self._frames[key]
            if frame.bases is not None:
                ready.append(key)
            else:
                frame.waiting = (*frame.waiting, batch.claimed)
        step = self._workshop.put_length
        for low in range(0, len(ready), step):
            self._submit_finishing(batch, ready[low : low + step])

    def _wait_for_missing(self, batch: FinishedBatch, key: Key) -> bool:
        """Has a batch wait for a frame that is not to be kept; returns whether nobody did before."""
        failed = self._known_failure(key)
        if failed is not None:
            batch.fail(key, failed)
            self._done(batch, 1)
            return False
        frame = self._frames.get(key)
        is_new = frame is None
        if frame is None:
            frame = self._frames.new(key)
        frame.waiting = (*frame.waiting, batch.plain) if frame.waiting else batch.alone
        return is_new

    # --- kept frames -> batch -------------------------------------------------------------------------------------

    def _submit_finishing(self, batch: FinishedBatch, keys: Sequence[Key]) -> None:
        frames = [(key, self._frames[key].bases) for key in keys]
        assembly = batch.assembly
        assert assembly is not None

        def finish() -> None:
            with ASSEMBLE:
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
        if not batch.remaining and self._open and batch is self._open[0]:  # the others are looked at when it is taken
            self._finished.notify_all()

    def _drop_frames(self) -> None:
        """Lets go of frames that the look-ahead does not want to keep any longer."""
        for key in self._ahead.take_dropped():
            frame = self._frames.get(key)
            if frame is not None and frame.bases is not None:
                self._nothing_to_prefetch = False
                self._workshop.give_back(frame.bases)
                self._frames.let_go(key)
        self._ahead.settle()

    # --- decoding -------------------------------------------------------------------------------------------------

    def _prefetch(self) -> bool:
        """Starts on a group that will be needed soon, where there is nothing else to do."""
        if self._nothing_to_prefetch:
            return False
        if self._workshop.frames_ahead and (self._opening or self._has_enough()):
            return False  # what is kept costs more there than what goes straight into batches
        upcoming = self._future.upcoming(2 * self._buffer_length)
        promising = (use for use in upcoming if use[1:3] not in self._hopeless)
        job = self._ahead.prefetch(promising) or self._prefetch_whole()
        if job is None:
            self._nothing_to_prefetch = True
            return False
        self._drop_frames()
        self._submit(job, set())
        self._drop_frames()
        return bool(self._tasks)

    def _prefetch_whole(self) -> GroupJob | None:
        """A group that will be needed later, and then all of it.

        Where many files are gone through side by side, groups of all of them end at the same time. The next ones are
        decoded while these are used, so that decoders do not stand still first and are all waited for then.
        """
        first = next(self._future.upcoming(1), None)
        if first is None or self._workshop.frames_ahead:  # batches are opened early instead
            return None
        within = self._budget.num_bytes / (PREFETCH_SHARE * max(1, self._size_of(first[1])))
        missing = self._future.first_missing(within, self._hopeless)
        return None if missing is None else self._ahead.prefetch_whole(missing, within)

    @property
    def reached(self) -> int:
        """How many batches of the epoch have been looked at, to decode what they need."""
        return self.opened + max(self._future.provided, 2 * self._buffer_length) + 2

    def _submit(self, planned: GroupJob, frames: set[int]) -> None:
        """Adds a group to what is to be decoded; a group is decoded by one thread at a time.

        Args:
            planned: What is to be kept of it.
            frames: Those of its frames that batches have begun to wait for.
        """
        for number in planned.keep:
            key = (planned.video, number)
            if self._known_failure(key) is not None:
                self._ahead.discard(key)
            elif key not in self._frames:
                self._frames.new(key)
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
        self._tasks.append(job)
        self._changed.notify()

    def _together(self, job: Job) -> list[Job]:
        """A job and those of the groups behind its own; as long as every other thread has one, too.

        Only groups of which batches that are open want most: of others little is gained, and the longest run that a
        decoder has ever met decides how much memory it takes, so that a few chance neighbours would make all of them
        grow in time.
        """
        jobs = [job]
        if not self._workshop.frames_together or len(self._tasks) < len(self._threads):
            return jobs
        frames = len(job.frames)
        try:
            starts = self._videos[job.video].starts
        except (FramefeedError, OSError):  # closed since, and gone: that is found out when it is decoded
            return jobs
        while len(self._tasks) >= len(self._threads) and self._is_wanted_now(jobs[-1], starts):
            behind = max(jobs[-1].frames) + 1
            following = self._queued.get((job.video, int(starts[behind]))) if behind < len(starts) else None
            if following is None or following.start < jobs[-1].start or not self._is_wanted_now(following, starts):
                break
            frames += len(following.frames)
            if frames > self._workshop.frames_together or following not in self._tasks:
                break
            self._tasks.remove(following)
            jobs.append(following)
        return jobs

    def _is_wanted_now(self, job: Job, starts: NDArray[np.int64]) -> bool:
        """Whether open batches wait for at least half of a group."""
        frames = (self._frames.get((job.video, number)) for number in job.frames)
        waited_for = sum(frame is not None and bool(frame.waiting) for frame in frames)
        first, behind = np.searchsorted(starts, job.start, "left"), np.searchsorted(starts, job.start, "right")
        return 2 * waited_for >= int(behind - first)

    def _decode(self, jobs: Sequence[Job]) -> None:
        """Does jobs of one video."""
        owners: list[Job] = []
        frames: list[int] = []
        with self._changed:
            if self._closed:
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
            error = caught
        except BaseException:
            self._end_jobs(jobs, source, None)
            raise
        self._end_jobs(jobs, source, error)

    def _end_jobs(self, jobs: Sequence[Job], source: CountedSource | None, error: Exception | None) -> None:
        self._reject(jobs)
        with self._changed:
            if source is not None:
                self._count(source)
            for job in jobs:
                self._budget.give(job.retained)
                job.retained = 0
                if job.abandoned:
                    self._hanging.discard(job.video)  # it has come back
                if self._is_over(job):
                    continue
                del self._running[job.group]
                for number in sorted(job.undelivered):
                    self._fail_frame(job, number, _error_of(self._dataset.filenames[job.video], number, error))
                if job.then is not None:
                    self._enqueue(job.then)

    def _count(self, source: CountedSource) -> None:
        packets, num_bytes = source.take_counts()
        self._stats.frames_decoded += packets
        self._stats.bytes_read += num_bytes

    def _begin(self, job: Job) -> list[int]:
        """The frames that are still wanted of a job; those to be kept are claimed until it has delivered them."""
        numbers = []
        for number in sorted(job.frames):
            key = (job.video, number)
            frame = self._frames[key]
            if self._goes_straight(key):
                pass
            elif self._ahead.claim(key):
                job.keep.add(number)
            elif not frame.waiting:  # dropped meanwhile
                self._frames.let_go(key)
                continue
            numbers.append(number)
        job.undelivered.update(numbers)
        self._drop_frames()
        return numbers

    def _goes_straight(self, key: Key) -> bool:
        """Whether all batches that need a frame are open by now: it need not be kept, and goes straight into them."""
        frame = self._frames[key]
        if not frame.waiting or not self._ahead.let_go(key):
            return False
        frame.waiting = tuple(batch.plain for batch, _ in frame.waiting)
        self._nothing_to_prefetch = False
        return True

    def _take(self, video: OpenVideo, jobs: Sequence[Job], frames: Sequence[int], pictures: Sequence[Any]) -> None:
        """Writes decoded pictures to where they are wanted; nobody is told before they are confirmed."""
        workshop = self._workshop
        taken = [
            JobPicture(number, picture, workshop.allocate(video) if number in job.keep else None, job=job)
            for job, number, picture in zip(jobs, frames, pictures, strict=True)
            if number in job.undelivered  # otherwise it failed, and is being done again for the frames that can be had
        ]
        with self._changed:
            if self._closed or any(each.job.abandoned for each in taken):
                self._give_back(taken)
                raise _Stopped
            for each in taken:
                self._serve(video, each)
                each.job.taken[each.number] = each
        with PROCESS:
            workshop.take(video, taken)
        failed = [each for each in taken if each.error is not None]
        if failed:
            with self._changed:  # the others may be of the right size
                if self._closed or any(each.job.abandoned for each in failed):
                    raise _Stopped
                self._give_back(failed)
                for each in failed:
                    assert each.error is not None
                    del each.job.taken[each.number]
                    self._fail_frame(each.job, each.number, each.error)

    def _serve(self, video: OpenVideo, taken: JobPicture) -> None:
        """Finds out who waits for a picture."""
        job = taken.job
        key = (job.video, taken.number)
        if taken.bases is not None and self._goes_straight(key):
            self._give_back([taken])
            taken.bases = None
            job.keep.discard(taken.number)
        elif taken.bases is None and taken.number not in job.waiting and self._ahead.claim(key):
            job.keep.add(taken.number)  # decided only while it was being decoded
            taken.bases = self._workshop.allocate(video)
        if taken.bases is None:
            if taken.number not in job.waiting:
                job.waiting[taken.number] = self._frames.let_go(key)
            taken.served = job.waiting[taken.number]
        else:
            taken.served = self._frames[key].waiting
        taken.places = _places(key, taken.served)

    def _reject(self, jobs: Collection[Job]) -> None:
        """Forgets pictures that were taken: they will come again."""
        if not any(job.taken for job in jobs):
            return
        with self._changed:
            taken = [each for job in jobs for each in job.taken.values()]
            for job in jobs:
                job.taken.clear()
        self._give_back(taken)

    def _confirm(self, jobs: Collection[Job], source: CountedSource) -> None:
        """Tells everybody of the pictures that were taken."""
        while True:
            again: dict[FinishedBatch, list[tuple[Any, Sequence[Place]]]] = {}
            with self._changed:
                if self._closed:
                    break
                self._count(source)
                for job in jobs:
                    for taken in list(job.taken.values()) if not job.abandoned else ():
                        self._hand_over(taken, again)
                self._drop_frames()
                if self._workshop.frames_ahead:
                    self._ask_for_opening()
            if not again:
                break
            for batch, frames in again.items():
                assert batch.assembly is not None
                self._workshop.put(batch.assembly, frames)
        self._reject(jobs)

    def _hand_over(self, taken: JobPicture, again: dict[FinishedBatch, list[tuple[Any, Sequence[Place]]]]) -> None:
        """Lets go of a picture, unless more have come who want it."""
        job = taken.job
        key = (job.video, taken.number)
        for batch, claimed in taken.served:
            self._done(batch, 1)
            if claimed:
                self._ahead.release(key)
        if taken.bases is None:
            del job.waiting[taken.number]
        else:
            frame = self._frames[key]
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
        """Keeps what a job has taken of the budget when nobody waits for it any more: its thread may be using it."""
        job.retained = len(job.keep) * self._size_of(job.video)
        self._budget.hold(job.retained)

    def _is_over(self, job: Job) -> bool:
        return self._closed or job.abandoned

    def _give_back(self, taken: Sequence[Taken]) -> None:
        """Gives memory back of frames that will not be kept after all."""
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
        """Tells all who wait for a frame of a job that it cannot be had."""
        key = (job.video, number)
        self._release(job, number)
        waiting = job.waiting.pop(number, None)
        if waiting is None:
            waiting = self._frames.let_go(key)
        if isinstance(error, DecodeError | FrameSizeError):
            self._failed[key] = error  # the file's content is bad: no need to try again
        self._hopeless.add(key)
        self._ahead.discard(key)
        self._drop_frames()
        for batch, _ in waiting:
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
                self._retain(job)
                self._hanging.add(job.video)  # not tried again until it comes back: each try would cost a thread
                for number in sorted(job.undelivered):
                    self._fail_frame(job, number, self._timed_out(job.video, number))
                if job.then is not None:
                    self._enqueue(job.then)
                self._threads.append(self._start_thread())  # the other one may never come back


def _places(key: Key, waiting: Sequence[tuple[FinishedBatch, bool]]) -> list[tuple[Assembly, Sequence[Place]]]:
    """Where a frame goes in the batches that wait for it."""
    assemblies = [batch.assembly for batch, _ in waiting if batch.assembly is not None]
    return [(assembly, assembly.targets[key]) for assembly in assemblies]


def _error_of(path: str, frame: int, error: Exception | None) -> Exception:
    """What is wrong with one frame of a job that failed."""
    if error is None:
        return DecodeError(path, f"frame {frame} cannot be decoded: the decoder gave no picture", frame)
    if isinstance(error, DecodeError):
        reason = error.reasons.get(frame)
        if reason is not None:
            return DecodeError(error.path, f"frame {frame} cannot be decoded exactly: {reason}", frame)
    if isinstance(error, FramefeedError):
        return error
    wrapped = DecodeError(path, f"frame {frame} cannot be decoded: {error}", frame)
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
