"""Retries after damage, answered by a made-up decoder."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.plan import Attempt, Losses, Probed, plan_frames, retry_job, retry_run
from framefeed.types import DecodeJob
from plan.streams import streams


class Decoder:
    """Loses the picture of a damaged packet and, if that is a reference, all that follow it in decode order."""

    def __init__(self, table: PacketTable, damaged: int) -> None:
        self._table = table
        self.damaged = damaged
        self.is_reference = not int(table.flags[damaged]) & PacketKind.NONREF
        self.delivered: dict[int, int] = {}
        self.attempts = 0

    def is_lost(self, packet: int) -> bool:
        return packet == self.damaged or (self.is_reference and packet > self.damaged)

    def run(self, job: DecodeJob) -> Losses | None:
        self.attempts += 1
        fed = self.damaged in job.packets.tolist()
        rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
        # A decoder that stumbles loses what it still held, too.
        missing = {packet for packet in rows if fed and packet >= self.damaged - 2}
        self.delivered |= {packet: row for packet, row in rows.items() if packet not in missing}
        if not missing:
            return None
        hopeless = {packet: "damaged" for packet in missing if self.is_lost(packet)}
        return Losses(missing, self.damaged, hopeless)

    def attempt(self, attempt: Attempt) -> Any:
        if attempt.kind == "packets":
            return self.run(attempt.job)
        if attempt.kind == "run":
            self.attempts += 1
            rows = dict(zip(attempt.job.wanted.tolist(), attempt.job.slots.tolist(), strict=True))
            worked = self.damaged not in attempt.job.packets.tolist()
            self.delivered |= rows if worked else {}
            return worked
        self.attempts += 1
        packets = attempt.job.packets.tolist()
        if self.damaged in packets:
            came = {packet for packet in packets if packet < self.damaged - 2}
            return Probed(came, self.damaged, {self.damaged: "damaged"})
        return Probed(set(packets), None, {})


def follow(attempts: Generator[Any, Any, dict[int, str]], answer: Any) -> dict[int, str]:
    outcome = None
    try:
        while True:
            outcome = answer(attempts.send(outcome))
    except StopIteration as end:
        reasons: dict[int, str] = end.value
        return reasons


@given(streams(), st.data())
def test_every_picture_that_can_be_had_comes(stream: Any, data: st.DataObject) -> None:
    table = stream.table()
    if not table.num_frames:
        return
    wanted = data.draw(st.lists(st.integers(0, table.num_frames - 1), min_size=1, unique=True))
    job = data.draw(st.sampled_from(plan_frames(table, wanted).jobs))
    rows = dict(zip(job.wanted.tolist(), job.slots.tolist(), strict=True))
    for by_runs in (False, True):
        decoder = Decoder(table, data.draw(st.sampled_from(job.packets.tolist())))
        if by_runs:
            reasons = follow(retry_run(table, job), decoder.attempt)
        else:
            losses = decoder.run(job)
            reasons = follow(retry_job(table, job, losses), decoder.run) if losses else {}
        assert reasons.keys() == {packet for packet in rows if decoder.is_lost(packet)}
        assert decoder.delivered == {packet: row for packet, row in rows.items() if packet not in reasons}
        assert decoder.attempts <= 4 * len(job.packets) + 4
