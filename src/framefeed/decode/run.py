"""Runs one decode job on one session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from framefeed.decode.session import CorruptPicture, PacketError, Running
from framefeed.errors import DecodeError
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import KEY
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Losses
from framefeed.source import CutOff, PacketSource
from framefeed.types import DecodeJob

__all__ = ["Sink", "decode_error", "run_job"]

# As plain numbers: operations on flags themselves take microseconds.
_NEW_HEADERS, _NONREF, _SECOND_FIELD = (
    int(kind) for kind in (PacketKind.NEW_HEADERS, PacketKind.NONREF, PacketKind.SECOND_FIELD)
)
_UNSEEN = int(PacketKind.HIDDEN | PacketKind.SECOND_FIELD)
_LOST = int(PacketKind.LOST)
_FRESH = int(PacketKind.RAP | PacketKind.CLOSED)

MAX_SPARE = 16  # a decoder that puts frames in order lets out a few at once; they are the ones asked for next

Sink = Callable[[int, Any], None]
"""``sink(row, picture)``: takes a wanted picture, from the thread that decoded it."""


class _Collector:
    """Matches pictures with rows and keeps book of what went wrong.

    A decoder that tells damage only when a picture comes out may let out pictures that are built on it before. So its
    pictures are held back until everything before them in decode order has come out, and is whole.
    """

    def __init__(self, index: VideoIndex, job: DecodeJob, running: Running, sink: Sink) -> None:
        self._table = index.packets
        self._rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        self._sink = sink
        self._pending = running.pending
        self._spare: dict[int, Any] | None = None
        self._holds = running.session.lasting and not running.session.strict
        self._held: dict[int, Any] = {}
        self._damaged: dict[int, str] = {}
        self.damaged = False
        self._delivered: set[int] = set()

    def take(self, pictures: list[tuple[int, Any]]) -> None:
        """Hands wanted pictures on; drops the others."""
        rank = self._table.display_rank.__getitem__
        for number, picture in pictures:
            self._pending.discard(number)
            if self._holds and self._pending and min(map(rank, self._pending)) < rank(number):
                self._check_order(number)
            if isinstance(picture, CorruptPicture):
                self.refuse(number, "its data is damaged")
            elif number in self._rows:
                if not int(self._table.flags[number]) & _LOST:
                    self._held[number] = picture
            elif self._spare is not None:
                self._spare[number] = picture
                while len(self._spare) > MAX_SPARE:
                    del self._spare[next(iter(self._spare))]
        if self._held:
            self._let_go(self._first_unsure())

    def refuse(self, number: int, reason: str) -> None:
        """A packet is damaged: neither its picture is believed nor any that follows it in decode order."""
        self.damaged = True
        while number and int(self._table.flags[number]) & _SECOND_FIELD:
            number -= 1  # the picture is that of the first field
        self._damaged.setdefault(number, reason)

    def _check_order(self, number: int) -> None:
        """Refuses a picture that came out before one that is shown earlier: some header lies."""
        rank = self._table.display_rank.__getitem__
        self._forget_unshown()
        late = [other for other in self._pending if rank(other) < rank(number)]
        if late:
            self.refuse(max(number, min(late)), "it comes out in the wrong place")

    @property
    def _first_damaged(self) -> int:
        return min(self._damaged, default=sys.maxsize)

    def end(self) -> None:
        """Nothing more will come out: hands on what was held back and is whole."""
        if self._first_unsure() < sys.maxsize:
            self._forget_unshown()
            self._let_go(self._first_unsure())

    def _forget_unshown(self) -> None:
        """Pictures that a linear decode does not show either are not waited for."""
        pending = np.array(list(self._pending))
        self._pending.difference_update(pending[~np.isin(pending, self._table.frames)].tolist())

    def _first_unsure(self) -> int:
        """The first packet of which it is not known yet whether it is damaged."""
        return min(self._pending, default=sys.maxsize) if self._holds else sys.maxsize

    def _let_go(self, first_unsure: int) -> None:
        for number in [number for number in self._held if number < first_unsure]:
            picture = self._held.pop(number)
            if number < self._first_damaged and number not in self._delivered:
                self._delivered.add(number)
                self._sink(self._rows[number], picture)

    def take_spare(self, running: Running) -> None:
        """Hands on wanted pictures that came out earlier."""
        spare = list(running.spare.items())
        running.spare.clear()
        self.take(spare)

    def keep_spare(self, running: Running) -> None:
        """From now on keeps pictures that nobody asked for yet: they are the next in presentation order."""
        self._spare = running.spare

    def drop_spare(self, running: Running) -> None:
        """Forgets those of them that are not whole for sure."""
        end = min(self._first_damaged, self._first_unsure())
        for number in [number for number in running.spare if number >= end]:
            del running.spare[number]

    @property
    def done(self) -> bool:
        """True if every wanted picture was delivered."""
        return len(self._delivered) == len(self._rows)

    def losses(self) -> Losses | None:
        """Wanted pictures that were not delivered; None if there are none."""
        missing = self._rows.keys() - self._delivered
        if not missing:
            return None
        if not self._damaged:
            return Losses(missing, None, {})
        blamed = self._first_damaged
        # In decode order everything after a damaged reference may be built on it.
        alone = int(self._table.flags[blamed]) & _NONREF
        reason = f"packet {blamed} is damaged ({self._damaged[blamed]})"
        return Losses(missing, blamed, {n: reason for n in missing if n == blamed or (n > blamed and not alone)})


def run_job(
    index: VideoIndex, source: PacketSource, job: DecodeJob, running: Running, sink: Sink, *, read_on: bool
) -> Losses | None:
    """Decodes a job; every wanted picture goes to the sink once.

    Args:
        index: The video.
        source: Gives its packets.
        job: What to feed and what to keep.
        running: The session; one that stands where ``job.resume`` says, or a fresh one.
        sink: Takes the pictures, none but whole ones.
        read_on: Whether to get the last pictures out by feeding the packets that follow, so that the session can go on
            from there, rather than by ending the stream.

    Returns:
        The wanted pictures that did not come out, or are not whole: the session must not be used again. Otherwise None,
        and ``running.resumable`` says whether the session can go on from where it is; if not, it needs a reset.
    """
    collector = _Collector(index, job, running, sink)
    if job.resume < 0:
        running.restart(job.start)
    if read_on:
        collector.keep_spare(running)
    collector.take_spare(running)
    _decode(index, source, job, running, collector, read_on=read_on)
    if not collector.done:
        return collector.losses()
    if not running.ended:
        running.resumable = bool(running.pending or running.spare) or not _starts_afresh(index, running.next_packet)
        return None
    collector.drop_spare(running)
    if collector.damaged:
        running.new_headers = True  # or anything else: it is not known what a decoder makes of damage
    running.pending.clear()
    running.resumable = bool(running.spare)
    return None


def _starts_afresh(index: VideoIndex, packet: int) -> bool:
    """Returns whether neither this packet nor any that follows refers to one before it."""
    return packet == len(index.packets) or (int(index.packets.flags[packet]) & _FRESH) == _FRESH


def _decode(
    index: VideoIndex, source: PacketSource, job: DecodeJob, running: Running, collector: _Collector, *, read_on: bool
) -> None:
    """Feeds a session until it has nothing more to give for a job.

    It stops at once where a packet is refused: what came out before that is whole, but a decoder with several threads
    does not say which packet it was, and none says what it does to those that follow.
    """
    session = running.session
    try:
        _feed(index, source.read(job.packets), running, collector)
        if read_on and not collector.done:
            tail = np.arange(running.next_packet, index.packets.run_end(running.next_packet, job.start))
            _feed(index, source.read(tail), running, collector, until_done=True)
        # Where pictures cannot be held back, the session is emptied to know of everything that is told late.
        unsure = bool(running.pending) and not session.strict and not session.lasting and not read_on
        if not collector.done or collector.damaged or unsure:
            running.ended = True
            collector.take(session.drain())
            collector.end()
    except CutOff as error:
        running.ended = True
        collector.refuse(error.packet, error.reason)
    except PacketError as error:
        if running.ended:
            collector.damaged = True  # which packet it was is not known
        else:
            running.ended = True
            collector.refuse(running.next_packet - 1, str(error))


def _feed(
    index: VideoIndex,
    packets: Iterator[tuple[int, bytes | memoryview]],
    running: Running,
    collector: _Collector,
    *,
    until_done: bool = False,
) -> None:
    flags = index.packets.flags
    session, pending = running.session, running.pending
    try:
        for number, data in packets:
            running.next_packet = number + 1
            flag = int(flags[number])
            if flag & _NEW_HEADERS:
                running.new_headers = True
            if not flag & _UNSEEN:
                pending.add(number)
            pictures = session.feed(number, data, bool(flag & KEY))
            if pictures:
                collector.take(pictures)
                if until_done and (collector.done or collector.damaged):
                    break
    finally:
        # Not left to the garbage collector: by then what the packets are read from may be closed.
        if isinstance(packets, Generator):
            packets.close()


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
