"""Runs plans: jobs side by side on a few threads, each on a pooled session."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from numpy.typing import ArrayLike

from framefeed._util.fork import in_forked_children
from framefeed._util.limits import available_cpus
from framefeed._util.nvtx import DECODE, PLAN
from framefeed.decode.pool import SessionPool
from framefeed.decode.run import Failures, Sink, decode_error, run_job
from framefeed.decode.runs import RunTask
from framefeed.decode.session import Running, SessionFactory, Taker
from framefeed.index.bitstream import PacketKind
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Plan, plan_frames
from framefeed.plan.frames import with_whole_group
from framefeed.plan.schedule import choose_wide_jobs, wide_threads
from framefeed.source import PacketSource
from framefeed.types import DecodeJob

__all__ = ["Engine"]


class Engine:
    """Decodes frames of any number of videos on a bounded number of sessions and threads.

    Args:
        factory: Makes decoder sessions.
        max_threads: Threads of the shared pool; None takes one for each CPU.
        num_formats: For how many kinds of streams decoders are kept, a whole set for each.

    Attributes:
        factory: What makes them.
        latest: The index that frames were asked of last, by ``id``.
    """

    def __init__(self, factory: SessionFactory, max_threads: int | None = None, num_formats: int = 2) -> None:
        self.max_threads = max_threads or available_cpus()
        self.latest = 0
        self.factory = factory
        # Two for each thread, where there are many kinds: one being reset for the next file while another is left
        # running in a group.
        self.pool = SessionPool(factory, max_idle=num_formats * self.max_threads)
        self._reset()
        in_forked_children(self._reset)

    def _reset(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(self.max_threads)

    def decode(
        self,
        index: VideoIndex,
        source: PacketSource,
        wanted: ArrayLike,
        sink: Sink,
        *,
        num_threads: int,
        read_on: bool = False,
        long_groups: bool = False,
    ) -> Plan:
        """Decodes frames; ``sink(row, picture)`` gets each different one once, from any of the threads.

        Args:
            index: The video.
            source: Gives its packets.
            wanted: Frame numbers, in any order, repeated or not. Row i of the sink is ``wanted[i]``.
            sink: Takes the pictures. Rows of repeated frames are left to the caller, see ``Plan.copies``.
            num_threads: How many threads this request may use.
            read_on: Whether the frames that follow will probably be asked for next.
            long_groups: Whether these are parts of long groups that will be gone through to their ends: each gets a
                decoder with all threads, side by side with the others.

        Raises:
            DecodeError: A wanted frame could not be decoded exactly.
        """
        self.latest = id(index)
        running = self.pool.take_running(index)
        with PLAN:
            plan = plan_frames(index.packets, wanted, {start: left.cursor for start, left in running.items()})
        leases = {job.start: running.pop(job.start) for job in plan.jobs if job.resume >= 0}
        for unused in running.values():
            self.pool.keep_running(index, unused)
        task = _Task(self.pool, index, source, sink, leases, read_on)
        jobs = list(plan.jobs)
        each = wide_threads(index.stream.codec, num_threads) if long_groups else 1
        may_widen = num_threads > 1 and not long_groups and self.factory.uses_threads(index.stream)
        wide = choose_wide_jobs([job.cost for job in jobs], num_threads) if may_widen else 0
        if read_on and not wide and may_widen:
            jobs, wide = _widen_last(index, jobs)
        for job in jobs[:wide]:
            task.run(job, wide_threads(index.stream.codec, num_threads))
        self._run_side_by_side(task, jobs[wide:], num_threads, each)
        task.finish()
        return plan

    def decode_runs(
        self, index: VideoIndex, source: PacketSource, wanted: ArrayLike, taker: Taker, *, num_threads: int
    ) -> Plan:
        """Decodes frames in whole runs, each different one once; for decoders whose pictures last a moment only.

        Args:
            index: The video.
            source: Gives its packets.
            wanted: Frame numbers, in any order, repeated or not. Row i of the taker is ``wanted[i]``.
            taker: Takes the pictures.
            num_threads: How many threads this request may use.

        Raises:
            DecodeError: A wanted frame could not be decoded exactly.
        """
        with PLAN:
            plan = plan_frames(index.packets, wanted)
        task = RunTask(self.pool, index, source, taker, self._turns)
        if num_threads == 1:
            task.run_all(plan.jobs)
        else:
            self._run_side_by_side(task, plan.jobs, num_threads, 1)
        task.finish()
        return plan

    def _run_side_by_side(self, task: _Task | RunTask, jobs: Sequence[DecodeJob], num_threads: int, each: int) -> None:
        todo = iter(jobs)
        lock = threading.Lock()

        def work() -> None:
            try:
                while True:
                    with lock:
                        job = next(todo, None)
                    if job is None or task.stopped:
                        return
                    task.run(job, each)
            except BaseException:
                task.stopped = True
                raise

        # One worker more than threads: three equal jobs on two cores then end together instead of two and one.
        workers = min(num_threads + 1, len(jobs)) if num_threads > 1 else 1
        helpers: list[Future[None]] = []
        try:
            for _ in range(workers - 1):
                helpers.append(self._submit(work))
            work()  # the caller's thread works too: no hand-over for a single job, no deadlock when the pool is full
        finally:
            if helpers:
                _wait_for_all(helpers, task)

    def _submit(self, work: Sink | object) -> Future[None]:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.max_threads + 1, thread_name_prefix="framefeed")
            return self._executor.submit(work)  # type: ignore[arg-type]


def _wait_for_all(helpers: Sequence[Future[None]], task: _Task | RunTask) -> None:
    """Waits for all helpers, also where one has failed: they write to memory that goes with the request."""
    running = [helper for helper in helpers if not helper.cancel()]
    try:
        wait(running)
    except BaseException:  # interrupted: nothing more is begun, and what is under way ends soon
        task.stopped = True
        wait(running)
        raise
    for helper in running:
        helper.result()


def _widen_last(index: VideoIndex, jobs: list[DecodeJob]) -> tuple[list[DecodeJob], int]:
    """Puts the last group first, to be run wide, where requests like this one will stay in that group for long."""
    last = max(jobs, key=lambda job: job.start, default=None)
    if last is None or not len(last.packets):
        return jobs, 0
    end = int(last.packets[-1]) + 1
    rest = index.packets.run_end(end, last.start) - end
    if rest <= sum(job.cost for job in jobs):
        return jobs, 0
    return [last, *(job for job in jobs if job is not last)], 1


class _Task:
    """One request while it is being decoded."""

    def __init__(
        self,
        pool: SessionPool,
        index: VideoIndex,
        source: PacketSource,
        sink: Sink,
        leases: dict[int, Running],
        read_on: bool,
    ) -> None:
        self._pool = pool
        self._index = index
        self._source = source
        self._sink = sink
        self._leases = leases
        self._read_on = read_on
        self._failed: dict[int, str] = {}
        self.stopped = False

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job on a session of its own."""
        if int(self._index.packets.flags[job.start]) & PacketKind.INCOMPLETE:
            num_threads = 1  # with more, decoders put another picture in the place of a reference that is missing
        running = self._leases.pop(job.start, None)
        if running is None:
            running = self._pool.take(self._index, job.start, num_threads)
        try:
            with DECODE:
                alive = run_job(self._index, self._source, job, running, self._sink, read_on=self._read_on)
        except Failures as failures:
            slots = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
            self._diagnose({packet: slots[packet] for packet in failures.missing})
            return
        if alive:
            self._pool.keep_running(self._index, running)
        else:
            self._pool.give_back(running)

    def _diagnose(self, rows: dict[int, int]) -> None:
        """Gets those of the missing pictures of a job that can be had; notes why of the others.

        A decoder that stumbles may lose whole pictures that it still held, and complain of a packet because of one that
        it was fed before. So pictures are asked for again in parts, in the end one by one: what becomes of one does not
        depend on what else was asked for. A damaged header may say that nobody refers to a picture, so the last attempt
        leaves none out.
        """
        flags = self._index.packets.flags
        lost = {packet for packet in rows if int(flags[packet]) & PacketKind.LOST}
        self._failed |= dict.fromkeys(lost, "the stream is damaged near it, or packets are missing")
        rows = {packet: row for packet, row in rows.items() if packet not in lost}
        droppable = {packet for packet in rows if int(flags[packet]) & PacketKind.NONREF}
        others = {packet: row for packet, row in rows.items() if packet not in droppable}
        todo = [{packet: rows[packet] for packet in droppable}, others]
        while todo:
            rows = todo.pop()
            failures = self._run_again(rows) if rows else None
            if failures is None:
                continue
            missing = {packet: rows[packet] for packet in failures.missing}
            blamed = failures.blamed if failures.hopeless else None
            if len(rows) == 1:
                if self._run_again(rows, leave_out=False) is not None:
                    self._failed |= dict.fromkeys(rows, "the decoder gave no picture for it") | failures.hopeless
            elif blamed is not None and blamed <= min(droppable & rows.keys(), default=blamed):
                # Nothing was fed before it that would not be fed for any other picture.
                whole = self._run_again(missing, leave_out=False)
                if whole is not None:
                    hopeless = failures.hopeless.keys() & whole.hopeless.keys()
                    self._failed |= {packet: failures.hopeless[packet] for packet in hopeless}
                    todo += [{packet: missing[packet]} for packet in whole.missing - hopeless]
            else:
                if blamed is None:
                    blamed = -1 if len(missing) < len(rows) else max(rows)
                todo += [{packet: row} for packet, row in missing.items() if packet <= blamed]
                todo.append({packet: row for packet, row in missing.items() if packet > blamed})

    def _run_again(self, rows: dict[int, int], *, leave_out: bool = True) -> Failures | None:
        """Runs a job for some pictures from the start, with one thread; with all packets of the group on demand."""
        frame_of = {packet: frame for frame, packet in enumerate(self._index.packets.frames.tolist())}
        packets, targets = list(rows), list(rows.values())
        (job,) = plan_frames(self._index.packets, [frame_of[packet] for packet in packets]).jobs
        if not leave_out:
            job = with_whole_group(self._index.packets, job)
        running = self._pool.take(self._index, job.start, 1)
        try:
            run_job(
                self._index,
                self._source,
                job,
                running,
                lambda row, picture: self._sink(targets[row], picture),
                read_on=False,
            )
        except Failures as failures:
            return failures.with_traceback(None)  # which would keep this frame, and all that it refers to
        self._pool.give_back(running)
        return None

    def finish(self) -> None:
        """Raises for the earliest frame that failed."""
        for running in self._leases.values():
            self._pool.keep_running(self._index, running)
        if self._failed:
            raise decode_error(self._index, self._failed)
