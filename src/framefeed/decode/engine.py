"""Runs plans: jobs side by side on a few threads, each on a pooled session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from framefeed._util.limits import available_cpus
from framefeed._util.nvtx import DECODE
from framefeed._util.process.fork import in_forked_children
from framefeed.decode.pool import SessionPool
from framefeed.decode.run import Sink, run_job
from framefeed.decode.runs import RunTask
from framefeed.decode.session import Running, SessionFactory, Taker
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Attempt, Cursor, Losses, Plan
from framefeed.source import PacketSource
from framefeed.types import DecodeJob

__all__ = ["Engine", "Lease"]


class Lease:
    """Sessions that were left running in a video, taken out of the pool for one request. A context manager.

    Args:
        pool: Where they come from, and where the rest goes back to.
        index: The video.

    Attributes:
        running: The sessions, by group.
        undisturbed: Whether no other video was asked for since the last request for this one.
    """

    def __init__(self, pool: SessionPool, index: VideoIndex) -> None:
        self._pool = pool
        self._index = index
        self.running, self.undisturbed = pool.take_running(index)

    @property
    def cursors(self) -> dict[int, Cursor]:
        """By group, where they stand."""
        return {start: running.cursor for start, running in self.running.items()}

    def give_back_others(self, jobs: Sequence[DecodeJob]) -> None:
        """Gives back the sessions that no job resumes, so that those of the jobs will be the ones used last."""
        resumed = {job.start for job in jobs if job.resume >= 0}
        for start in self.running.keys() - resumed:
            self._pool.keep_running(self._index, self.running.pop(start))

    def session(self, job: DecodeJob, num_threads: int) -> Running:
        """Returns the session that a job resumes, or one for a fresh start."""
        running = self.running.pop(job.start) if job.resume >= 0 else None
        return running if running is not None else self._pool.take(self._index, job.start, num_threads)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        for running in self.running.values():
            self._pool.keep_running(self._index, running)


class _Task(Protocol):
    """A request while it is being decoded."""

    stopped: bool

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job on a session of its own."""


