"""Runs one decode job on one session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from framefeed.decode.session import CorruptPicture, PacketError, Running
from framefeed.errors import DecodeError
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import KEY
from framefeed.index.video_index import VideoIndex
from framefeed.source import PacketSource
from framefeed.types import DecodeJob

__all__ = ["Failures", "Sink", "run_job"]

MAX_SPARE = 8  # a decoder that puts frames in order lets out a few at once; they are the ones asked for next

Sink = Callable[[int, Any], None]
"""``sink(row, picture)``: takes a wanted picture, from the thread that decoded it."""


class Failures(Exception):
    """Wanted pictures of a job that could not be decoded: packet number -> reason."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} pictures failed")
        self.reasons = reasons


class _Collector:
    """Matches pictures with rows and keeps book of what went wrong."""

    def __init__(self, job: DecodeJob, running: Running, sink: Sink) -> None:
        self._rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        self._sink = sink
        self._pending = running.pending
        self._spare: dict[int, Any] | None = None
        self.corrupt: set[int] = set()
        self.delivered: set[int] = set()

    def take(self, pictures: list[tuple[int, Any]]) -> None:
        """Hands wanted pictures on; drops the others."""
        for number, picture in pictures:
            self._pending.discard(number)
            if isinstance(picture, CorruptPicture):
                self.corrupt.add(number)
            elif number in self._rows:
                if number not in self.delivered:
                    self.delivered.add(number)
                    self._sink(self._rows[number], picture)
            elif self._spare is not None:
                self._spare[number] = picture
                while len(self._spare) > MAX_SPARE:
                    del self._spare[next(iter(self._spare))]

    def take_spare(self, running: Running) -> None:
        """Hands on wanted pictures that came out earlier."""
        spare = list(running.spare.items())
        running.spare.clear()
        self.take(spare)

    def keep_spare(self, running: Running) -> None:
        """From now on keeps pictures that nobody asked for yet: they are the next in presentation order."""
        self._spare = running.spare

    @property
    def missing(self) -> set[int]:
        """Wanted pictures that have not come out."""
        return self._rows.keys() - self.delivered

    @property
    def done(self) -> bool:
        """Whether every wanted picture has come out."""
        return len(self.delivered) == len(self._rows)


def run_job(
    index: VideoIndex, source: PacketSource, job: DecodeJob, running: Running, sink: Sink, *, read_on: bool
) -> bool:
    """Decodes a job; every wanted picture goes to the sink once.

    Args:
        index: The video.
        source: Gives its packets.
        job: What to feed and what to keep.
        running: The session; one that stands where ``job.resume`` says, or a fresh one.
        sink: Takes the pictures.
        read_on: Whether to get the last pictures out by feeding the packets that follow, so that the session can go on
            from there, rather than by ending the stream.

    Returns:
        Whether the session can go on from where it is. If not, it needs a reset.

    Raises:
        Failures: Some wanted pictures could not be decoded exactly. The session must not be used again.
    """
    table = index.packets
    collector = _Collector(job, running, sink)
    if job.resume < 0:
        running.start, running.next_packet = job.start, job.start
        running.pending.clear()
        running.spare.clear()
    if read_on:
        collector.keep_spare(running)
    collector.take_spare(running)
    error = _feed(index, source, job.packets, running, collector)
    if error is None and not collector.done and read_on:
        tail = np.arange(running.next_packet, table.run_end(running.next_packet, job.start))
        error = _feed(index, source, tail, running, collector, until_done=True)
    alive = error is None and collector.done and not collector.corrupt
    if not alive:
        _drain(running, collector)
    reasons = _failures(index, job, collector, error)
    if reasons:
        raise Failures(reasons)
    return alive


def _feed(
    index: VideoIndex,
    source: PacketSource,
    numbers: Any,
    running: Running,
    collector: _Collector,
    *,
    until_done: bool = False,
) -> tuple[int, str] | None:
    """Feeds packets; returns the number and reason of the first one that was refused and that others refer to."""
    flags = index.packets.flags
    for number, data in source.read(numbers):
        running.next_packet = number + 1
        running.pending.add(number)
        running.new_headers |= bool(int(flags[number]) & PacketKind.NEW_HEADERS)
        try:
            collector.take(running.session.feed(number, data, bool(int(flags[number]) & KEY)))
        except PacketError as error:
            running.pending.discard(number)
            if running.session.delayed or not int(flags[number]) & PacketKind.NONREF:
                return number, str(error)
            collector.corrupt.add(number)
        if until_done and collector.done:
            break
    return None


def _drain(running: Running, collector: _Collector) -> None:
    with contextlib.suppress(PacketError):  # what has not come out is reported as missing
        collector.take(running.session.drain())


def _failures(
    index: VideoIndex, job: DecodeJob, collector: _Collector, error: tuple[int, str] | None
) -> dict[int, str]:
    """Wanted pictures that are missing, damaged, or built on damaged ones."""
    if error is None and not collector.corrupt and collector.done:
        return {}
    reasons = dict.fromkeys(collector.missing, "the decoder gave no picture for it")
    flags = index.packets.flags
    damaged = [n for n in collector.corrupt if not int(flags[n]) & PacketKind.NONREF]
    if error is not None:
        damaged.append(error[0])
    if damaged:
        # In decode order everything after a damaged reference may be built on it.
        first = min(damaged)
        why = error[1] if error is not None and error[0] == first else "its data is damaged"
        reasons |= {n: f"packet {first} is damaged ({why})" for n in job.wanted.tolist() if n >= first}
    reasons |= {n: "its own data is damaged" for n in collector.corrupt if n in set(job.wanted.tolist())}
    return reasons


def decode_error(index: VideoIndex, reasons: dict[int, str]) -> DecodeError:
    """The error for the earliest frame that failed."""
    frame_of = np.full(len(index.packets), -1, np.int64)
    frame_of[index.packets.frames] = np.arange(index.num_frames)
    failed = sorted((int(frame_of[packet]), reason) for packet, reason in reasons.items())
    frame, reason = failed[0]
    more = f" (and {len(failed) - 1} more of the frames asked for)" if len(failed) > 1 else ""
    return DecodeError(index.path, f"frame {frame} cannot be decoded exactly{more}: {reason}", frame)
