"""Requests to plans: jobs, the threads of each, and whether decoders stay where they end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.plan.frames import Cursor, Plan, plan_frames
from framefeed.plan.schedule import choose_wide_jobs, wide_threads
from framefeed.types import DecodeJob

__all__ = ["is_worth_staying", "join_jobs", "plan_request"]

MIN_DEPTH = 32  # from here on, a decoder stays where it is after a single frame
MAX_JOINED = 128  # packets of several groups that are fed in one go


def plan_request(
    table: PacketTable,
    codec: str,
    wanted: ArrayLike,
    cursors: Mapping[int, Cursor] | None = None,
    *,
    num_threads: int,
    can_thread: bool,
    read_on: bool = False,
    long_groups: bool = False,
) -> Plan:
    """Plans a request for decoders that run side by side.

    Args:
        table: The video's packets.
        codec: FFmpeg's name of the codec.
        wanted: Frame numbers, in any order, repeated or not.
        cursors: By group, where running decoders stand.
        num_threads: How many threads the request may use.
        can_thread: Whether one decoder can make use of several threads.
        read_on: Whether the frames that follow will probably be asked for next.
        long_groups: Whether the request has parts of long groups that will be read to their ends: each gets a decoder
            with all threads, side by side with the others.
    """
    plan = plan_frames(table, wanted, cursors)
    jobs = plan.jobs
    if num_threads == 1 or not jobs:
        return dataclasses.replace(plan, read_on=read_on) if read_on else plan
    wide = wide_threads(codec, num_threads)
    num_first = 0
    if can_thread and not long_groups:
        num_first = choose_wide_jobs([job.cost for job in jobs], num_threads)
        if read_on and not num_first:
            last = max(jobs, key=lambda job: job.start)
            if _goes_on(table, last, jobs):
                jobs = (last, *(job for job in jobs if job is not last))
                num_first = 1
    threads = [wide if place < num_first or long_groups else 1 for place in range(len(jobs))]
    for place, job in enumerate(jobs):
        if int(table.flags[job.start]) & PacketKind.INCOMPLETE:
            threads[place] = 1  # with more, decoders replace a missing reference by another picture
    # One worker more than threads: three equal jobs on two cores then end together instead of two and one.
    num_workers = min(num_threads + 1, len(jobs) - num_first)
    return dataclasses.replace(
        plan, jobs=jobs, num_first=num_first, threads=tuple(threads), num_workers=num_workers, read_on=read_on
    )


def _goes_on(table: PacketTable, last: DecodeJob, jobs: Sequence[DecodeJob]) -> bool:
    """Returns whether requests like this one will stay in the last group for long: it is then run with all threads."""
    if not len(last.packets):
        return False
    end = int(last.packets[-1]) + 1
    return table.run_end(end, last.start) - end > sum(job.cost for job in jobs)


def is_worth_staying(table: PacketTable, reorder_depth: int, frame: int, *, undisturbed: bool) -> bool:
    """Returns whether a decoder stays behind a single frame: deep in a long group, or where chances are good.

    Random requests for frames of this video hit what lies ahead in the group in proportion to its length, and then the
    packets behind are saved. The price is feeding a few packets that follow, to get this frame out.

    Args:
        table: The video's packets.
        reorder_depth: Frames that a decoder holds back.
        frame: The frame that is read.
        undisturbed: Whether no other video was read since the last request for this one.
    """
    packet = int(table.frames[frame])
    start = int(table.start[packet])
    behind, ahead = packet - start, table.run_end(packet, start) - packet
    if behind >= MIN_DEPTH and ahead >= MIN_DEPTH:
        return True
    return undisturbed and behind * ahead > (reorder_depth + 1) * table.num_frames


def join_jobs(jobs: Sequence[DecodeJob]) -> list[list[DecodeJob]]:
    """Returns jobs in parts that a decoder is fed in one go: it gets each packet that the whole video would give it."""
    parts: list[list[DecodeJob]] = []
    for job in sorted(jobs, key=lambda job: job.start):
        before = parts[-1][-1] if parts else None
        follows = before is not None and int(before.packets[-1]) + 1 == job.start == int(job.packets[0])
        if follows and sum(each.cost for each in parts[-1]) + job.cost <= MAX_JOINED:
            parts[-1].append(job)
        else:
            parts.append([job])
    return parts
