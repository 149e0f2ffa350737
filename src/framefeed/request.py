"""Runs a request: plans it, has an engine run the plan, and retries what damage has left out."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from framefeed._util.nvtx import PLAN
from framefeed.decode.engine import Engine
from framefeed.decode.run import Sink, decode_error
from framefeed.decode.session import Taker
from framefeed.index.video_index import VideoIndex
from framefeed.plan import Plan, join_jobs, plan_frames, plan_request, retry_job, retry_run
from framefeed.source import PacketSource

__all__ = ["ReadOn", "decode_frames", "decode_runs"]

ReadOn = bool | Callable[[bool], bool]
"""True if the frames that follow will probably be asked for next. A function is called with ``Lease.undisturbed``."""


def decode_frames(
    engine: Engine,
    index: VideoIndex,
    source: PacketSource,
    wanted: ArrayLike,
    sink: Sink,
    *,
    num_threads: int,
    read_on: ReadOn = False,
    long_groups: bool = False,
) -> Plan:
    """Decodes frames; ``sink(row, picture)`` gets each different one once, from any of the threads.

    Args:
        engine: Runs the plan.
        index: The video.
        source: Gives its packets.
        wanted: Frame numbers, in any order, repeated or not. Row i of the sink is ``wanted[i]``.
        sink: Takes the pictures. Rows of repeated frames are left to the caller, see ``Plan.copies``.
        num_threads: How many threads the request may use.
        read_on: Whether the frames that follow will probably be asked for next.
        long_groups: Whether the request has parts of long groups that will be read to their ends.

    Raises:
        DecodeError: A wanted frame could not be decoded exactly.
    """
    table, stream = index.packets, index.stream
    with engine.lease(index) as lease:
        with PLAN:
            plan = plan_request(
                table,
                stream.codec,
                wanted,
                lease.cursors,
                num_threads=num_threads,
                can_thread=num_threads > 1 and engine.factory.uses_threads(stream),
                read_on=read_on if isinstance(read_on, bool) else read_on(lease.undisturbed),
                long_groups=long_groups,
            )
        failed = engine.run(index, source, plan, sink, lease)
    reasons: dict[int, str] = {}
    for job, losses in failed:
        reasons |= engine.retry(index, source, retry_job(table, job, losses), sink)
    if reasons:
        raise decode_error(index, reasons)
    return plan


def decode_runs(
    engine: Engine, index: VideoIndex, source: PacketSource, wanted: ArrayLike, taker: Taker, *, num_threads: int
) -> Plan:
    """Decodes frames in whole runs, each different one once; for decoders whose pictures last a moment only.

    Args:
        engine: Runs the plan.
        index: The video.
        source: Gives its packets.
        wanted: Frame numbers, in any order, repeated or not. Row i of the taker is ``wanted[i]``.
        taker: Takes the pictures.
        num_threads: How many threads the request may use.

    Raises:
        DecodeError: A wanted frame could not be decoded exactly.
    """
    with PLAN:
        plan = plan_frames(index.packets, wanted)
        workers = min(num_threads + 1, len(plan.jobs)) if num_threads > 1 else 1
        parts = join_jobs(plan.jobs) if workers == 1 else [[job] for job in plan.jobs]
    reasons: dict[int, str] = {}
    for job, by_packets in engine.run_whole(index, source, parts, taker, workers):
        if by_packets:
            reasons |= engine.retry_whole(index, source, retry_run(index.packets, job), taker)
        else:
            reasons |= dict.fromkeys(job.wanted.tolist(), "its group does not decode as a whole on the GPU")
    if reasons:
        raise decode_error(index, reasons)
    return plan
