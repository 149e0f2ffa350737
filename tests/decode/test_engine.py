"""The engine with a fake decoder: damage stays where it is, and a session that failed is never used again."""

from __future__ import annotations

import pytest

from framefeed.decode.engine import Engine
from framefeed.errors import DecodeError
from framefeed.index.bitstream import PacketKind
from framefeed.request import decode_frames
from framefeed.testing.fake_decoder import FakeFactory, FakePicture, fake_bytes
from plan.streams import MadeUpStream, index_of


def _stream(groups: int = 3, length: int = 6) -> MadeUpStream:
    stream = MadeUpStream()
    for group in range(groups):
        stream.add(int(PacketKind.RAP | PacketKind.CLOSED), group * length, [])
        for place in range(1, length):
            stream.add(0, group * length + place, [group * length + place - 1])
    stream.mark_unreferenced()
    return stream


def _read(engine: Engine, stream: MadeUpStream, wanted: list[int], **options: bool) -> list[int]:
    got: dict[int, FakePicture] = {}
    decode_frames(engine, index_of(stream.table()), fake_bytes(), wanted, got.__setitem__, num_threads=2, **options)
    return [got[row].packet for row in range(len(wanted))]


def test_damage_in_one_group_leaves_the_others() -> None:
    stream = _stream()
    engine = Engine(FakeFactory(stream.references, stream.ranks, 1, broken=frozenset({8})), max_threads=2)
    assert _read(engine, stream, [0, 5, 17, 12]) == [0, 5, 17, 12]
    assert _read(engine, stream, [6, 7]) == [6, 7]  # before the damage, same group
    for bad in (8, 9, 11):
        with pytest.raises(DecodeError, match=f"frame {bad} cannot be decoded exactly") as caught:
            _read(engine, stream, [bad])
        assert caught.value.frame == bad
        assert caught.value.path == "<made up>"
    assert _read(engine, stream, [0, 5, 17, 12]) == [0, 5, 17, 12]


def test_error_names_the_first_frame_and_counts_the_others() -> None:
    stream = _stream()
    engine = Engine(FakeFactory(stream.references, stream.ranks, 0, broken=frozenset({8})), max_threads=2)
    with pytest.raises(DecodeError, match=r"frame 9 cannot be decoded exactly \(and 1 more"):
        _read(engine, stream, [10, 0, 9])


def test_damage_to_a_picture_nobody_refers_to_is_its_own() -> None:
    stream = _stream()
    last_of_group = 11
    assert stream.kinds[last_of_group] & PacketKind.NONREF
    engine = Engine(FakeFactory(stream.references, stream.ranks, 0, broken=frozenset({last_of_group})), max_threads=2)
    assert _read(engine, stream, list(range(6, 11))) == list(range(6, 11))
    with pytest.raises(DecodeError, match="frame 11"):
        _read(engine, stream, list(range(6, 12)))


def test_sessions_are_bounded_and_reused() -> None:
    stream = _stream(groups=20)
    engine = Engine(FakeFactory(stream.references, stream.ranks, 1), max_threads=2)
    for _ in range(5):
        assert _read(engine, stream, list(range(0, 120, 7))) == list(range(0, 120, 7))
    assert len(engine.pool) <= 4
    assert engine.pool.created <= 8


def test_reading_in_order_feeds_every_packet_once() -> None:
    stream = _stream(groups=4, length=10)
    factory = FakeFactory(stream.references, stream.ranks, 2)
    engine = Engine(factory, max_threads=1)
    index = index_of(stream.table())
    for frame in range(40):
        got: dict[int, FakePicture] = {}
        decode_frames(engine, index, fake_bytes(), [frame], got.__setitem__, num_threads=1, read_on=True)
        assert got[0].packet == frame
    assert sorted(factory.fed) == list(range(40))


def test_a_sink_that_raises_stops_the_request_and_leaves_the_engine_usable() -> None:
    stream = _stream()
    engine = Engine(FakeFactory(stream.references, stream.ranks), max_threads=2)

    def sink(row: int, picture: FakePicture) -> None:
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        decode_frames(engine, index_of(stream.table()), fake_bytes(), [0, 7, 13], sink, num_threads=2)
    assert _read(engine, stream, [0, 7, 13]) == [0, 7, 13]
