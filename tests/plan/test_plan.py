"""Plans deliver every wanted frame exactly once, from intact references, and feed no more than they must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framefeed.decode.engine import Engine
from framefeed.index.bitstream import PacketKind
from framefeed.plan import Cursor, plan_frames, random_frame_cost
from framefeed.plan.schedule import choose_wide_jobs
from framefeed.request import decode_frames
from framefeed.testing.fake_decoder import FakeFactory, FakePicture, fake_bytes
from plan.streams import MadeUpStream, index_of, streams


def _wanted(draw: st.DrawFn, count: int) -> list[int]:
    return draw(st.lists(st.integers(0, count - 1), max_size=2 * count))


@st.composite
def requests(draw: st.DrawFn) -> tuple[MadeUpStream, list[list[int]]]:
    stream = draw(streams())
    count = stream.table().num_frames
    return stream, [_wanted(draw, count) for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=300, deadline=None)
@given(requests())
def test_every_wanted_frame_is_decoded_once_from_intact_references(case: tuple[MadeUpStream, list[list[int]]]) -> None:
    stream, all_wanted = case
    table = stream.table()
    shown = {int(packet) for packet in table.frames}
    ranks = [rank if number in shown else None for number, rank in enumerate(stream.ranks)]
    for delay in (0, 2):
        factory = FakeFactory(stream.references, ranks, delay)
        engine = Engine(factory, max_threads=2)
        index = index_of(table)
        for request, wanted in enumerate(all_wanted):
            got: dict[int, FakePicture] = {}

            def sink(row: int, picture: FakePicture, got: dict[int, FakePicture] = got) -> None:
                assert row not in got
                got[row] = picture

            plan = decode_frames(engine, index, fake_bytes(), wanted, sink, num_threads=2, read_on=bool(request % 2))
            for source, target in plan.copies:
                got[target] = got[source]
            assert [got[row].packet for row in range(len(wanted))] == [int(table.frames[frame]) for frame in wanted]


@settings(max_examples=200, deadline=None)
@given(requests())
def test_no_packet_is_fed_in_vain(case: tuple[MadeUpStream, list[list[int]]]) -> None:
    stream, (wanted, *_) = case
    table = stream.table()
    plan = plan_frames(table, wanted)
    assert plan.num_rows == len(wanted)
    assert plan.num_wanted == len(set(wanted))
    for job in plan.jobs:
        assert (np.diff(job.packets) > 0).all()
        assert job.packets[0] == job.start
        assert job.packets[-1] == job.wanted[-1]  # nothing after the last wanted picture
        extra = np.setdiff1d(job.packets, job.wanted)
        assert not (table.flags[extra] & np.uint16(PacketKind.NONREF)).any()
        assert (table.start[job.wanted] == job.start).all()
    starts = [job.start for job in plan.jobs]
    assert len(starts) == len(set(starts))  # each group is decoded once


@settings(max_examples=200, deadline=None)
@given(streams())
def test_cost_of_a_random_frame_is_what_its_plan_feeds(stream: MadeUpStream) -> None:
    table = stream.table()
    costs = [plan_frames(table, [frame]).num_packets for frame in range(table.num_frames)]
    assert random_frame_cost(table).tolist() == costs


def test_all_frames_in_order_cost_little_more_than_one_packet_each() -> None:
    stream = MadeUpStream()
    for group in range(4):
        stream.add(int(PacketKind.RAP | PacketKind.CLOSED), group * 10, [])
        for place in range(1, 10):
            stream.add(0, group * 10 + place, [len(stream.kinds) - 1])
    plan = plan_frames(stream.table(), range(40))
    assert plan.cost == 1.0
    assert [job.cost for job in plan.jobs] == [10, 10, 10, 10]


def test_open_group_needs_the_group_before_for_its_leading_pictures() -> None:
    stream = MadeUpStream()
    closed, opened = int(PacketKind.RAP | PacketKind.CLOSED), int(PacketKind.RAP)
    stream.add(closed, 0, [])  # 0: I
    stream.add(0, 1, [0])  # 1: P
    stream.add(opened, 3, [])  # 2: I of the open group
    stream.add(int(PacketKind.NONREF), 2, [1, 2])  # 3: leading B
    stream.add(0, 4, [2])  # 4: P
    table = stream.table()
    assert table.start.tolist() == [0, 0, 2, 0, 2]
    leading = plan_frames(table, [2]).jobs[0]
    assert leading.packets.tolist() == [0, 1, 2, 3]
    trailing = plan_frames(table, [4]).jobs[0]
    assert trailing.packets.tolist() == [2, 4]


def test_a_group_goes_on_from_a_cursor() -> None:
    stream = MadeUpStream()
    stream.add(int(PacketKind.RAP | PacketKind.CLOSED), 0, [])
    for place in range(1, 10):
        stream.add(0, place, [place - 1])
    table = stream.table()
    cursor = {0: Cursor(5, frozenset({4}))}
    assert plan_frames(table, [6], cursor).jobs[0].packets.tolist() == [5, 6]
    assert plan_frames(table, [4], cursor).jobs[0].packets.tolist() == []  # already inside the decoder
    assert plan_frames(table, [3], cursor).jobs[0].packets.tolist() == [0, 1, 2, 3]  # it is gone: from the start


def test_second_field_is_fed_with_the_first() -> None:
    stream = MadeUpStream()
    stream.add(int(PacketKind.RAP | PacketKind.CLOSED), 0, [])
    stream.add(int(PacketKind.SECOND_FIELD), 1, [0])
    stream.add(0, 2, [0, 1])
    stream.add(int(PacketKind.SECOND_FIELD), 3, [2])
    table = stream.table()
    assert table.num_frames == 2
    assert plan_frames(table, [0]).jobs[0].packets.tolist() == [0, 1]


@pytest.mark.parametrize("wanted", [[10], [-1], [0, 99]])
def test_frames_that_are_not_there(wanted: list[int]) -> None:
    stream = MadeUpStream()
    stream.add(int(PacketKind.RAP | PacketKind.CLOSED), 0, [])
    with pytest.raises(IndexError):
        plan_frames(stream.table(), wanted)


@pytest.mark.parametrize(
    ("costs", "threads", "wide"),
    [
        ([100], 1, 0),
        ([100], 2, 1),  # one long group: all threads on it
        ([100, 100], 2, 0),
        ([100, 100, 100], 2, 0),  # three workers share two cores
        ([200, 20, 20], 2, 1),  # the long one first and wide, then the others
        ([30] * 10, 2, 0),
        ([5], 2, 0),  # too short to be worth it
        ([], 2, 0),
    ],
)
def test_wide_jobs(costs: list[int], threads: int, wide: int) -> None:
    assert choose_wide_jobs(costs, threads) == wide