class Engine:
    """Decodes frames of any number of videos on a bounded number of sessions and threads.

    Args:
        factory: Makes decoder sessions.
        max_threads: Threads of the shared pool; None takes one for each CPU.
        num_formats: For how many kinds of streams decoders are kept, a whole set for each.

    Attributes:
        factory: What makes them.
    """

    def __init__(self, factory: SessionFactory, max_threads: int | None = None, num_formats: int = 2) -> None:
        self.max_threads = max_threads or available_cpus()
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

    def lease(self, index: VideoIndex) -> Lease:
        """Takes the sessions that were left running in a video, so that a request can be planned with them."""
        return Lease(self.pool, index)

    def run(
        self, index: VideoIndex, source: PacketSource, plan: Plan, sink: Sink, lease: Lease
    ) -> list[tuple[DecodeJob, Losses]]:
        """Runs a plan; ``sink(row, picture)`` gets each wanted picture once, from any of the threads.

        Args:
            index: The video.
            source: Gives its packets.
            plan: What to decode.
            sink: Takes the pictures. Rows of repeated frames are left to the caller, see ``Plan.copies``.
            lease: The sessions that the plan was made with.

        Returns:
            The jobs that lost pictures.
        """
        if lease.running:
            lease.give_back_others(plan.jobs)
        task = _JobTask(self.pool, index, source, sink, lease, plan.read_on)
        jobs = list(zip(plan.jobs, plan.threads or (1,) * len(plan.jobs), strict=True))
        for job, threads in jobs[: plan.num_first]:
            task.run(job, threads)
        if plan.num_first < len(jobs):
            self._run_side_by_side(task, jobs[plan.num_first :], plan.num_workers)
        return task.failed

    def retry(
        self,
        index: VideoIndex,
        source: PacketSource,
        attempts: Generator[DecodeJob, Losses | None, dict[int, str]],
        sink: Sink,
    ) -> dict[int, str]:
        """Runs jobs one after the other as they are asked for, each on a fresh session of one thread.

        Returns:
            What ``attempts`` returns.
        """

        def run(job: DecodeJob) -> Losses | None:
            running = self.pool.take(index, job.start, 1)
            losses = run_job(index, source, job, running, sink, read_on=False)
            if losses is None:
                self.pool.give_back(running)
            return losses

        return _follow(attempts, run)

    def run_whole(
        self, index: VideoIndex, source: PacketSource, parts: Sequence[Sequence[DecodeJob]], taker: Taker, workers: int
    ) -> list[tuple[DecodeJob, bool]]:
        """Runs parts of a plan, each in one go; for decoders whose pictures last a moment only.

        Args:
            index: The video.
            source: Gives its packets.
            parts: Jobs that are fed together.
            taker: Takes the pictures.
            workers: How many parts run side by side.

        Returns:
            The jobs that did not work, each with whether its packets can be fed one by one.
        """
        task = self._run_task(index, source, taker)
        if workers == 1:
            for part in parts:
                task.run_part(part)
        else:
            self._run_side_by_side(task, [(job, 1) for part in parts for job in part], workers)
        return task.failed

    def _run_task(self, index: VideoIndex, source: PacketSource, taker: Taker) -> RunTask:
        return RunTask(self.pool, index, source, taker, self._turns)

    def retry_whole(
        self, index: VideoIndex, source: PacketSource, attempts: Generator[Attempt, Any, dict[int, str]], taker: Taker
    ) -> dict[int, str]:
        """Runs attempts one after the other as they are asked for; returns what ``attempts`` returns."""
        return _follow(attempts, self._run_task(index, source, taker).attempt)

    def _run_side_by_side(self, task: _Task, jobs: Sequence[tuple[DecodeJob, int]], num_workers: int) -> None:
        if num_workers < 2:
            for job, threads in jobs:
                task.run(job, threads)
            return
        todo = iter(jobs)
        lock = threading.Lock()

        def work() -> None:
            try:
                while True:
                    with lock:
                        job, threads = next(todo, (None, 0))
                    if job is None or task.stopped:
                        return
                    task.run(job, threads)
            except BaseException:
                task.stopped = True
                raise

        helpers: list[Future[None]] = []
        try:
            for _ in range(num_workers - 1):
                helpers.append(self._submit(work))
            work()  # the caller's thread works too: no hand-over for a single job, no deadlock when the pool is full
        finally:
            if helpers:
                _wait_for_all(helpers, task)

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.max_threads + 1, thread_name_prefix="framefeed")
            return self._executor.submit(work)


def _follow(attempts: Generator[Any, Any, dict[int, str]], run: Callable[[Any], Any]) -> dict[int, str]:
    """Runs each attempt that a generator yields and sends it the outcome; returns what it returns."""
    outcome = None
    while True:
        try:
            attempt = attempts.send(outcome)
        except StopIteration as end:
            reasons: dict[int, str] = end.value
            return reasons
        outcome = run(attempt)


def _wait_for_all(helpers: Sequence[Future[None]], task: _Task) -> None:
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


class _JobTask:
    """A request whose pictures last, while it is being decoded.

    Attributes:
        failed: The jobs that lost pictures.
        stopped: Whether no further job is begun.
    """

    def __init__(
        self, pool: SessionPool, index: VideoIndex, source: PacketSource, sink: Sink, lease: Lease, read_on: bool
    ) -> None:
        self._pool = pool
        self._index = index
        self._source = source
        self._sink = sink
        self._lease = lease
        self._read_on = read_on
        self.failed: list[tuple[DecodeJob, Losses]] = []
        self.stopped = False

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job on a session of its own."""
        running = self._lease.session(job, num_threads)
        with DECODE:
            losses = run_job(self._index, self._source, job, running, self._sink, read_on=self._read_on)
        if losses is not None:
            self.failed.append((job, losses))
        elif running.resumable:
            self._pool.keep_running(self._index, running)
        else:
            self._pool.give_back(running)
