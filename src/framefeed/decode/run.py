"""Runs one decode job on one session."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from framefeed.decode.session import CorruptPicture, PacketError, Running
from framefeed.errors import DecodeError
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import KEY
from framefeed.index.video_index import VideoIndex
from framefeed.source import CutOff, PacketSource
from framefeed.types import DecodeJob

__all__ = ["Failures", "Sink", "run_job"]

# As plain numbers: operations on flags themselves take microseconds.
_NEW_HEADERS, _NONREF = int(PacketKind.NEW_HEADERS), int(PacketKind.NONREF)

MAX_SPARE = 16  # a decoder that puts frames in order lets out a few at once; they are the ones asked for next

Sink = Callable[[int, Any], None]
"""``sink(row, picture)``: takes a wanted picture, from the thread that decoded it."""


class Failures(Exception):
    """Wanted pictures of a job that could not be decoded.

    Attributes:
        reasons: Packet number -> what is wrong.
        lost: Those that just did not come out.
        first_damaged: The first packet that is damaged, whether others refer to it or not.
    """

    def __init__(self, reasons: dict[int, str], lost: set[int], first_damaged: int) -> None:
        super().__init__(f"{len(reasons)} pictures failed")
        self.reasons = reasons
        self.lost = lost
        self.first_damaged = first_damaged


class _Collector:
    """Matches pictures with rows and keeps book of what went wrong.

    A decoder that tells damage only when a picture comes out may let out pictures that are built on it before. So its
    pictures are held back until everything before them in decode order has come out, and is whole.
    """

    def __init__(self, index: VideoIndex, job: DecodeJob, running: Running, sink: Sink) -> None:
        self._flags = index.packets.flags
        self._rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        self._sink = sink
        self._pending = running.pending
        self._spare: dict[int, Any] | None = None
        self._holds = running.session.lasting and not running.session.strict
        self._held: dict[int, Any] = {}
        self._first_damaged = sys.maxsize
        self.corrupt: set[int] = set()
        self.delivered: set[int] = set()

    def take(self, pictures: list[tuple[int, Any]]) -> None:
        """Hands wanted pictures on; drops the others."""
        for number, picture in pictures:
            self._pending.discard(number)
            if isinstance(picture, CorruptPicture):
                self.corrupt.add(number)
                if not int(self._flags[number]) & _NONREF:
                    self._first_damaged = min(self._first_damaged, number)
            elif number in self._rows:
                if self._holds:
                    self._held[number] = picture
                elif number < self._first_damaged and number not in self.corrupt:
                    self._deliver(number, picture)
            elif self._spare is not None:
                self._spare[number] = picture
                while len(self._spare) > MAX_SPARE:
                    del self._spare[next(iter(self._spare))]

        if self._held:
            self._let_go(min(self._pending, default=sys.maxsize))

    def refuse_from(self, packet: int) -> None:
        """The decoder refused a packet that others refer to: no picture from there on is believed."""
        self._first_damaged = min(self._first_damaged, packet)

    def end(self) -> None:
        """Nothing more will come out: hands on what was held back and is whole."""
        self._let_go(sys.maxsize)

    def _let_go(self, first_pending: int) -> None:
        for number in [number for number in self._held if number < first_pending]:
            picture = self._held.pop(number)
            if number < self._first_damaged and number not in self.corrupt:
                self._deliver(number, picture)

    def _deliver(self, number: int, picture: Any) -> None:
        if number not in self.delivered:
            self.delivered.add(number)
            self._sink(self._rows[number], picture)

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
    collector = _Collector(index, job, running, sink)
    if job.resume < 0:
        running.restart(job.start)
    if read_on:
        collector.keep_spare(running)
    collector.take_spare(running)
    error = _feed(index, source, job.packets, running, collector)
    if error is None and not collector.done and read_on:
        tail = np.arange(running.next_packet, table.run_end(running.next_packet, job.start))
        error = _feed(index, source, tail, running, collector, until_done=True)
    # A decoder that is not strict has to be emptied to know whether what the pictures are built on is sound.
    unsure = bool(running.pending) and not running.session.strict and not read_on
    if error is not None:
        collector.refuse_from(error[0])
    if error is not None or not collector.done or collector.corrupt or unsure:
        running.ended = True
        with contextlib.suppress(PacketError):  # what has not come out is reported as missing
            collector.take(running.session.drain())
        collector.end()
    _raise_failures(index, job, collector, error)
    return bool(running.spare) if running.ended else True


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
    try:
        return _feed_all(index, source.read(numbers), running, collector, until_done=until_done)
    except CutOff as error:
        return error.packet, error.reason


def _feed_all(
    index: VideoIndex,
    packets: Iterator[tuple[int, bytes | memoryview]],
    running: Running,
    collector: _Collector,
    *,
    until_done: bool,
) -> tuple[int, str] | None:
    flags = index.packets.flags
    session, pending = running.session, running.pending
    for number, data in packets:
        running.next_packet = number + 1
        pending.add(number)
        flag = int(flags[number])
        if flag & _NEW_HEADERS:
            running.new_headers = True
        try:
            pictures = session.feed(number, data, bool(flag & KEY))
        except PacketError as error:
            pending.discard(number)
            if session.delayed or not flag & _NONREF:
                return number, str(error)
            collector.corrupt.add(number)
        else:
            if pictures:
                collector.take(pictures)
        if until_done and collector.done:
            break
    return None


def _raise_failures(index: VideoIndex, job: DecodeJob, collector: _Collector, error: tuple[int, str] | None) -> None:
    """Raises for wanted pictures that are missing, damaged, or built on damaged ones."""
    flags = index.packets.flags
    damaged = {n: "its data is damaged" for n in collector.corrupt if not int(flags[n]) & PacketKind.NONREF}
    if error is not None:
        damaged[error[0]] = error[1]
    first = min(damaged, default=sys.maxsize)
    reasons = dict.fromkeys(collector.missing, "the decoder gave no picture for it")
    # In decode order everything after a damaged reference may be built on it.
    reasons |= {n: f"packet {first} is damaged ({damaged[first]})" for n in job.wanted.tolist() if n >= first}
    reasons |= dict.fromkeys(collector.corrupt & set(job.wanted.tolist()), "its own data is damaged")
    if reasons:
        raise Failures(reasons, collector.missing, min({first, *collector.corrupt}))


def decode_error(index: VideoIndex, reasons: dict[int, str]) -> DecodeError:
    """The error for the earliest frame that failed."""
    frame_of = np.full(len(index.packets), -1, np.int64)
    frame_of[index.packets.frames] = np.arange(index.num_frames)
    failed = sorted((int(frame_of[packet]), reason) for packet, reason in reasons.items())
    frame, reason = failed[0]
    more = f" (and {len(failed) - 1} more of the frames asked for)" if len(failed) > 1 else ""
    error = DecodeError(index.path, f"frame {frame} cannot be decoded exactly{more}: {reason}", frame)
    error.reasons = dict(failed)
    return error
