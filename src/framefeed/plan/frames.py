"""Wanted frames of one video -> decode jobs: every wanted frame once, with as few packets as the flags allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.types import DecodeJob

__all__ = ["Cursor", "Plan", "job_of", "plan_frames", "with_whole_group"]

_NONREF = np.uint16(PacketKind.NONREF)
_NEVER_SHOWN = np.uint16(PacketKind.RASL | PacketKind.HIDDEN)


@dataclass(frozen=True)
class Cursor:
    """Position of a decoder that was left running in the middle of a group.

    Attributes:
        next_packet: The first packet that it has not been offered.
        pending: Packets that it was fed and whose pictures have not come out yet.
    """

    next_packet: int
    pending: frozenset[int]

    def reaches(self, packets: NDArray[np.int64]) -> bool:
        """Returns whether all of these pictures can still be had by feeding on."""
        return all(packet >= self.next_packet or packet in self.pending for packet in packets.tolist())


@dataclass(frozen=True, eq=False)
class Plan:
    """Jobs of one request.

    Attributes:
        jobs: Independent decoder runs, costliest first so that parallel workers end together.
        copies: (from row, to row) for frames that were asked for more than once.
        num_rows: Number of frames that were asked for.
        num_first: Number of jobs that run one after the other, before the others run side by side.
        threads: Decoder threads of each job; empty for one each.
        num_workers: Number of jobs that run side by side.
        read_on: Whether decoders stay where they end, for the frames that follow.
    """

    jobs: tuple[DecodeJob, ...]
    copies: tuple[tuple[int, int], ...]
    num_rows: int
    num_first: int = 0
    threads: tuple[int, ...] = ()
    num_workers: int = 1
    read_on: bool = False

    @property
    def num_wanted(self) -> int:
        """Number of different frames that were asked for."""
        return self.num_rows - len(self.copies)

    @property
    def num_packets(self) -> int:
        """Number of packets that are fed to decoders."""
        return sum(job.cost for job in self.jobs)

    @property
    def cost(self) -> float:
        """Packets fed for each different frame wanted; 1.0 is the least there is. 0.0 for an empty request."""
        return self.num_packets / self.num_wanted if self.num_wanted else 0.0


def plan_frames(table: PacketTable, wanted: ArrayLike, cursors: Mapping[int, Cursor] | None = None) -> Plan:
    """Plans the decoding of frames.

    Frames are grouped by the random-access point they decode from. Of each group the packets up to the last wanted
    frame are fed, without those that nobody refers to and nobody wants, and without leading pictures that cannot be
    decoded from that point.

    Args:
        table: The video's packets.
        wanted: Frame numbers in presentation order, in any order and as often as you like, each in
            ``[0, table.num_frames)``.
        cursors: By group, where running decoders stand; such a group goes on from there where that is possible.
    """
    rows_wanted = np.asarray(wanted, np.int64).reshape(-1)
    if len(rows_wanted) and (rows_wanted.min() < 0 or rows_wanted.max() >= table.num_frames):
        raise IndexError(f"frames are 0..{table.num_frames - 1}")
    rising = len(rows_wanted) > 0 and bool((rows_wanted[1:] > rows_wanted[:-1]).all())
    if rising and not cursors:  # as loaders ask, mostly for frames of one group
        packets = table.frames[rows_wanted]
        starts = table.start[packets]
        if (starts == starts[0]).all():
            by_packet = np.argsort(packets)
            job = _group_job(table, int(starts[0]), packets[by_packet], by_packet, None)
            return Plan((job,), (), len(rows_wanted))
    frames, first_rows, inverse = np.unique(rows_wanted, return_index=True, return_inverse=True)
    sources = first_rows[inverse]
    repeated = np.flatnonzero(sources != np.arange(len(rows_wanted)))
    copies = tuple((int(sources[row]), int(row)) for row in repeated)

    packets = table.frames[frames]
    by_packet = np.argsort(packets)
    packets, rows = packets[by_packet], first_rows[by_packet]
    starts = table.start[packets]
    jobs = []
    for start in np.unique(starts):
        chosen = starts == start
        cursor = (cursors or {}).get(int(start))
        jobs.append(_group_job(table, int(start), packets[chosen], rows[chosen], cursor))
    jobs.sort(key=lambda job: -job.cost)
    return Plan(tuple(jobs), copies, len(rows_wanted))


def job_of(table: PacketTable, rows: Mapping[int, int]) -> DecodeJob:
    """Plans a fresh run for some pictures of one group.

    Args:
        table: The video's packets.
        rows: For the packet of each picture, the row that it goes to.
    """
    wanted = np.array(sorted(rows), np.int64)
    slots = np.array([rows[packet] for packet in wanted.tolist()], np.int64)
    return _group_job(table, int(table.start[wanted[0]]), wanted, slots, None)


def _group_job(
    table: PacketTable, start: int, wanted: NDArray[np.int64], rows: NDArray[np.int64], cursor: Cursor | None
) -> DecodeJob:
    resume = -1
    first = start
    if cursor is not None and cursor.reaches(wanted):
        resume = first = cursor.next_packet
    last = _last_packet(table, int(wanted[-1]))
    packets = first + np.flatnonzero(needed_packets(table, start, first, last + 1, wanted))
    return DecodeJob(start, packets, wanted, rows, resume)


def with_whole_group(table: PacketTable, job: DecodeJob) -> DecodeJob:
    """The same job from the start of its group, with the packets that seem not to be needed, too."""
    last = _last_packet(table, int(job.wanted[-1]))
    shown = table.frames[(table.frames <= last) & (table.start[table.frames] == job.start)]
    every = needed_packets(table, job.start, job.start, last + 1, np.sort(shown))
    return dataclasses.replace(job, packets=job.start + np.flatnonzero(every), resume=-1)


def _last_packet(table: PacketTable, packet: int) -> int:
    """The last packet of the picture that begins with this one: its second field may be a packet of its own."""
    while packet + 1 < len(table) and int(table.flags[packet + 1]) & PacketKind.SECOND_FIELD:
        packet += 1
    return packet


def needed_packets(
    table: PacketTable, start: int, first: int, end: int, wanted: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """For each packet from ``first`` to ``end``, whether it has to be fed when decoding begins at ``start``.

    Args:
        table: The video's packets.
        start: The group.
        first, end: Which of its packets.
        wanted: Those that are wanted, rising; others than these may be among them.
    """
    flags = table.flags[first:end]
    needed: NDArray[np.bool_] = (flags & _NONREF) == 0
    # Leading pictures of the random-access point at ``start`` itself cannot be decoded from it.
    needed &= table.start[first:end] >= start
    needed &= (flags & _NEVER_SHOWN) != _NEVER_SHOWN
    needed[wanted[(wanted >= first) & (wanted < end)] - first] = True
    return needed
