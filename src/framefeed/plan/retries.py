"""Retries after damage: which packets to feed next, to get every picture that can be had.

Each function is a generator. It yields what to run, receives what came of it, and returns the reasons of the pictures
that cannot be had. The order of attempts does not depend on what else was asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.plan.frames import job_of, with_whole_group
from framefeed.types import DecodeJob

__all__ = ["Attempt", "Losses", "Probed", "retry_job", "retry_run"]

Reasons = dict[int, str]
"""By packet, why its picture cannot be had."""


class Losses(NamedTuple):
    """Wanted pictures that a job did not deliver. Those that it delivered are whole.

    Attributes:
        missing: Their packets.
        blamed: The first packet that the decoder complained of, or a later one if the decoder reports late; None if it
            did not say.
        hopeless: By packet, what is wrong with those that cannot be had if that is right. The others may come out where
            the damaged packet is not fed.
    """

    missing: set[int]
    blamed: int | None
    hopeless: Reasons


class Probed(NamedTuple):
    """Outcome of feeding some packets of a run.

    Attributes:
        came: Packets whose pictures came out.
        refused: The packet that the decoder refused, if it did.
        damaged: By packet, what is wrong.
    """

    came: set[int]
    refused: int | None
    damaged: Reasons


class Attempt(NamedTuple):
    """Something to try on a decoder that takes whole runs.

    Attributes:
        kind: ``"run"`` feeds the job in one go and answers whether that worked; ``"packets"`` feeds it packet by packet
            and answers with `Losses`, or None; ``"probe"`` feeds its packets, keeps no picture, and answers `Probed`.
        job: What to feed.
    """

    kind: Literal["run", "packets", "probe"]
    job: DecodeJob


def retry_job(table: PacketTable, job: DecodeJob, losses: Losses) -> Generator[DecodeJob, Losses | None, Reasons]:
    """Gets the missing pictures of a job that can be had.

    A decoder that stumbles may lose whole pictures that it still held, and complain of a packet because of one that it
    was fed before. So pictures are asked for again in parts, in the end one by one. A damaged header may say that
    nothing refers to a picture, so the last attempt leaves none out.
    """
    slots = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
    rows = {packet: slots[packet] for packet in losses.missing}
    lost = {packet for packet in rows if int(table.flags[packet]) & PacketKind.LOST}
    reasons = dict.fromkeys(lost, "the stream is damaged near it, or packets are missing")
    rows = {packet: row for packet, row in rows.items() if packet not in lost}
    droppable = {packet for packet in rows if int(table.flags[packet]) & PacketKind.NONREF}
    others = {packet: row for packet, row in rows.items() if packet not in droppable}
    todo = [{packet: rows[packet] for packet in droppable}, others]
    while todo:
        rows = todo.pop()
        failed = (yield job_of(table, rows)) if rows else None
        if failed is None:
            continue
        missing = {packet: rows[packet] for packet in failed.missing}
        blamed = failed.blamed if failed.hopeless else None
        if len(rows) == 1:
            if (yield with_whole_group(table, job_of(table, rows))) is not None:
                reasons |= dict.fromkeys(rows, "the decoder gave no picture for it") | failed.hopeless
        elif blamed is not None and blamed <= min(droppable & rows.keys(), default=blamed):
            # Nothing was fed before it that would not be fed for any other picture.
            whole = yield with_whole_group(table, job_of(table, missing))
            if whole is not None:
                hopeless = failed.hopeless.keys() & whole.hopeless.keys()
                reasons |= {packet: failed.hopeless[packet] for packet in hopeless}
                todo += [{packet: missing[packet]} for packet in whole.missing - hopeless]
        else:
            if blamed is None:
                blamed = -1 if len(missing) < len(rows) else max(rows)
            todo += [{packet: row} for packet, row in missing.items() if packet <= blamed]
            todo.append({packet: row for packet, row in missing.items() if packet > blamed})
    return reasons


def retry_run(table: PacketTable, job: DecodeJob) -> Generator[Attempt, Any, Reasons]:
    """Gets the pictures of a run that can be had, from a decoder whose pictures have no numbers of their own."""
    damaged = yield from _find_damage(table, job)
    if not damaged:
        failed: Losses | None = yield Attempt("packets", job)
        if failed is None:
            return {}
        return dict.fromkeys(job.wanted.tolist(), "its group does not decode") | failed.hopeless
    first = min((n for n in damaged if not int(table.flags[n]) & PacketKind.NONREF), default=sys.maxsize)
    rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
    bad = {n: f"packet {first} is damaged ({damaged[first]})" for n in rows if n >= first}
    bad |= {n: f"its own data is damaged ({damaged[n]})" for n in rows if n in damaged}
    good = {n: row for n, row in rows.items() if n not in bad}
    if good and not (yield Attempt("run", job_of(table, good))):
        bad |= dict.fromkeys(good, "its group is damaged")
    return bad


def _find_damage(table: PacketTable, job: DecodeJob) -> Generator[Attempt, Probed, Reasons]:
    """Finds the packets of a job that are damaged, with what is wrong; decoders that conceal damage leave them out.

    A decoder that stumbles may lose pictures that it still held. So each that did not come is asked for again, without
    what follows it.
    """

    def probe(packets: NDArray[np.int64]) -> Attempt:
        return Attempt("probe", DecodeJob(job.start, packets, job.wanted, job.slots))

    # Frames only: leading pictures at the very start, which cannot be decoded, come out or not.
    shown = job.packets[np.isin(job.packets, table.frames)].tolist()
    damaged: Reasons = {}
    packets, came = job.packets, set[int]()
    while len(packets):
        found = yield probe(packets)
        came = found.came
        damaged |= found.damaged
        if found.refused is None:
            break
        packets = packets[packets < found.refused]  # with it went pictures that were still inside
    end = min(damaged, default=sys.maxsize)
    for number in [number for number in sorted(shown) if number not in came and number < end]:
        if number in came:
            continue
        found = yield probe(job.packets[(job.packets <= number) & ~np.isin(job.packets, list(damaged))])
        came |= found.came
        damaged |= found.damaged
        if number not in came:
            damaged.setdefault(number, "the decoder gave no picture for it")
        if any(n <= number and not int(table.flags[n]) & PacketKind.NONREF for n in damaged):
            break  # what follows may be built on it
    return damaged
