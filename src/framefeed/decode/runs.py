"""Jobs for decoders that take a whole run of packets at once, and whose pictures last a moment only."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from framefeed.decode.pool import SessionPool
from framefeed.decode.run import Failures, decode_error, run_job
from framefeed.decode.session import PacketError, Running, RunSession, Taker
from framefeed.index.bitstream import PacketKind
from framefeed.index.video_index import VideoIndex
from framefeed.plan import plan_frames
from framefeed.source import CutOff, PacketSource
from framefeed.types import DecodeJob

__all__ = ["RunTask"]

MAX_JOINED = 128  # packets of several groups


class RunTask:
    """One request while it is being decoded.

    Args:
        pool: Where decoders come from. They are given all headers with every run, so they can be used again after
            anything.
        index: The video.
        source: Gives its packets.
        taker: Takes the pictures.
        turns: Bounds the number of decoders that are in use at a time.
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
        self._failed: dict[int, str] = {}
        self.stopped = False

    def run_all(self, jobs: Sequence[DecodeJob]) -> None:
        """Runs jobs one after the other; those that follow one another in one go, where that works."""
        for part in _runs(self._index, jobs):
            if len(part) == 1 or not self._run_joined(part):
                for job in part:
                    self.run(job, 1)

    def _run_joined(self, jobs: Sequence[DecodeJob]) -> bool:
        """Runs jobs in one go; returns whether that worked."""
        packets, wanted, slots = (
            np.concatenate([getattr(job, name) for job in jobs]) for name in ("packets", "wanted", "slots")
        )
        joined = DecodeJob(jobs[0].start, packets, wanted, slots)
        with self._turns:
            return self._run_whole(joined, self._take(joined))

    def run(self, job: DecodeJob, num_threads: int) -> None:
        """Runs a job; packet by packet where it does not work in one go."""
        with self._turns:
            running = self._take(job)
            numbers_pictures = cast(RunSession, running.session).numbers_pictures
            if self._run_whole(job, running):
                return
            if not numbers_pictures:
                self._failed |= dict.fromkeys(job.wanted.tolist(), "its group does not decode as a whole on the GPU")
                return
            damaged = self._find_damage(job)
            if damaged:
                self._salvage(job, damaged)
            else:
                self._run_by_packets(job)

    def finish(self) -> None:
        """Raises for the earliest frame that failed."""
        if self._failed:
            raise decode_error(self._index, self._failed)

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

    def _run_by_packets(self, job: DecodeJob) -> None:
        """Runs a job whose packets are all whole."""
        running = self._take(job)
        taker = self._taker

        def sink(row: int, picture: Any) -> None:
            taker.take([row], [picture])

        try:
            run_job(self._index, self._source, job, running, sink, read_on=False)
        except Failures as failures:
            taker.reject()
            self._failed |= dict.fromkeys(job.wanted.tolist(), "its group does not decode") | failures.hopeless
            return
        finally:
            self._give_back(running)
        taker.confirm()

    def _find_damage(self, job: DecodeJob) -> dict[int, str]:
        """The packets of a job that are damaged, with what is wrong; decoders that conceal damage leave them out.

        One that stumbles may lose pictures that it still held. So each that did not come is asked for again, without
        what follows it.
        """
        flags = self._index.packets.flags
        # Frames only: leading pictures at the very start, which nobody can decode, come out or not.
        shown = job.packets[np.isin(job.packets, self._index.packets.frames)].tolist()
        damaged: dict[int, str] = {}
        packets, came = job.packets, set[int]()
        while len(packets):
            came, refused = self._feed(job, packets, damaged)
            if refused is None:
                break
            packets = packets[packets < refused]  # with it went pictures that were still inside
        end = min(damaged, default=sys.maxsize)
        for number in [number for number in sorted(shown) if number not in came and number < end]:
            if number in came:
                continue
            fed = job.packets[(job.packets <= number) & ~np.isin(job.packets, list(damaged))]
            came |= self._feed(job, fed, damaged)[0]
            if number not in came:
                damaged.setdefault(number, "the decoder gave no picture for it")
            if any(n <= number and not int(flags[n]) & PacketKind.NONREF for n in damaged):
                break  # whatever follows may be built on it
        return damaged

    def _feed(self, job: DecodeJob, packets: NDArray[np.int64], damaged: dict[int, str]) -> tuple[set[int], int | None]:
        """Feeds some packets of a job; returns whose pictures came, and the packet that the decoder refused if it did.

        Those that are damaged are added to ``damaged``.
        """
        running = self._take(job)
        session = running.session
        came: set[int] = set()
        number = job.start
        try:
            for number, data in self._source.read(packets):
                came |= {picture[0] for picture in session.feed(number, data, False)}
        except CutOff as error:
            damaged[error.packet] = error.reason
        except PacketError as error:
            damaged[number] = str(error)
            return came, number
        finally:
            with contextlib.suppress(PacketError):
                came |= {picture[0] for picture in session.drain()}
            self._give_back(running)
        return came, None

    def _salvage(self, job: DecodeJob, damaged: dict[int, str]) -> None:
        """Decodes the frames of a job that do not depend on damaged packets; the others fail."""
        flags = self._index.packets.flags
        first = min((n for n in damaged if not int(flags[n]) & PacketKind.NONREF), default=sys.maxsize)
        rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        bad = {n: f"packet {first} is damaged ({damaged[first]})" for n in rows if n >= first}
        bad |= {n: f"its own data is damaged ({damaged[n]})" for n in rows if n in damaged}
        good = [n for n in rows if n not in bad]
        if good:
            frame_of = {packet: frame for frame, packet in enumerate(self._index.packets.frames.tolist())}
            (again,) = plan_frames(self._index.packets, [frame_of[n] for n in good]).jobs
            again = dataclasses.replace(again, slots=np.array([rows[n] for n in again.wanted.tolist()]))
            if not self._run_whole(again, self._take(again)):
                bad |= dict.fromkeys(good, "its group is damaged")
        self._failed |= bad


def _runs(index: VideoIndex, jobs: Sequence[DecodeJob]) -> list[list[DecodeJob]]:
    """Jobs in parts that a decoder can be fed in one go: it gets each packet that it would get of the whole video."""
    parts: list[list[DecodeJob]] = []
    for job in sorted(jobs, key=lambda job: job.start):
        before = parts[-1][-1] if parts else None
        follows = before is not None and int(before.packets[-1]) + 1 == job.start == int(job.packets[0])
        if follows and sum(each.cost for each in parts[-1]) + job.cost <= MAX_JOINED:
            parts[-1].append(job)
        else:
            parts.append([job])
    return parts
