"""Background engine of a loader's iterator: threads that open batches and fill them.

The look-ahead decides what to decode and what to cache; this module and ``decoding`` carry it out. A batch is *open*
while its tensors are being filled. A few batches are open at a time, in order. Every frame of an open batch is either
cached by an earlier job, on its way in a running job, or gets a new job. A frame without later uses goes straight from
the decoder into the batch.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence

from framefeed._util.nvtx import ASSEMBLE, PLAN
from framefeed._util.process.long_wait import Patience
from framefeed._util.process.threads import start_thread, when_process_ends
from framefeed.batch.assembly import MISSING, shape_conflict
from framefeed.batch.videos import OpenVideo, Videos
from framefeed.batch.work import FinishedBatch, Job
from framefeed.batch.workshop import Workshop
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError
from framefeed.loader.decoding import Board, Decoding, Stopped
from framefeed.loader.epochs import BatchNumbers
from framefeed.loader.future import Future, Planned
from framefeed.loader.shared_work import SharedWork
from framefeed.loader.stats import LoaderStats
from framefeed.plan.lookahead import Budget, GroupJob, Key, LookAhead

__all__ = ["Feed"]

# Groups that will be needed as a whole are decoded early, into this fraction of the cache, or while complete batches
# are waiting there.
PREFETCH_SHARE = DONE_SHARE = 4

MAX_HELPERS = 4  # threads that help to open batches

MAX_AT_ONCE = 64  # batches opened at once, while other threads wait for the lock


class Feed:
    """Fills batches in the background, in order.

    Args:
        dataset: The dataset.
        batches: Sample numbers of each batch, of one or several epochs.
        seed: Seed of random crops and flips.
        budget: Memory budget of cached frames.
        workshop: Processes pictures.
        num_threads: Number of decoding threads.
        buffer_length: Number of batches prepared ahead.
        timeout: Time limit for decoding a sample, in seconds; 0 for no limit.
        stats: Counters to update; several feeds may share them.
        sending: Describes the worker processes that send packets, if any.

    Attributes:
        opened: Number of batches opened.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        batches: Iterator[BatchNumbers],
        *,
        seed: int,
        budget: Budget,
        workshop: Workshop,
        num_threads: int,
        buffer_length: int,
        timeout: float,
        stats: LoaderStats,
        sending: Callable[[], list[str]] | None = None,
    ) -> None:
        self._dataset = dataset
        self._sending = sending or list
        self._videos = dataset.videos
        self._workshop = workshop
        self._buffer_length = buffer_length
        self._stats = stats
        self._budget = budget
        # Nothing here refers back to the feed, so it is freed with its iterator, and its memory with it.
        self._size_of = _FrameSizes(dataset.videos).__getitem__
        self._ahead = LookAhead(budget, self._size_of)
        lock = threading.RLock()
        self._board = Board(threading.Condition(lock), threading.Condition(lock))
        self._lock = self._board.changed
        self._decoding = Decoding(
            self._board,
            dataset,
            workshop,
            self._ahead,
            budget,
            size_of=self._size_of,
            timeout=timeout,
            stats=stats,
            delivered=_weakly(self._look_after_delivery),
        )
        self._future = Future(dataset, batches, seed=seed, ahead=self._ahead, soon=buffer_length)
        self._opening = False
        self.opened = 0
        self._batch_bytes = 0  # of the last batch
        self._charges: list[int] = []  # budget charged for each batch being opened
        self._crash: BaseException | None = None  # a bug in framefeed
        self._process = os.getpid()
        workshop.begin()
        for _ in range(num_threads):
            self._start_thread()
        _feeds.add(self)
        with self._lock:
            self._ask_for_opening()

    # --- for the consumer -----------------------------------------------------------------------------------------

    def next(self) -> FinishedBatch | None:
        """Waits for the next batch; returns None after the last."""
        if self._process != os.getpid():
            raise RuntimeError("the iterator was created before a fork; create a new one in this process")
        begin = time.perf_counter()
        patience = Patience(self._awaited)
        try:
            with self._lock:
                while True:
                    if self._board.closed:
                        return None
                    if self._board.open and not self._board.open[0].remaining:
                        batch = self._board.open.popleft()
                        self._budget.give(batch.charge)
                        self._ask_for_opening()
                        if self._workshop.frames_ahead:
                            self._lock.notify()  # prefetching may be possible now
                        return batch
                    if self._crash is not None or (not self._board.open and not self._opening):
                        break
                    self._board.finished.wait(patience.seconds(self._decoding.until_timeout()))
                    patience.tell_if_due()
                    for _ in range(self._decoding.give_up_on_slow_jobs()):
                        self._start_thread()  # the hanging one may never return
        finally:
            self._stats.wait_seconds += time.perf_counter() - begin
        error = self._crash or self._future.error
        self._crash = self._future.error = None
        if error is not None:
            self.close()
            raise error
        return None

    def _awaited(self) -> list[str]:
        """Describes what the next batch is waiting for."""
        left = self._board.open[0].remaining if self._board.open else 0
        batch = f"a batch that needs {left} more frames" if left else "a batch that is being opened"
        return [batch, *self._decoding.running(), *self._sending()]

    def close(self) -> None:
        """Stops all work and frees memory. Threads end within the time of one picture."""
        if self._process != os.getpid():
            return  # a forked process has no threads, and locks may be held forever
        with self._lock:
            if self._board.closed:
                return
            self._board.closed = True
            self._workshop.end()
            self._board.tasks.clear()
            self._budget.give(sum(self._charges) + sum(batch.charge for batch in self._board.open))
            self._charges = []
            self._board.open.clear()
            self._future.clear()
            self._decoding.close()
            self._ahead.close()
            self._lock.notify_all()
            self._board.finished.notify_all()

    # --- threads --------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._board.num_threads += 1
        start_thread(self._work, "framefeed-loader")

    def _work(self) -> None:
        try:
            while self._work_once():
                pass
        except BaseException as error:  # a bug, not bad data: must not vanish with its thread
            with self._lock:
                self._crash = error
                self._budget.give(sum(self._charges) + sum(batch.charge for batch in self._board.open))
                self._charges = []
                self._board.open.clear()
                self._opening = False
                self._lock.notify_all()
                self._board.finished.notify_all()

    def _work_once(self) -> bool:
        """Waits for a task and runs it. Returns True if there may be more."""
        with self._lock:
            while not self._board.tasks and not self._board.closed and not self._prefetch():
                self._lock.wait()
            if self._board.closed:
                return False
            task = self._board.tasks.popleft()
            jobs = self._decoding.together(task) if isinstance(task, Job) else []
        with contextlib.suppress(Stopped):
            if isinstance(task, Job):
                self._decoding.decode(jobs)
            else:
                task()
        if not any(job.abandoned for job in jobs):
            return True
        with self._lock:  # it returned after all; a replacement thread was started meanwhile
            self._board.num_threads -= 1
        return False

    # --- opening batches ------------------------------------------------------------------------------------------

    def _ask_for_opening(self) -> None:
        if not self._opening and self._should_open():
            self._opening = True
            self._board.tasks.appendleft(self._open_some)
            self._lock.notify()

    def _look_after_delivery(self) -> None:
        """Called after pictures were delivered."""
        if self._workshop.frames_ahead:
            self._ask_for_opening()

    def _should_open(self) -> bool:
        """Returns True if batches should be opened, and charges the budget for them."""
        if self._board.closed or self._future.at_end:
            return False
        self._charges = []
        if len(self._board.open) >= self._buffer_length and self._has_enough():
            return False
        for number in range(self._num_to_open()):
            charge = 0
            if len(self._board.open) + number >= self._buffer_length:
                # Beyond buffer_length, if only that keeps all threads busy and memory allows it.
                charge = self._batch_bytes
                if not self._budget.take(charge):
                    break
            self._charges.append(charge)
        return bool(self._charges)

    def _num_to_open(self) -> int:
        """Returns the number of batches to open at once.

        Many on a GPU: a group whose frames all belong to open batches goes straight into them, while frames decoded
        ahead must be cached and copied later. The first few open one by one, because the consumer waits for them.
        """
        frames_ahead = self._workshop.frames_ahead
        if not frames_ahead or not self._board.open:
            return 1
        missing = sum(batch.remaining for batch in self._board.open)
        frames = max(1, len(self._board.open[-1].rows) * len(self._dataset.shown))
        wanted = (frames_ahead + self._workshop.frames_at_once - missing) // frames
        room = self._budget.num_bytes // (DONE_SHARE * max(1, self._batch_bytes)) - len(self._board.open)
        return max(1, min(wanted, room, self.opened, MAX_AT_ONCE))

    def _has_enough(self) -> bool:
        """Returns True if all threads have enough work, now and afterwards, or enough is complete."""
        workshop = self._workshop
        missing = [batch.remaining for batch in self._board.open]
        if missing.count(0) >= self._buffer_length:
            # Files read in parallel reach new groups in the same batch: the groups behind it are started while earlier
            # batches are used.
            done = sum(len(batch.rows) for batch in self._board.open if not batch.remaining) * len(self._dataset.shown)
            num_bytes = missing.count(0) * self._batch_bytes
            if (
                done >= workshop.frames_ahead - workshop.frames_at_once
                or num_bytes * DONE_SHARE >= self._budget.num_bytes
            ):
                return True
        return self._decoding.num_groups >= workshop.groups_ahead and sum(missing) >= workshop.frames_ahead

    def _open_some(self) -> None:
        with PLAN:
            while self._open_next():
                pass

    def _open_next(self) -> bool:
        """Opens the charged batches; returns True if more should be opened."""
        found = self._future.read(len(self._charges))  # slow, and touches no shared state
        with self._lock:
            if self._board.closed:
                return False
            self._future.add(found)
            planned = self._future.pop(len(self._charges))
        batches = self._new_batches(planned)
        with self._lock:
            if self._has_ended():
                return False
            self._board.nothing_to_prefetch = False
            self._budget.give(sum(self._charges[len(batches) :]))
            for batch, charge in zip(batches, self._charges, strict=False):
                if charge and batch.assembly is not None:  # batches may differ in size
                    self._budget.hold(batch.assembly.num_bytes - charge)
                    charge = batch.assembly.num_bytes
                batch.charge = charge
            self._charges = []
            if batches:
                self.opened += len(batches)
                self._open_batches(planned, batches)
            self._opening = self._should_open()
            self._lock.notify()
            if not all(batch.remaining for batch in batches) or not batches:  # else the consumer keeps waiting
                self._board.finished.notify_all()
            return self._opening

    def _has_ended(self) -> bool:
        return self._board.closed

    def _new_batches(self, planned: Sequence[Planned]) -> list[FinishedBatch]:
        """Creates batches; idle threads help.

        Most of the time is spent waiting for the GIL, which GPU allocation releases.
        """
        work = SharedWork(self._new_batch, planned)
        helpers = min(MAX_HELPERS, len(planned) // 4)
        if helpers:
            with self._lock:
                self._board.tasks.extendleft([work.help] * helpers)
                self._lock.notify(helpers)
        return work.finish()

    def _new_batch(self, planned: Planned) -> FinishedBatch:
        samples = self._future.samples(planned)
        batch = FinishedBatch(samples, is_last=planned.is_last)
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
        self._decoding.drop_frames()
        new: set[Key] = set()
        for batch, held, missing in zip(batches, opening.held, opening.missing, strict=True):
            self._board.open.append(batch)
            self._stats.hits += len(held)
            self._stats.misses += len(missing)
            targets = batch.assembly.targets if batch.assembly is not None else {}
            self._wait_for_held(batch, held, targets)
            new.update(self._wait_for_missing(batch, [key for key in missing if key in targets]))
        for job in opening.jobs:
            self._decoding.submit(job, {number for number in job.now if (job.video, number) in new})
        self._decoding.drop_frames()

    def _wait_for_held(self, batch: FinishedBatch, held: Sequence[Key], targets: Collection[Key]) -> None:
        """Puts cached frames into a batch, or makes it wait for frames on their way."""
        ready: list[Key] = []
        waiter = (batch, True)  # shared: one object per frame would burden the garbage collector
        for key in held:
            if key not in targets:  # only used by failed samples
                self._ahead.release(key)
                continue
            frame = self._decoding.frames[key]
            if frame.bases is not None:
                ready.append(key)
            else:
                frame.waiting = (*frame.waiting, waiter)
        step = self._workshop.put_length
        for low in range(0, len(ready), step):
            self._submit_finishing(batch, ready[low : low + step])

    def _wait_for_missing(self, batch: FinishedBatch, keys: Sequence[Key]) -> Iterator[Key]:
        """Makes a batch wait for uncached frames; yields those that no batch waited for before."""
        alone = ((batch, False),)
        for key in keys:
            failed = self._decoding.known_failure(key)
            if failed is not None:
                batch.fail(key, failed)
                self._board.done(batch, 1)
                continue
            frame = self._decoding.frames.get(key)
            if frame is None:
                frame = self._decoding.frames.new(key)
                yield key
            frame.waiting = frame.waiting + alone if frame.waiting else alone

    # --- cached frames -> batch -----------------------------------------------------------------------------------

    def _submit_finishing(self, batch: FinishedBatch, keys: Sequence[Key]) -> None:
        frames = [(key, self._decoding.frames[key].bases) for key in keys]
        assembly = batch.assembly
        assert assembly is not None

        def finish() -> None:
            with self._lock:
                if self._board.closed:
                    return
                self._decoding.lend(keys)
            try:
                with ASSEMBLE:
                    self._workshop.put(assembly, [(bases, assembly.targets[key]) for key, bases in frames])
            except BaseException:
                with self._lock:
                    self._decoding.take_back(frames)
                raise
            with self._lock:
                self._decoding.take_back(frames)
                if self._has_ended():
                    return
                for key, _ in frames:
                    self._ahead.release(key)
                self._decoding.drop_frames()
                self._board.done(batch, len(frames))

        self._board.add(finish)

    # --- prefetch -------------------------------------------------------------------------------------------------

    def _prefetch(self) -> bool:
        """Starts a group that will be needed soon, if there is no other work."""
        if self._board.nothing_to_prefetch:
            return False
        if self._workshop.frames_ahead and (self._opening or self._has_enough()):
            return False  # there, caching costs more than writing straight into batches
        upcoming = self._future.upcoming(2 * self._buffer_length)
        promising = (use for use in upcoming if use[1:3] not in self._decoding.hopeless)
        job = self._ahead.prefetch(promising) or self._prefetch_whole()
        if job is None:
            self._board.nothing_to_prefetch = True
            return False
        self._decoding.drop_frames()
        self._decoding.submit(job, set())
        self._decoding.drop_frames()
        return bool(self._board.tasks)

    def _prefetch_whole(self) -> GroupJob | None:
        """Returns a group that will be needed later as a whole, or None.

        Where many files are read in parallel, their groups end at the same time. The next groups are decoded while
        these are used, so that decoders are not idle first and all awaited afterwards.
        """
        first = next(self._future.upcoming(1), None)
        if first is None or self._workshop.frames_ahead:  # there, batches are opened early instead
            return None
        within = self._budget.num_bytes / (PREFETCH_SHARE * max(1, self._size_of(first[1])))
        missing = self._future.first_missing(within, self._decoding.hopeless)
        return None if missing is None else self._ahead.prefetch_whole(missing, within)

    @property
    def reached(self) -> int:
        """Number of batches of the epoch that have been planned."""
        return self.opened + max(self._future.provided, 2 * self._buffer_length) + 2


class _FrameSizes(dict[int, int]):
    """Bytes of one frame, by file."""

    def __init__(self, videos: Videos) -> None:
        super().__init__()
        self._videos = videos

    def __missing__(self, file: int) -> int:
        size = self[file] = self._videos[file].frame_bytes
        return size


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Wraps a method so that it only runs while its object is alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call


_feeds: weakref.WeakSet[Feed] = weakref.WeakSet()


@when_process_ends
def _close_all() -> None:
    for feed in list(_feeds):
        feed.close()
