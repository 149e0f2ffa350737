"""Jobs for decoders that take a whole run of packets at once, and whose pictures last a moment only."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np

from framefeed.decode.pool import SessionPool
from framefeed.decode.run import run_job
from framefeed.decode.session import PacketError, Running, RunSession, Taker
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Attempt, Losses, Probed
from framefeed.source import CutOff, PacketSource
from framefeed.types import DecodeJob

__all__ = ["RunTask"]


class RunTask:
    """A request while it is being decoded.

    Args:
        pool: Where decoders come from. They are given all headers with every run, so they can be used again after
            anything.
        index: The video.
        source: Gives its packets.
        taker: Takes the pictures.
        turns: Bounds the number of decoders that are in use at a time.

    Attributes:
        failed: The jobs that did not work, each with whether packets can be fed one by one.
        stopped: Whether no further job is begun.
    """

    def __init__(
        self,
        pool: SessionPool,
        index: VideoIndex,
        source: PacketSource,
        taker: Taker,
        turns: AbstractContextManager[Any],
    ) -> None:
        self._pool = pool
        self._index = index
        self._source = source
        self._taker = taker
        self._turns = turns
        self.failed: list[tuple[DecodeJob, bool]] = []
        self.stopped = False

    def run_part(self, jobs: Sequence[DecodeJob]) -> None:
        """Runs jobs that follow one another in one go; one after the other where that does not work."""
        if len(jobs) == 1 or not self._run_joined(jobs):
            for job in jobs:
                self.run(job, 1)

    def _run_joined(self, jobs: Sequence[DecodeJob]) -> bool:
        """Runs jobs in one go; returns whether that worked."""
        packets, wanted, slots = (
            np.concatenate([getattr(job, name) for job in jobs]) for name in ("packets", "wanted", "slots")
        )
        with self._turns:
            joined = DecodeJob(jobs[0].start, packets, wanted, slots)
            return self._run_whole(joined, self._take(joined))

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job in one go."""
        with self._turns:
            running = self._take(job)
            if not self._run_whole(job, running):
                self.failed.append((job, cast(RunSession, running.session).numbers_pictures))

    def attempt(self, attempt: Attempt) -> bool | Losses | Probed | None:
        """Runs an attempt to get pictures of a job that did not work; returns what came of it."""
        with self._turns:
            if attempt.kind == "run":
                return self._run_whole(attempt.job, self._take(attempt.job))
            if attempt.kind == "packets":
                return self._run_by_packets(attempt.job)
            return self._probe(attempt.job)

    def _take(self, job: DecodeJob) -> Running:
        return self._pool.take(self._index, job.start, 1)

    def _give_back(self, running: Running) -> None:
        running.new_headers = False  # the next run brings its own
        self._pool.give_back(running)

    def _run_whole(self, job: DecodeJob, running: Running) -> bool:
        """Runs a job in one go; returns whether that worked."""
        rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        whole = False
        try:
            with contextlib.suppress(CutOff):
                packets = self._source.read(job.packets)
                whole = cast(RunSession, running.session).run(job.packets, packets, rows, self._taker.take)
        finally:
            if not whole:
                self._taker.reject()
            self._give_back(running)
        if whole:
            self._taker.confirm()
        return whole

    def _run_by_packets(self, job: DecodeJob) -> Losses | None:
        """Runs a job whose packets are all whole; returns what it lost."""
        running = self._take(job)
        taker = self._taker

        def sink(row: int, picture: Any) -> None:
            taker.take([row], [picture])

        try:
            losses = run_job(self._index, self._source, job, running, sink, read_on=False)
        finally:
            self._give_back(running)
        if losses is None:
            taker.confirm()
        else:
            taker.reject()
        return losses

    def _probe(self, job: DecodeJob) -> Probed:
        """Feeds packets to see whose pictures come out and which are damaged; keeps no picture."""
        running = self._take(job)
        session = running.session
        came: set[int] = set()
        number = job.start
        try:
            for number, data in self._source.read(job.packets):
                came |= {picture[0] for picture in session.feed(number, data, False)}
        except CutOff as error:
            return Probed(came, None, {error.packet: error.reason})
        except PacketError as error:
            return Probed(came, number, {number: str(error)})
        finally:
            with contextlib.suppress(PacketError):
                came |= {picture[0] for picture in session.drain()}
            self._give_back(running)
        return Probed(came, None, {})
