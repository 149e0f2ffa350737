"""Runs plans: jobs side by side on a few threads, each on a pooled session."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numpy.typing import ArrayLike

from framefeed.decode.pool import SessionPool
from framefeed.decode.run import Failures, Sink, decode_error, run_job
from framefeed.decode.session import Running, SessionFactory
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Plan, plan_frames
from framefeed.plan.schedule import choose_wide_jobs, wide_threads
from framefeed.source import PacketSource
from framefeed.types import DecodeJob

__all__ = ["Engine", "available_cpus"]


def available_cpus() -> int:
    """CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


class Engine:
    """Decodes frames of any number of videos on a bounded number of sessions and threads.

    Args:
        factory: Makes decoder sessions.
        max_threads: Threads of the shared pool; None takes one for each CPU.
    """

    def __init__(self, factory: SessionFactory, max_threads: int | None = None) -> None:
        self.max_threads = max_threads or available_cpus()
        self._hardware = factory.hardware
        # Two for each thread: one being reset for the next file while another is left running in a group.
        self.pool = SessionPool(factory, max_idle=2 * self.max_threads)
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

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
        after_job: Callable[[], None] | None = None,
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
            after_job: Called by the thread that decoded a group when its last picture has gone to the sink, while the
                decoder is still that thread's own.

        Raises:
            DecodeError: A wanted frame could not be decoded exactly.
        """
        if self._hardware:
            read_on = long_groups = False
        running = self.pool.take_running(index)
        plan = plan_frames(index.packets, wanted, {start: left.cursor for start, left in running.items()})
        leases = {job.start: running.pop(job.start) for job in plan.jobs if job.resume >= 0}
        for unused in running.values():
            self.pool.keep_running(index, unused)
        task = _Task(self, index, source, sink, leases, read_on, after_job or _nothing)
        jobs = list(plan.jobs)
        each = wide_threads(index.stream.codec, num_threads) if long_groups else 1
        wide = 0 if long_groups or self._hardware else choose_wide_jobs([job.cost for job in jobs], num_threads)
        if read_on and not wide and not long_groups and num_threads > 1:
            jobs, wide = _widen_last(index, jobs)
        for job in jobs[:wide]:
            task.run(job, wide_threads(index.stream.codec, num_threads))
        self._run_side_by_side(task, jobs[wide:], num_threads, each)
        task.finish()
        return plan

    def _run_side_by_side(self, task: _Task, jobs: Sequence[DecodeJob], num_threads: int, each: int) -> None:
        todo = iter(jobs)
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    job = next(todo, None)
                if job is None or task.stopped:
                    return
                task.run(job, each)

        # One worker more than threads: three equal jobs on two cores then end together instead of two and one.
        workers = min(num_threads + 1, len(jobs)) if num_threads > 1 else 1
        helpers = [self._submit(work) for _ in range(workers - 1)]
        try:
            work()  # the caller's thread works too: no hand-over for a single job, no deadlock when the pool is full
        except BaseException:
            task.stopped = True
            raise
        finally:
            for helper in helpers:
                if not helper.cancel():
                    helper.result()

    def _submit(self, work: Sink | object) -> Future[None]:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.max_threads + 1, thread_name_prefix="framefeed")
            return self._executor.submit(work)  # type: ignore[arg-type]


def _nothing() -> None:
    pass


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
        engine: Engine,
        index: VideoIndex,
        source: PacketSource,
        sink: Sink,
        leases: dict[int, Running],
        read_on: bool,
        after_job: Callable[[], None],
    ) -> None:
        self._after_job = after_job
        self._pool = engine.pool
        self._index = index
        self._source = source
        self._sink = sink
        self._leases = leases
        self._read_on = read_on
        self._failed: dict[int, str] = {}
        self.stopped = False

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job on a session of its own."""
        running = self._leases.pop(job.start, None)
        if running is None:
            running = self._pool.take(self._index, job.start, num_threads)
        try:
            alive = run_job(self._index, self._source, job, running, self._sink, read_on=self._read_on)
            self._after_job()
        except Failures:
            self._after_job()
            self._diagnose(dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True)))
            return
        if alive:
            self._pool.keep_running(self._index, running)
        else:
            self._pool.give_back(running)

    def _diagnose(self, rows: dict[int, int]) -> None:
        """Finds out which pictures of a job that failed can be had: from the start, with one thread.

        Pictures that come before the damage in decode order are whole, but a decoder that stumbles may lose those that
        it still held. They are asked for again without what follows them.
        """
        frame_of = {packet: frame for frame, packet in enumerate(self._index.packets.frames.tolist())}
        while rows:
            packets, targets = list(rows), list(rows.values())
            (job,) = plan_frames(self._index.packets, [frame_of[packet] for packet in packets]).jobs
            running = self._pool.take(self._index, job.start, 1)

            def sink(row: int, picture: Any, targets: list[int] = targets) -> None:
                self._sink(targets[row], picture)

            try:
                run_job(self._index, self._source, job, running, sink, read_on=False)
                self._after_job()
            except Failures as failures:
                self._after_job()
                before = {packet for packet in failures.lost if packet < failures.first_damaged}
                again = before if len(before) < len(rows) else set()
                self._failed |= {packet: why for packet, why in failures.reasons.items() if packet not in again}
                rows = {packet: rows[packet] for packet in again}
            else:
                self._pool.give_back(running)
                return

    def finish(self) -> None:
        """Raises for the earliest frame that failed."""
        for running in self._leases.values():
            self._pool.keep_running(self._index, running)
        if self._failed:
            raise decode_error(self._index, self._failed)
